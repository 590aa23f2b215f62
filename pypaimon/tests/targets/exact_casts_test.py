"""A column whose type changes goes on in a target only where the rows that are there are what a read gives of them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import DuckDBTarget, PaimonTarget, StreamConfigError, UnsupportedTableError, replicate
from pypaimon.streaming.files.casts import CastError, cast
from pypaimon.streaming.model.time_zone import zone_of
from pypaimon.streaming.paimon.internals import PyarrowFieldParser
from pypaimon.streaming.targets.column_evolution import is_equal_in, is_wider
from pypaimon.streaming.targets.lakes.lake_table import fitted_to_iceberg, kept_by_iceberg
from pypaimon.streaming.testing import SmallTable
from support.samples import some
from support.tables.target_places import DeltaPlace, IcebergPlace, ParquetPlace, SQLitePlace

_NOON = dt.datetime(2020, 1, 2, 12, 4, 5)
_UTC = dt.timezone.utc
VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127],
    "SMALLINT": [-(2**15), 2**15 - 1],
    "INT": [-(2**31), 2**31 - 1, 16777217],
    "BIGINT": [-(2**63), 2**63 - 1, 2**53 + 1],
    "FLOAT": [1.100000023841858, 16777216.0],
    "DOUBLE": [2.7, -2.5, 0.1],
    "DECIMAL(10, 2)": [Decimal("1.50"), Decimal("99999999.99")],
    "DECIMAL(12, 2)": [Decimal("1.50"), Decimal("9999999999.99")],
    "DECIMAL(14, 4)": [Decimal("1.5000")],
    "DECIMAL(20, 0)": [Decimal(10**19)],
    "CHAR(5)": ["ab   "],
    "VARCHAR(3)": ["abc"],
    "VARCHAR(9)": ["abcdef"],
    "STRING": ["abcdefghij", " 2 "],
    "BINARY(3)": [b"abc"],
    "VARBINARY(3)": [b"ab"],
    "BYTES": [b"abcd"],
    "DATE": [dt.date(2020, 1, 2)],
    "TIME(0)": [dt.time(1, 2, 3)],
    "TIME(3)": [dt.time(1, 2, 3, 4000)],
    "TIMESTAMP(0)": [_NOON],
    "TIMESTAMP(2)": [_NOON.replace(microsecond=120_000)],
    "TIMESTAMP(3)": [_NOON.replace(microsecond=123_000)],
    "TIMESTAMP(6)": [_NOON.replace(microsecond=123_456)],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [_NOON.replace(tzinfo=_UTC)],
    "TIMESTAMP_LTZ(3)": [_NOON.replace(tzinfo=_UTC)],
}


def test_values_stay_what_they_are_where_that_is_said() -> None:
    """By the casts of reads: as they are, or at least as the same numbers and times. Most changes are neither."""
    kept = 0
    for old, values in VALUES.items():
        source = AtomicType(old)
        given = pa.array(values, PyarrowFieldParser.from_paimon_type(source))
        for new in VALUES:
            try:
                found = cast(source, AtomicType(new), exact=False, zone=zone_of({"time-zone": "Asia/Shanghai"}))(given)
            except (CastError, pa.ArrowNotImplementedError):
                assert old == new or not is_equal_in(old, new), (old, new)
                continue
            if is_equal_in(old, new):
                kept += 1
                assert found.to_pylist() == given.to_pylist(), (old, new)
            if is_wider(old, new):
                assert is_equal_in(old, new)
                texts = [[str(value) for value in each.cast(pa.string()).to_pylist()] for each in (found, given)]
                assert texts[0] == texts[1] or new == "DOUBLE", (old, new)
    assert len(VALUES) < kept < len(VALUES) ** 2 / 4


PLACES = {"SQLite": SQLitePlace, "Delta": DeltaPlace, "Iceberg": IcebergPlace, "Parquet": ParquetPlace}
CHANGES = [
    (pa.float64(), 2.7, "INT"),
    (pa.float64(), 0.1, "FLOAT"),
    (pa.timestamp("us"), _NOON, "STRING"),
    (pa.timestamp("us"), _NOON.replace(microsecond=123_456), "TIMESTAMP(3)"),
    (pa.string(), "abcdef", "VARCHAR(3)"),
]


@pytest.mark.slow
@pytest.mark.parametrize("place", some("casts of targets", [*PLACES, "DuckDB", "Paimon"], 2))
@pytest.mark.parametrize(("kind", "value", "new"), CHANGES, ids=[new for *_, new in CHANGES])
def test_other_casts_are_refused_before_a_row_and_a_state_replaces_the_rows(
    tmp_path: Path, place: str, kind: pa.DataType, value: Any, new: str
) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", kind)])
    source = SmallTable(tmp_path / "w", keys=(), columns=columns)
    source.commit({"id": 1, "x": value})
    database, copy = duckdb.connect(), SmallTable(tmp_path / "copy", keys=(), columns=columns)

    def opened(replace: bool = False) -> Any:
        if place == "DuckDB":
            return DuckDBTarget(database, "t", replace=replace)
        if place == "Paimon":
            return PaimonTarget(copy.table, replace=replace)
        return PLACES[place](tmp_path).opened((), replace=replace)

    def held() -> list[dict[str, Any]]:
        if place == "DuckDB":
            return list(database.sql("FROM t").to_arrow_table().to_pylist())
        return copy.rows() if place == "Paimon" else PLACES[place](tmp_path).held()

    replicate(source.builder(), opened())
    before = held()
    source.alter(SchemaChange.update_column_type("x", AtomicType(new)))
    source.commit({"id": 2})
    with pytest.raises(StreamConfigError, match=r"column 'x'.*replace=True"):
        replicate(source.builder(), opened())
    assert held() == before
    if place == "Paimon":
        copy.alter(SchemaChange.update_column_type("x", AtomicType(new)))
    replicate(source.builder(), opened(replace=True))
    if place == "SQLite":
        assert sorted(row["id"] for row in held()) == [1, 2]
    else:
        assert sorted(map(str, held())) == sorted(map(str, source.rows()))
    source.commit({"id": 3})
    replicate(source.builder(), opened())
    assert sorted(row["id"] for row in held()) == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["drop and add", "swap"])
@pytest.mark.parametrize("place", ["Delta", "Parquet"])
def test_fields_inside_of_a_column_are_found_by_their_ids(tmp_path: Path, place: str, how: str) -> None:
    pair = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", pair)])
    source = SmallTable(tmp_path / "w", keys=(), columns=columns)
    source.commit({"id": 1, "x": {"a": 1, "b": 2}})
    target = PLACES[place](tmp_path).opened(())
    replicate(source.builder(), target)
    if how == "swap":
        for old, new in (("a", "t"), ("b", "a"), ("t", "b")):
            source.alter(SchemaChange.rename_column(["x", old], new))
    else:
        source.alter(SchemaChange.drop_column(["x", "b"]))
        source.alter(SchemaChange.add_column(["x", "b"], AtomicType("INT")))
    source.commit({"id": 2, "x": {"a": 10, "b": 20}})
    with pytest.raises(StreamConfigError, match="column 'x' of type"):
        replicate(source.builder(), target)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        [
            SchemaChange.rename_column("x", "t"),
            SchemaChange.rename_column("y", "x"),
            SchemaChange.rename_column("t", "y"),
        ],
        [SchemaChange.drop_column("x"), SchemaChange.add_column("x", AtomicType("INT"))],
        [SchemaChange.drop_column("x")],
    ],
    ids=["swapped", "dropped and added", "dropped"],
)
def test_a_paimon_table_refuses_columns_that_are_others_now(tmp_path: Path, changes: list[Any]) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", pa.int32()), ("y", pa.int32())])
    source, copy = (SmallTable(tmp_path / name, columns=columns) for name in ("w", "copy"))
    source.commit({"id": 1, "x": 1, "y": 2})
    replicate(source.builder(), PaimonTarget(copy.table))
    for change in changes:
        source.alter(change)
    source.commit({"id": 2, "y": 4})
    with pytest.raises(StreamConfigError, match="column 'x' of type INT is not what"):
        replicate(source.builder(), PaimonTarget(copy.table))
    assert copy.rows() == [{"id": 1, "x": 1, "y": 2}]


_ROW = pa.struct([("a", pa.int32())])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_(_ROW), None),
        (pa.map_(pa.string(), _ROW), None),
        (pa.struct([("m", pa.map_(pa.string(), _ROW))]), {"m": None}),
        (pa.list_(pa.list_(_ROW)), [[], None]),
    ],
    ids=str,
)
def test_nulls_that_iceberg_would_make_empty_are_refused(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(StreamConfigError, match=r"column 'x' .* would make empty"):
        kept_by_iceberg(pa.table({"x": pa.array([value], kind)}))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_(pa.int32()), None),
        (pa.list_(_ROW), [None]),
        (pa.map_(pa.string(), pa.list_(pa.int32())), None),
        (pa.struct([("m", pa.list_(_ROW))]), None),
        (pa.list_(_ROW), []),
    ],
    ids=str,
)
def test_other_nulls_are_taken_by_iceberg(kind: pa.DataType, value: Any) -> None:
    assert kept_by_iceberg(pa.table({"x": pa.array([value], kind)}))["x"].to_pylist() == [value]


def test_names_that_are_one_to_iceberg_are_refused() -> None:
    rows = pa.table({"a": pa.array([None], pa.struct([("b", pa.int32())])), "a.b": pa.array([1])})
    with pytest.raises(UnsupportedTableError, match=r"columns and fields \['a\.b'\]"):
        fitted_to_iceberg(rows)
    assert fitted_to_iceberg(rows.select(["a.b"]))["a.b"].to_pylist() == [1]


@pytest.mark.slow
def test_a_key_with_a_dot_is_refused_by_iceberg_before_a_row(tmp_path: Path) -> None:
    columns = pa.schema([pa.field("a.b", pa.int64(), nullable=False), ("v", pa.int64())])
    source = SmallTable(tmp_path / "w", keys=["a.b"], columns=columns)
    source.commit({"a.b": 1, "v": 1})
    place = IcebergPlace(tmp_path)
    with pytest.raises(UnsupportedTableError, match=r"key column 'a\.b'"):
        replicate(source.builder(), place.opened(("a.b",)))
    assert place.held() == []
