"""Serialised rows: what pypaimon and Java wrote comes back, in bulk, value by value."""

from __future__ import annotations

import struct
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypaimon.table.row.generic_row import GenericRowSerializer

from pypaimon.streaming.formats.binary_row import decode, decode_column, decode_rows
from pypaimon.streaming.metadata.manifest_tables import manifest_parser
from pypaimon.streaming.paimon.internals import AtomicType, DataField, GenericRow, GenericRowDeserializer, TableSchema
from support.corpus.cases import ARCHIVES, unpack
from support.samples import examples, some

pytestmark = [pytest.mark.slow, pytest.mark.soak]

_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
_STAMPS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
_TYPES: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-(2**7), 2**7 - 1),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "FLOAT": st.floats(width=32, allow_nan=False),
    "DOUBLE": st.floats(allow_nan=False),
    "STRING": _TEXT,
    "VARCHAR(20)": _TEXT,
    "CHAR(3)": _TEXT,
    "BYTES": st.binary(max_size=20),
    "VARBINARY(20)": st.binary(max_size=20),
    "DATE": st.dates(),
    "TIME(3)": st.times().map(lambda value: value.replace(microsecond=value.microsecond // 1000 * 1000)),
    "TIMESTAMP(3)": _STAMPS.map(lambda value: value.replace(microsecond=value.microsecond // 1000 * 1000)),
    "TIMESTAMP(6)": _STAMPS,
    "TIMESTAMP_LTZ(6)": _STAMPS.map(lambda value: value.replace(tzinfo=timezone.utc)),
    "DECIMAL(10, 2)": st.decimals(-(10**7), 10**7, places=2),
    "DECIMAL(38, 10)": st.decimals(-(10**27), 10**27, places=10),
}


def _fields(*types: str) -> list[DataField]:
    return [DataField(i, f"f{i}", AtomicType(type_)) for i, type_ in enumerate(types)]


@st.composite
def _tables(draw: st.DrawFn) -> tuple[list[str], list[list[Any]]]:
    types = draw(st.lists(st.sampled_from(list(_TYPES)), min_size=1, max_size=70))
    rows = draw(st.lists(st.tuples(*(st.none() | _TYPES[type_] for type_ in types)), min_size=1, max_size=5))
    return types, [list(row) for row in rows]


@given(_tables())
@settings(max_examples=examples(100), deadline=None)
def test_what_pypaimon_serialises_comes_back(table: tuple[list[str], list[list[Any]]]) -> None:
    types, rows = table
    fields = _fields(*types)
    encoded = pa.array([GenericRowSerializer.to_bytes(GenericRow(row, fields)) for row in rows], pa.binary())
    decoded = decode_rows(encoded, fields)
    assert [row.values for row in decoded] == rows
    for i, field in enumerate(fields):
        assert decode_column(encoded, i, field.type).null_count == sum(row[i] is None for row in rows)
        assert decode_column(encoded[1:], i, field.type).equals(decode_column(encoded, i, field.type)[1:])


@pytest.mark.parametrize("archive", some("archives of statistics", ARCHIVES, 1))
def test_statistics_that_java_serialised(archive: str) -> None:
    """Against pypaimon's decoder, which goes value by value; together all types of the corpus, null and negative."""
    compared = set()
    for table in sorted(unpack(archive).glob("*/wh/d.db/t")):
        schemas = {
            path.name: TableSchema.from_json(path.read_text()).fields for path in table.glob("schema/schema-[0-9]*")
        }
        for path in table.glob("manifest/manifest-*"):
            if path.name.startswith("manifest-list"):
                continue
            for entry in manifest_parser()(path.read_bytes()).to_pylist():
                of_schema = schemas[f"schema-{entry['schema_id']}"]
                fields = [field for field in of_schema if isinstance(field.type, AtomicType)]
                fields = [field for field in fields if field.type.type != "BLOB"]
                if entry["value_stats_cols"] is not None or len(fields) != len(of_schema):
                    continue
                for side in ("value_min", "value_max"):
                    known = (str([field.type for field in fields]), entry[side])
                    if int.from_bytes(entry[side][:4], "big") == len(fields) and known not in compared:
                        compared.add(known)
                        wanted = GenericRowDeserializer.from_bytes(entry[side], fields).values
                        assert list(decode(entry[side], fields)) == wanted, path
    assert len(compared) > 100


def test_nanoseconds() -> None:
    slot = 16 << 32 | 456_789
    row = struct.pack(">i", 1) + bytes(8) + struct.pack("<qq", slot, -1)
    column = decode_column(pa.array([row, None]), 0, "TIMESTAMP(9) NOT NULL")
    assert column.type == pa.timestamp("ns")
    assert column.cast(pa.int64()).to_pylist() == [-1_000_000 + 456_789, None]
    assert decode(row, _fields("TIMESTAMP(9)")) == (datetime(1969, 12, 31, 23, 59, 59, 999456),)
    assert decode_column(pa.array([row]), 0, "TIMESTAMP(6) WITH LOCAL TIME ZONE").type == pa.timestamp("us", "UTC")


def test_nanoseconds_that_do_not_fit() -> None:
    row = struct.pack(">i", 1) + bytes(8) + struct.pack("<qq", 16 << 32, 253_402_300_799_999)
    with pytest.raises(OverflowError, match="1677 to 2262"):
        decode_column(pa.array([row]), 0, "TIMESTAMP(9)")
    assert decode(row, _fields("TIMESTAMP(6)")) == (datetime(9999, 12, 31, 23, 59, 59, 999000),)


def test_rows_may_differ_in_arity() -> None:
    many = _fields(*["INT"] * 60)
    rows = [GenericRow([7], many[:1]), GenericRow(list(range(60)), many)]
    encoded = pa.array([GenericRowSerializer.to_bytes(row) for row in rows])
    assert decode_column(encoded, 0, "INT").to_pylist() == [7, 0]
    with pytest.raises(ValueError, match="has no field 1"):
        decode_column(encoded, 1, "INT")


def test_equal_rows_share_one_object() -> None:
    fields = _fields("STRING", "DATE")
    row = GenericRowSerializer.to_bytes(GenericRow(["a", date(1969, 1, 1)], fields))
    first, second = decode_rows(pa.chunked_array([pa.array([row]), pa.array([row])]), fields)
    assert first is second and first.to_dict() == {"f0": "a", "f1": date(1969, 1, 1)}


def test_no_rows_and_no_fields() -> None:
    assert decode_rows(pa.array([], pa.binary()), _fields("STRING")) == []
    assert decode_rows(pa.array([bytes(12)] * 2), []) == [GenericRow([], [])] * 2
    for type_ in _TYPES:
        assert len(decode_column(pa.array([], pa.binary()), 0, type_)) == 0
        assert decode_column(pa.nulls(2, pa.binary()), 0, type_).null_count == 2


@pytest.mark.parametrize("type_", ["STRING", "INT", "DECIMAL(38, 2)", "TIMESTAMP(6)"])
def test_a_row_that_is_cut_off(type_: str) -> None:
    value = {"STRING": "longer than seven bytes", "INT": 5, "DECIMAL(38, 2)": Decimal("1e20")}
    fields = _fields(type_)
    row = GenericRowSerializer.to_bytes(GenericRow([value.get(type_, datetime(2024, 1, 1, 1, 1, 1, 1))], fields))
    shortest = 16 if type_ == "INT" else len(row) - 8
    for length in range(shortest):
        with pytest.raises(ValueError, match="cut off"):
            decode(row[:length], fields)


def test_types_that_rows_cannot_hold() -> None:
    row = pa.array([struct.pack(">i", 1) + bytes(16)])
    for type_ in ("VARIANT", "ARRAY<INT>", "ROW<a INT>"):
        with pytest.raises(TypeError, match="not supported"):
            decode_column(row, 0, type_)


def test_time_of_day() -> None:
    fields = _fields("TIME(3)")
    row = GenericRowSerializer.to_bytes(GenericRow([time(23, 59, 59, 999000)], fields))
    assert decode_column(pa.array([row]), 0, "TIME(3)").type == pa.time32("ms")
    assert decode(row, fields) == (time(23, 59, 59, 999000),)
