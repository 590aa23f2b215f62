"""A copy of a database to DuckDB whose process is killed at one of its statements."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import duckdb
from databases import Database

from pypaimon.streaming import DuckDBDatabase, copy_database

_FORKS = multiprocessing.get_context("forkserver")


def run(warehouse: Path, file: Path, statement: int) -> int:
    """Copy until the latest snapshots, in a process that is killed before a statement; how it ended."""
    _FORKS.set_forkserver_preload([__name__])
    process = _FORKS.Process(target=_copy, args=(warehouse, file, statement), daemon=True)
    process.start()
    process.join(120)
    assert process.exitcode is not None
    return process.exitcode


def _copy(warehouse: Path, file: Path, statement: int) -> None:
    connection: Any = _Dying(duckdb.connect(str(file)), statement)
    target = DuckDBDatabase(connection, "copy", drop_columns=True)
    copy_database(Database(warehouse).catalog, "db", target, configure=lambda stream: stream.with_end(latest=True))


class _Dying:
    def __init__(self, connection: Any, statements: int) -> None:
        self._connection = connection
        self._left = statements

    def execute(self, *given: Any) -> Any:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._connection.execute(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)
