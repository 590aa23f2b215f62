"""Partitions of every type in the bytes that Java gives them: rows of one value are in one partition, whoever wrote."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pypaimon import CatalogFactory
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import StreamConfigError, compact, stream_read_builder, stream_write_builder
from pypaimon.streaming.commit.conflicts import TableState
from pypaimon.streaming.errors import BadRowError, UnsupportedTableError
from pypaimon.streaming.filtering.partition_spec import PartitionSpec
from pypaimon.streaming.formats.binary_row_encoding import encoded_row
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.writing.record_writer import NewPartitions
from support.java.live import JavaError, LiveJava
from support.tables.handles import (
    batch_table,
    catalog_with_database,
    create_table,
    write_by_pypaimon,
    write_by_stream,
    write_with,
)

STRICT, FORMATTER = "partition.timestamp-format.strict", "partition.timestamp-formatter"
PATTERN = "partition.timestamp-pattern"

pytestmark = pytest.mark.java

TYPES: dict[str, list[Any]] = {
    "DECIMAL(30, 2)": ["-1.28", "1.28", "-327.68", "0.00", "-0.01", "12345678901234567890123456.78", "2.55"],
    "DECIMAL(10, 2)": ["-1.28", "0.00"],
    "TIMESTAMP(6)": ["2024-02-29T12:34:56.123456", "1969-12-30T23:59:59.000001"],
    "TIMESTAMP(9)": ["2024-02-29T12:34:56.123456789", "2024-02-29T12:34:56.123456788"],
    "TIMESTAMP(3)": ["2024-02-29T12:34:56.123"],
    "TIME(3)": ["12:34:56.789"],
    "STRING": ["a", "1234567", "12345678", "ü"],
    "TINYINT": [-1, 7],
    "DATE": ["1969-12-31", "2024-02-29"],
    "BOOLEAN": [False, True],
    "DOUBLE": [-2.25, 0.0],
    "FLOAT": ["NaN", -0.0],
}


def partition_rows(table: Any) -> list[bytes]:
    """Of every entry of the latest snapshot."""
    directory = TableDirectory.of(table)
    snapshot = directory.snapshots.get_latest_snapshot()
    assert snapshot is not None
    manifests = directory.manifests.manifest_lists([snapshot.base_manifest_list, snapshot.delta_manifest_list])
    found: list[bytes] = directory.manifests.entries(pa.concat_tables(manifests))["partition"].to_pylist()
    return found


def rows_of(table: Any) -> pa.Table:
    with stream_read_builder(table).with_end(latest=True).with_include_row_kind(False).open_sync() as stream:
        return pa.concat_tables(batch.rows for batch in stream)


def rows_in_java(java: LiveJava) -> int:
    reply = java.call("read", options={"scan.mode": "latest-full"})
    return sum(len(split["rows"]) for plan in reply["plans"] for split in plan["splits"])


TEXTS: dict[str, tuple[list[Any], list[str], list[str]]] = {
    "DATE": (
        ["1969-12-31", "2024-02-29", None],
        ["2024-02-29", "2024-2-29", "19782", "-1", "1969-12-31", "2024-01-01", "__DEFAULT_PARTITION__"],
        ["soon", "2024-02-30", ""],
    ),
    "INT": ([7, -7, None], ["7", "+7", "-7", "007", "8", "__DEFAULT_PARTITION__"], ["7.0", " 7", "", "7_0"]),
    "DECIMAL(10, 2)": (["1.50", "-0.01"], ["1.5", "1.50", "15e-1", "-.01", "+1.5", "9"], ["one", "", " 1.5"]),
    "BOOLEAN": ([True, False], ["true", "T", "Yes", "1", "0", "FALSE"], ["on", " true", ""]),
    "DOUBLE": ([0.0, -0.0, "NaN", 1.5], ["0", "-0.0", "NaN", "1.5", " 15e-1 ", "+1.5"], ["nan", "1_5", "", "inf"]),
    "FLOAT": ([0.1, 0.5], ["0.1", "0.5", "5e-1"], ["0.10000000001", "x"]),
    "TIMESTAMP(3)": (
        ["2024-02-29T08:30:00", "2024-02-29T08:30:00.120", "2024-02-29T00:00:00"],
        ["2024-02-29 08:30:00", "2024-2-29 8:30:0", "2024-02-29", "1709195400120", "2024-02-29 08:30:00.12"],
        ["2024-02-29 08:30", "24-02-29", "2024-02-29 08:30:00Z"],
    ),
    "TIME(3)": (["08:30:00", "08:30:00.120"], ["08:30:00", "8:30", "8:30:0.12", "30600120", "08"], ["noon", ""]),
    "STRING": (["a", "", "2024"], ["a", "", "2024", "b", "__DEFAULT_PARTITION__"], []),
}
"""Values of a partition column, texts that name partitions, and texts that Java refuses, by type."""


@pytest.mark.parametrize("kind", TEXTS)
def test_a_text_names_the_partition_that_java_overwrites_by_it(java: LiveJava, tmp_path: Path, kind: str) -> None:
    values, texts, wrong = TEXTS[kind]
    java.call("create", warehouse=str(tmp_path), fields=[["p", kind], ["k", "INT"]], partition_keys=["p"],
              primary_keys=[], options={"bucket": "-1", "write-only": "true"})  # fmt: skip
    rows = [["+I", value, number] for number, value in enumerate(values)]
    static = {"options": {"dynamic-partition-overwrite": "false"}, "flushes": []}
    table = CatalogFactory.create({"warehouse": str(tmp_path)}).get_table("d.t")
    fields = table.partition_keys_fields
    for text in texts:
        java.call("write", flushes=[rows])
        before = live_partitions(table)
        named = PartitionSpec.of(table.table_schema, {"p": text}, "partition").matches(pa.array(before), fields)
        java.call("overwrite", partition={"p": text}, **static)
        assert live_partitions(table) == pa.array(before).filter(pc.invert(named)).to_pylist(), text
    for text in wrong:
        with pytest.raises(JavaError):
            java.call("overwrite", partition={"p": text}, **static)
        with pytest.raises(StreamConfigError):
            PartitionSpec.of(table.table_schema, {"p": text}, "partition")


def live_partitions(table: Any) -> list[bytes]:
    directory = TableDirectory.of(table)
    state = TableState(directory, directory.snapshots.get_latest_snapshot())
    return sorted({each.partition for each in state.files(None)})


FORMATTERS = [
    (None, "$p"),
    ("yyyyMMdd", None),
    ("yyyy-MM-dd HH:mm:ss", None),
    ("yyyy-M-d", None),
    ("yyyy-MM-dd['T'HH[:mm[:ss[.SSS]]]]", None),
    ("uuuu/MM/dd", "$p/01"),
    ("yyMMdd", None),
    ("yyyyMM", None),
    ("yyyy-MM-dd HH:mm", "$p $q:00"),
]
TIMES = [
    *("20240229", "2024-02-29", "2024-2-9", "2024-13-01", "2024-00-10", "2024-02-31", "2024-01-32", "202402290", "x"),
    *("2024-02-29 08:30:00", "2024-02-29 24:30:00", "2024-02-29T08:30", "2024-02-29T08", "2024-02-29T08:30:00.120"),
    *("2024/02", "240229", "0000-01-01", "", "2024-02-29 8:3:0.5", " 2024-02-29", "+2024-01-01", "-2024-01-01"),
]


@pytest.mark.parametrize(("formatter", "pattern"), FORMATTERS, ids=map(str, FORMATTERS))
def test_only_partitions_that_java_takes_for_times_are_written(
    java: LiveJava, tmp_path: Path, formatter: str | None, pattern: str | None
) -> None:
    options = {STRICT: "true", FORMATTER: formatter, PATTERN: pattern, "bucket": "-1"}
    given = {key: value for key, value in options.items() if value is not None}
    java.call("create", warehouse=str(tmp_path), fields=[["p", "STRING"], ["q", "INT"]], partition_keys=["p", "q"],
              primary_keys=[], options=given)  # fmt: skip
    table = CatalogFactory.create({"warehouse": str(tmp_path)}).get_table("d.t")
    checked = NewPartitions.of(PaimonTable(table))
    assert checked is not None
    for text in [*TIMES, None]:
        is_written = is_done(JavaError, partial(java.call, "write", flushes=[[["+I", text, 7]]]))
        assert is_done(BadRowError, partial(checked.check, (text, 7))) is is_written, text


def is_done(error: type[Exception], call: Callable[[], Any]) -> bool:
    with suppress(error):
        call()
        return True
    return False


def test_a_writer_takes_no_partition_that_says_no_time(tmp_path: Path) -> None:
    columns = pa.schema([("p", pa.string()), ("k", pa.int64())])
    table = made(tmp_path, columns, **{STRICT: "true", FORMATTER: "yyyyMMdd"})
    with stream_write_builder(table).open_sync() as writer:
        writer.write(pa.table({"p": ["20240229"], "k": [1]}, schema=columns))
        writer.commit()
        with pytest.raises(BadRowError, match=r"'p': '2024-02-29'.*partition.timestamp-formatter"):
            writer.write(pa.table({"p": ["2024-02-29"], "k": [2]}, schema=columns))
            writer.commit()
    with pytest.raises(UnsupportedTableError, match=r"'MMM' is not supported here"):
        stream_write_builder(table.copy({FORMATTER: "yyyy-MMM-dd"})).open_sync().__enter__()
    assert rows_of(table.copy({STRICT: "false"})).num_rows == 1


@pytest.mark.parametrize("keyed", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_rows_of_one_partition_are_in_one_whatever_wrote_them(java: LiveJava, tmp_path: Path, keyed: bool) -> None:
    for number, (kind, values) in enumerate(TYPES.items()):
        warehouse = str(tmp_path / str(number))
        given = [(value, text) for value in (values if keyed else [*values, None]) for text in ("x", "longer than 7")]
        fields = [["p", f"{kind} NOT NULL" if keyed else kind], ["s", "STRING NOT NULL"], ["k", "BIGINT NOT NULL"]]
        java.call(
            "create", warehouse=warehouse, fields=fields, partition_keys=["p", "s"],
            primary_keys=["p", "s", "k"] if keyed else [],
            options={"bucket": "1", "write-only": "true", **({} if keyed else {"bucket-key": "k"})},
        )  # fmt: skip
        java.call("write", flushes=[[["+I", *each, 1] for each in given]])
        table = CatalogFactory.create({"warehouse": warehouse}).get_table("d.t")
        write_by_stream(table, rows_of(table))
        assert len(set(partition_rows(table))) == len(given), kind
        assert rows_in_java(java) == len(given) * (1 if keyed else 2), kind
        report = compact(table, full=True)
        assert report is not None
        assert rows_in_java(java) == len(given) * (1 if keyed else 2), kind
        assert len(set(partition_rows(table))) == len(given), kind


def made(warehouse: Path, columns: pa.Schema, *keys: str, **options: str) -> Any:
    catalog = catalog_with_database(warehouse)
    return create_table(catalog, "t", columns, partition_keys=["p"], primary_keys=list(keys), options=options)


def written_by_pypaimon(table: Any, rows: pa.Table) -> None:
    write_by_pypaimon(table, rows)


def overwritten(table: Any, rows: pa.Table) -> None:
    """The partitions of the rows hold these."""
    write_with(stream_write_builder(table).with_overwrite(), rows)


FINE = pa.schema([("p", pa.timestamp("us")), ("k", pa.int64())])
FINEST = pa.schema([("p", pa.timestamp("ns")), ("k", pa.int64())])


def test_partitions_with_the_bytes_of_pypaimon_are_compacted_under_those(tmp_path: Path) -> None:
    table = made(tmp_path, FINE)
    for key in range(3):
        written_by_pypaimon(table, pa.table({"p": [None], "k": [key]}, schema=FINE))
    before = set(partition_rows(table))
    assert before != {encoded_row([None], table.partition_keys_fields)}
    report = compact(table, full=True)
    assert report is not None and report.after.files == 1
    assert set(partition_rows(table)) == before
    assert sorted(rows_of(table)["k"].to_pylist()) == [0, 1, 2]


def test_an_overwrite_replaces_a_partition_with_the_bytes_of_pypaimon(tmp_path: Path) -> None:
    table = made(tmp_path, FINE)
    written_by_pypaimon(table, pa.table({"p": [None, None], "k": [1, 2]}, schema=FINE))
    overwritten(table, pa.table({"p": [None], "k": [3]}, schema=FINE))
    assert batch_table(table)["k"].to_pylist() == [3]


def test_partitions_that_differ_by_nanoseconds_are_overwritten_each_by_itself(tmp_path: Path) -> None:
    table = made(tmp_path, FINEST)
    write_by_stream(table, pa.table({"p": [123_456_788, 123_456_789], "k": [1, 2]}, schema=FINEST))
    directory = TableDirectory.of(table)
    (manifest,) = TableState(directory, directory.snapshots.get_latest_snapshot()).manifests
    stats = manifest["_PARTITION_STATS"]
    assert {stats["_MIN_VALUES"], stats["_MAX_VALUES"]} == set(partition_rows(table))
    overwritten(table, pa.table({"p": [123_456_789], "k": [3]}, schema=FINEST))
    rows = rows_of(table)
    assert sorted(zip(rows["k"].to_pylist(), rows["p"].cast(pa.int64()).to_pylist(), strict=True)) == [
        (1, 123_456_788), (3, 123_456_789),
    ]  # fmt: skip


@pytest.mark.parametrize("value", [pa.scalar(123_456_789, pa.timestamp("ns")), pa.scalar(math.nan)], ids=str)
def test_a_partition_with_other_buckets_takes_no_rows_whatever_its_value(tmp_path: Path, value: pa.Scalar) -> None:
    columns = pa.schema([pa.field("p", value.type, nullable=False), pa.field("k", pa.int64(), nullable=False)])
    rows = pa.table([pa.array([value]), pa.array([1])], schema=columns)
    table = made(tmp_path, columns, "p", "k", bucket="1")
    write_by_stream(table, rows)
    catalog = CatalogFactory.create({"warehouse": str(tmp_path)})
    catalog.alter_table("db.t", [SchemaChange.set_option("bucket", "2")], False)
    with (
        stream_write_builder(catalog.get_table("db.t")).open_sync() as writer,
        pytest.raises(UnsupportedTableError, match="divided into 1 buckets"),
    ):
        writer.write(rows)
        writer.commit()
