"""New streams on handles that were loaded before the table was rolled back, made anew, or given another schema."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.catalog.catalog_environment import CatalogEnvironment
from pypaimon.catalog.catalog_exception import TableNotExistException
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import Move, SchemaChange
from pypaimon.table.file_store_table import FileStoreTable

from pypaimon.spark.read.source_stream import snapshot_with_id
from pypaimon.streaming import (
    AsyncStreamingTableScan,
    IncrementalDiffScanner,
    Position,
    PositionExpiredError,
    StreamReadBuilder,
    TableChangedError,
    list_consumers,
    stream_read_builder,
)
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.tables.handles import create_table
from support.tables.stream_files import write
from support.tables.streamed_table import Table, all_keys, available, keys, snapshots

pytestmark = pytest.mark.slow

STRING = AtomicType("STRING")
UTC = timezone.utc


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "w").commit_each(range(1, 6))


def following(handle: Any) -> StreamReadBuilder:
    return stream_read_builder(handle).with_start("earliest").with_catch_up("replay").with_prefetch(0)


def rolled_back(table: Table) -> None:
    """Other commits in the place of snapshots 3 to 5, with as many rows, and one more."""
    table.rollback(2)
    table.commit_each((30, 40, 50, 60))


@pytest.mark.parametrize("anew", [True, False], ids=["builder", "scan"])
def test_after_a_rollback_a_new_stream_sees_the_new_history(table: Table, anew: bool) -> None:
    handle = table.handle()
    builder = following(handle)
    assert all_keys(builder) == [1, 2, 3, 4, 5]
    rolled_back(table)
    assert all_keys(following(handle) if anew else builder) == [1, 2, 30, 40, 50, 60]


def test_a_stream_that_meets_a_rollback_leaves_the_others_of_its_handle_alone(table: Table) -> None:
    builder = following(table.handle())
    ahead, behind = builder.new_streaming_scan(), builder.new_streaming_scan()
    read = builder.new_read()
    assert keys(read, [plan for plan in (behind.plan(), behind.plan()) if plan is not None]) == [1, 2]
    table.commit([6])
    assert keys(read, available(ahead)) == [1, 2, 3, 4, 5, 6]
    table.rollback(5)
    table.commit([60, 61])
    table.commit([70])
    with pytest.raises(TableChangedError, match="rolled back"):
        for _ in range(20):
            assert ahead.plan() is None
    assert keys(read, available(behind)) == [3, 4, 5, 60, 61, 70]
    ahead.restore(6)
    assert keys(read, available(ahead)) == [60, 61, 70]
    for scan in (ahead, behind):
        scan.close()


@pytest.mark.parametrize("target", [None, 3, "position"])
@pytest.mark.parametrize("full", [False, True])
def test_a_seek_after_a_rollback_leads_into_the_new_history(table: Table, full: bool, target: Any) -> None:
    builder = following(table.handle())
    if full:
        builder.with_start(snapshot_id=3, full=True)
    read = builder.new_read()
    with builder.new_streaming_scan() as scan:
        plans = available(scan)
        assert keys(read, plans) == [1, 2, 3, 4, 5]
        before = plans[1].position if not full else Position(plans[0].position.table, 3)
        rolled_back(table)
        scan.restore(before if target == "position" else target)
        assert keys(read, available(scan)) == ([1, 2] if target is None else []) + [30, 40, 50, 60]


def test_lag_consumers_and_differences_are_those_of_the_table_now(table: Table) -> None:
    handle = table.handle()
    with stream_read_builder(handle).with_start("earliest").with_consumer_id("c").new_streaming_scan() as scan:
        assert scan.plan() is not None
        assert scan.plan() is not None
        assert scan.lag().rows == 3
    assert [each.lag for each in list_consumers(handle)] == [4]
    table.rollback(2)
    table.commit([30, 31])
    with stream_read_builder(handle).with_start("earliest").new_streaming_scan() as scan:
        assert (scan.lag().snapshots, scan.lag().rows) == (3, 4)
    assert [each.lag for each in list_consumers(handle)] == [2]
    plan = IncrementalDiffScanner(handle).scan(2, 3)
    assert sorted(keys(stream_read_builder(handle).new_read(), [plan])) == [30, 31]


COLUMNS = pa.schema([("a", pa.int64()), ("b", pa.string())])
OTHERS = pa.schema([("b", pa.string()), ("c", pa.int64())])


def recreated(warehouse: Any) -> None:
    """Another table in the place of `db.t`, with other columns and options."""
    warehouse.drop_table("db.t", False)
    write(
        create_table(warehouse, "t", OTHERS, options={"bucket": "2", "bucket-key": "c"}), pa.table([["y"], [7]], OTHERS)
    )


class CatalogWithUuids:
    """What a REST catalog adds to the tables of a warehouse: uuids of its own, of which handles remember theirs."""

    def __init__(self, warehouse: Any) -> None:
        self.warehouse = warehouse
        self.uuid: str | None = "first"
        self.path: Callable[[str], str] = str

    def load(self) -> CatalogWithUuids:
        return self

    def get_table(self, identifier: Any) -> Any:
        if self.uuid is None:
            raise TableNotExistException(identifier)
        plain = self.warehouse.get_table(identifier)
        environment = CatalogEnvironment(plain.identifier, self.uuid, catalog_loader=self)
        path = self.path(str(plain.table_path))
        return FileStoreTable(plain.file_io, plain.identifier, path, plain.table_schema, environment)

    def load_snapshot(self, identifier: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def catalog(warehouse: Any) -> CatalogWithUuids:
    write(create_table(warehouse, "t", COLUMNS), pa.table([[1], ["x"]], COLUMNS))
    return CatalogWithUuids(warehouse)


def rows(builder: StreamReadBuilder) -> list[dict[str, Any]]:
    read = builder.new_read()
    with builder.new_streaming_scan() as scan:
        return [row for plan in available(scan) for row in read.to_arrow(plan.splits()).to_pylist()]


@pytest.mark.parametrize("kind", ["directory", "catalog"])
def test_a_recreated_table_is_read_as_it_is_by_new_builders_and_not_at_all_by_old_ones(
    warehouse: Any, catalog: CatalogWithUuids, kind: str
) -> None:
    source = warehouse if kind == "directory" else catalog
    handle = source.get_table("db.t").copy({"scan.mode": "latest-full"})
    builder = stream_read_builder(handle)
    unused, live = builder.new_streaming_scan(), builder.new_streaming_scan()
    first = live.plan()
    assert first is not None and rows(builder) == [{"a": 1, "b": "x"}]
    recreated(warehouse)
    catalog.uuid = "second"
    again = stream_read_builder(handle)
    with again.new_streaming_scan() as scan:
        plan = scan.plan()
        assert plan is not None and plan.position.table != first.position.table
    assert rows(again) == [{"b": "y", "c": 7}]
    for start in (None, 1, first.position):
        unused.restore(start)
        with pytest.raises(TableChangedError, match="re-created"):
            unused.plan()
    with builder.new_streaming_scan() as scan, pytest.raises(TableChangedError, match="re-created"):
        scan.plan()
    with pytest.raises(TableChangedError, match="another table"):
        stream_read_builder(handle).with_start(position=first.position).new_streaming_scan().plan()
    for scan in (unused, live):
        scan.close()


def test_a_table_that_a_catalog_has_elsewhere_now_is_not_read_in_its_old_place(catalog: CatalogWithUuids) -> None:
    handle = catalog.get_table("db.t")
    builder = stream_read_builder(handle)
    catalog.path = lambda path: f"{path}-moved"
    for failing in (lambda: stream_read_builder(handle), lambda: builder.new_streaming_scan().plan()):
        with pytest.raises(TableChangedError, match="t-moved"):
            failing()


def test_a_table_that_its_catalog_does_not_know_any_more(catalog: CatalogWithUuids) -> None:
    builder = stream_read_builder(catalog.get_table("db.t"))
    catalog.uuid = None
    with builder.new_streaming_scan() as scan, pytest.raises(TableChangedError, match="dropped"):
        scan.plan()


def test_an_empty_table_that_was_dropped_is_an_error_at_the_first_poll(warehouse: Any) -> None:
    builder = stream_read_builder(create_table(warehouse, "t", COLUMNS))
    warehouse.drop_table("db.t", False)
    with builder.new_streaming_scan() as scan, pytest.raises(TableChangedError, match="dropped"):
        scan.plan()


class Altered:
    """A table with schema 1, which no snapshot has used yet, and which is then rolled back for another schema 1."""

    def __init__(self, warehouse: Any, policy: str) -> None:
        self.warehouse = warehouse
        handle = create_table(warehouse, "t", COLUMNS)
        write(handle, pa.table([[1], ["x"]], COLUMNS))
        self.alter("first")
        self.builder = stream_read_builder(handle).with_on_schema_change(policy)
        self.scan: AsyncStreamingTableScan = self.builder.new_streaming_scan()
        assert snapshots(available(self.scan)) == [1]
        (Path(str(handle.table_path)) / "schema" / "schema-1").unlink()
        self.handle = handle

    def alter(self, column: str) -> None:
        self.warehouse.alter_table("db.t", [SchemaChange.add_column(column, STRING)], False)

    def commit(self, column: str) -> None:
        rows = pa.table({"a": [2], "b": ["y"], column: ["z"]})
        write(self.warehouse.get_table("db.t"), rows)


@pytest.mark.parametrize("policy", ["fail", "follow", "ignore"])
def test_a_schema_that_was_rolled_back_is_not_taken_for_the_one_with_its_id(warehouse: Any, policy: str) -> None:
    """Their columns have the same field ids."""
    altered = Altered(warehouse, policy)
    altered.alter("second")
    altered.commit("second")
    with pytest.raises(TableChangedError, match="Schema 1 was rolled back"):
        altered.scan.plan()
    altered.scan.restore(1)
    with pytest.raises(TableChangedError, match="Schema 1 was rolled back"):
        available(altered.scan)
    altered.scan.close()
    assert [row.get("second") for row in rows(stream_read_builder(altered.handle))] == [None, "z"]


def test_a_schema_that_was_rolled_back_and_made_again_as_it_was_changes_nothing(warehouse: Any) -> None:
    altered = Altered(warehouse, "fail")
    altered.alter("first")
    altered.commit("first")
    (plan,) = available(altered.scan)
    assert altered.builder.new_read().to_arrow(plan.splits())["first"].to_pylist() == ["z"]
    altered.scan.close()


def test_a_seek_after_a_schema_was_followed_and_rolled_back_plans_with_the_one_that_has_its_id(warehouse: Any) -> None:
    """Under the one before, statistics would leave out the file whose row now matches the filter."""
    columns = pa.schema([("a", pa.int64()), ("b", pa.float64())])
    handle = create_table(warehouse, "t", columns, options={"metadata.stats-mode": "full"})
    write(handle, pa.table([[1], [4.7]], columns))
    builder = stream_read_builder(handle).with_on_schema_change("follow")
    builder.with_filter(builder.new_predicate_builder().less_or_equal("b", 4))
    read, scan = builder.new_read(), builder.new_streaming_scan()
    warehouse.alter_table("db.t", [SchemaChange.rename_column("b", "c")], False)
    write(warehouse.get_table("db.t"), pa.table({"a": [2], "c": [3.5]}))
    (plan,) = available(scan)
    assert read.to_arrow(plan.splits()).to_pylist() == [{"a": 2, "c": 3.5}]
    handle.rollback_to(1)
    (Path(str(handle.table_path)) / "schema" / "schema-1").unlink()
    warehouse.alter_table("db.t", [SchemaChange.update_column_type("b", AtomicType("INT"))], False)
    write(warehouse.get_table("db.t"), pa.table({"a": [3], "b": pa.array([2], pa.int32())}))
    scan.restore(None)
    (plan,) = available(scan)
    assert sorted(read.to_arrow(plan.splits()).to_pylist(), key=str) == [{"a": 1, "b": 4}, {"a": 3, "b": 2}]
    scan.close()


def test_a_seek_after_a_schema_was_rolled_back_finds_statistics_by_the_one_that_has_its_id(warehouse: Any) -> None:
    """The schema that went had its columns in another order."""
    columns = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    handle = create_table(warehouse, "t", columns, options={"metadata.stats-mode": "full"})
    write(handle, pa.table([[1], [100]], columns))
    builder = stream_read_builder(handle).with_projection(["a"])
    builder.with_filter(builder.new_predicate_builder().less_or_equal("a", 4))
    read, scan = builder.new_read(), builder.new_streaming_scan()
    warehouse.alter_table("db.t", [SchemaChange.update_column_position(Move.first("b"))], False)
    write(warehouse.get_table("db.t"), pa.table({"b": [100], "a": [2]}))
    scan.restore(1)
    assert read.to_arrow([split for plan in available(scan) for split in plan.splits()])["a"].to_pylist() == [1, 2]
    handle.rollback_to(1)
    (Path(str(handle.table_path)) / "schema" / "schema-1").unlink()
    warehouse.alter_table("db.t", [SchemaChange.rename_column("b", "z")], False)
    write(warehouse.get_table("db.t"), pa.table({"a": [3], "z": [100]}))
    scan.restore(2)
    assert read.to_arrow([split for plan in available(scan) for split in plan.splits()])["a"].to_pylist() == [3]
    scan.close()


def test_a_column_that_was_added_later_is_read_with_the_options_of_its_schema(warehouse: Any) -> None:
    columns = pa.schema([pa.field("id", pa.int32(), nullable=False), ("n", pa.int32())])
    options = {"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    handle = create_table(warehouse, "t", columns, primary_keys=["id"], options=options)
    write(handle, pa.table([[1], [10]], columns))
    followed = stream_read_builder(handle).with_raw().with_on_schema_change("follow")
    read, scan = followed.new_read(), followed.new_streaming_scan()
    assert scan.plan() is not None
    changes = [
        SchemaChange.add_column("m", AtomicType("INT")),
        SchemaChange.set_option("fields.m.aggregate-function", "max"),
    ]
    warehouse.alter_table("db.t", changes, False)
    altered = warehouse.get_table("db.t")
    wider = columns.append(pa.field("m", pa.int32()))
    for n, m in ((1, 5), (2, 3)):
        write(altered, pa.table([[1], [n], [m]], wider))
    wanted = [{"_row_kind": "+I", "id": 1, "n": 13, "m": 5}]
    assert rows(stream_read_builder(handle).with_raw()) == wanted
    *_, last = available(scan)
    assert last.schema.options["fields.m.aggregate-function"] == "max"
    scan.restore(None)
    first = scan.plan()
    assert first is not None and read.to_arrow(first.splits()).to_pylist() == wanted
    scan.close()


def test_a_read_that_was_made_before_a_schema_reads_files_of_it(warehouse: Any) -> None:
    handle = create_table(warehouse, "t", COLUMNS)
    write(handle, pa.table([[1], ["x"]], COLUMNS))
    read = stream_read_builder(handle).with_projection(["b", "a"]).new_read()
    warehouse.alter_table("db.t", [SchemaChange.rename_column("b", "z"), SchemaChange.add_column("b", STRING)], False)
    write(warehouse.get_table("db.t"), pa.table({"a": [2], "z": ["y"], "b": ["other"]}))
    with stream_read_builder(handle).new_streaming_scan() as scan:
        plan = scan.plan()
    assert plan is not None
    assert sorted(read.to_arrow(plan.splits()).to_pylist(), key=str) == [{"b": "x", "a": 1}, {"b": "y", "a": 2}]


def scan_of(configure: Callable[[StreamReadBuilder], StreamReadBuilder]) -> Callable[[Table], Callable[[], Any]]:
    """A stream on the table as it is now, whose first plan is read later."""
    return lambda table: configure(stream_read_builder(table.handle())).new_streaming_scan().plan


def finished_range(table: Table) -> Callable[[], Any]:
    ends = (0, table.snapshot(3)["timeMillis"])
    builder = stream_read_builder(table.handle()).with_range(
        *(datetime.fromtimestamp(each / 1000, UTC) for each in ends)
    )
    with builder.new_streaming_scan() as scan:
        available(scan)
        position = scan.checkpoint()
    return builder.with_start(position=position).new_streaming_scan().plan


def named_snapshot(table: Table) -> Callable[[], Any]:
    directory = TableDirectory.of(table.handle())
    assert directory.identity
    return lambda: snapshot_with_id(directory, 5)


@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize(
    "read",
    [
        scan_of(lambda builder: builder.with_start(snapshot_id=5, full=True)),
        scan_of(lambda builder: builder.with_range(2, 5)),
        scan_of(lambda builder: builder.with_range(0, 2)),
        scan_of(lambda builder: builder.with_range(2, 5, "diff")),
        finished_range,
        named_snapshot,
    ],
    ids=["state", "range", "range from the beginning", "difference", "finished range", "named snapshot"],
)
def test_a_snapshot_that_a_recreated_table_lacks_is_not_the_error(
    table: Table, read: Callable[[Table], Callable[[], Any]], expired: bool
) -> None:
    reads = read(table)
    table.recreate()
    handle = table.handle()
    for key in range(7 if expired else 1):
        table.commit([key], table=handle)
    if expired:
        table.expire(7)
    with pytest.raises(TableChangedError, match="re-created"):
        reads()
        raise PositionExpiredError(0, None, None)
