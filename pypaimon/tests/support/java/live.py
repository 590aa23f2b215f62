"""A live Java Paimon: its jars from Maven, one JVM for many histories, commands and answers as JSON lines."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from support.repository import TESTS

SOURCES = TESTS / "live_java"
COMMANDS = ("mvn", "javac", "java")
HEAP = "-Xmx1g"


class JavaError(Exception):
    """Java refused or failed a command.

    Attributes:
        kind: Simple name of the Java exception.
    """

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(f"{error['class']}: {error['message']} (cause: {error['cause']}; at {error.get('trace')})")
        self.kind = error["class"].rpartition(".")[2]


def missing_commands(path: str | None = None) -> list[str]:
    """What a live Java needs and is not on the search path (of the machine, unless another is given)."""
    return [name for name in COMMANDS if shutil.which(name, path=path) is None]


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Where jars and classes are kept between runs: outside the checkout, one directory per version of the harness."""
    base = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    text = b"".join(path.read_bytes() for path in (SOURCES / "pom.xml", *_programs()))
    return base / "pypaimon-streaming" / f"live-java-{hashlib.sha256(text).hexdigest()[:16]}"


def prepare(directory: Path) -> str:
    """The class path of the harness: jars copied by Maven and classes compiled at the first use, later only found."""
    jars = directory.parent / f"jars-{hashlib.sha256((SOURCES / 'pom.xml').read_bytes()).hexdigest()[:16]}"
    jars.parent.mkdir(parents=True, exist_ok=True)
    if not jars.exists():
        _build(jars, lambda draft: ("mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), *_copy_to(draft)))
    if not directory.exists():
        sources = [str(path) for path in _programs()]
        _build(directory, lambda draft: ("javac", "-nowarn", "-d", str(draft), "-cp", f"{jars}/*", *sources))
    return os.pathsep.join((str(directory), f"{jars}/*"))


def _programs() -> list[Path]:
    return sorted(SOURCES.glob("*.java"))


def _copy_to(directory: Path) -> tuple[str, ...]:
    return ("dependency:copy-dependencies", f"-DoutputDirectory={directory}")


def _build(target: Path, command: Any) -> None:
    """Runs a command that fills a directory, which appears as a whole or not at all."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        draft = Path(scratch) / "draft"
        draft.mkdir()
        subprocess.run(command(draft), check=True, stdin=subprocess.DEVNULL)
        try:
            draft.rename(target)
        except OSError:
            if not target.exists():
                raise


class LiveJava:
    """One JVM that obeys `live_java/Harness.java`; a context manager."""

    def __init__(self) -> None:
        class_path = prepare(cache_directory())
        options = (HEAP, "-XX:+UseSerialGC", "-Duser.timezone=UTC", "--add-opens=java.base/java.nio=ALL-UNNAMED")
        if "DIFFERENTIAL_HISTORIES" not in os.environ:
            # It ends before the best code that compilers can make would pay.
            options = (*options, "-XX:TieredStopAtLevel=1")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the JVM
        self._process = subprocess.Popen(
            ("java", *options, "-cp", class_path, "Harness"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
        )

    @property
    def pid(self) -> int:
        """The process of the JVM."""
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
        """Ends the JVM."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> LiveJava:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
