"""Streams of chain tables: what is refused, and where a stream cannot go on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    CorruptTableError,
    DictTarget,
    Position,
    PositionExpiredError,
    StreamConfigError,
    StreamReadBuilder,
    TableChangedError,
    UnsupportedTableError,
    replicate,
    stream_read_builder,
)
from pypaimon.streaming.stream_types import PlanKind
from support.tables.chain_tables import DELTA, MERGED, SNAPSHOT, ChainTable, next_plan, read_all, rows, two_regions

pytestmark = pytest.mark.slow


@pytest.fixture
def chain(tmp_path: Path) -> ChainTable:
    return two_regions(tmp_path)


# ---- what is refused ----


@pytest.mark.parametrize(
    ("options", "given", "what"),
    [
        ({"scan.mode": "latest"}, {}, "startup mode 'latest'"),
        ({"scan.snapshot-id": "1"}, {}, "startup mode 'from-snapshot 1'"),
        ({"scan.timestamp-millis": "1"}, {}, "startup mode 'from-timestamp 1'"),
        ({"consumer-id": "c"}, {}, "consumer-id"),
        ({}, {"with_start": {"mode": "earliest"}}, "startup mode 'earliest'"),
        ({}, {"with_start": {"snapshot_id": 1, "full": True}}, "startup mode 'from-snapshot-full 1'"),
        ({}, {"with_consumer_id": {"consumer_id": "c"}}, "consumer-id"),
    ],
)
def test_what_needs_the_snapshots_of_one_branch_is_refused_by_name(
    tmp_path: Path, options: dict[str, str], given: dict[str, dict[str, Any]], what: str
) -> None:
    """Java refuses the same."""
    builder = stream_read_builder(ChainTable(tmp_path).handle().copy_without_time_travel(options))
    for setter, arguments in given.items():
        getattr(builder, setter)(**arguments)
    with pytest.raises(StreamConfigError, match=f"does not support {what}.*load 'db.t.branch_Delta'"):
        builder.new_streaming_scan()


def test_a_copy_of_the_whole_table_is_refused(chain: ChainTable) -> None:
    """New partitions of the snapshot branch are not in its stream."""
    with pytest.raises(UnsupportedTableError, match=r"db\.t is a chain table: .* Copy the branches"):
        replicate(chain.builder(), DictTarget())


def test_ranges_are_refused_by_name(tmp_path: Path) -> None:
    builder = ChainTable(tmp_path).builder().with_range(0, 1)
    with pytest.raises(UnsupportedTableError, match=r"has no ranges.*'db.t.branch_Delta'"):
        builder.new_streaming_scan()


def test_a_filter_on_partitions_is_refused(tmp_path: Path) -> None:
    table = ChainTable(tmp_path)
    builder = table.builder()
    values = builder.new_predicate_builder()
    for predicate in (
        values.equal("day", 1),
        values.or_predicates([values.equal("k", 1), values.equal("region", "eu")]),
    ):
        with pytest.raises(StreamConfigError, match="Partition filter is not supported"):
            builder.copy().with_filter(predicate).new_streaming_scan()
    with pytest.raises(StreamConfigError, match="Partition filter is not supported"):
        table.builder(scan__partitions="day=1,region=eu").new_streaming_scan()


def test_a_delta_branch_that_does_not_keep_the_newest_record_is_refused(tmp_path: Path) -> None:
    table = ChainTable(tmp_path, merge_engine="partial-update")
    with pytest.raises(UnsupportedTableError, match="does not support partial-update merge engine on the delta branch"):
        table.builder().new_streaming_scan()
    snapshots_alone = ChainTable(tmp_path / "other")
    snapshots_alone.alter(SNAPSHOT, SchemaChange.set_option("merge-engine", "partial-update"))
    snapshots_alone.commit(SNAPSHOT, [("+I", "eu", 1, 1, 1)])
    assert read_all(snapshots_alone.builder()) == [(PlanKind.FULL, snapshots_alone.first_plan())]


def test_a_branch_that_is_not_there_is_named(chain: ChainTable) -> None:
    builder = chain.builder()
    shutil.rmtree(chain.branch_path(SNAPSHOT))
    with builder.new_streaming_scan() as scan, pytest.raises(UnsupportedTableError, match="no branch 'snap'"):
        scan.plan()
    shutil.rmtree(chain.branch_path(DELTA))
    with pytest.raises(TableChangedError):
        chain.builder()


def test_chain_keys_that_are_not_the_last_partition_columns_are_refused(chain: ChainTable) -> None:
    builder = chain.builder(chain_table__chain_partition_keys="region")
    with builder.new_streaming_scan() as scan, pytest.raises(UnsupportedTableError, match="is not the end of"):
        scan.plan()


def test_partitions_with_other_numbers_of_buckets_are_not_merged(tmp_path: Path) -> None:
    table = ChainTable(tmp_path)
    table.commit(SNAPSHOT, [("+I", "eu", 1, key, 1) for key in range(4)])
    schema = table.branch_path(DELTA) / "schema" / "schema-0"
    content = json.loads(schema.read_text())
    content["options"]["bucket"] = "3"
    schema.write_text(json.dumps(content))
    table.commit(DELTA, [("+I", "eu", 2, key, 2) for key in range(4)])
    merged = table.builder(**MERGED)
    with merged.new_streaming_scan() as scan, pytest.raises(UnsupportedTableError, match="2 and 3 buckets"):
        scan.plan()
    assert read_all(table.builder()) == [(PlanKind.FULL, table.first_plan())]


# ---- where a stream cannot go on ----


def _inside(builder: StreamReadBuilder) -> Position:
    with builder.copy().with_limits(max_splits=1).new_streaming_scan() as scan:
        plan = scan.plan()
    assert plan is not None
    assert plan.position.base is not None and plan.position.unit is not None
    return Position.from_json(plan.position.to_json())


@pytest.mark.parametrize(("branch", "wanted"), [(SNAPSHOT, 2), (DELTA, 3)])
def test_a_first_plan_whose_snapshot_has_expired_is_not_gone_on_with(
    chain: ChainTable, branch: str, wanted: int
) -> None:
    builder = chain.builder().with_start(position=_inside(chain.builder()))
    chain.commit(branch, [("+I", "eu", 500, 1, 9)])
    chain.expire(branch, wanted + 1)
    with pytest.raises(PositionExpiredError) as raised:
        next_plan(builder)
    assert (raised.value.wanted, raised.value.earliest) == (wanted, wanted + 1)
    assert ("of branch 'snap'" in str(raised.value)) is (branch == SNAPSHOT)
    for policy in ("full", "earliest"):
        plan = next_plan(builder.copy().with_on_expired(policy))
        assert plan is not None and plan.kind is PlanKind.FULL
        assert rows(builder.new_read(), plan) == chain.first_plan()


def test_a_rollback_of_the_snapshot_branch_is_seen(chain: ChainTable) -> None:
    position = _inside(chain.builder())
    chain.branch(SNAPSHOT).rollback_to(1)
    chain.commit(SNAPSHOT, [("+I", "eu", 10, 1, 9)])
    with pytest.raises(TableChangedError, match="rolled back"):
        next_plan(chain.builder().with_start(position=position))


def test_a_position_inside_a_first_plan_is_one_of_the_same_plan(chain: ChainTable) -> None:
    """Not of another way to merge, nor of the delta branch alone."""
    position = _inside(chain.builder())
    with pytest.raises(StreamConfigError, match=r"'chain-table\.streaming\.merge-snapshot' = 'false'"):
        next_plan(chain.builder(**MERGED).with_start(position=position))
    branch = stream_read_builder(chain.branch(DELTA))
    with pytest.raises(StreamConfigError, match="inside the first plan of a chain table"):
        next_plan(branch.copy().with_start(position=position))
    with branch.copy().with_limits(max_splits=1).new_streaming_scan() as scan:
        plan = scan.plan()
    assert plan is not None
    with pytest.raises(StreamConfigError, match="inside the first plan of branch 'Delta'"):
        next_plan(chain.builder().with_start(position=plan.position))
    empty = ChainTable(chain.path.parents[1] / "empty").builder()
    with pytest.raises(TableChangedError):
        next_plan(empty.with_start(position=position))


@pytest.mark.parametrize("options", [{}, MERGED], ids=["apart", "merged"])
def test_a_missing_file_of_the_snapshot_branch_is_distinguished_from_one_that_expired(
    chain: ChainTable, options: dict[str, str]
) -> None:
    builder = chain.builder(**options)
    plan = next_plan(builder)
    assert plan is not None
    split = next(each for each in plan.splits() if each.of_branch is not None)
    path = next(each.file_path for each in split.files if each.file_name in split.of_branch.names)
    Path(str(path).removeprefix("file:")).unlink()
    with pytest.raises(CorruptTableError, match="snapshot 2 needs it"):
        builder.new_read().to_arrow(plan.splits())
    chain.commit(SNAPSHOT, [("+I", "eu", 500, 1, 9)])
    chain.expire(SNAPSHOT, 3)
    with pytest.raises(PositionExpiredError) as raised:
        builder.new_read().to_arrow(plan.splits())
    assert raised.value.wanted == 2
