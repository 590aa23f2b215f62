"""Streams of chain tables: a first plan of two branches, then the changes of one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import Position, SnapshotManager, stream_read_builder
from pypaimon.streaming.errors import StoreError
from pypaimon.streaming.stream_types import PlanKind
from support.samples import SOAK, sample_seed
from support.tables.chain_tables import (
    DELTA,
    MERGED,
    SNAPSHOT,
    ChainTable,
    Change,
    Row,
    in_parts,
    next_plan,
    read_all,
    rows,
    two_regions,
)
from support.tables.streamed_table import available

pytestmark = [pytest.mark.slow, pytest.mark.soak]


@pytest.fixture
def chain(tmp_path: Path) -> ChainTable:
    return two_regions(tmp_path)


def test_the_newest_whole_partition_of_each_chain_comes_with_the_changes_after_it(chain: ChainTable) -> None:
    """Days are compared as numbers: 9 is before 10 and 11 before 100."""
    ((kind, found),) = read_all(chain.builder())
    assert kind is PlanKind.FULL
    assert found == chain.first_plan()
    assert found == [
        ("+I", "eu", 10, 0, "v2"),
        ("+I", "eu", 10, 1, "v2"),
        ("+I", "eu", 10, 2, "v2"),
        ("+I", "eu", 10, 3, "v2"),
        ("+I", "eu", 100, 6, "v5"),
        ("+I", "us", 3, 1, "v3"),
        ("+I", "us", 12, 5, "v4"),
        ("+U", "eu", 11, 1, "v4"),
    ]


def test_merged_each_chain_is_one_partition_its_last(chain: ChainTable) -> None:
    ((kind, found),) = read_all(chain.builder(**MERGED))
    assert kind is PlanKind.FULL
    assert found == chain.first_plan(merged=True)
    assert found == [
        ("+I", "eu", 100, 0, "v2"),
        ("+I", "eu", 100, 6, "v5"),
        ("+I", "us", 12, 5, "v4"),
        ("+U", "eu", 100, 1, "v4"),
    ]


def test_without_chain_keys_all_partitions_are_one_chain(tmp_path: Path) -> None:
    table = ChainTable(tmp_path, chain_table__chain_partition_keys="")
    table.commit(SNAPSHOT, [("+I", "eu", 100, 1, 1), ("+I", "us", 2, 1, 1)])
    table.commit(DELTA, [("+I", "eu", 200, 5, 2), ("+I", "us", 3, 6, 2)])
    assert read_all(table.builder()) == [(PlanKind.FULL, table.first_plan(one_chain=True))]
    assert table.first_plan(one_chain=True) == [("+I", "us", 2, 1, "v1"), ("+I", "us", 3, 6, "v2")]
    assert read_all(table.builder(**MERGED)) == [(PlanKind.FULL, table.first_plan(one_chain=True, merged=True))]


def test_after_the_first_plan_the_changes_of_the_delta_branch_come_as_written(chain: ChainTable) -> None:
    builder = chain.builder()
    with builder.new_streaming_scan() as scan:
        read = builder.new_read()
        first = scan.plan()
        assert first is not None and first.position.snapshot == 4 and first.snapshot_id == 3
        chain.commit(SNAPSHOT, [("+I", "eu", 200, 1, 6)])
        chain.commit(DELTA, [("-D", "eu", 5, 1, 6), ("+I", "eu", 201, 1, 6)])
        (second,) = available(scan)
    assert rows(read, second) == [("+I", "eu", 201, 1, "v6"), ("-D", "eu", 5, 1, "v6")]
    assert second.kind is PlanKind.DELTA and second.position.snapshot == 5


def test_a_position_after_the_first_plan_is_one_of_the_delta_branch(chain: ChainTable) -> None:
    with chain.builder().new_streaming_scan() as scan:
        (first,) = available(scan)
    chain.commit(DELTA, [("+I", "eu", 201, 1, 6)])
    position = first.position.to_json()
    assert set(json.loads(position)) == {"version", "table", "snapshot", "fingerprint", "phase"}
    for builder in (chain.builder(), stream_read_builder(chain.branch(DELTA))):
        assert read_all(builder.with_start(position=position)) == [(PlanKind.DELTA, [("+I", "eu", 201, 1, "v6")])]


@pytest.mark.parametrize("options", [{}, MERGED], ids=["apart", "merged"])
def test_a_stream_continues_anywhere_in_its_first_plan(chain: ChainTable, options: dict[str, str]) -> None:
    """Also where both branches have moved on meanwhile: it is of the two snapshots that it began with."""
    wanted = chain.first_plan(merged=bool(options))
    builder = chain.builder(**options).with_limits(max_splits=1)
    with builder.new_streaming_scan() as scan:
        plan = scan.plan()
    assert plan is not None
    found = rows(builder.new_read(), plan)
    chain.commit(SNAPSHOT, [("+I", "eu", 300, 1, 6)])
    chain.commit(DELTA, [("+I", "eu", 100, 6, 7), ("+I", "us", 1, 1, 7)])
    parts = 1
    while plan is not None and plan.kind is PlanKind.FULL:
        builder = chain.builder(**options).with_limits(max_splits=1).with_start(position=plan.position.to_json())
        with builder.new_streaming_scan() as scan:
            plan = scan.plan()
        if plan is not None and plan.kind is PlanKind.FULL:
            parts += 1
            found += rows(builder.new_read(), plan)
    assert sorted(found) == wanted
    assert parts > 2
    assert plan is not None and plan.snapshot_id == 4


@pytest.mark.parametrize("number", range(6 if SOAK else 2))
def test_random_histories_have_the_first_plan_of_the_model(tmp_path: Path, number: int) -> None:
    """Chosen by partition and bucket, filtered, sharded, cut and gone on with: always the same rows."""
    random = Random(f"{sample_seed()} {number}")
    table = ChainTable(tmp_path, bucket=str(random.choice([1, 3])))
    sequence = 0
    for _ in range(random.randint(3, 9)):
        branch = random.choice([SNAPSHOT, DELTA, DELTA])
        changes: list[Change] = []
        for _ in range(random.randint(1, 12)):
            sequence += 1
            kind = random.choice(["+I", "+U", "-D"]) if branch == DELTA else "+I"
            partition = random.choice(["eu", "us"]), random.choice([2, 9, 10, 11, 100])
            changes.append((kind, *partition, random.randrange(6), sequence))
        table.commit(branch, changes)
    for merged in (False, True):
        wanted = table.first_plan(merged=merged)
        builder = table.builder(chain_table__streaming__merge_snapshot=str(merged).lower())
        assert [row for kind, found in read_all(builder) for row in found if kind is PlanKind.FULL] == wanted
        assert in_parts(builder) == (wanted, [])
        shards = [
            row for index in range(2) for _, found in read_all(builder.copy().with_shard(index, 2)) for row in found
        ]
        assert sorted(shards) == wanted
        values = builder.new_predicate_builder()
        for predicate, keep in (
            (values.greater_than("k", 2), lambda row: row[3] > 2),
            (values.equal("k", 1), lambda row: row[3] == 1),
            (values.less_than("v", "v3"), lambda row: row[4] < "v3"),
        ):
            filtered = [row for _, found in read_all(builder.copy().with_filter(predicate)) for row in found]
            assert filtered == [row for row in wanted if keep(row)]


@pytest.mark.parametrize("days", [(12, 11), (11, 12)], ids=["last first", "last last"])
def test_of_equally_new_additions_that_of_the_later_partition_counts(tmp_path: Path, days: tuple[int, int]) -> None:
    """All are the first of their files, with the same sequence; whatever the order in which they, or keys, come."""
    table = ChainTable(tmp_path, bucket="1")
    for day in days:
        table.commit(
            DELTA, [("+U", "eu", 12, 1, 5), ("+U", "eu", 12, -1, 5)] if day == 12 else [("+I", "eu", 11, 1, 5)]
        )
    table.commit(SNAPSHOT, [("+I", "eu", 10, 1, 5)])
    assert read_all(table.builder(**MERGED)) == [
        (PlanKind.FULL, [("+U", "eu", 12, -1, "v5"), ("+U", "eu", 12, 1, "v5")])
    ]


@pytest.mark.parametrize("options", [{}, MERGED], ids=["apart", "merged"])
def test_what_no_compaction_has_seen_is_in_the_first_plan_where_deletion_vectors_are_on(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """Java leaves out level 0 there and goes on behind it."""
    table = ChainTable(tmp_path, deletion_vectors__enabled="true")
    table.commit(SNAPSHOT, [("+I", "eu", 1, key, 1) for key in range(3)])
    table.commit(DELTA, [("+U", "eu", 2, 1, 2), ("-D", "eu", 2, 2, 2)])
    assert read_all(table.builder(**options)) == [(PlanKind.FULL, table.first_plan(merged=bool(options)))]


def test_merged_an_older_record_does_not_come_for_a_newer_one_that_a_filter_drops(tmp_path: Path) -> None:
    table = ChainTable(tmp_path)
    table.commit(SNAPSHOT, [("+I", "eu", 1, 1, 1)])
    table.commit(DELTA, [("+U", "eu", 2, 1, 9)])
    builder = table.builder(**MERGED)
    builder.with_filter(builder.new_predicate_builder().less_than("v", "v3"))
    assert [found for _, found in read_all(builder)] == [[]]


@pytest.mark.parametrize("options", [{}, MERGED], ids=["apart", "merged"])
def test_one_of_the_branches_may_be_empty(tmp_path: Path, options: dict[str, str]) -> None:
    whole, changes = ChainTable(tmp_path / "whole"), ChainTable(tmp_path / "changes")
    whole.commit(SNAPSHOT, [("+I", "eu", 1, key, 1) for key in range(3)])
    changes.commit(DELTA, [("+I", "eu", 1, key, 1) for key in range(3)])
    for table in (whole, changes):
        wanted = table.first_plan(merged=bool(options))
        assert read_all(table.builder(**options)) == [(PlanKind.FULL, wanted)]
        assert read_all(table.builder(**options).with_end(latest=True)) == [(PlanKind.FULL, wanted)]
        assert in_parts(table.builder(**options)) == (wanted, [])
    with whole.builder(**options).new_streaming_scan() as scan:
        (first,) = available(scan)
        assert first.position == Position(first.position.table, 1)
        whole.commit(DELTA, [("-D", "eu", 2, 1, 2)])
        (second,) = available(scan)
        assert rows(whole.builder().new_read(), second) == [("-D", "eu", 2, 1, "v2")]


def test_files_are_read_with_the_schemas_of_their_branch(chain: ChainTable) -> None:
    """The same id stands for another schema in each branch."""
    chain.alter(SNAPSHOT, SchemaChange.add_column("extra", AtomicType("INT")))
    chain.alter(DELTA, SchemaChange.rename_column("v", "value"))
    whole = [("+I", "us", 20, key, 7) for key in range(3)]
    chain.write(SNAPSHOT, whole, {"v": "v", "extra": "extra"})
    chain.write(DELTA, [("+I", "us", 21, 1, 8)], {"v": "value"})
    for merged in (False, True):
        builder = chain.builder(chain_table__streaming__merge_snapshot=str(merged).lower())
        plan = next_plan(builder)
        assert plan is not None
        table = builder.new_read().to_arrow(plan.splits())
        names = ("_row_kind", "region", "day", "k", "value")
        assert table.column_names == [*names[:4], "seq", "value", "kind"]
        assert sorted(zip(*(table[name].to_pylist() for name in names), strict=True)) == chain.first_plan(merged=merged)


def test_the_audit_log_shows_stored_deletes(chain: ChainTable) -> None:
    for merged, wanted in ((False, [(11, 2), (12, 1), (100, 3)]), (True, [(12, 1), (100, 2), (100, 3)])):
        options = {"chain-table.streaming.merge-snapshot": str(merged).lower()}
        builder = stream_read_builder(chain.handle().copy(options), view="audit_log")
        plan = next_plan(builder)
        assert plan is not None
        found = builder.new_read().to_arrow(plan.splits()).to_pylist()
        assert sorted((row["day"], row["k"]) for row in found if row["rowkind"] == "-D") == wanted


def test_a_snapshot_branch_that_changes_while_it_is_looked_at_is_looked_at_again(
    chain: ChainTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition is taken over into the snapshot branch, and dropped from the delta branch, in between."""
    latest, looks = SnapshotManager.get_latest_snapshot, []

    def moving(manager: SnapshotManager) -> Any:
        looks.append(manager)
        if len(looks) == 2:
            chain.commit(SNAPSHOT, [("+I", "us", 12, 5, 6)])
            chain.commit(DELTA, [("+I", "us", 13, 5, 7)])
        return latest(manager)

    builder = chain.builder()
    monkeypatch.setattr(SnapshotManager, "get_latest_snapshot", moving)
    plan = next_plan(builder)
    assert plan is not None and plan.snapshot_id == 4
    assert rows(builder.new_read(), plan) == chain.first_plan()
    assert len(looks) == 5

    def never_still(manager: SnapshotManager) -> Any:
        chain.commit(SNAPSHOT, [("+I", "us", 12, 5, 6)])
        return latest(manager)

    monkeypatch.setattr(SnapshotManager, "get_latest_snapshot", never_still)
    with pytest.raises(StoreError, match="changed during each of 8 reads"):
        next_plan(builder)


def test_lag_is_that_of_the_delta_branch(chain: ChainTable) -> None:
    with chain.builder().new_streaming_scan() as scan:
        before = scan.lag()
        assert (before.snapshots, before.rows, before.latest) == (1, None, 3)
        assert available(scan)
        chain.commit(SNAPSHOT, [("+I", "us", 50, 5, 6)])
        assert scan.lag().snapshots == 0
        chain.commit(DELTA, [("+I", "us", 51, 5, 7)])
        after = scan.lag()
        assert (after.snapshots, after.rows, after.latest) == (1, 1, 4)


def test_where_the_delta_branch_is_empty_lag_is_not_zero_before_the_first_plan_was_read(tmp_path: Path) -> None:
    chain = ChainTable(tmp_path)
    chain.commit(SNAPSHOT, [("+I", "eu", day, key, 1) for day in (1, 2) for key in range(20)])
    with chain.builder().with_limits(max_splits=1).new_streaming_scan() as scan:
        before = scan.lag()
        assert (before.snapshots, before.rows, before.seconds is None) == (1, None, False)
        assert scan.plan().position.snapshot == 0
        inside = scan.lag()
        assert (inside.snapshots, inside.rows) == (1, None)
    with chain.builder().with_limits(max_splits=1).open_sync() as stream:
        assert next(iter(stream)).plan_after.snapshot == 0
        assert (stream.lag().snapshots, stream.lag().rows) == (1, None)


def test_on_an_event_loop_the_same_rows_come(chain: ChainTable) -> None:
    async def read() -> list[Row]:
        found: list[Row] = []
        async with chain.builder().with_end(latest=True).open() as stream:
            async for batch in stream:
                columns = (batch.data[name].to_pylist() for name in ("_row_kind", "region", "day", "k", "v"))
                found += zip(*columns, strict=True)
        return sorted(found)

    assert asyncio.run(read()) == chain.first_plan()
