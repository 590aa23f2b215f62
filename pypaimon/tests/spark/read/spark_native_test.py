"""Spark's own Parquet reader gives what ours gives: nested columns by field id, columns that files lack."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pypaimon import Schema
from pypaimon.schema.data_types import ArrayType, AtomicType, DataField, MapType, RowType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.spark import native_foreach_batch, native_read
from pypaimon.spark.read.file_rows import column_of
from pypaimon.streaming import CorruptTableError, UnsupportedTableError
from support.corpus.cases import load
from support.tables.handles import catalog_with_database, write_by_pypaimon
from support.tables.streamed_table import Table

pytestmark = pytest.mark.spark

Place = dict[str, str]

INNER = pa.struct([("a", pa.int32()), ("b", pa.string())])
NESTED = pa.schema(
    [
        ("k", pa.int64()),
        ("st", pa.struct([("in", INNER), ("b", pa.int32())])),
        ("li", pa.list_(INNER)),
        ("ma", pa.map_(pa.string(), INNER)),
        ("b", pa.string()),
    ]
)
FIRST_ROWS = [
    {"k": 1, "st": {"in": {"a": 1, "b": "x"}, "b": 7}, "li": [{"a": 2, "b": "y"}, None], "ma": [("q", None)], "b": "o"},
    {"k": 2, "st": {"in": None, "b": None}, "li": [], "ma": [("r", {"a": 3, "b": "z"})], "b": None},
    {"k": 3, "st": None, "li": None, "ma": None, "b": None},
]
LATER = pa.schema(
    [
        ("k", pa.int64()),
        ("st", pa.struct([("in", pa.struct([("z", pa.int64()), ("c", pa.string())])), ("c", pa.int32())])),
        ("li", pa.list_(pa.struct([("a", pa.int32()), ("c", pa.string())]))),
        ("ma", pa.map_(pa.string(), pa.struct([("a", pa.int32()), ("c", pa.string())]))),
        ("B", pa.string()),
    ]
)
CHANGES = [
    SchemaChange.rename_column(["st", "in", "a"], "z"),
    SchemaChange.update_column_type(["st", "in", "z"], AtomicType("BIGINT")),
    SchemaChange.drop_column(["st", "in", "b"]),
    SchemaChange.add_column(["st", "in", "c"], AtomicType("STRING")),
    SchemaChange.drop_column(["st", "b"]),
    SchemaChange.add_column(["st", "c"], AtomicType("INT")),
    SchemaChange.drop_column(["li", "element", "b"]),
    SchemaChange.add_column(["li", "element", "c"], AtomicType("STRING")),
    SchemaChange.drop_column(["ma", "value", "b"]),
    SchemaChange.add_column(["ma", "value", "c"], AtomicType("STRING")),
    SchemaChange.drop_column("b"),
    SchemaChange.add_column("B", AtomicType("STRING")),
]
SECOND_ROW = {
    "k": 4,
    "st": {"in": {"z": 5, "c": "n"}, "c": 6},
    "li": [{"a": 7, "c": "m"}],
    "ma": [("s", {"a": 8, "c": "l"})],
    "B": "new",
}


PARTITIONED = pa.schema(
    [
        ("k", pa.int64()),
        ("p", pa.string()),
        ("n", pa.int32()),
        ("d", pa.date32()),
        ("f", pa.float64()),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us")),
        ("m", pa.decimal128(9, 7)),
        ("y", pa.binary()),
    ]
)
PARTITIONS = [
    ("a b+c%2Bü:/", 0, date(2026, 1, 1), 0.1, True, datetime(2026, 1, 1, 12, 30, 1, 5), Decimal("0.0000001"), b"\x00z"),
    ("x", None, date(1969, 1, 1), 1e300, False, datetime(1969, 1, 1), Decimal("-1.5000000"), b"q"),
    (None, 2, None, None, None, None, None, None),
]


def place(warehouse: Path) -> Place:
    return {"warehouse": str(warehouse), "table": "db.t"}


def created(warehouse: Path, columns: pa.Schema, **more: Any) -> Any:
    catalog = catalog_with_database(warehouse)
    catalog.create_table("db.t", Schema.from_pyarrow_schema(columns, **more), False)
    return catalog


def append(catalog: Any, rows: pa.Table) -> None:
    write_by_pypaimon(catalog.get_table("db.t"), rows)


def own(spark: Any, options: Place) -> list[str]:
    """What our own reader gives."""
    return shown(spark.read.format("pypaimon").options(**options).load())


def shown(frame: Any) -> list[str]:
    return sorted(repr(row.asDict(True)) for row in frame.collect())


def streamed(spark: Any, options: Place, checkpoint: Path) -> list[str]:
    seen: list[str] = []
    files = spark.readStream.format("pypaimon").options(**options, mode="files").load()
    writer = files.writeStream.foreachBatch(native_foreach_batch(lambda rows, _: seen.extend(shown(rows))))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(900)
    return sorted(seen)


def test_fields_of_rows_lists_and_maps_are_found_by_their_ids(spark: Any, tmp_path: Path) -> None:
    catalog = created(tmp_path / "warehouse", NESTED)
    options = place(tmp_path / "warehouse")
    append(catalog, pa.Table.from_pylist(FIRST_ROWS, NESTED))
    plain = native_read(spark, options)
    assert shown(plain) == own(spark, options)
    for change in CHANGES:
        catalog.alter_table("db.t", [change], False)
    append(catalog, pa.Table.from_pylist([SECOND_ROW], LATER))

    native = native_read(spark, options)
    rows = {row.k: row.asDict(True) for row in native.collect()}
    assert rows[1] == {
        "k": 1,
        "st": {"in": {"z": 1, "c": None}, "c": None},
        "li": [{"a": 2, "c": None}, None],
        "ma": {"q": None},
        "B": None,
    }
    assert rows[2]["st"] == {"in": None, "c": None} and rows[3]["st"] is None
    assert rows[4] == {**SECOND_ROW, "ma": {"s": {"a": 8, "c": "l"}}}
    assert shown(native) == own(spark, options)
    assert streamed(spark, options, tmp_path / "checkpoint") == own(spark, options)
    assert "FileScan parquet" in native._jdf.queryExecution().executedPlan().toString()


def test_no_file_is_skipped(spark: Any, tmp_path: Path) -> None:
    table = Table(tmp_path / "warehouse")
    table.commit_files([1, 2])
    native = native_read(spark, place(tmp_path / "warehouse"))
    next(table.path.glob("bucket-*/*.parquet")).unlink()
    for key in ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"):
        spark.conf.set(key, "true")
    try:
        with pytest.raises(Exception, match="FILE_NOT_EXIST"):
            native.collect()
    finally:
        for key in ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"):
            spark.conf.unset(key)


def test_files_that_spark_does_not_see_are_refused(tmp_path: Path) -> None:
    Table(tmp_path / "warehouse", data_file__prefix="_data-").commit_each([1])
    with pytest.raises(UnsupportedTableError, match=r"_data-.* is hidden"):
        native_read(None, place(tmp_path / "warehouse"))


def test_partition_columns_that_files_lack_come_from_the_manifest(spark: Any, tmp_path: Path) -> None:
    catalog = created(tmp_path / "warehouse", PARTITIONED, partition_keys=PARTITIONED.names[1:])
    columns = PARTITIONED
    rows = [dict(zip(columns.names, (k, *values), strict=True)) for k, values in enumerate(PARTITIONS)]
    append(catalog, pa.Table.from_pylist(rows, columns))
    for file in (tmp_path / "warehouse" / "db.db" / "t").glob("p=*/**/*.parquet"):
        pq.write_table(pq.ParquetFile(file).read().select(["k"]), file)
    later = [row | {"k": 9} for row in rows]
    append(catalog, pa.Table.from_pylist(later, columns))

    options = place(tmp_path / "warehouse")
    native = native_read(spark, options)
    found = sorted((row.asDict() for row in native.collect()), key=lambda row: (str(row["p"]), row["k"]))
    assert found == sorted([*rows, *later], key=lambda row: (str(row["p"]), row["k"]))
    expected = own(spark, options)
    assert shown(native) == expected
    assert [row.k for row in native.where("p = 'x' and n is null").orderBy("k").collect()] == [1, 9]
    assert streamed(spark, options, tmp_path / "checkpoint") == expected
    assert shown(native_read(spark, {**options, "columns": "k"})) == own(spark, {**options, "columns": "k"})

    gone = next((tmp_path / "warehouse" / "db.db" / "t").glob("p=x/**/*.parquet"))
    gone.unlink()
    with pytest.raises(CorruptTableError, match=gone.name):
        native_read(spark, options)


# ---- types, without Spark ----


@pytest.mark.parametrize(
    ("stored", "wanted", "value"),
    [
        ("INT", "INT NOT NULL", "`c`"),
        ("INT", "BIGINT", "CAST(`c` AS bigint)"),
        ("BIGINT", "DOUBLE", "CAST(`c` AS double)"),
        ("FLOAT", "DOUBLE", "CAST(`c` AS double)"),
        ("INT", "STRING", "CAST(`c` AS string)"),
        ("SMALLINT", "DECIMAL(7, 2)", "CAST(`c` AS decimal(7,2))"),
        ("DECIMAL(5, 2)", "DECIMAL(6, 3)", "CAST(`c` AS decimal(6,3))"),
        ("VARCHAR(3)", "VARCHAR(5)", "`c`"),
        ("CHAR(3)", "STRING", "`c`"),
        ("BINARY(3)", "BYTES", "`c`"),
        ("TIMESTAMP(3)", "TIMESTAMP(6)", "`c`"),
        ("TIMESTAMP(6)", "TIMESTAMP", "`c`"),
        ("TIMESTAMP", "TIMESTAMP(6)", "`c`"),
        ("INT", "SMALLINT", None),
        ("DOUBLE", "STRING", None),
        ("BOOLEAN", "INT", None),
        ("INT", "VARCHAR(2)", None),
        ("SMALLINT", "DECIMAL(6, 2)", None),
        ("DECIMAL(5, 2)", "DECIMAL(6, 1)", None),
        ("DECIMAL(5, 2)", "DECIMAL(5, 3)", None),
        ("VARCHAR(5)", "VARCHAR(3)", None),
        ("VARCHAR(3)", "CHAR(5)", None),
        ("CHAR(3)", "CHAR(5)", None),
        ("TIMESTAMP(6)", "TIMESTAMP(3)", None),
        ("TIMESTAMP", "TIMESTAMP(3)", None),
        ("TIMESTAMP(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE", None),
        ("TIMESTAMP(3)", "STRING", None),
        ("TIME", "TIME", None),
        ("TIMESTAMP(7)", "TIMESTAMP(7)", None),
        ("TIMESTAMP(9)", "TIMESTAMP(9)", None),
    ],
)
def test_only_casts_that_change_no_value_are_left_to_spark(stored: str, wanted: str, value: str | None) -> None:
    field, old = (DataField(1, name, AtomicType(kind)) for name, kind in (("n", wanted), ("c", stored)))
    if value is None:
        with pytest.raises(UnsupportedTableError, match="column 'n'"):
            column_of(field, old, {})
    else:
        assert column_of(field, old, {}).value == value


def row(**fields: tuple[int, Any]) -> RowType:
    return RowType(True, [DataField(number, name, kind) for name, (number, kind) in fields.items()])


INT, TEXT = AtomicType("INT"), AtomicType("STRING")
OLD = row(a=(1, INT), b=(2, TEXT))
NEW = row(z=(1, AtomicType("BIGINT")), b=(3, TEXT))
MADE = "IF({0} IS NULL, NULL, NAMED_STRUCT('z', CAST({0}.`a` AS bigint), 'b', CAST(NULL AS string)))"


@pytest.mark.parametrize(
    ("stored", "wanted", "value"),
    [
        (OLD, OLD, "`c`"),
        (OLD, NEW, MADE.format("`c`")),
        (OLD, row(b=(2, TEXT), a=(1, INT)), "IF(`c` IS NULL, NULL, NAMED_STRUCT('b', `c`.`b`, 'a', `c`.`a`))"),
        (OLD, row(a=(1, INT)), "IF(`c` IS NULL, NULL, NAMED_STRUCT('a', `c`.`a`))"),
        (ArrayType(True, INT), ArrayType(True, INT), "`c`"),
        (ArrayType(True, OLD), ArrayType(True, NEW), f"TRANSFORM(`c`, item0 -> {MADE.format('item0')})"),
        (MapType(True, TEXT, OLD), MapType(True, TEXT, OLD), "`c`"),
        (
            MapType(True, TEXT, OLD),
            MapType(True, TEXT, NEW),
            f"TRANSFORM_VALUES(`c`, (key0, item0) -> {MADE.format('item0')})",
        ),
        (
            MapType(True, INT, TEXT),
            MapType(True, AtomicType("BIGINT"), TEXT),
            "TRANSFORM_KEYS(`c`, (key0, item0) -> CAST(key0 AS bigint))",
        ),
    ],
)
def test_nested_fields_are_found_by_their_ids(stored: Any, wanted: Any, value: str) -> None:
    assert column_of(DataField(9, "n", wanted), DataField(9, "c", stored), {}).value == value


def test_a_nested_change_of_a_type_that_spark_casts_otherwise_is_refused() -> None:
    stored, wanted = (ArrayType(True, row(a=(1, AtomicType(kind)))) for kind in ("DOUBLE", "STRING"))
    with pytest.raises(UnsupportedTableError, match=r"column 'n\.a' was DOUBLE"):
        column_of(DataField(9, "n", wanted), DataField(9, "c", stored), {})


def test_maps_that_are_stored_as_columns_are_refused(spark: Any, tmp_path: Path) -> None:
    columns = pa.schema([("k", pa.int64()), ("m", pa.map_(pa.string(), pa.int64()))])
    layout = {"fields.m.map.storage-layout": "shared-shredding", "fields.m.map.shared-shredding.max-columns": "2"}
    catalog = created(tmp_path, columns, options=layout)
    append(catalog, pa.Table.from_pylist([{"k": 1, "m": [("a", 1), ("b", 2), ("c", 3)]}], columns))
    with pytest.raises(UnsupportedTableError, match=r"column 'm' is stored in the layout 'shared-shredding'\. Read it"):
        native_read(spark, place(tmp_path))
    assert shown(native_read(spark, place(tmp_path) | {"columns": "k"})) == ["{'k': 1}"]
    assert own(spark, place(tmp_path)) == ["{'k': 1, 'm': {'a': 1, 'b': 2, 'c': 3}}"]


def test_multisets_are_maps_and_left_to_our_reader(spark: Any) -> None:
    options = {"warehouse": str(load("java-2.1-more", "multiset_append_parquet").warehouse), "table": "d.t"}
    with pytest.raises(UnsupportedTableError, match="column 's' has type MULTISET<STRING>"):
        native_read(spark, options)
    frame = spark.read.format("pypaimon").options(**options).load()
    assert frame.schema["s"].dataType.simpleString() == "map<string,int>"
    assert {row.id: row.s for row in frame.collect()} == {1: {"a": 2, "b": 1}, 2: None, 3: {}, 4: {"c": 3}}


def test_columns_that_are_fields_of_rows(spark: Any, tmp_path: Path) -> None:
    catalog = created(tmp_path, NESTED)
    append(catalog, pa.Table.from_pylist(FIRST_ROWS, NESTED))
    for change in CHANGES:
        catalog.alter_table("db.t", [change], False)
    append(catalog, pa.Table.from_pylist([SECOND_ROW], LATER))
    options = place(tmp_path) | {"columns": "st.in.z,k,st.c"}
    native = native_read(spark, options)
    assert {row.k: (row.st_in_z, row.st_c) for row in native.collect()} == {
        1: (1, None),
        2: (None, None),
        3: (None, None),
        4: (5, 6),
    }
    assert shown(native) == own(spark, options)


@pytest.mark.parametrize("view", ["audit_log", "binlog", "row_tracking"])
def test_views_with_columns_that_no_file_holds_are_refused(tmp_path: Path, view: str) -> None:
    catalog = created(tmp_path, NESTED, options={"row-tracking.enabled": "true"})
    append(catalog, pa.Table.from_pylist(FIRST_ROWS, NESTED))
    with pytest.raises(UnsupportedTableError, match=f"the view {view} has columns that no file holds"):
        native_read(None, place(tmp_path) | {"table": f"db.t${view}"})
