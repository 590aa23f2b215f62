"""An OVERWRITE of a table with a primary key: what it took away comes first, whatever buckets keys and files are in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    DictTarget,
    Position,
    StreamReadBuilder,
    compact,
    rollback,
    stream_read_builder,
    stream_write_builder,
)
from pypaimon.streaming.testing import SmallTable
from pypaimon.streaming.testing.small_table import COLUMNS
from support.tables.handles import write_by_pypaimon, write_with

pytestmark = pytest.mark.slow

KEYS = 40


def overwritten(table: SmallTable, rows: list[dict[str, Any]]) -> None:
    write_by_pypaimon(table.table, pa.Table.from_pylist(rows, schema=COLUMNS), overwrite=True)


@pytest.fixture
def rescaled(tmp_path: Path) -> SmallTable:
    """A table of one bucket, overwritten with three, two, four and one, a key less each time."""
    table = SmallTable(tmp_path, options={"bucket": "1"})
    table.commit(*({"id": number, "name": "first"} for number in range(KEYS)))
    for gone, buckets in enumerate((3, 2, 4, 1), 1):
        table.alter(SchemaChange.set_option("bucket", str(buckets)))
        overwritten(table, [{"id": number, "name": f"of {buckets}"} for number in range(gone, KEYS)])
    return table


def stream(table: SmallTable) -> StreamReadBuilder:
    builder = stream_read_builder(table.table).with_start("earliest").with_end(latest=True).with_catch_up("replay")
    return builder.with_on_overwrite("read").with_on_schema_change("follow")


@pytest.mark.parametrize("limits", [{}, {"max_splits": 1}, {"max_rows": 1}], ids=str)
def test_a_plan_takes_away_first_whatever_limits_say(rescaled: SmallTable, limits: dict[str, int]) -> None:
    builder = stream(rescaled).with_limits(**limits)
    read = builder.new_read()
    kinds, keys = dict[int, list[str]](), dict[int, list[int]]()
    for plan in builder.new_streaming_scan().stream_sync():
        rows = read.to_arrow(plan.splits())
        kinds.setdefault(plan.snapshot_id, []).extend(rows["_row_kind"].to_pylist())
        keys.setdefault(plan.snapshot_id, []).extend(rows["id"].to_pylist())
    del kinds[1], keys[1]
    assert list(kinds) == [2, 3, 4, 5]
    for gone, number in enumerate(kinds):
        left = KEYS - gone
        assert kinds[number] == ["-D"] * left + ["+I"] * (left - 1)
        assert sorted(keys[number][:left]) == [*range(gone, KEYS)]
        assert sorted(keys[number][left:]) == [*range(gone + 1, KEYS)]


def test_plans_that_are_read_together_stay_one_after_the_other(rescaled: SmallTable) -> None:
    builder = stream(rescaled)
    with builder.new_streaming_scan() as scan:
        splits = [split for plan in scan.stream_sync() for split in plan.splits()]
    rows = builder.new_read().to_arrow(splits)
    kinds = ["+I"] * KEYS
    for gone in range(1, 5):
        kinds += ["-D"] * (KEYS - gone + 1) + ["+I"] * (KEYS - gone)
    assert rows["_row_kind"].to_pylist() == kinds


@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
def test_applied_batches_give_the_rows(rescaled: SmallTable, batch_bytes: int) -> None:
    target = DictTarget("id")
    with stream(rescaled).open_sync(batch_bytes=batch_bytes) as batches:
        for batch in batches:
            target.apply(batch)
    assert {key: row["name"] for key, row in target.rows.items()} == dict.fromkeys(range(4, KEYS), "of 1")


def test_a_stream_continues_after_it(rescaled: SmallTable) -> None:
    target = DictTarget("id")
    position: Position | None = None
    for snapshot in range(1, 6):
        start = {} if position is None else {"position": position}
        builder = stream(rescaled).with_end(snapshot_id=snapshot)
        with (builder.with_start(**start) if start else builder).open_sync() as batches:
            for batch in batches:
                target.apply(batch)
                position = batch.plan_after
    assert sorted(target.rows) == [*range(4, KEYS)]


@pytest.mark.parametrize("buckets", ["2", "-1"])
def test_keys_of_dynamic_buckets_are_taken_away_before_they_are_brought(tmp_path: Path, buckets: str) -> None:
    table = SmallTable(tmp_path, options={"bucket": "-1", "dynamic-bucket.target-row-num": "9"})
    table.commit(*({"id": number, "name": "first"} for number in range(KEYS)))
    table.alter(SchemaChange.set_option("bucket", buckets))
    rows = pa.Table.from_pylist([{"id": number, "name": "second"} for number in reversed(range(KEYS))], COLUMNS)
    write_with(stream_write_builder(table.table).with_overwrite(), rows)
    # Whose stream is made later knows the buckets of then.
    table.alter(SchemaChange.set_option("bucket", "3"))
    with stream(table).open_sync() as batches:
        kinds = [kind for batch in batches for kind in batch.data["_row_kind"].to_pylist()]
    assert kinds == ["+I"] * KEYS + ["-D"] * KEYS + ["+I"] * KEYS


def test_buckets_that_stay_are_parts_of_their_own(tmp_path: Path) -> None:
    table = SmallTable(tmp_path, options={"bucket": "4"})
    table.commit(*({"id": number, "name": "first"} for number in range(KEYS)))
    overwritten(table, [{"id": number, "name": "second"} for number in range(1, KEYS)])
    builder = stream(table).with_limits(max_splits=1)
    with builder.new_streaming_scan() as scan:
        plans = [plan for plan in scan.stream_sync() if plan.snapshot_id == 2]
    assert len(plans) == 4
    target = DictTarget("id")
    with builder.open_sync() as batches:
        for batch in batches:
            target.apply(batch)
    assert sorted(target.rows) == [*range(1, KEYS)]


@pytest.mark.parametrize("vectors", ["false", "true"])
@pytest.mark.parametrize("producer", ["input", "none"])
@pytest.mark.parametrize("buckets", ["1", "2", "-1", "-2"])
@pytest.mark.parametrize("limits", [{}, {"max_splits": 1}], ids=str)
def test_rows_that_removed_files_hid_are_there_again(
    tmp_path: Path, vectors: str, producer: str, buckets: str, limits: dict[str, int]
) -> None:
    options = {"bucket": buckets, "changelog-producer": producer, "deletion-vectors.enabled": vectors}
    table = SmallTable(tmp_path, options=options)
    table.commit({"id": 1, "name": "first"}, {"id": 2, "name": "first"}, {"id": 8, "name": "first"})
    compact(table.table)  # out of bucket -2
    first = table.rows()
    latest = table.commit({"id": 2, "name": "second"}, {"id": 3, "name": "second"}, ("-D", {"id": 1}))
    rollback(table.table, snapshot_id=latest - 1, as_latest=True)
    target = DictTarget("id")
    with stream(table).with_limits(**limits).open_sync() as batches:
        for batch in batches:
            target.apply(batch)
    assert {key: row["name"] for key, row in target.rows.items()} == {row["id"]: row["name"] for row in first}


def state_at(table: SmallTable, snapshot_id: int) -> Counter[tuple[Any, ...]]:
    builder = stream(table).with_start(snapshot_id=snapshot_id, full=True).with_end(snapshot_id=snapshot_id)
    with builder.open_sync() as batches:
        return Counter(tuple(row.values()) for batch in batches for row in batch.rows.to_pylist())


def changes_of(table: SmallTable, snapshot_id: int) -> Counter[tuple[Any, ...]]:
    """How often each whole row comes, minus how often it is retracted."""
    found = Counter[tuple[Any, ...]]()
    builder = stream(table).with_start(snapshot_id=snapshot_id).with_end(snapshot_id=snapshot_id)
    with builder.open_sync() as batches:
        for row in (row for batch in batches for row in batch.data.to_pylist()):
            kind = row.pop("_row_kind")
            found[tuple(row.values())] += 1 if kind in ("+I", "+U") else -1
    return found


@pytest.mark.parametrize("producer", ["input", "none"])
@pytest.mark.parametrize("compacts", [False, True])
@pytest.mark.parametrize("updated", [(), (2,), (2, 8)], ids=str)
def test_the_rows_of_buckets_that_only_got_deletion_vectors_are_there_again(
    tmp_path: Path, producer: str, compacts: bool, updated: tuple[int, ...]
) -> None:
    options = {"bucket": "2", "changelog-producer": producer, "deletion-vectors.enabled": "true"}
    table = SmallTable(tmp_path, options=options)
    table.commit(*({"id": key, "name": "first"} for key in range(12)))
    compact(table.table, full=True)
    first = table.table.snapshot_manager().get_latest_snapshot().id
    table.commit(("-D", {"id": 1}), *({"id": key, "name": "second"} for key in updated))
    if compacts:
        assert not compact(table.table).conflicts
    rollback(table.table, snapshot_id=first, as_latest=True)
    last = table.table.snapshot_manager().get_latest_snapshot().id
    wanted = state_at(table, last - 1)
    wanted.update(changes_of(table, last))
    assert +wanted == state_at(table, last) == state_at(table, first)
    assert not -wanted, "retracted rows that were not there"
