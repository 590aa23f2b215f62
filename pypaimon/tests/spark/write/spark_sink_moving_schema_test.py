"""The schema of a table changes while a batch is written: what was planned is what is committed, or nothing is."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

pytest.importorskip("pyspark", reason="Spark's tests run where pyspark is installed")

from pyspark import TaskContext
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pypaimon.spark.write.batch_writer import PaimonBatchWriter
from pypaimon.spark.write.sink import Sink
from pypaimon.spark.write.stream_writer import PaimonStreamWriter
from pypaimon.streaming.errors import CommitConflictError, TableChangedError, UnsupportedTableError
from pypaimon.streaming.writing.row_layout import SchemaMismatchError
from support.tables.handles import batch_table

pytestmark = pytest.mark.slow

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string()), ("w", pa.int32())])
ROWS = StructType([StructField("id", LongType()), StructField("v", StringType())])
KINDS: dict[str, dict[str, Any]] = {
    "append": {},
    "upsert": {"primary_keys": ["id"], "options": {"bucket": "2"}},
    "buckets": {"options": {"bucket": "2", "bucket-key": "id"}},
}


class Table:
    """A table, and a batch that is written to it while it changes."""

    def __init__(self, catalog: Any, warehouse: Path, **arguments: Any) -> None:
        self.catalog, self.arguments = catalog, arguments
        self.options = {"warehouse": str(warehouse), "table": "db.t"}
        self.create()

    def create(self) -> None:
        self.catalog.create_table("db.t", Schema.from_pyarrow_schema(COLUMNS, **self.arguments), False)

    def alter(self, *changes: Any) -> None:
        self.catalog.alter_table("db.t", list(changes))

    def write(self, key: int, meanwhile: Callable[[], None] = lambda: None, tasks: int = 1) -> None:
        """Write and commit one row per task; the table changes before the last task begins, and before the commit."""
        writer = PaimonBatchWriter(Sink.of(self.options, ROWS, False, streaming=False))
        pickled = pickle.dumps(writer)
        messages = []
        for task in range(tasks):
            if task == tasks - 1:
                meanwhile()
            messages.append(pickle.loads(pickled).write(_rows(key + task)))
        pickle.loads(pickle.dumps(writer)).commit(messages)

    def stream_writer(self) -> PaimonStreamWriter:
        return PaimonStreamWriter(Sink.of(self.options, ROWS, False, streaming=True))

    def rows(self) -> list[dict[str, Any]]:
        data = batch_table(self.catalog.get_table("db.t"))
        found: list[dict[str, Any]] = data.sort_by("id").to_pylist()
        return found

    def snapshots(self) -> list[dict[str, Any]]:
        paths = Path(str(self.catalog.get_table("db.t").table_path), "snapshot").glob("snapshot-*")
        return [json.loads(path.read_bytes()) for path in sorted(paths)]


@contextmanager
def in_task(properties: dict[str, str]) -> Iterator[None]:
    """As within a task of Spark that has these local properties."""
    context = TaskContext()
    context._localProperties = properties
    TaskContext._taskContext = context
    try:
        yield
    finally:
        TaskContext._taskContext = None


def _rows(key: int) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"id": pa.array([key], pa.int64()), "v": [f"v{key}"]})


@pytest.fixture(params=KINDS)
def table(request: Any, warehouse: Any, tmp_path: Path) -> Table:
    return Table(warehouse, tmp_path / "warehouse", **KINDS[request.param])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([SchemaChange.rename_column("v", "renamed")], {"renamed": "v1", "w": None}),
        ([SchemaChange.add_column("x", AtomicType("INT"))], {"v": "v1", "w": None, "x": None}),
        ([SchemaChange.drop_column("v")], {"w": None}),
        ([SchemaChange.drop_column("v"), SchemaChange.add_column("v", AtomicType("STRING"))], {"w": None, "v": None}),
        ([SchemaChange.rename_column("v", "x"), SchemaChange.rename_column("w", "v")], {"x": "v1", "v": None}),
        ([SchemaChange.update_column_type("w", AtomicType("BIGINT"))], {"v": "v1", "w": None}),
    ],
)
def test_columns_that_change_meanwhile_hold_what_was_written(
    table: Table, changes: list[Any], expected: dict[str, Any]
) -> None:
    table.write(1, lambda: table.alter(*changes), tasks=2)
    second = {name: value and "v2" for name, value in expected.items()}
    assert table.rows() == [{"id": 1, **expected}, {"id": 2, **second}]
    (snapshot,) = table.snapshots()
    assert snapshot["schemaId"] == table.catalog.get_table("db.t").table_schema.id == 1


@pytest.mark.parametrize(
    "change", [SchemaChange.rename_column("v", "renamed"), SchemaChange.drop_column("v"), SchemaChange.drop_column("w")]
)
def test_a_stream_stops_at_its_commit_where_a_column_of_its_own_was_changed(table: Table, change: Any) -> None:
    """Spark makes another writer to commit, which checks the columns of the query anew."""
    properties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "0"}
    writer = pickle.loads(pickle.dumps(table.stream_writer()))
    with in_task(properties):
        message = writer.write(_rows(1))
    table.alter(change)
    if change.field_names == ["w"]:
        table.stream_writer().commit([message], 0)
        assert table.rows() == [{"id": 1, "v": "v1"}]
        return
    with pytest.raises(SchemaMismatchError, match="the table has no column 'v'"):
        table.stream_writer()
    assert table.snapshots() == []


def test_a_table_that_was_recreated_gets_no_rows_of_the_one_before(table: Table) -> None:
    def replace() -> None:
        table.catalog.drop_table("db.t", False)
        table.create()

    with pytest.raises(TableChangedError, match=r"db\.t was dropped or recreated.*Nothing was committed"):
        table.write(1, replace)
    assert table.snapshots() == []


def test_a_schema_that_was_rolled_back_is_an_error(table: Table) -> None:
    table.alter(SchemaChange.add_column("x", AtomicType("INT")))
    path = Path(str(table.catalog.get_table("db.t").table_path), "schema", "schema-1")
    with pytest.raises(TableChangedError, match="its schema 1 was rolled back"):
        table.write(1, path.unlink)
    assert table.snapshots() == []


def test_another_schema_of_the_same_id_is_an_error(table: Table) -> None:
    table.alter(SchemaChange.rename_column("w", "x"))
    path = Path(str(table.catalog.get_table("db.t").table_path), "schema", "schema-1")

    def replace() -> None:
        path.unlink()
        table.alter(SchemaChange.rename_column("v", "y"))

    with pytest.raises(TableChangedError, match="its schema 1 was rolled back"):
        table.write(1, replace)
    assert table.snapshots() == []


def test_buckets_that_are_rescaled_meanwhile_are_those_that_rows_were_divided_into(
    warehouse: Any, tmp_path: Path
) -> None:
    table = Table(warehouse, tmp_path / "warehouse", primary_keys=["id"], options={"bucket": "2"})
    table.write(1, lambda: table.alter(SchemaChange.set_option("bucket", "5")))
    entries = _entries(warehouse)
    assert {entry.total_buckets for entry in entries} == {2}
    with pytest.raises(UnsupportedTableError, match=r"divided into 2 buckets, and the table's option 'bucket' is 5"):
        table.write(2)
    assert [row["id"] for row in table.rows()] == [1]
    _overwrite(table, 3)
    assert {entry.total_buckets for entry in _entries(warehouse)} == {5}
    table.write(4)
    assert [row["id"] for row in table.rows()] == [3, 4]


@pytest.mark.parametrize("kind", ["upsert", "buckets"])
def test_a_partition_that_is_divided_again_meanwhile_takes_no_rows_of_the_old_buckets(
    warehouse: Any, tmp_path: Path, kind: str
) -> None:
    table = Table(warehouse, tmp_path / "warehouse", **KINDS[kind])
    table.write(1)

    def divide_again() -> None:
        table.alter(SchemaChange.set_option("bucket", "5"))
        _overwrite(table, 3)

    with pytest.raises(CommitConflictError, match="was rescaled meanwhile"):
        table.write(10, divide_again, tasks=2)
    table.alter(SchemaChange.set_option("bucket", "2"))
    with in_task({"sql.streaming.queryId": "q", "streaming.sql.batchId": "0"}):
        _overwrite(table, 3)
        pickled = pickle.dumps(table.stream_writer())
        message = pickle.loads(pickled).write(_rows(4))
        divide_again()
        with pytest.raises(CommitConflictError, match="was rescaled meanwhile"):
            pickle.loads(pickled).commit([message], 0)
    assert [row["id"] for row in table.rows()] == [3]
    assert len(list(Path(str(warehouse.get_table("db.t").table_path)).rglob("*.parquet"))) == 4


def _overwrite(table: Table, key: int) -> None:
    writer = PaimonBatchWriter(Sink.of(table.options, ROWS, True, streaming=False))
    writer = pickle.loads(pickle.dumps(writer))
    writer.commit([writer.write(_rows(key))])


def _entries(warehouse: Any) -> list[Any]:
    table = warehouse.get_table("db.t")
    return list(table.new_read_builder().new_scan().file_scanner.plan_files())
