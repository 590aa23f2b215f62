"""What `.option(...)` refuses, with one readable line that says what to do; schemas that a user gives."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange
from pyspark.sql.types import _parse_datatype_json_string

from pypaimon.spark.options.sink_options import parse_sink
from pypaimon.spark.options.source_options import Admission, parse
from pypaimon.spark.source import PaimonDataSource
from pypaimon.streaming import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.errors import CorruptTableError
from support.spark.queries import options, spelled
from support.tables.streamed_table import Table

PLACE = {"warehouse": "/w", "table": "db.t"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with a primary key."""
    return Table(tmp_path / "warehouse", primary_key=True)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"tabel": "db.t"}, "Unknown option 'tabel'. Did you mean 'table'"),
        ({"startingoffsets": "earliest"}, "Did you mean 'start'"),
        ({"push-filters": "true"}, "Did you mean 'filter'"),
        ({"maxrowspertriger": "1"}, "Did you mean 'maxRowsPerTrigger'"),
        ({"scan.snapshotid": "1"}, "Did you mean 'scan.snapshot-id'"),
        ({"maxrowspertrigger": "many"}, "'many' for key 'maxRowsPerTrigger'"),
        ({"maxrowspertrigger": "1", "read.stream.maxrowspertrigger": "2"}, "are both set, and differ"),
        ({"minrowspertrigger": "1"}, "Can't provide only one of read.stream.minRowsPerTrigger"),
        ({"minrowspertrigger": "9", "maxtriggerdelayms": "1", "maxrowspertrigger": "2"}, "swap them"),
        ({"mode": "cdc"}, "choose one of changelog, rows, files"),
        ({"mode": "changelog", "include-row-kind": "false"}, "contradict each other"),
        ({"mode": "files", "columns": "a"}, "hands out files"),
        ({"start": "latest", "start.tag": "x"}, "are both set"),
        ({"start": "latest", "start.full": "true"}, "goes with 'start.tag'"),
        ({"unmatched": "drop"}, "'unmatched' goes with 'filter'"),
        ({"columns": "a,,b"}, "give names with commas between"),
        ({"path": "/x"}, "'table' and 'path'"),
        ({"include-row-kind": "yes"}, "true or false"),
    ],
)
def test_bad_options_are_named(more: dict[str, str], message: str) -> None:
    with pytest.raises(StreamConfigError) as caught:
        parse({**PLACE, **more})
    assert message in str(caught.value)


def test_options_may_have_the_spelling_of_spark_or_of_paimon() -> None:
    spelled_otherwise = {
        "includeRowKind": "true",
        "startTag": "a",
        "fail-on-data-loss": "false",
        "max-rows-per-trigger": "3",
    }
    found = parse({**PLACE, **spelled_otherwise})
    assert (found.include_row_kind, found.start_tag, found.admission.max_rows) == (True, "a", 3)


@pytest.mark.parametrize(
    ("key", "least", "more"),
    [
        ("maxFilesPerTrigger", 1, {}),
        ("maxBytesPerTrigger", 1, {}),
        ("maxRowsPerTrigger", 1, {"minrowspertrigger": "1", "maxtriggerdelayms": "1"}),
        ("minRowsPerTrigger", 1, {"maxrowspertrigger": "1", "maxtriggerdelayms": "1"}),
        ("maxTriggerDelayMs", 1, {"minrowspertrigger": "1"}),
        ("scan.parallelism", 1, {}),
        ("batch-id", 0, {"query-id": "q"}),
    ],
)
def test_the_least_number_is_taken_and_the_next_one_refused(key: str, least: int, more: dict[str, str]) -> None:
    read = parse_sink if key == "batch-id" else parse
    read({**PLACE, **more, key.lower(): str(least)})
    with pytest.raises(StreamConfigError) as caught:
        read({**PLACE, **more, key.lower(): str(least - 1)})
    assert f"'{key}'" in str(caught.value) and f"number from {least}" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [({}, "'table' is missing"), ({"table": "db.t"}, "'warehouse' is missing"), ({"table": "t"}, "give the database")],
)
def test_a_table_must_be_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(StreamConfigError, match=message):
        parse(given)


def test_lower_cased_keys_get_their_case_back() -> None:
    parsed = parse({**PLACE, "fs.oss.accesskeyid": "a", "fs.s3.securitytoken": "b", "maxfilespertrigger": "3"})
    assert parsed.catalog == {"warehouse": "/w", "fs.oss.accessKeyId": "a", "fs.s3.securityToken": "b"}
    assert parsed.admission == Admission(max_files=3)


def test_a_misspelled_table_is_an_error_of_one_readable_line(table: Table) -> None:
    source = PaimonDataSource({**options(table), "table": "db.none"})
    with pytest.raises(StreamConfigError) as caught:
        source.schema()
    text = "".join(traceback.format_exception(caught.value))
    chain = text.split("The above exception was the direct cause")
    headline = next(line for part in chain for line in part.splitlines() if "PaimonSourceError" in line)
    assert "Table db.none does not exist" in headline
    assert "Correct option 'table'" in headline


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"columns": "k,x"}, "no column 'x'"),
        ({"filter": "x = 1"}, "no column 'x'"),
        ({"filter": "k = "}, "got the end"),
        ({"start": "newest"}, "choose one of latest-full"),
        ({"path": "/nowhere"}, "no Paimon table at '/nowhere'"),
    ],
)
def test_what_the_table_lacks_is_an_error_of_load(table: Table, more: dict[str, str], message: str) -> None:
    given = {**options(table), **spelled(more)}
    if "path" in more:
        given = more
    with pytest.raises(StreamConfigError) as caught:
        PaimonDataSource(given).schema()
    assert message in str(caught.value)


def struct(**columns: str) -> Any:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return _parse_datatype_json_string(json.dumps({"type": "struct", "fields": fields}))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"_row_kind": "string", "k": "long", "nope": "string"}, "a column 'nope', and the table has none"),
        ({"_row_kind": "string", "k": "integer"}, "has column 'k' as int, the table as bigint"),
        ({"k": "long"}, "no column '_row_kind'"),
        ({"_row_kind": "string"}, "no column of the table"),
    ],
)
def test_a_schema_that_does_not_fit_is_an_error_before_the_first_batch(
    table: Table, columns: dict[str, str], message: str
) -> None:
    reader = PaimonDataSource(options(table)).streamReader(struct(**columns))
    with pytest.raises(StreamConfigError, match=message):
        reader.initialOffset()


def test_a_schema_is_a_projection(table: Table) -> None:
    table.commit([("+I", 1, "a")])
    schema = struct(v="string", _snapshot_id="long", _row_kind="string")
    reader: Any = PaimonDataSource(options(table)).streamReader(schema)
    start = reader.initialOffset()
    (task,) = reader.partitions(start, reader.latestOffset(start, None))
    (batch,) = reader.read(task)
    assert batch.to_pylist() == [{"v": "a", "_snapshot_id": 1, "_row_kind": "+I"}]


def test_columns_that_a_schema_leaves_out_are_not_read(tmp_path: Path) -> None:
    """Their bytes are damaged, which a read of all columns sees."""
    table = Table(tmp_path / "warehouse").commit_each((1, 2))
    for path in table.path.rglob("*.parquet"):
        text = pq.read_metadata(path).row_group(0).column(1)
        start = text.dictionary_page_offset or text.data_page_offset
        data = bytearray(path.read_bytes())
        data[start : start + text.total_compressed_size] = b"\xff" * text.total_compressed_size
        path.write_bytes(data)
    source, some = PaimonDataSource(options(table)), struct(k="long")
    stream: Any = source.streamReader(some)
    start_of_stream = stream.initialOffset()
    batch: Any = source.reader(some)
    for reader, tasks in (
        (stream, stream.partitions(start_of_stream, stream.latestOffset(start_of_stream, None))),
        (batch, batch.partitions()),
    ):
        assert sorted(row["k"] for task in tasks for rows in reader.read(task) for row in rows.to_pylist()) == [1, 2]
    everything: Any = source.reader(source.schema())
    with pytest.raises(CorruptTableError):
        [list(everything.read(task)) for task in everything.partitions()]


def test_the_time_zone_is_an_option(tmp_path: Path) -> None:
    source = Table(tmp_path / "warehouse")
    local = AtomicType("TIMESTAMP(3) WITH LOCAL TIME ZONE")
    source.catalog.alter_table(source.name, [SchemaChange.add_column("t", local)])
    moments = pa.array([0], pa.timestamp("ms", "UTC"))
    source.write(pa.table({"k": [1], "v": ["a"], "t": moments}), table=source.handle())
    source.catalog.alter_table(source.name, [SchemaChange.update_column_type("t", AtomicType("STRING"))])
    shanghai = PaimonDataSource({**options(source), "time-zone": "Asia/Shanghai"})
    reader: Any = shanghai.streamReader(shanghai.schema())
    start = reader.initialOffset()
    (task,) = reader.partitions(start, reader.latestOffset(start, None))
    assert [batch["t"].to_pylist() for batch in reader.read(task)] == [["1970-01-01 08:00:00.000"]]
    nowhere = PaimonDataSource({**options(source), "time-zone": "Asia/Shangai"})
    with pytest.raises(StreamConfigError, match="there is no time zone 'Asia/Shangai'"):
        nowhere.streamReader(nowhere.schema()).initialOffset()


def test_batch_and_stream_options_do_not_mix(table: Table) -> None:
    table.commit([("+I", 1, "a")])
    for more in ({"incremental-between": "1,2"}, {"scan.version": "1"}):
        batch = PaimonDataSource({**options(table), **more})
        stream = batch.streamReader(batch.schema())
        with pytest.raises(StreamConfigError, match=f"'{next(iter(more))}' is for batch reads"):
            stream.initialOffset()
    for more, message in (
        ({"start": "latest"}, "'start' is for streams"),
        ({"scan.watermark": "1"}, "'scan.watermark' is not known to batch reads"),
        ({"scan.mode": "compacted-full"}, "'compacted-full' for key 'scan.mode'"),
    ):
        started = PaimonDataSource({**options(table), **more})
        with pytest.raises(StreamConfigError, match=message):
            started.reader(PaimonDataSource(options(table)).schema()).partitions()


def test_of_create_table_options_stay_and_what_spark_adds_goes(table: Table) -> None:
    given = options(table)
    added = {"provider": "pypaimon", "owner": "me", "serialization.format": "1", "location": "file:/x", "comment": "c"}
    twice = {**given, **{f"option.{key}": value for key, value in given.items()}}
    columns = PaimonDataSource({**added, **twice}).schema()
    assert columns.names == PaimonDataSource(given).schema().names
    reader: Any = PaimonDataSource({}).reader(columns)
    assert list(reader.partitions()) == []
    placed = PaimonDataSource({**added, "path": f"file:{table.path}"}).schema()
    assert list(PaimonDataSource({}).reader(placed).partitions()) == []
    secret = {"option.fs.s3.accesskeysecret": "hush"}
    with pytest.raises(StreamConfigError, match="must not store a secret") as caught:
        PaimonDataSource({**added, **twice, **secret}).schema()
    assert "hush" not in str(caught.value)


def test_the_columns_that_a_query_read_do_not_say_where_it_writes(table: Table) -> None:
    given = options(table)
    columns = PaimonDataSource({"provider": "p", **{f"option.{key}": value for key, value in given.items()}}).schema()
    with pytest.raises(StreamConfigError, match="INSERT INTO name WITH"):
        PaimonDataSource({}).writer(columns, False)


@pytest.mark.parametrize("key", ["scan.tag-name", "scan.version"])
def test_a_version_that_is_not_there_is_an_error_of_load(table: Table, key: str) -> None:
    with pytest.raises(StreamConfigError, match=f"'{key}' = 'none': there is no such tag; tags are: none"):
        PaimonDataSource({**options(table), key: "none"}).schema()


def test_partial_records_are_refused(tmp_path: Path) -> None:
    table = Table(tmp_path / "warehouse", primary_key=True, merge_engine="partial-update", rowkind__field="kind")
    source = PaimonDataSource(options(table))
    with pytest.raises(UnsupportedTableError, match="partial-update streaming reading is not supported"):
        source.streamReader(source.schema()).initialOffset()


def test_public_names_are_the_same_however_often_and_however_they_are_asked_for() -> None:
    import pypaimon.spark as ours
    from pypaimon.spark import register

    for name in ours.__all__:
        found = [getattr(ours, name) for _ in range(2)]
        assert callable(found[0]) and found[0] is found[1]
    assert register is ours.register
