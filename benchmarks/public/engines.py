"""Engines, each in a process of its own that is kept, and what a piece of work costs one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import psutil

from benchmarks import java_peer as java_peer  # tests' helpers are found after it
from benchmarks.measuring import highest_memory
from benchmarks.public import python_sides
from support.java.live import SOURCES, JavaProgram, class_path, jars_of

JAVA = Path(__file__).parent / "java"
HEAP = "-Xmx2g"
WARM, ROUNDS = 3, 5
"""Rounds that do not count, because a JVM compiles what it runs, and those that do."""


class Program(Protocol):
    """A process that obeys commands."""

    @property
    def pid(self) -> int: ...

    def call(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Run one command."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Python:
    """A Python that calls functions of `python_sides`."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"))
        self.pid = self._pool.submit(os.getpid).result()

    def call(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Call a function."""
        found: dict[str, Any] = self._pool.submit(getattr(python_sides, do), **arguments).result()
        return found

    def close(self) -> None:
        """End it."""
        self._pool.shutdown()


class Java(JavaProgram):
    """A JVM that runs the program of a folder of `java/`, and compiles as well as it can.

    Args:
        folder: With the program of the same name.
        classes: Its class path.
    """

    def __init__(self, folder: str, classes: str) -> None:
        opened = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in _OPENED]
        super().__init__(folder.capitalize(), classes, HEAP, *opened)


def _compiled(folder: str, pom: Path) -> str:
    """The class path of a program of `java/`, with the jars that the `pom.xml` of another folder names."""
    jars = jars_of(pom)
    # Of the programs that the tests run, for its local files that are read through a buffer.
    harness, *_ = class_path().split(os.pathsep)
    common = os.pathsep.join((class_path(JAVA, jars=jars), harness))
    return os.pathsep.join((class_path(JAVA / folder, common, jars), common))


_OPENED = [f"java.{each}" for each in ("io", "lang", "lang.invoke", "lang.reflect", "net", "nio", "util")]
_OPENED += ["java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs"]
_OPENED += ["sun.security.action", "sun.util.calendar"]


@dataclass(frozen=True, slots=True)
class Engine:
    """One side.

    Attributes:
        name: In the report.
        program: Does the work.
        started: What it cost to start it until it was ready for work.
        arguments: Of each of its commands.
    """

    name: str
    program: Program
    started: Cost
    arguments: Mapping[str, Any]

    def run(self, do: str, **arguments: Any) -> Cost:
        """Run one command and say what it cost, without the end of a job that never ends by itself."""
        cost = _cost(self.program, partial(self.program.call, do, **self.arguments, **arguments))
        if self.name == FLINK:
            self.program.call("stop")
        return cost


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run took.

    Attributes:
        seconds: On the clock.
        processor: Processor seconds of the process and all below it.
        memory: The most MB that these held at once.
        answer: Of the command.
    """

    seconds: float
    processor: float
    memory: float
    answer: dict[str, Any]

    def from_first_record(self) -> Cost:
        """Without what it took until the first record came, for an engine that reports that."""
        return self.without(Cost(self.answer["first_clock"], self.answer["first_processor"], 0.0, {}))

    def without(self, part: Cost) -> Cost:
        """Without what a part of it took."""
        return Cost(self.seconds - part.seconds, self.processor - part.processor, self.memory, self.answer)


def _cost(program: Program, work: Any) -> Cost:
    _forget_highest_memory(program.pid)
    processor, begin = _processor(program.pid), time.perf_counter()
    answer = work()
    seconds = time.perf_counter() - begin
    return Cost(seconds, _processor(program.pid) - processor, _memory(program.pid), answer)


def _tree(pid: int) -> list[int]:
    root = psutil.Process(pid)
    return [pid, *(each.pid for each in root.children(recursive=True))]


def _forget_highest_memory(pid: int) -> None:
    for each in _tree(pid):
        Path(f"/proc/{each}/clear_refs").write_text("5")


def _processor(pid: int) -> float:
    """Seconds of these processes, to the nanosecond, and of those that have ended, to the hundredth."""
    ended = psutil.Process(pid).cpu_times()
    # The clock of another process: what `clock_getcpuclockid` of C gives.
    living = sum(time.clock_gettime((~each << 3) | 2) for each in _tree(pid))
    return living + ended.children_user + ended.children_system


def _memory(pid: int) -> float:
    return sum(highest_memory(each) for each in _tree(pid))


def _started(name: str, start: Any, **arguments: Any) -> Engine:
    begin = time.perf_counter()
    program = start()
    program.call("ready")
    seconds, processor = time.perf_counter() - begin, _processor(program.pid)
    return Engine(name, program, Cost(seconds, processor, _memory(program.pid), {}), arguments)


API, FLINK = "Java's API", "Flink"
_JVMS = {API: ("api", SOURCES), FLINK: ("flink", SOURCES / "flink")}
_PYTHONS = (python_sides.OURS, python_sides.PYPAIMON, python_sides.NATIVE_READER, python_sides.PYARROW)


def start(name: str) -> Engine:
    """Start the engine of this name."""
    if name in _JVMS:
        folder, pom = _JVMS[name]
        return _started(name, partial(Java, folder, _compiled(folder, pom)))
    return _started(name, Python, side=name)


ENGINES = (python_sides.OURS, *_JVMS, *_PYTHONS[1:])


@contextmanager
def engines(names: tuple[str, ...] = ENGINES) -> Iterator[dict[str, Engine]]:
    """All of them, started."""
    with ExitStack() as stack:
        found = {}
        for name in names:
            found[name] = start(name)
            stack.callback(found[name].program.close)
        yield found


def medians(costs: list[Cost]) -> Cost:
    """Of each part over several rounds."""
    return Cost(
        median(each.seconds for each in costs),
        median(each.processor for each in costs),
        median(each.memory for each in costs),
        costs[-1].answer,
    )
