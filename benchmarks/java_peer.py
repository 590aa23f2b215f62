"""Live Java as the peer of compactions: one JVM, and the processor time that it has used."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "pypaimon" / "tests"))

from support.java.live import LiveJava, missing_commands
from support.stores.counting_file_io import CountingFileIO as CountingFileIO

NAME = "Java 1.4.2"
_TYPES = [["id", "BIGINT NOT NULL"], ["amount", "DOUBLE"], ["number", "INT"], ["name", "STRING"], ["day", "DATE"]]


def is_there() -> bool:
    """Whether this machine has what live Java needs."""
    return not missing_commands()


class JavaTable:
    """The table `d.t` of a warehouse, which live Java compacts; its columns are those of `benchmarks.tables.SCHEMA`.

    Args:
        java: The JVM.
        warehouse: An empty directory.
        keyed: Whether `id` is its primary key.
        options: Of the table.
    """

    def __init__(self, java: LiveJava, warehouse: Path, *, keyed: bool, options: dict[str, str]) -> None:
        self._java = java
        self._kept = warehouse.with_name(f"{warehouse.name}.kept")
        self._home = warehouse / "d.db" / "t"
        self._call = "cluster" if options.get("clustering.incremental") == "true" else "compact"
        java.call(
            "create",
            warehouse=str(warehouse),
            fields=_TYPES,
            partition_keys=[],
            primary_keys=["id"] if keyed else [],
            options={"write-only": "true", **options},
        )

    def keep(self) -> None:
        """Have `restore` come back to what it is now."""
        shutil.copytree(self._home, self._kept)

    def restore(self) -> None:
        """Make it what it was."""
        shutil.rmtree(self._home)
        shutil.copytree(self._kept, self._home)

    def compact(self) -> float:
        """Compact all of it by Java, on one thread; processor seconds of the JVM, its compilers among them."""
        process = psutil.Process(self._java.pid)
        before = _seconds(process)
        self._java.call(self._call, full=True, options={"write-only": "false"})
        return _seconds(process) - before


@contextmanager
def live_java() -> Iterator[LiveJava]:
    """A JVM that compiles as well as it can."""
    with LiveJava(is_short_lived=False) as java:
        yield java


def _seconds(process: Any) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
