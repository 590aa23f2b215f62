"""A copy of a database that goes on for ever in a process of its own, which is killed at one of its steps."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import duckdb

from pypaimon.streaming import DuckDBDatabase, PaimonDatabase, copy_database
from pypaimon.streaming.databases import DatabaseTarget
from support.crash.steps import Steps
from support.tables.databases import Database

_FORKS = multiprocessing.get_context("forkserver")
_CHANGES_OF_FILES = ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir")


def to_duckdb(file: Path, steps: Steps | None = None) -> DatabaseTarget:
    """The schema `copy` of a file, whose statements are the steps."""
    connection: Any = duckdb.connect(str(file))
    return DuckDBDatabase(connection if steps is None else _Counted(connection, steps), "copy", drop_columns=True)


def to_warehouse(warehouse: Path, steps: Steps | None = None) -> DatabaseTarget:
    """The database `db` of a warehouse, where what changes files there are the steps."""

    def on_event(event: str, given: tuple[Any, ...]) -> None:
        is_read = event == "open" and "r" in str(given[1])
        if event in _CHANGES_OF_FILES and not is_read and str(given[0]).startswith(f"{warehouse}/"):
            steps()

    if steps is not None:
        sys.addaudithook(on_event)
    return PaimonDatabase(Database(warehouse).catalog, "db", on_drop="drop")


def start(warehouse: Path, target: Callable[[Path, Steps], DatabaseTarget], place: Path, number: int) -> BaseProcess:
    """Copy the database `db` of a warehouse, in a process that is killed at a step."""
    _FORKS.set_forkserver_preload([__name__])
    process = _FORKS.Process(target=_copy, args=(warehouse, target, place, number), daemon=True)
    process.start()
    return process


def _copy(warehouse: Path, target: Callable[[Path, Steps], DatabaseTarget], place: Path, number: int) -> None:
    source = Database(warehouse)
    copy_database(
        source.catalog,
        "db",
        target(place, Steps(number)),
        configure=lambda stream: stream.with_poll_interval_ms(10).with_discovery_interval(0.05),
    )


class _Counted:
    def __init__(self, connection: Any, steps: Steps) -> None:
        self._connection = connection
        self._steps = steps

    def execute(self, *given: Any) -> Any:
        self._steps()
        return self._connection.execute(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)
