"""A table of keys and values that is copied elsewhere: its streams and its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pypaimon.streaming import BlockingBatch, Position, StreamReadBuilder
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
    """All batches of a stream."""
    with builder.open_sync(**settings) as opened:
        return list(opened)


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    """The rows of the table without their kinds."""
    return sorted_rows(table.handle(), COLUMNS)


def copying(builder: StreamReadBuilder, copied: Position | None) -> StreamReadBuilder:
    """A builder of the stream that keeps a copy equal to its table, from where the copy stands."""
    return set_spec(builder.copy(), spec_for_copy(resolved(builder), copied))
