"""A live Java Paimon: its jars from Maven, one JVM for many histories, commands and answers as JSON lines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from support.repository import TESTS, cached
from support.samples import IS_LONG

SOURCES = TESTS / "live_java"
COMMANDS = ("mvn", "javac", "java")
OTHER_JARS = Path(found) if (found := os.environ.get("LIVE_JAVA_JARS")) else None
"""The jars of another Paimon than the release, such as one that was built from its sources."""
HEAP = "-Xmx1g"
SHORT_LIVED = (
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
"""Options of a JVM for some minutes. Its classes are those that were released: verifying them is a fifteenth of all."""


class JavaError(Exception):
    """Java refused or failed a command."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(f"{error['class']}: {error['message']} (cause: {error['cause']}; at {error.get('trace')})")
        self.kind = error["class"].rpartition(".")[2]


def missing_commands(path: str | None = None) -> list[str]:
    """What a live Java needs and is not on the search path (of the machine, unless another is given)."""
    return [name for name in COMMANDS if shutil.which(name, path=path) is None]


def class_path(folder: Path = SOURCES, others: str = "", jars: Path | None = None) -> str:
    """The programs of a folder, compiled at their first use on a machine, and their jars.

    Args:
        folder: It has the programs, and unless `jars` is given the `pom.xml` that names the jars.
        others: A class path that the programs need in addition.
        jars: A directory with other jars than those of the `pom.xml`.
    """
    release = "" if jars is None else ",".join(sorted(path.name for path in jars.glob("paimon-*.jar")))
    needed = os.pathsep.join(filter(None, (others, f"{jars or jars_of(folder)}/*")))
    programs = sorted(folder.glob("*.java"))
    sources = b"".join((release.encode(), *(path.read_bytes() for path in (*folder.glob("pom.xml"), *programs))))
    compiler = ("javac", "-nowarn", "-cp", needed, "-d")
    classes = cached(f"{folder.name}-classes", sources, lambda target: run_command(*compiler, target, *programs))
    return os.pathsep.join((str(classes), needed))


def jars_of(folder: Path) -> Path:
    """The directory of the jars that the `pom.xml` of a folder names, which Maven downloads once on a machine."""
    pom = folder / "pom.xml"
    goal = ("mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies")
    return cached(
        f"{folder.name}-jars", pom.read_bytes(), lambda target: run_command(*goal, f"-DoutputDirectory={target}")
    )


def run_command(*command: str | Path) -> None:
    """Run a command, which must succeed."""
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


P = TypeVar("P", bound="JavaProgram")


class JavaProgram:
    """A JVM that obeys commands as JSON lines; a context manager.

    Args:
        name: The class that runs.
        class_path: Where it and its jars are.
        options: Options of the JVM.
    """

    def __init__(self, name: str, class_path: str, *options: str) -> None:
        # What Java's readers and writers spill stays where they leave it. A JVM does not look at TMPDIR.
        self._scratch = tempfile.TemporaryDirectory(prefix="java-")
        options = (*SHORT_LIVED, *options, "-Duser.timezone=UTC", f"-Djava.io.tmpdir={self._scratch.name}")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the JVM
        self._process = subprocess.Popen(
            ("java", *options, "-cp", class_path, name),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Runs one command and returns its answer.

        Raises:
            JavaError: Java raised.
            RuntimeError: The JVM has ended.
        """
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"the JVM ended with {process.wait()}: {self._errors.read()[-2000:].decode()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise JavaError(answer["error"])
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()
        self._scratch.cleanup()

    def __enter__(self: P) -> P:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LiveJava(JavaProgram):
    """One JVM that obeys `live_java/Harness.java`.

    Args:
        is_short_lived: Whether it ends before the best code that compilers can make would pay.
    """

    def __init__(self, is_short_lived: bool = not IS_LONG) -> None:
        options = (HEAP, "--add-opens=java.base/java.nio=ALL-UNNAMED")
        if is_short_lived:
            options = (*options, "-XX:TieredStopAtLevel=1")
        super().__init__("Harness", class_path(jars=OTHER_JARS), *options)
