"""Every type of Paimon through the real path: Spark's type, a value, and null."""

from __future__ import annotations

from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema
from pyspark.sql import Row

from support.spark.queries import Collected
from support.tables.handles import catalog_with_database, write_by_pypaimon

pytestmark = pytest.mark.spark

NAIVE, UTC = datetime(2026, 11, 21, 8, 30, 1, 123456), datetime(2026, 11, 21, 8, 30, 1, 123456, timezone.utc)
MILLIS = NAIVE.replace(microsecond=123000)
OLD_NANOS = pa.scalar(-1_500, pa.timestamp("ns"))

# Column, its Arrow type when it is written, a value, Spark's type, the value that Spark gives.
MATRIX: list[tuple[str, pa.DataType, Any, str, Any]] = [
    ("f_boolean", pa.bool_(), True, "boolean", True),
    ("f_tinyint", pa.int8(), -128, "tinyint", -128),
    ("f_smallint", pa.int16(), 32767, "smallint", 32767),
    ("f_int", pa.int32(), -(2**31), "int", -(2**31)),
    ("f_bigint", pa.int64(), 2**63 - 1, "bigint", 2**63 - 1),
    ("f_float", pa.float32(), 0.5, "float", 0.5),
    ("f_double", pa.float64(), -0.1, "double", -0.1),
    ("f_string", pa.string(), "ä€😀", "string", "ä€😀"),
    ("f_bytes", pa.binary(), b"\x00\xff", "binary", bytearray(b"\x00\xff")),
    ("f_date", pa.date32(), date(1500, 1, 1), "date", date(1500, 1, 1)),
    ("f_decimal", pa.decimal128(9, 2), Decimal("1234567.89"), "decimal(9,2)", Decimal("1234567.89")),
    ("f_decimal38", pa.decimal128(38, 18), Decimal(1).scaleb(-18), "decimal(38,18)", Decimal(1).scaleb(-18)),
    ("f_timestamp3", pa.timestamp("ms"), MILLIS, "timestamp_ntz", MILLIS),
    ("f_timestamp6", pa.timestamp("us"), NAIVE, "timestamp_ntz", NAIVE),
    ("f_timestamp9", pa.timestamp("ns"), OLD_NANOS, "timestamp_ntz", datetime(1969, 12, 31, 23, 59, 59, 999998)),
    ("f_zoned", pa.timestamp("us", "UTC"), UTC, "timestamp", UTC.replace(tzinfo=None)),
    ("f_time", pa.time32("ms"), time(8, 30, 1, 123000), "time(6)", time(8, 30, 1, 123000)),
    ("f_array", pa.list_(pa.int32()), [1, None, 3], "array<int>", [1, None, 3]),
    ("f_map", pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", None)], "map<string,bigint>", {"a": 1, "b": None}),
    ("f_row", pa.struct([("x", pa.int32())]), {"x": 1}, "struct<x:int>", Row(x=1)),
    (
        "f_nested",
        pa.list_(pa.struct([("t", pa.timestamp("ms")), ("l", pa.list_(pa.date32()))])),
        [{"t": datetime(1960, 1, 1), "l": [date(2026, 1, 1)]}, None],
        "array<struct<t:timestamp_ntz,l:array<date>>>",
        [Row(t=datetime(1960, 1, 1), l=[date(2026, 1, 1)]), None],
    ),
]  # fmt: skip


def test_types_values_and_nulls(spark: Any, tmp_path: Path) -> None:
    catalog = catalog_with_database(tmp_path / "warehouse")
    columns = pa.schema([pa.field("id", pa.int32(), nullable=False), *((name, kind) for name, kind, *_ in MATRIX)])
    catalog.create_table("db.types", Schema.from_pyarrow_schema(columns), False)
    values = [pa.array([1, 2], pa.int32()), *(pa.array([value, None], kind) for _, kind, value, *_ in MATRIX)]
    write_by_pypaimon(catalog.get_table("db.types"), pa.Table.from_arrays(values, schema=columns))
    options = {"warehouse": str(tmp_path / "warehouse"), "table": "db.types"}
    stream = spark.readStream.format("pypaimon").options(**options).load()
    expected = {"id": "int", **{name: spark_type for name, _, _, spark_type, _ in MATRIX}}
    assert {field.name: field.dataType.simpleString() for field in stream.schema} == expected
    assert [field.nullable for field in stream.schema] == [False] + [True] * len(MATRIX)
    rows = Collected(tmp_path / "checkpoint").run(stream)
    batch = [tuple(row) for row in spark.read.format("pypaimon").options(**options).load().collect()]
    assert sorted(rows, key=lambda row: row[0]) == sorted(batch, key=lambda row: row[0])
    full, nulls = sorted(rows, key=lambda row: row[0])
    assert dict(zip(expected, full, strict=True)) == {"id": 1, **{name: value for name, _, _, _, value in MATRIX}}
    assert nulls == (2, *([None] * len(MATRIX)))
