"""Which columns fit which table, and which rows; without Spark."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema
from pypaimon.schema.data_types import AtomicType, DataField

from pypaimon.spark.options.sink_options import parse_sink
from pypaimon.spark.write.sink_table import prepare_sink_table
from pypaimon.streaming.errors import BadRowError, SchemaMismatchError, StreamConfigError
from pypaimon.streaming.model.system_columns import VALUE_KIND
from pypaimon.streaming.model.time_zone import time_zone
from pypaimon.streaming.writing.row_layout import KindRules, RowLayout, TargetTable, fits, row_layout

APPEND = KindRules(False, frozenset(), "deduplicate", False, False)
KEYED = KindRules(True, frozenset({1, 3}), "deduplicate", False, False)
TABLE = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


def _fields(schema: pa.Schema) -> list[Any]:
    return list(Schema.from_pyarrow_schema(schema).fields)


def _layout(schema: pa.Schema, rules: KindRules = APPEND, **options: Any) -> RowLayout:
    return row_layout(schema, TargetTable("db.t", _fields(TABLE), rules, time_zone(None)), **options)


def test_by_name_in_the_order_of_the_table() -> None:
    batch = pa.record_batch({"V": ["a"], "id": pa.array([1], pa.int32())})
    assert _layout(batch.schema).align(batch).to_pylist() == [{"id": 1, "v": "a"}]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": pa.int64(), "w": pa.string()}, "no column 'w'"),
        ({"v": pa.string()}, r"column 'id' \(BIGINT NOT NULL\) is missing"),
        ({"id": pa.string(), "v": pa.string()}, "column 'id' is string, and the table's is BIGINT"),
        ({"id": pa.int64(), "v": pa.int32()}, "column 'v' is int32"),
        ({"id": pa.int64(), "V": pa.string(), "_row_kind": pa.string()}, "no primary key"),
    ],
)
def test_what_does_not_fit_is_named(columns: dict[str, pa.DataType], message: str) -> None:
    with pytest.raises(SchemaMismatchError, match=message):
        _layout(pa.schema(columns.items()))


def test_case_can_matter_and_can_be_ambiguous() -> None:
    with pytest.raises(SchemaMismatchError, match="no column 'V'"):
        _layout(pa.schema([("id", pa.int64()), ("V", pa.string())]), case_sensitive=True)
    with pytest.raises(SchemaMismatchError, match="'V', 'V' all mean 'v'"):
        _layout(pa.schema([("id", pa.int64()), ("V", pa.string()), ("V", pa.string())]))


def test_a_missing_column_is_null_where_it_may_be() -> None:
    batch = pa.record_batch({"id": [1]})
    assert _layout(batch.schema).align(batch).to_pylist() == [{"id": 1, "v": None}]


def test_a_null_in_a_not_null_column() -> None:
    batch = pa.record_batch({"id": pa.array([1, None]), "v": ["a", "b"]})
    with pytest.raises(BadRowError, match=r"Column 'id' of db\.t is BIGINT NOT NULL, and a row holds null"):
        _layout(batch.schema).align(batch)


def test_row_kinds_become_bytes() -> None:
    batch = pa.record_batch({"_row_kind": ["+I", "-U", "+U", "-D"], "id": [1, 2, 3, 4], "v": ["a"] * 4})
    assert _layout(batch.schema, KEYED).align(batch).column(VALUE_KIND).to_pylist() == [0, 1, 2, 3]
    named = batch.rename_columns(["op", "id", "v"])
    assert _layout(named.schema, KEYED, kind_column="op").align(named).column(VALUE_KIND).to_pylist() == [0, 1, 2, 3]


@pytest.mark.parametrize("bad", ["D", "", None])
def test_an_unknown_row_kind(bad: str | None) -> None:
    batch = pa.record_batch({"_row_kind": pa.array(["+I", bad], pa.string()), "id": [1, 2], "v": ["a", "b"]})
    with pytest.raises(BadRowError, match=r"expected \+I, -U, \+U or -D"):
        _layout(batch.schema, KEYED).align(batch)


def test_deletes_only_where_the_engine_takes_them() -> None:
    batch = pa.record_batch({"_row_kind": ["+I", "-D"], "id": [1, 2], "v": ["a", "b"]})
    rules = KindRules(True, frozenset({1}), "aggregation", False, False)
    with pytest.raises(BadRowError, match=r"kind -D.*remove-record-on-delete"):
        _layout(batch.schema, rules).align(batch)
    ignoring = KindRules(True, frozenset(), "aggregation", True, False)
    assert _layout(batch.schema, ignoring).align(batch)["id"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.int32(), pa.decimal128(10, 0), True),
        (pa.int32(), pa.decimal128(10, 1), False),
        (pa.decimal128(5, 2), pa.decimal128(7, 3), True),
        (pa.decimal128(5, 2), pa.decimal128(5, 3), False),
        (pa.float32(), pa.float64(), True),
        (pa.float64(), pa.float32(), False),
        (pa.int64(), pa.float64(), False),
        (pa.timestamp("us"), pa.timestamp("ms"), True),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), False),
        (pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "UTC"), True),
        (pa.string(), pa.binary(), False),
        (pa.bool_(), pa.int32(), False),
        (pa.date32(), pa.timestamp("us"), False),
        (pa.null(), pa.string(), True),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), True),
        (pa.list_(pa.int32()), pa.list_(pa.field("item", pa.int32(), nullable=False)), False),
        (pa.struct([("a", pa.int32())]), pa.struct([("b", pa.int32())]), False),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), True),
    ],
)
def test_types(source: pa.DataType, target: pa.DataType, expected: bool) -> None:
    assert fits(source, target) is expected


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({"n": pa.int32(), "items": pa.list_(pa.int32())}, {}),
        ({"n": pa.int16()}, {}),
        ({"N": pa.int64()}, {"n": "BIGINT"}),
        ({"n": pa.string()}, {}),
        ({"items": pa.list_(pa.int64())}, {}),
        ({"new": pa.float32()}, {"new": "FLOAT"}),
    ],
)
def test_merging_schemas_widens_and_adds_and_does_nothing_else(
    warehouse: Any, tmp_path: Path, given: dict[str, pa.DataType], changed: dict[str, str]
) -> None:
    columns = {"n": pa.int32(), "items": pa.list_(pa.int32())}
    warehouse.create_table("db.t", Schema.from_pyarrow_schema(pa.schema(columns.items())), False)
    options = {"warehouse": str(tmp_path / "warehouse"), "table": "db.t", "merge-schema": "true"}
    table = prepare_sink_table(parse_sink(options), pa.schema(given.items()), overwrite=False)
    before = {"n": "INT", "items": "ARRAY<INT>"}
    assert {field.name: str(field.type) for field in table.fields} == {**before, **changed}
    assert table.schema.id == bool(changed)


def test_values_that_would_be_cut_are_refused() -> None:
    fields = [DataField(0, "name", AtomicType("VARCHAR(3)")), DataField(1, "at", AtomicType("TIMESTAMP(3)"))]
    schema = pa.schema([("name", pa.string()), ("at", pa.timestamp("us"))])
    layout = row_layout(schema, TargetTable("db.t", fields, APPEND, time_zone(None)))
    good = pa.record_batch([pa.array(["漢字!"]), pa.array([1000], pa.timestamp("us"))], schema=schema)
    assert layout.align(good).num_rows == 1
    with pytest.raises(BadRowError, match=r"VARCHAR\(3\), and a row holds a value of length 4"):
        layout.align(pa.record_batch([pa.array(["long"]), pa.array([1000], pa.timestamp("us"))], schema=schema))
    with pytest.raises(BadRowError, match=r"Column 'at' of db.t is TIMESTAMP\(3\)"):
        layout.align(pa.record_batch([pa.array(["ok"]), pa.array([1001], pa.timestamp("us"))], schema=schema))


def test_decimals_are_rescaled() -> None:
    fields = [DataField(0, "d", AtomicType("DECIMAL(9, 3)"))]
    batch = pa.record_batch({"d": pa.array([Decimal("1.25")], pa.decimal128(5, 2))})
    aligned = row_layout(batch.schema, TargetTable("db.t", fields, APPEND, time_zone(None))).align(batch)
    assert aligned["d"].to_pylist() == [Decimal("1.250")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "'table' is missing"),
        ({"table": "t", "warehouse": "w"}, "give the database too"),
        ({"table": "db.t"}, "'warehouse' is missing"),
        ({"table": "db.t", "warehouse": "w", "mergeshema": "true"}, "Did you mean 'merge-schema'"),
        ({"table": "db.t", "warehouse": "w", "mergeschema": "true", "merge-schema": "false"}, "is set twice"),
        ({"table": "db.t", "warehouse": "w", "primary-key": "id"}, "need 'create-table'"),
        ({"table": "db.t", "warehouse": "w", "query-id": "q"}, "go together"),
    ],
)
def test_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(StreamConfigError, match=message):
        parse_sink(options)


@pytest.mark.parametrize("key", ["merge-schema", "mergeschema", "mergeSchema", "write.merge-schema"])
def test_options_may_have_the_spelling_of_spark_or_of_paimon(key: str) -> None:
    assert parse_sink({"table": "db.t", "warehouse": "w", key: "true"}).merge_schema
    named = parse_sink({"table": "db.t", "warehouse": "w", "txnAppId": "q", "txnVersion": "7"})
    assert (named.query_id, named.batch_id) == ("q", 7)


def test_spark_hands_its_own_options_on() -> None:
    parsed = parse_sink({"table": "db.t", "warehouse": "w", "checkpointlocation": "c", "write-only": "true"})
    assert parsed.table_options == {"write-only": "true"}
