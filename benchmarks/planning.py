"""Planning a table of many files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.measuring import Figure, timed
from benchmarks.tables import catalog, commit, create, multiply_entries
from pypaimon.streaming import stream_read_builder

ENTRIES = 100_000
SCHEMA = pa.schema([("p", pa.int32()), ("v", pa.int64())])


def many_files(directory: Path) -> Any:
    """A catalog with the table `db.many`, whose one snapshot has `ENTRIES` files in 100 partitions."""
    warehouse = catalog(directory / "planning")
    table = create(warehouse, "many", SCHEMA, partition_keys=["p"])
    commit(table, pa.table({"p": [0], "v": [1]}, schema=SCHEMA))
    multiply_entries(table, ENTRIES)
    return warehouse


def figures(directory: Path) -> list[Figure]:
    """All figures of this room."""
    warehouse = many_files(directory)
    return [_figure(warehouse, ENTRIES // 100, "1 % kept"), _figure(warehouse, ENTRIES, "all kept")]


def _figure(warehouse: Any, kept: int, share: str) -> Figure:
    rate = ENTRIES / min(timed(lambda: _ours(warehouse, kept)) for _ in range(3))
    beside = ENTRIES / timed(lambda: _peer(warehouse, kept))
    met = rate >= 100_000 if kept < ENTRIES else rate >= 10 * beside
    goal = "100,000/s" if kept < ENTRIES else "10 x"
    measure = f"planning {ENTRIES:,} entries, {share}"
    return Figure(measure, rate, "entries/s", goal, met, beside, more_is_better=True)


def _ours(warehouse: Any, kept: int) -> None:
    builder = stream_read_builder(warehouse.get_table("db.many"))
    if kept < ENTRIES:
        builder.with_filter(builder.new_predicate_builder().equal("p", 7))
    plan = builder.new_streaming_scan().plan()
    assert plan is not None
    assert sum(len(split.files) for split in plan.splits()) == kept


def _peer(warehouse: Any, kept: int) -> None:
    builder = warehouse.get_table("db.many").new_read_builder()
    if kept < ENTRIES:
        builder = builder.with_filter(builder.new_predicate_builder().equal("p", 7))
    splits = builder.new_scan().plan().splits()
    assert sum(len(split.files) for split in splits) == kept
