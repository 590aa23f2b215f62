"""A REST catalog of Java Paimon over a directory, in a JVM of its own: the one that Paimon's tests run."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType

from support.java.live import SHORT_LIVED, SOURCES, class_path


class JavaRestCatalog:
    """The server; a context manager.

    It keeps the latest snapshot of a table in memory, and knows none of a branch, for which it gives that of main.

    Attributes:
        options: The options of a catalog of pypaimon that asks it.
    """

    def __init__(self, warehouse: Path) -> None:
        paths = class_path(SOURCES / "rest", class_path())
        command = ("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", *SHORT_LIVED)
        self._process = subprocess.Popen(
            (*command, "-cp", paths, "RestCatalog", str(warehouse)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.options = {
            "metastore": "rest",
            "uri": self._process.stdout.readline().strip(),
            "warehouse": "lake",
            "token.provider": "bear",
            "token": "token",
        }

    def __enter__(self) -> JavaRestCatalog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
