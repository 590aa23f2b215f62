"""A value of a newer file that the type which is read cannot hold is an error, at any depth, and never cut to fit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.common.json_util import JSON

from pypaimon.streaming.errors import SchemaChangedError
from pypaimon.streaming.files.data_files import read_file
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.paimon.internals import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    PyarrowFieldParser,
    RowType,
    TableSchema,
)
from support.tables.handles import create_table
from support.tables.stream_files import put

CUTS: list[tuple[str, str, Any, Any]] = [
    ("BIGINT", "INT", 5, 1 << 40),
    ("DOUBLE", "FLOAT", 2.5, 0.1),
    ("DOUBLE", "INT", 2.0, 2.5),
    ("DECIMAL(5, 2)", "DECIMAL(4, 1)", Decimal("1.50"), Decimal("1.25")),
    ("STRING", "VARCHAR(3)", "abc", "abcd"),
    ("BYTES", "VARBINARY(3)", b"abc", b"abcd"),
    ("TIMESTAMP(6)", "TIMESTAMP(3)", datetime(2024, 1, 1, 0, 0, 0, 1000), datetime(2024, 1, 1, 0, 0, 0, 1)),
]
KEY = AtomicType("INT", nullable=False)
DEPTHS: dict[str, tuple[Callable[[DataType], DataType], Callable[[Any], Any]]] = {
    "column": (lambda kind: kind, lambda value: value),
    "row": (lambda kind: RowType(True, [DataField(2, "a", kind)]), lambda value: {"a": value}),
    "array": (lambda kind: ArrayType(True, kind), lambda value: [value]),
    "map": (lambda kind: MapType(True, KEY, kind), lambda value: [(1, value)]),
    "row in a map in an array": (
        lambda kind: ArrayType(True, MapType(True, KEY, RowType(True, [DataField(2, "a", kind)]))),
        lambda value: [[(1, {"a": value})]],
    ),
}


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(("newer", "older", "fits", "beyond"), CUTS)
def test_a_value_is_read_whole_or_not_at_all(
    warehouse: Any, depth: str, newer: str, older: str, fits: Any, beyond: Any
) -> None:
    typed, wrapped = DEPTHS[depth]
    stored, wanted = ([DataField(0, "v", typed(AtomicType(kind)))] for kind in (newer, older))
    table = create_table(warehouse, "t", pa.schema([("v", pa.int32())]))
    schema = TableSchema(id=1, fields=stored, highest_field_id=2)
    (Path(table.table_path) / "schema" / "schema-1").write_text(JSON.to_json(schema))

    def read(value: Any) -> pa.Table:
        content = pa.table(
            [pa.array([wrapped(value), None], PyarrowFieldParser.from_paimon_schema(stored)[0].type)], ["v"]
        )
        file = put(table, "a.parquet", content, schema_id=1)
        return pa.Table.from_batches(read_file(TableDirectory.of(table), file, wanted, schema_id=0))

    found = read(fits)
    assert found["v"].to_pylist() == [wrapped(fits), None]
    assert found.schema == PyarrowFieldParser.from_paimon_schema(wanted)
    with pytest.raises(SchemaChangedError, match="does not fit"):
        read(beyond)
