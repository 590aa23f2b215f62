"""A table of keys and values that is copied elsewhere, and a copy of it in DuckDB: streams, rows, interruptions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from pypaimon.streaming import BlockingBatch, DuckDBTarget, Position, StreamReadBuilder
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.spec.copy_start import spec_for_copy
from pypaimon.streaming.spec.spec_builder import resolved, set_spec
from support.tables.handles import sorted_rows
from support.tables.streamed_table import Table

COLUMNS = ["k", "v"]


def keyed(home: Path, **options: str) -> Table:
    """Ten keys in two buckets, of which some are changed and deleted later: three snapshots."""
    table = Table(home, primary_key=True, **options)
    table.commit(range(10))
    table.commit([("+U", 1, "changed"), ("-D", 2, "v2"), ("-D", 3, "v3")])
    table.commit([("-D", 4, "v4"), ("+I", 2, "again")])
    return table


def changed(table: Table) -> None:
    """Make two more commits and expire the first, so that a reader that has not read it needs the state."""
    table.commit([("-D", 0, "v0"), ("+U", 1, "twice")])
    table.commit([("-D", 9, "v9"), ("+I", 20, "v20")])
    table.expire(table.latest())


def stream(table: Table, **options: str) -> StreamReadBuilder:
    """A stream of the state that ends at the latest snapshot."""
    return table.builder(**options).with_projection(COLUMNS).with_end(latest=True)


def at(table: Table, snapshot_id: int) -> Position:
    """The position before a snapshot."""
    return Position(TableDirectory.of(table.handle()).identity, snapshot_id)


def batches(builder: StreamReadBuilder, **settings: Any) -> list[BlockingBatch]:
    with builder.open_sync(**settings) as opened:
        return list(opened)


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    return sorted_rows(table.handle(), COLUMNS)


def copying(builder: StreamReadBuilder, copied: Position | None) -> StreamReadBuilder:
    """A builder of the stream that keeps a copy equal to its table, from where the copy stands."""
    return set_spec(builder.copy(), spec_for_copy(resolved(builder), copied))


KEYS = ["k"]


def held(database: Any, columns: Sequence[str] = COLUMNS) -> list[tuple[Any, ...]]:
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
