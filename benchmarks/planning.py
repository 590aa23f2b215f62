"""Planning a table of many files: manifest entries per second of processor time."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from benchmarks import rust_peer
from benchmarks.measuring import Figure, in_turns, worked
from benchmarks.tables import catalog, commit, create, multiply_entries
from pypaimon.streaming import stream_read_builder

ENTRIES = 100_000
SCHEMA = pa.schema([("p", pa.int32()), ("v", pa.int64())])


def many_files(directory: Path) -> Any:
    """A catalog with the table `db.many`, whose one snapshot has `ENTRIES` files in 100 partitions; made once."""
    home = directory / "many"
    there = home.exists()
    warehouse = catalog(home)
    if not there:
        table = create(warehouse, "many", SCHEMA, partition_keys=["p"])
        commit(table, pa.table({"p": [0], "v": [1]}, schema=SCHEMA))
        multiply_entries(table, ENTRIES)
    return warehouse


def figures(directory: Path) -> list[Figure]:
    """All figures of this area. The objects of all files that are kept are made too, by us as by pypaimon."""
    warehouse = many_files(directory)
    found = [_figure(warehouse, ENTRIES // 100, "1 % kept"), _figure(warehouse, ENTRIES, "all kept")]
    if rust_peer.is_there():
        native = rust_peer.table(directory / "many", "many")
        native_rate = ENTRIES / median(in_turns({"native": lambda: rust_peer.splits(native)})["native"])
        last = found[-1]
        name = rust_peer.name()
        found.append(Figure(last.measure, last.ours, last.unit, "-", None, native_rate, name, more_is_better=True))
        # It also makes no Python objects.
        rate = ENTRIES / median(in_turns({"ours": lambda: _splits(warehouse)})["ours"])
        measure = f"planning {ENTRIES:,} entries, splits alone"
        found.append(Figure(measure, rate, last.unit, "-", None, native_rate, name, more_is_better=True))
    return found


def _figure(warehouse: Any, kept: int, share: str) -> Figure:
    rate = ENTRIES / median(in_turns({"ours": lambda: _ours(warehouse, kept)})["ours"])
    native_rate = ENTRIES / worked(lambda: _peer(warehouse, kept))
    met = rate >= 100_000 if kept < ENTRIES else rate >= 10 * native_rate
    goal = "100,000/s" if kept < ENTRIES else "10 x"
    measure = f"planning {ENTRIES:,} entries, {share}"
    return Figure(measure, rate, "entries/s", goal, met, native_rate, more_is_better=True)


def _ours(warehouse: Any, kept: int) -> None:
    builder = stream_read_builder(warehouse.get_table("db.many"))
    if kept < ENTRIES:
        builder.with_filter(builder.new_predicate_builder().equal("p", 7))
    plan = builder.new_streaming_scan().plan()
    assert plan is not None
    assert sum(len(split.files) for split in plan.splits()) == kept


def _splits(warehouse: Any) -> None:
    plan = stream_read_builder(warehouse.get_table("db.many")).new_streaming_scan().plan()
    assert plan is not None
    assert sum(split.row_count for split in plan.splits()) == ENTRIES


def _peer(warehouse: Any, kept: int) -> None:
    builder = warehouse.get_table("db.many").new_read_builder()
    if kept < ENTRIES:
        builder = builder.with_filter(builder.new_predicate_builder().equal("p", 7))
    splits = builder.new_scan().plan().splits()
    assert sum(len(split.files) for split in splits) == kept
