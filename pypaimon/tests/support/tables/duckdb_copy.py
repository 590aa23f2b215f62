"""A copy of a table in DuckDB: how it follows, and what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from pypaimon.streaming import DuckDBTarget, StreamReadBuilder
from support.tables.copied_table import COLUMNS, batches

KEYS = ["k"]


def held(database: Any, columns: Sequence[str] = COLUMNS) -> list[tuple[Any, ...]]:
    """All rows of the copy, each as often as it is there."""
    return sorted(database.execute(f"SELECT {', '.join(columns)} FROM copy").fetchall(), key=str)


def followed(database: Any, builder: StreamReadBuilder, keys: Sequence[str] = KEYS, **settings: Any) -> DuckDBTarget:
    """Go on where the copy stands, as the documentation says."""
    target = DuckDBTarget(database, "copy", keys)
    if (position := target.load_position()) is not None:
        builder.with_start(position=position)
    for batch in batches(builder, **settings):
        target.apply(batch)
    return target


class Copying:
    """A connection that keeps what is on disk at the moment of each statement: what is left if the program dies there.

    DuckDB writes to its files what is committed, and nothing but its process holds the rest.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._connection = duckdb.connect(str(file))
        self.moments: list[Path] = []
        self._seen: set[tuple[tuple[str, bytes], ...]] = set()

    def execute(self, query: str, *arguments: Any) -> Any:
        try:
            return self._connection.execute(query, *arguments)
        finally:
            self._keep()

    def _keep(self) -> None:
        """The files as they are now; those that are as they were at another moment need no second look."""
        files = sorted(self._file.parent.glob(f"{self._file.name}*"))
        content = tuple((path.name, path.read_bytes()) for path in files)
        if content not in self._seen:
            self._seen.add(content)
            moment = self._file.parent / f"moment-{len(self.moments)}"
            moment.mkdir()
            for name, data in content:
                (moment / name).write_bytes(data)
            self.moments.append(moment / self._file.name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class Interrupted(BaseException):
    """As Ctrl-C."""


class Interrupting:
    """A connection whose first COMMIT is interrupted, before or after DuckDB has done it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, done: bool) -> None:
        self._connection = connection
        self._done = done
        self._over = False

    def execute(self, query: str, *arguments: Any) -> Any:
        interrupts = query == "COMMIT" and not self._over
        if not interrupts or self._done:
            self._connection.execute(query, *arguments)
        if interrupts:
            self._over = True
            raise Interrupted
        return self._connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)
