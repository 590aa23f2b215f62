"""Partitions of every type in the bytes that Java gives them: rows of one value are in one partition, whoever wrote."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import compact, stream_read_builder, stream_write_builder
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats.binary_row_encoding import encoded_row
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.writing.commit.table_state import TableState
from support.java.live import LiveJava

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


@pytest.mark.parametrize("keyed", [False, True])
def test_rows_of_one_partition_are_in_one_whoever_wrote_them(java: LiveJava, tmp_path: Path, keyed: bool) -> None:
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
        with stream_write_builder(table).open_sync() as writer:
            writer.write(rows_of(table))
            writer.commit()
        assert len(set(partition_rows(table))) == len(given), kind
        assert rows_in_java(java) == len(given) * (1 if keyed else 2), kind
        report = compact(table, full=True)
        assert report is not None
        assert rows_in_java(java) == len(given) * (1 if keyed else 2), kind
        assert len(set(partition_rows(table))) == len(given), kind


def made(warehouse: Path, columns: pa.Schema, *keys: str, **options: str) -> Any:
    """A table with the partition column `p`."""
    catalog = CatalogFactory.create({"warehouse": str(warehouse)})
    catalog.create_database("db", True)
    catalog.create_table("db.t", Schema.from_pyarrow_schema(columns, ["p"], list(keys), options), False)
    return catalog.get_table("db.t")


def written_by_pypaimon(table: Any, rows: pa.Table) -> None:
    builder = table.new_batch_write_builder()
    writer, commit = builder.new_write(), builder.new_commit()
    writer.write_arrow(rows)
    commit.commit(writer.prepare_commit())


def overwritten(table: Any, rows: pa.Table) -> None:
    """The partitions of the rows hold these."""
    with stream_write_builder(table).with_overwrite().open_sync() as writer:
        writer.write(rows)
        writer.commit()


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
    builder = table.new_read_builder()
    assert builder.new_read().to_arrow(builder.new_scan().plan().splits())["k"].to_pylist() == [3]


def test_partitions_that_differ_by_nanoseconds_are_overwritten_each_by_itself(tmp_path: Path) -> None:
    table = made(tmp_path, FINEST)
    with stream_write_builder(table).open_sync() as writer:
        writer.write(pa.table({"p": [123_456_788, 123_456_789], "k": [1, 2]}, schema=FINEST))
        writer.commit()
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
    with stream_write_builder(table).open_sync() as writer:
        writer.write(rows)
        writer.commit()
    catalog = CatalogFactory.create({"warehouse": str(tmp_path)})
    catalog.alter_table("db.t", [SchemaChange.set_option("bucket", "2")], False)
    with (
        stream_write_builder(catalog.get_table("db.t")).open_sync() as writer,
        pytest.raises(UnsupportedTableError, match="divided into 1 buckets"),
    ):
        writer.write(rows)
        writer.commit()
