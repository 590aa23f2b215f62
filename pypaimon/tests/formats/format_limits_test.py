"""What a format cannot hold as Java needs it is refused by name, and nothing is left of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import stream_write_builder
from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.writing.record_writer import RecordWriter
from support.tables.handles import create_table
from support.tables.written_rows import rows_of

VARIANT = pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)])
MICROS, NANOS = pa.timestamp("us"), pa.timestamp("ns")


@pytest.mark.parametrize(
    ("format_", "columns", "message"),
    [
        ("avro", [("a", MICROS), ("b", NANOS)], r"'b' is TIMESTAMP\(9\), and Avro .* Set it to parquet or orc or row"),
        ("avro", [("b", pa.list_(NANOS))], "'b' is ARRAY"),
        ("orc", [("b", VARIANT)], r"'b' is VARIANT, which is written into parquet files only.* Set it to parquet"),
        ("avro", [("b", VARIANT)], "into parquet files only"),
        ("row", [("b", VARIANT)], "into parquet files only"),
        (
            "orc",
            [("b", pa.list_(pa.float32(), 3))],
            r"'b' is VECTOR<FLOAT, 3>, which is written into parquet or avro or row files only",
        ),
    ],
)
def test_types_are_refused_before_the_first_row(
    warehouse: Any, format_: str, columns: list[tuple[str, pa.DataType]], message: str
) -> None:
    table = create_table(warehouse, "t", pa.schema(columns), options={"file.format": format_})
    with pytest.raises(UnsupportedTableError, match=message):
        RecordWriter(PaimonTable(table), "user", False)


@pytest.mark.parametrize("format_", ["orc", "avro", "row"])
def test_a_field_may_have_the_name_of_a_type_that_a_format_lacks(warehouse: Any, format_: str) -> None:
    row = pa.struct([("variant", pa.int32()), ("vector_id", pa.int32())])
    schema = pa.schema([("r", row), ("a", pa.list_(row)), ("m", pa.map_(pa.string(), row))])
    table = create_table(warehouse, "t", schema, options={"file.format": format_})
    RecordWriter(PaimonTable(table), "user", False)
    deep = pa.schema([("r", pa.struct([("x", pa.map_(pa.string(), pa.list_(VARIANT)))]))])
    table = create_table(warehouse, "deep", deep, options={"file.format": format_})
    with pytest.raises(UnsupportedTableError, match=r"'r' is ROW.*, which is written into parquet files only"):
        RecordWriter(PaimonTable(table), "user", False)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (MICROS, -1, "'v' holds a time before 1970"),
        (pa.struct([("t", NANOS)]), {"t": -1_000_001}, "'v' holds a time before 1970"),
    ],
)
def test_values_are_refused_that_orc_would_spoil(warehouse: Any, kind: pa.DataType, value: Any, message: str) -> None:
    schema = pa.schema([("v", kind)])
    table = create_table(warehouse, "t", schema, options={"file.format": "orc", "target-file-size": "1 b"})
    writer = RecordWriter(PaimonTable(table), "user", False)
    writer.write(rows_of(schema, [(None,)]))
    with pytest.raises(UnsupportedTableError, match=message):
        writer.write(rows_of(schema, [(value,)]))
    writer.abort()
    assert not list(Path(str(table.table_path)).rglob("*.orc"))


def test_milliseconds_before_1970_are_written(warehouse: Any) -> None:
    schema = pa.schema([("v", MICROS)])
    table = create_table(warehouse, "t", schema, options={"file.format": "orc"})
    writer = RecordWriter(PaimonTable(table), "user", False)
    writer.write(rows_of(schema, [(-1_000,)]))
    assert len(writer.prepare()) == 1


@pytest.mark.parametrize("format_", ["parquet", "orc", "avro"])
def test_a_codec_that_a_format_lacks_is_refused(warehouse: Any, format_: str) -> None:
    schema = pa.schema([("v", pa.int32())])
    table = create_table(warehouse, "t", schema, options={"file.format": format_, "file.compression": "lzo"})
    writer = RecordWriter(PaimonTable(table), "user", False)
    writer.write(rows_of(schema, [(1,)]))
    with pytest.raises(StreamConfigError, match=r"'file\.compression' = 'lzo'"):
        writer.prepare()
    writer.abort()
    assert not [path for path in Path(str(table.table_path)).rglob("data-*") if path.is_file()]


@pytest.mark.parametrize("format_", ["lance", "csv"])
def test_another_format_is_refused(warehouse: Any, format_: str) -> None:
    table = create_table(warehouse, "t", pa.schema([("v", pa.int32())]), options={"file.format": format_})
    with pytest.raises(UnsupportedTableError, match=f"'file.format' = '{format_}' cannot be written"):
        RecordWriter(PaimonTable(table), "user", False)


def test_manifests_of_another_format_are_refused_before_the_first_row(warehouse: Any) -> None:
    table = create_table(warehouse, "t", pa.schema([("v", pa.int32())]), options={"manifest.format": "orc"})
    with pytest.raises(UnsupportedTableError, match=r"'manifest\.format'"), stream_write_builder(table).open_sync():
        pytest.fail("the writer opens")
