"""The files that the sink writes: their metadata, one record of each key, and what is asked of the table for them."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pypaimon.streaming.metadata.paimon_table import PaimonTable
from support.crash.crashing_file_io import MortalFileIO

pytest.importorskip("pyspark", reason="Spark's tests run where pyspark is installed")

from pyspark.sql.types import BinaryType, DateType, DoubleType, LongType, StringType, StructField, StructType

from pypaimon.spark.spark_versions import arrow_schema
from pypaimon.spark.write.batch_writer import BatchTaskMessage, PaimonBatchWriter
from pypaimon.spark.write.sink import KeyOwnersError, Sink
from pypaimon.streaming import stream_read_builder
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.system_columns import VALUE_KIND
from pypaimon.streaming.paimon.internals import GenericRow, GenericRowSerializer
from pypaimon.streaming.writing.record_writer import RecordWriter
from pypaimon.streaming.writing.write_state import write_state
from support.samples import examples
from support.spark.driver import batch_tasks
from support.tables.handles import create_table

pytestmark = [pytest.mark.slow, pytest.mark.soak]

KEYED = pa.schema([("a", pa.int32()), ("b", pa.string()), ("c", pa.int32()), ("v", pa.int64())])
ROWS = StructType([StructField("id", LongType()), StructField("day", DateType()), StructField("v", StringType())])
COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("v", pa.string())])
PARTITIONS = 6


class Asked(MortalFileIO):
    """Counts what is asked for, by kind of file."""

    def __init__(self) -> None:
        super().__init__()
        self.read: Counter[str] = Counter()

    def new_input_stream(self, path: str) -> Any:
        self.read[_kind(path)] += 1
        return super().new_input_stream(path)


def _kind(path: str) -> str:
    name = path.rpartition("/")[2]
    return name.rpartition("-")[0][:13].rstrip("-") if "/manifest/" in path else "other"


def sink_of(warehouse: Any, name: str, rows: StructType, overwrite: bool = False) -> Sink:
    return Sink.of({"warehouse": warehouse.warehouse, "table": f"db.{name}"}, rows, overwrite, streaming=False)


def write(
    warehouse: Any, name: str, *tasks: Sequence[tuple[Any, ...]], rows: StructType = ROWS, overwrite: bool = False
) -> list[Any]:
    writer = PaimonBatchWriter(sink_of(warehouse, name, rows, overwrite))
    pickled = pickle.dumps(writer)
    messages = [pickle.loads(pickled).write(batches(task, rows)) for task in tasks]
    writer.commit(messages)
    return files_of(messages)


def files_of(messages: Sequence[BatchTaskMessage]) -> list[Any]:
    return [file for each in messages for message in each.files.messages for file in message.new_files]


def batches(task: Sequence[tuple[Any, ...]], rows: StructType) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(rows)
    columns = [
        pa.array(list(column), field.type) for column, field in zip(zip(*task, strict=True), schema, strict=True)
    ]
    yield pa.RecordBatch.from_arrays(columns, schema=schema)


def create(warehouse: Any, name: str, schema: pa.Schema = COLUMNS, **arguments: Any) -> Any:
    return create_table(warehouse, name, schema, **arguments)


def rows_of(warehouse: Any, name: str) -> list[tuple[Any, ...]]:
    builder = stream_read_builder(warehouse.get_table(f"db.{name}"))
    with builder.new_streaming_scan() as scan:
        data = builder.new_read().to_arrow(scan.plan().splits())
    columns = [column for column in data.schema.names if column != "_row_kind"]
    return sorted(zip(*(data[column].to_pylist() for column in columns), strict=True), key=str)


def state_of(warehouse: Any, name: str) -> list[tuple[Any, ...]]:
    """The state of a table that cannot be streamed."""
    tasks = batch_tasks({"warehouse": warehouse.warehouse, "table": f"db.{name}", "mode": "rows"})
    return sorted(tuple(row.values()) for task in tasks for batch in task for row in batch.to_pylist())


KEYS = st.tuples(st.integers(0, 2), st.sampled_from(["x", "y"]), st.integers(0, 2))


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 3), KEYS), min_size=1, max_size=25), st.permutations(["a", "b", "c"]))
def test_one_record_of_each_key_is_left_and_all_are_logged(
    warehouse: Any, changes: list[tuple[int, tuple[int, str, int]]], keys: list[str]
) -> None:
    name = f"t{abs(hash((tuple(changes), tuple(keys))))}"
    options = {"bucket": "1", "changelog-producer": "input"}
    table = create(warehouse, name, KEYED, primary_keys=keys, options=options)
    batch = pa.RecordBatch.from_arrays(
        [*(pa.array([key[index] for _, key in changes], KEYED.types[index]) for index in range(3)),
         pa.array(range(len(changes)), pa.int64()), pa.array([kind for kind, _ in changes], pa.int8())],
        schema=KEYED.append(pa.field(VALUE_KIND, pa.int8(), nullable=False)),
    )  # fmt: skip
    writer = RecordWriter(PaimonTable(table), "user", False)
    writer.write(batch)
    (message,) = writer.prepare()
    (file,), (changelog,) = message.new_files, message.changelog_files
    stored = pq.read_table(str(file.file_path), partitioning=None)
    expected = {key: (index, kind) for index, (kind, key) in enumerate(changes)}
    held = zip(*(stored[column].to_pylist() for column in ("a", "b", "c", "v", VALUE_KIND)), strict=True)
    assert {(a, b, c): (v, kind) for a, b, c, v, kind in held} == expected
    assert file.row_count == stored.num_rows == len(expected)
    deletes = sum(kind in (1, 3) for _, kind in expected.values())
    assert file.delete_row_count == deletes
    assert changelog.row_count == len(changes)
    assert changelog.delete_row_count == sum(kind in (1, 3) for kind, _ in changes)


KINDS = pa.array(["+I", "-U", "+U", "-D"])
MERGED = pa.schema([("k", pa.int64()), ("s", pa.int64()), ("v", pa.int64()), ("w", pa.string())])
SUM, GROUP = {"fields.v.aggregate-function": "sum"}, {"fields.s.sequence-group": "v,w"}
RETRACTING = [
    {"merge-engine": "aggregation", **SUM},
    {"merge-engine": "aggregation", "fields.v.aggregate-function": "max", "fields.v.ignore-retract": "true"},
    {"merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true", **SUM},
    {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    {"merge-engine": "partial-update", **GROUP},
    {"merge-engine": "partial-update", **GROUP, **SUM},
    {"merge-engine": "partial-update", **GROUP, "partial-update.remove-record-on-sequence-group": "s"},
]


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(0, 1), st.one_of(st.none(), st.integers(0, 3)),
            st.one_of(st.none(), st.integers(-5, 5)), st.one_of(st.none(), st.sampled_from("xy")),
        ),
        min_size=4, max_size=6,
    )
)  # fmt: skip
@pytest.mark.parametrize("options", RETRACTING)
def test_deletes_are_merged_in_a_batch_as_they_are_over_commits(
    warehouse: Any, options: dict[str, str], changes: list[tuple[Any, ...]]
) -> None:
    schema = StructType([StructField("_row_kind", StringType()), *_fields(MERGED)])
    rows = [(KINDS[kind].as_py(), *values) for kind, *values in changes]
    states = []
    for name, commits in (("one", [rows]), ("each", [[row] for row in rows])):
        table = f"{name}{abs(hash((str(options), str(changes))))}"
        create(warehouse, table, MERGED, primary_keys=["k"], options={"bucket": "1", **options})
        for commit in commits:
            write(warehouse, table, commit, rows=schema)
        states.append(state_of(warehouse, table))
    assert states[0] == states[1]


def _fields(schema: pa.Schema) -> list[StructField]:
    return [StructField(each.name, StringType() if each.type == pa.string() else LongType()) for each in schema]


def test_two_tasks_share_keys_where_the_order_does_not_matter(warehouse: Any) -> None:
    ordered = {"merge-engine": "aggregation", **SUM}
    free = {**ordered, "fields.s.aggregate-function": "max", "fields.w.aggregate-function": "max"}
    keyed = StructType(_fields(MERGED))
    tasks = [(1, 1, 2, "x")], [(1, 1, 3, "x")]
    create(warehouse, "free", MERGED, primary_keys=["k"], options={"bucket": "1", **free})
    write(warehouse, "free", *tasks, rows=keyed)
    assert state_of(warehouse, "free") == [(1, 1, 5, "x")]
    for name, options in (("ordered", ordered), ("removing", {**free, "aggregation.remove-record-on-delete": "true"})):
        create(warehouse, name, MERGED, primary_keys=["k"], options={"bucket": "1", **options})
        with pytest.raises(KeyOwnersError):
            write(warehouse, name, *tasks, rows=keyed)


def test_sequence_numbers_grow_within_each_bucket(warehouse: Any) -> None:
    create(warehouse, "t", primary_keys=["day", "id"], partition_keys=["day"], options={"bucket": "2"})
    days = [date(2024, 1, 1 + number) for number in range(2)]
    for value in "abc":
        written = write(warehouse, "t", [(key, day, value) for key in range(4) for day in days])
        before = write_state(PaimonTable(warehouse.get_table("db.t"))).sequence
        assert all(file.max_sequence_number <= before for file in written)
        assert min(file.min_sequence_number for file in write(warehouse, "t", [(0, days[0], value * 2)])) > before
    assert rows_of(warehouse, "t") == sorted(
        ((key, day, "cc" if (key, day) == (0, days[0]) else "c") for key in range(4) for day in days), key=str
    )


def test_rows_of_a_bucket_of_an_append_table_are_numbered_in_their_order(warehouse: Any) -> None:
    options = {"bucket": "1", "bucket-key": "id", "target-file-size": "300 b"}
    table = create(warehouse, "t", options=options)
    ranges, rows = [], []
    for batch in range(3):
        task = [(batch * 100 + row, date(2024, 1, 1), "v" * 50) for row in range(40)]
        rows += task
        written = write(warehouse, "t", task)
        assert len(written) > 1
        ranges += [(file.min_sequence_number, file.max_sequence_number, file.row_count) for file in written]
    assert all(last - first + 1 == count for first, last, count in ranges)
    assert all(one[1] + 1 == other[0] for one, other in pairwise(ranges))
    assert ranges[0][0] == 0
    builder = table.new_stream_read_builder()
    with builder.new_streaming_scan() as scan:
        found = builder.new_read().to_arrow(scan.plan().splits())
    assert found["id"].to_pylist() == [row[0] for row in rows]


def test_tasks_ask_nothing_of_the_files_that_are_there(warehouse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of tasks and partitions: the driver looks once, and at new manifests only."""
    arguments = {"primary_keys": ["day", "id"], "partition_keys": ["day"], "options": {"bucket": "2"}}
    create(warehouse, "t", **arguments)
    days = [date(2024, 1, 1 + number) for number in range(PARTITIONS)]
    for value in "abc":
        write(warehouse, "t", [(1, day, value) for day in days])
    asked = Asked()
    monkeypatch.setattr(
        "pypaimon.spark.write.sink.load_sink_table", lambda options: PaimonTable(_with(asked, warehouse))
    )
    writer = PaimonBatchWriter(sink_of(warehouse, "t", ROWS))
    pickled = pickle.dumps(writer)
    planned = Counter(asked.read)
    assert sum(planned.values()) - planned["other"] <= 3, planned
    tasks = [pickle.loads(pickled).write(batches([(2, day, "d")], ROWS)) for day in days]
    assert asked.read - planned <= Counter(other=0), asked.read - planned
    writer.commit(tasks)
    assert len(rows_of(warehouse, "t")) == 2 * PARTITIONS


def _with(file_io: Any, warehouse: Any) -> Any:
    table = warehouse.get_table("db.t")
    table.file_io = file_io
    return table


@pytest.mark.parametrize("engine", ["DEDUPLICATE", "Deduplicate", "PARTIAL_UPDATE", "First-Row"])
def test_the_merge_engine_is_read_in_any_case(warehouse: Any, engine: str) -> None:
    table = create(warehouse, "t", primary_keys=["id"], options={"bucket": "1", "merge-engine": engine})
    day = date(2024, 1, 1)
    with pytest.raises(KeyOwnersError, match="came from more than one task"):
        write(warehouse, "t", [(1, day, "one")], [(1, day, "two")])
    assert TableDirectory.of(table).snapshots.latest_id() is None
    write(warehouse, "t", [(1, day, "one"), (2, day, "two")])
    assert table.snapshot_manager().get_latest_snapshot().total_record_count == 2
    kinds = StructType([StructField("_row_kind", StringType()), *ROWS.fields])
    deletes = lambda: write(warehouse, "t", [("-D", 1, day, "one")], rows=kinds)  # noqa: E731
    if engine.lower() == "deduplicate":
        deletes()
        assert rows_of(warehouse, "t") == [(2, day, "two")]
    else:
        with pytest.raises(ValueError, match="which it does not accept with its options"):
            deletes()


@pytest.mark.parametrize("legacy", ["true", "false"])
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize(
    ("type_", "values"),
    [(DoubleType(), [float("inf"), -0.5]), (StringType(), ["a/b", "\xa0", " "]), (DateType(), [date(1969, 12, 31)])],
)
def test_files_are_where_readers_look(warehouse: Any, type_: Any, values: list[Any], keyed: bool, legacy: str) -> None:
    rows = StructType([StructField("id", LongType(), not keyed), StructField("p", type_, not keyed)])
    keys = {"primary_keys": ["p", "id"], "partition_keys": ["p"]} if keyed else {"partition_keys": ["p"]}
    options = {"partition.legacy-name": legacy, **({"bucket": "1"} if keyed else {})}
    table = create(warehouse, "t", arrow_schema(rows), options=options, **keys)
    task = [(number, value) for number, value in enumerate(values)]
    for file in write(warehouse, "t", task, rows=rows):
        assert Path(str(file.file_path)).exists()
    assert rows_of(warehouse, "t") == sorted(task, key=str)
    fields = table.partition_keys_fields
    partitions = pa.array([GenericRowSerializer.to_bytes(GenericRow([value], fields)) for value in values], pa.binary())
    directories = FilePaths.of(str(table.table_path), table.table_schema).partitions(partitions)
    assert all(list(Path(directory).rglob("data-*")) for directory in directories)


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (DoubleType(), [float("inf"), -0.0, 0.0, float("nan"), None]),
        (StringType(), ["", " ", "\xa0", "a/b", None]),
        (DateType(), [date(1, 1, 1), None]),
    ],
)
def test_an_overwrite_replaces_its_partition_only(warehouse: Any, type_: Any, values: list[Any]) -> None:
    rows = StructType([StructField("id", LongType()), StructField("p", type_)])
    create(warehouse, "t", arrow_schema(rows), partition_keys=["p"])
    write(warehouse, "t", list(enumerate(values)), rows=rows)
    for number, value in enumerate(values):
        write(warehouse, "t", [(number + 10, value)], rows=rows, overwrite=True)
        assert [row[0] for row in rows_of(warehouse, "t")] == sorted(
            [*range(10, 11 + number), *range(number + 1, len(values))], key=str
        )


def test_partitions_of_bytes_are_written_where_java_finds_them_again(warehouse: Any) -> None:
    rows = StructType([StructField("id", LongType()), StructField("p", BinaryType())])
    task = [(0, b"ab"), (1, b""), (2, b"\xff\x00"), (3, None)]
    create(warehouse, "t", arrow_schema(rows), partition_keys=["p"], options={"partition.legacy-name": "false"})
    for number, (_, value) in enumerate(task):
        write(warehouse, "t", [(number, value)], rows=rows, overwrite=True)
    assert rows_of(warehouse, "t") == sorted(task, key=str)
    create(warehouse, "legacy", arrow_schema(rows), partition_keys=["p"])
    with pytest.raises(UnsupportedTableError, match=r"partition column 'p' \(BYTES\) cannot be written"):
        write(warehouse, "legacy", task, rows=rows)


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, SystemExit])
def test_a_task_that_is_ended_deletes_what_it_wrote(warehouse: Any, error: type[BaseException]) -> None:
    create(warehouse, "t", options={"target-file-size": "1 b"})

    def ended() -> Iterator[pa.RecordBatch]:
        yield from batches([(1, date(2024, 1, 1), "a"), (2, date(2024, 1, 1), "b")], ROWS)
        assert list(Path(str(warehouse.get_table("db.t").table_path)).rglob("data-*"))
        raise error

    with pytest.raises(error):
        sink_of(warehouse, "t", ROWS).write(ended(), None)
    assert not list(Path(str(warehouse.get_table("db.t").table_path)).rglob("data-*"))
