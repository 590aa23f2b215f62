"""Plans of single snapshots over real tables: how files become splits, which are read, in what order."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pypaimon import CatalogFactory
from pypaimon.common.predicate_builder import PredicateBuilder
from pypaimon.schema.schema_change import SchemaChange
from pypaimon.schema.table_schema import TableSchema

from pypaimon.streaming import StreamReadBuilder, stream_read_builder
from pypaimon.streaming.model.plan import SplitMode
from pypaimon.streaming.options.between import End
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.stream_options import CatchUp, Limits
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.planning.selection import ShardFilter
from pypaimon.streaming.stream_types import PlanKind
from support.corpus.cases import copy_warehouse, load
from support.models.table import Record
from support.tables.blob_tables import blob_table
from support.tables.crafted_table import CraftedTable
from support.tables.planner_drive import EARLIEST, Drive
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow


def partitioned(warehouse: Path, kind: pa.DataType | None = None, **options: str) -> Table:
    columns = pa.schema([("p", kind or pa.string()), ("v", pa.int64())])
    return Table(warehouse, columns=columns, partition_keys=["p"], **options)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["", "a", "b"]),
        (pa.bool_(), [False, True]),
        (pa.int32(), [-1, 0, 1]),
        (pa.decimal128(10, 2), [Decimal("-0.05"), Decimal("0.00"), Decimal("9.00"), Decimal("10.00")]),
        (pa.date32(), [datetime.date(1969, 12, 31), datetime.date(1970, 1, 1)]),
        (pa.timestamp("ms"), [datetime.datetime(1970, 1, 1), datetime.datetime(2024, 2, 29, 12, 34)]),
    ],
    ids=str,
)
def test_splits_by_partition_value_null_first(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    table = partitioned(tmp_path / "w", kind)
    table.commit([(value, 1) for value in [*reversed(values), None]])
    (plan,) = Drive(table.handle(), sort_partitions=True).run()
    assert [split.partition.values[0] for split in plan.splits()] == [None, *values]


def test_a_position_holds_for_a_reader_whose_filter_leaves_out_manifests(tmp_path: Path) -> None:
    table = partitioned(tmp_path / "w")
    table.commit([("a", 1)])
    table.commit([("a", 2), ("b", 3)])
    table.commit([("a", 4), ("c", 5)])
    first = Drive(table.handle(), limits=Limits(max_splits=1))
    for _ in range(3):
        plan = None
        while plan is None:
            plan = first.step().plan
        handle = table.handle()
        predicate = PredicateBuilder(handle.table_schema.fields).equal("p", "b")
        again = Drive(handle, plan.position, predicate=predicate)
        assert [split.partition.values for plan in again.run() for split in plan.splits()] == [["b"]]


def test_one_split_per_bucket_where_order_counts(tmp_path: Path) -> None:
    choices: list[dict[str, Any]] = [{"bucket": "2", "bucket_key": "k"}, {"primary_key": True, "bucket": "2"}]
    for number, options in enumerate(choices):
        table = Table(tmp_path / str(number), **options)
        for key in range(0, 40, 10):
            table.commit(range(key, key + 10))
        drive = Drive.of(table, split_target_bytes=1)
        (plan,) = drive.run()
        assert sorted(split.bucket for split in plan.splits()) == [0, 1]
        assert all(len(split.files) == 4 for split in plan.splits())


def test_unaware_buckets_are_packed_by_size(tmp_path: Path) -> None:
    table = Table(tmp_path / "w").commit_each(range(6))
    for target, wanted in ((1, [1] * 6), (2 << 20, [2] * 3), (1 << 30, [6])):
        (plan,) = Drive.of(table, split_target_bytes=target, split_open_bytes=1 << 20).run()
        assert [len(split.files) for split in plan.splits()] == wanted


@pytest.mark.parametrize("options", [{}, {"bucket": "5", "bucket_key": "k"}, {"primary_key": True, "bucket": "5"}])
def test_shards_are_disjoint_and_together_complete(tmp_path: Path, options: dict[str, Any]) -> None:
    table = Table(tmp_path / "w", **options)
    for key in range(0, 60, 10):
        table.commit(range(key, key + 10))
    for start in (Start(StartMode.LATEST_FULL), EARLIEST):
        shards = [Drive.of(table, start, shard=(index, 3)).keys() for index in range(3)]
        assert sorted(key for shard in shards for key in shard) == list(range(60))


def test_shards_at_different_snapshots_lose_no_row_when_buckets_are_given_up(tmp_path: Path) -> None:
    """What one shard has read by bucket, the other one must not read by file."""
    table = Table(tmp_path / "w", bucket="4", bucket_key="k")

    def shard(index: int) -> list[int]:
        builder = stream_read_builder(table.handle()).with_shard(index, 2).with_consumer_id("c")
        with builder.with_start("earliest").with_end(latest=True).open_sync() as stream:
            return [key for batch in stream for key in batch.data["k"].to_pylist()]

    table.commit(range(10))
    found = [*shard(0), *shard(1)]
    for key in range(10, 60, 10):
        table.commit(range(key, key + 10))
    found += shard(0)
    table.catalog.alter_table(table.name, [SchemaChange.set_option("bucket", "-1")], False)
    for key in range(60, 120, 10):
        table.commit(range(key, key + 10), table=table.handle())
    assert sorted([*found, *shard(0), *shard(1)]) == list(range(120))


def test_the_postpone_bucket_belongs_to_a_shard_too(tmp_path: Path) -> None:
    table = Table(tmp_path / "w", primary_key=True)
    traits = TableTraits.of(table.handle().table_schema)
    entries = pa.table({"bucket": pa.array([-2, 0, 1, 2], pa.int32()), "file_name": list("abcd")})
    masks = [ShardFilter(traits, (index, 3)).mask(entries) for index in range(3)]
    assert np.sum(masks, axis=0).tolist() == [1, 1, 1, 1]
    assert [int(np.flatnonzero(column)[0]) for column in np.array(masks).T] == [1, 0, 1, 2]


def test_file_names_hash_as_in_java() -> None:
    """`String.hashCode`, of names of several lengths; one hash is the smallest int there is."""
    append = TableTraits.of(_schema_of_append())
    names = ["a", "hello", "polygenelubricants", "data-é-0.parquet"]
    hashes = [97, 99162322, -2147483648, _java_hash("data-é-0.parquet")]
    assert [_java_hash(name) for name in names] == hashes
    for count in (2, 3, 7):
        for index in range(count):
            numbers = {"bucket": pa.array([0] * 4, pa.int32()), "total_buckets": pa.array([-1] * 4, pa.int32())}
            entries = pa.table({**numbers, "file_name": names})
            kept = ShardFilter(append, (index, count)).mask(entries).tolist()
            assert kept == [abs(each - count * int(each / count)) == index for each in hashes]


def _java_hash(name: str) -> int:
    result = 0
    for unit in name.encode("utf-16-be").hex(" ", 2).split():
        result = (31 * result + int(unit, 16)) & 0xFFFFFFFF
    return result - (1 << 32) if result >= 1 << 31 else result


def _schema_of_append() -> TableSchema:
    return TableSchema(
        id=0, fields=[], highest_field_id=0, partition_keys=[], primary_keys=[], options={}, comment=None
    )


class TestNet:
    def test_buckets_that_differ_in_deletion_vectors_alone(self, tmp_path: Path) -> None:
        """As where a compaction found nothing but deletes: no data file differs, only what is deleted from them."""
        copy_warehouse(load("java-2.1", "pk_deletion_vectors_lookup"), tmp_path / "w")
        directory = next(path.parent for path in (tmp_path / "w").rglob("snapshot") if path.is_dir())
        catalog = CatalogFactory.create({"warehouse": str(directory.parents[1])})
        name = f"{directory.parent.name.removesuffix('.db')}.{directory.name}"

        def deleted(handle: Any, snapshot_id: int) -> int:
            start = Start(StartMode.FROM_SNAPSHOT_FULL, snapshot_id=snapshot_id)
            splits = [
                split
                for plan in Drive(handle, start, end=End(snapshot_id=snapshot_id)).run()
                for split in plan.splits()
            ]
            return sum(file.cardinality or 0 for split in splits for file in split.data_deletion_files or [] if file)

        ids = sorted(int(path.name[9:]) for path in (directory / "snapshot").glob("snapshot-*"))
        handle = catalog.get_table(name)
        last = max(each for each in ids if deleted(handle, each))
        snapshot = json.loads((directory / "snapshot" / f"snapshot-{last}").read_text())
        for later in ids[ids.index(last) + 1 :]:
            (directory / "snapshot" / f"snapshot-{later}").unlink()
        for number in (1, 2):
            snapshot |= {"id": last + number, "deltaRecordCount": 0, "commitKind": "COMPACT"}
            snapshot.pop("uuid", None)
            if number == 2:
                snapshot.pop("indexManifest")
            (directory / "snapshot" / f"snapshot-{last + number}").write_text(json.dumps(snapshot))
        (directory / "snapshot" / "LATEST").write_text(str(last + 2))
        handle = catalog.get_table(name)
        drive = Drive(handle, Start(StartMode.FROM_SNAPSHOT, snapshot_id=last + 1), catch_up=CatchUp.NET)
        (plan,) = drive.run()
        assert plan.kind is PlanKind.NET
        for split in plan.splits():
            assert [file.file_name for file in split.before_files] == [file.file_name for file in split.files]
            assert split.before_deletion_files and not split.data_deletion_files

    def test_states_without_a_file(self, tmp_path: Path) -> None:
        table = Table(tmp_path / "w", primary_key=True, changelog_producer="lookup").commit_each(range(3))
        drive = Drive.of(table, EARLIEST, catch_up=CatchUp.NET)
        assert drive.run() == []
        assert drive.position is not None and drive.position.snapshot == 4


def test_an_overwrite_is_one_split_per_bucket_with_both_sides(tmp_path: Path) -> None:
    table = Table(tmp_path / "w", primary_key=True, bucket="3")
    table.commit(range(10))
    table.commit(range(5, 15), overwrite=True)
    drive = Drive.of(table, Start(StartMode.FROM_SNAPSHOT, snapshot_id=2), read_overwrite=True)
    (plan,) = drive.run()
    assert {split.mode for split in plan.splits()} == {SplitMode.OVERWRITE}
    rows = drive.rows([plan])
    assert sorted(key for kind, key, _ in rows if kind == "-D") == list(range(10))
    assert sorted(key for kind, key, _ in rows if kind == "+I") == list(range(5, 15))
    limited = Drive.of(
        table, Start(StartMode.FROM_SNAPSHOT, snapshot_id=2), read_overwrite=True, limits=Limits(max_splits=1)
    )
    plans = limited.run()
    assert len(plans) == 3
    assert limited.rows(plans) == rows


def test_the_builder_hands_out_the_same_splits(tmp_path: Path) -> None:
    table = Table(tmp_path / "w").commit_each([1])
    plan = StreamReadBuilder(table.handle()).new_streaming_scan().plan()
    assert plan is not None
    (own,) = Drive.of(table).run()
    assert [split.files for split in plan.splits()] == [split.files for split in own.splits()]


def test_data_evolution_is_sharded_by_bucket_so_that_columns_of_a_row_stay_together(tmp_path: Path) -> None:
    """Files of one row id range hold its columns; told apart by their names, each shard would join half of them."""
    table = Table(tmp_path / "w", row_tracking__enabled="true", data_evolution__enabled="true")
    for number in range(4):
        table.commit(range(number * 5, number * 5 + 5))
    shards = [Drive.of(table, EARLIEST, shard=(index, 3)).keys() for index in range(3)]
    assert shards == [list(range(20)), [], []]


def test_limits_leave_the_files_of_a_row_together(tmp_path: Path) -> None:
    """Its blob lies in a file of its own."""
    table = blob_table(tmp_path / "w")
    for number in range(3):
        table.commit([(number, "name", b"blob")])
    builder = table.state_builder().with_limits(max_splits=1).with_include_row_kind(False)
    read = builder.new_read()
    with builder.new_streaming_scan() as scan:
        found = [read.to_arrow(plan.splits()).to_pylist() for plan in scan.stream_sync()]
    assert found == [[{"id": number, "name": "name", "b": b"blob"}] for number in range(3)]


def test_a_state_orders_the_files_of_a_fixed_bucket_by_sequence_and_changes_come_as_they_stand(tmp_path: Path) -> None:
    options = {"bucket": "1", "bucket-key": "k"}
    table = CraftedTable(tmp_path, keyed=False, partitioned=False, buckets=1, options=options)
    key = table.columns.named("k").id
    records = [Record("+I", (None, number), number, {key: number}) for number in (2, 1)]
    table.commit("APPEND", [table.file((None, 0), [record]) for record in records])
    assert Drive(table.handle()).keys() == [1, 2]
    assert Drive(table.handle(), EARLIEST).keys() == [2, 1]
