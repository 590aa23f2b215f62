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
from typing import Any

from support.repository import TESTS, cached
from support.samples import IS_DIFFERENTIAL

SOURCES = TESTS / "live_java"
POM = SOURCES / "pom.xml"
COMMANDS = ("mvn", "javac", "java")
OTHER_JARS = "LIVE_JAVA_JARS"
HAS_OTHER_JARS = OTHER_JARS in os.environ
"""Whether it is another Paimon than the release, such as that of its sources."""
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


def class_path() -> str:
    """The harness and its jars, which Maven downloads and javac compiles at their first use on a machine.

    `LIVE_JAVA_JARS` names a directory with the jars of another Paimon, such as one that was built from its sources.
    """
    given, programs = os.environ.get(OTHER_JARS), sorted(SOURCES.glob("*.java"))
    jars = Path(given) if given else cached("jars", POM.read_bytes(), _download)

    def compile_to(directory: Path) -> None:
        run_command("javac", "-nowarn", "-d", directory, "-cp", f"{jars}/*", *programs)

    release = ",".join(sorted(path.name for path in jars.glob("paimon-*.jar"))).encode()
    sources = b"".join((release, *(path.read_bytes() for path in (POM, *programs))))
    return os.pathsep.join((str(cached("live-java", sources, compile_to)), f"{jars}/*"))


def _download(directory: Path) -> None:
    run_command("mvn", "-q", "-B", "-f", POM, "dependency:copy-dependencies", f"-DoutputDirectory={directory}")


def run_command(*command: str | Path) -> None:
    """Run a command, which must succeed."""
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


class LiveJava:
    """One JVM that obeys `live_java/Harness.java`; a context manager.

    Args:
        is_short_lived: Whether it ends before the best code that compilers can make would pay.
    """

    def __init__(self, is_short_lived: bool = not IS_DIFFERENTIAL) -> None:
        options = (*SHORT_LIVED, HEAP, "-Duser.timezone=UTC", "--add-opens=java.base/java.nio=ALL-UNNAMED")
        # A JVM does not look at TMPDIR.
        options = (*options, f"-Djava.io.tmpdir={tempfile.gettempdir()}")
        if is_short_lived:
            options = (*options, "-XX:TieredStopAtLevel=1")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the JVM
        self._process = subprocess.Popen(
            ("java", *options, "-cp", class_path(), "Harness"),
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

    def __enter__(self) -> LiveJava:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
