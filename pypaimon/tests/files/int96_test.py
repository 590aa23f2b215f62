"""INT96 of Parquet: every day and every nanosecond that a file can hold, as Java reads it, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming.errors import UnsupportedFileError
from pypaimon.streaming.files.data_files import read_file
from pypaimon.streaming.formats.parquet_footer import timestamps_of_int96
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.tables.crafted_files import int96_of_bytes, parquet
from support.tables.handles import create_table
from support.tables.stream_files import meta

NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
NANOS_PER_DAY = 86_400 * 10**9
EPOCH = 2_440_588
STORED = pa.binary(12)
YEAR_1584, YEAR_2262, YEAR_9999 = -141_000, 106_752, 2_932_896
"""Days since 1970."""


def stored(days: int, nanos: int) -> bytes:
    return nanos.to_bytes(8, "little", signed=True) + (days + EPOCH).to_bytes(4, "little", signed=True)


def as_java(days: int, nanos: int, unit: str) -> int:
    """Java has milliseconds and nanoseconds of these, and drops what is finer than the precision."""
    return (days * NANOS_PER_DAY + nanos) // NANOS[unit]


VALUES = st.none() | st.tuples(
    st.integers(-720_000, YEAR_9999) | st.sampled_from([0, -1, YEAR_1584, YEAR_2262]),
    # Java writes negative ones before 1970.
    st.integers(-NANOS_PER_DAY, NANOS_PER_DAY) | st.sampled_from([0, -1, 1, NANOS_PER_DAY - 1]),
)


@given(st.lists(VALUES, max_size=5), st.sampled_from(["s", "ms", "us", "ns"]), st.integers(0, 2))
def test_a_timestamp_is_what_java_reads(values: list[tuple[int, int] | None], unit: str, skipped: int) -> None:
    array = pa.array([None if value is None else stored(*value) for value in values], STORED)[skipped:]
    expected = [None if value is None else as_java(*value, unit) for value in values[skipped:]]
    if all(value is None or -(2**63) + 1000 <= value < 2**63 for value in expected):
        assert timestamps_of_int96(array, pa.timestamp(unit)).cast(pa.int64()).to_pylist() == expected
    else:
        with pytest.raises(Exception, match="after 2262"):
            timestamps_of_int96(array, pa.timestamp(unit))


@pytest.mark.parametrize("days", [-(2**31) - EPOCH, 2**31 - 1 - EPOCH])
@pytest.mark.parametrize("nanos", [-(2**63), 2**63 - 1])
def test_whatever_the_bytes_say_nothing_wraps(days: int, nanos: int) -> None:
    array = pa.array([stored(days, nanos)], STORED)
    with pytest.raises(Exception, match="after 2262"):
        timestamps_of_int96(array, pa.timestamp("us"))
    assert timestamps_of_int96(array, pa.timestamp("ms")).cast(pa.int64()).to_pylist() == [as_java(days, nanos, "ms")]


def read(table: Any, values: list[tuple[int, int] | None], nested: bool) -> list[Any]:
    """What a table gives of a file of its first schema, in units since 1970."""
    raw = [None if value is None else stored(*value) for value in values]
    column = pa.array([[each] for each in raw], pa.list_(STORED)) if nested else pa.array(raw, STORED)
    path = Path(str(table.table_path)) / "bucket-0" / "a.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(int96_of_bytes(parquet(pa.table({"id": range(len(raw)), "ts": column}))))
    file = meta(path, len(raw))
    batches = read_file(TableDirectory.of(table), file, table.fields, schema_id=table.table_schema.id)
    rows = pa.Table.from_batches(batches)
    flat = rows["ts"].combine_chunks().flatten() if nested else rows["ts"].combine_chunks()
    return list(flat.cast(pa.int64()).to_pylist())


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_files_with_int96(warehouse: Any, unit: str, nested: bool) -> None:
    kind = pa.timestamp(unit)
    table = create_table(warehouse, "t", pa.schema([("id", pa.int64()), ("ts", pa.list_(kind) if nested else kind)]))
    near = [(19_000, 123_456_789), None, (0, -1_000_001)]
    assert read(table, near, nested) == [None if value is None else as_java(*value, unit) for value in near]
    # Arrow would make the year 1678 of 2262, and 1584 of the year 1000 as Java writes it.
    far = [*near, (YEAR_2262, 0), (YEAR_1584, -NANOS_PER_DAY + 1), (YEAR_9999, 1)]
    if unit != "ns":
        assert read(table, far, nested) == [None if value is None else as_java(*value, unit) for value in far]
        return
    with pytest.raises(UnsupportedFileError, match=r"a\.parquet, column 'ts': .*alter its type to TIMESTAMP") as caught:
        read(table, far, nested)
    assert caught.value.column == "ts"


def test_a_column_that_was_altered_to_microseconds_holds_what_nanoseconds_cannot(warehouse: Any) -> None:
    table = create_table(warehouse, "t", pa.schema([("id", pa.int64()), ("ts", pa.timestamp("ns"))]))
    warehouse.alter_table("db.t", [SchemaChange.update_column_type("ts", AtomicType("TIMESTAMP(6)"))])
    altered = warehouse.get_table("db.t")
    assert (altered.fields[1].type.type, altered.table_schema.id, table.table_schema.id) == ("TIMESTAMP(6)", 1, 0)
    assert read(altered, [(YEAR_9999, 1_999)], nested=False) == [as_java(YEAR_9999, 1_999, "us")]


def test_a_column_that_came_to_have_a_local_zone_holds_moments_of_the_table_s_zone(warehouse: Any) -> None:
    columns = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("ns"))])
    create_table(warehouse, "t", columns, options={"time-zone": "+08:00"})
    kind = AtomicType("TIMESTAMP(6) WITH LOCAL TIME ZONE")
    warehouse.alter_table("db.t", [SchemaChange.update_column_type("ts", kind)])
    altered = warehouse.get_table("db.t")
    eight_hours = 8 * 3600 * 10**6
    assert read(altered, [(YEAR_9999, 1_999)], nested=False) == [as_java(YEAR_9999, 1_999, "us") - eight_hours]
