"""Maintenance of tables with very many files: processor time and memory of a process.

As a command it plans one run, is killed in one, finishes that one, or looks for orphans, and prints processor seconds,
MB at the highest, and files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileType

from benchmarks.measuring import Figure, highest_memory
from benchmarks.tables import SCHEMA, catalog, commit, create, delete_entries, multiply_entries, some_rows
from pypaimon.streaming import MaintenancePolicy, maintain

FILES, PARTITIONS, BUCKETS = 1_000_000, 100, 10
_LONG_AGO = datetime(2020, 1, 1, tzinfo=timezone.utc)


def figures(directory: Path) -> list[Figure]:
    """All figures of this area."""
    make(directory, FILES)
    found = []
    for what, name in (
        ("expiry", "expiry"),
        ("expiry up to the first deleted file", "killed"),
        ("deleting the rest", "resumed"),
        ("orphan cleaning", "orphans"),
    ):
        command = [sys.executable, "-m", "benchmarks.maintaining", str(directory), name]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        seconds, memory, files = map(float, printed.split())
        assert files >= FILES
        rate, title = FILES / seconds, f"{what} of {FILES:,} files, as many live ones"
        found += [
            Figure(title, rate, "files/s", "20,000/s", rate >= 20_000, more_is_better=True),
            Figure(f"{title}, memory of the process", memory, "MB", "1,000 MB", memory <= 1000),
        ]
    return found


def make(directory: Path, files: int) -> None:
    """A table of this many live files, and of as many that its second snapshot has deleted (metadata only)."""
    schema = pa.schema([pa.field("p", pa.int32(), nullable=False), *SCHEMA])
    row = some_rows(1).add_column(0, schema.field(0), pa.array([0], pa.int32()))
    options = {"bucket": str(BUCKETS)}
    table = create(catalog(directory), "t", schema, partition_keys=["p"], primary_keys=["p", "id"], options=options)
    commit(table, row)
    multiply_entries(table, 2 * files, PARTITIONS, BUCKETS)
    delete_entries(table, files)


class _WithOrphans:
    """A FileIO that lists orphans in each bucket."""

    def __init__(self, file_io: Any, root: str, each: int) -> None:
        self._file_io = file_io
        self._root = root.rstrip("/")
        self._each = each

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file_io, name)

    def list_status(self, path: str) -> list[Any]:
        """Partitions, their buckets, and orphans in these."""
        below = path.removeprefix(self._root).strip("/")
        if not below:
            return [_status(f"{path}/p={number}", FileType.Directory) for number in range(PARTITIONS)]
        if not below.startswith("p="):
            return list(self._file_io.list_status(path))
        if "/" not in below:
            return [_status(f"{path}/bucket-{number}", FileType.Directory) for number in range(BUCKETS)]
        start = hash(path) % 10**12
        return [_status(f"{path}/data-{start:036d}-{number}.parquet", FileType.File) for number in range(self._each)]


class _WithoutDataFiles:
    """A FileIO that deletes data files which were never written.

    Args:
        file_io: Has the other files.
        is_killed: Whether the process is killed at the first of them.
    """

    def __init__(self, file_io: Any, is_killed: bool) -> None:
        self._file_io = file_io
        self._is_killed = is_killed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file_io, name)

    def delete(self, path: str, recursive: bool = False) -> Any:
        """Delete a file."""
        if "/bucket-" not in path:
            return self._file_io.delete(path, recursive)
        if self._is_killed:
            raise KeyboardInterrupt
        return True


def _status(path: str, kind: FileType) -> Any:
    return SimpleNamespace(path=path, size=1000, mtime=_LONG_AGO, type=kind)


def main(warehouse: str, what: str) -> None:
    """Plan a run, be killed in one, finish that one, or plan one that finds as many orphans as there are live files."""
    table = catalog(warehouse).get_table("db.t")
    policy = MaintenancePolicy(min_snapshots=1, max_snapshots=1)
    if what == "orphans":
        table.file_io = _WithOrphans(table.file_io, str(table.table_path), FILES // (PARTITIONS * BUCKETS))
        policy = MaintenancePolicy(orphan_age=86_400)
    if what == "resumed":
        # The plan of a killed run stays for 15 minutes, because the run may still be alive, and later runs would try
        # its files again.
        for path in (Path(str(table.table_path)) / "consumer").glob("maintenance-*"):
            os.utime(path, times=(_LONG_AGO.timestamp(),) * 2)
    if what in ("killed", "resumed"):
        table.file_io = _WithoutDataFiles(table.file_io, what == "killed")
    begin, files = time.process_time(), FILES
    with suppress(KeyboardInterrupt):
        report = maintain(table, policy, dry_run=what in ("expiry", "orphans"))
        files = len(report.plan.files) + report.resumed
        assert what == "resumed" or not report.resumed
    sys.stdout.write(f"{time.process_time() - begin} {highest_memory()} {files}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
