"""VECTOR columns: null vectors, null elements, vectors in rows, in files of every format and writer."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.model.plan import SplitMode
from support.tables.handles import create_table
from support.tables.stream_files import meta, reader, split

VECTOR, LIST = pa.list_(pa.float32(), 2), pa.list_(pa.float32())
COLUMNS = pa.schema([("id", pa.int32()), ("v", VECTOR), ("r", pa.struct([("w", VECTOR)]))])
STORED = pa.schema([("id", pa.int32()), ("v", LIST), ("r", pa.struct([("w", LIST)]))])


def containers(vector: pa.DataType) -> pa.Schema:
    """Columns whose vectors lie in other types; for maps Avro files are decoded in another way than without."""
    row = pa.struct([("w", vector), ("x", pa.list_(vector))])
    return pa.schema([("r", row), ("a", pa.list_(vector)), ("m", pa.map_(pa.string(), vector)), ("rs", pa.list_(row))])


ROWS: list[dict[str, Any]] = [
    {"id": 0, "v": None, "r": None},
    {"id": 1, "v": [1.0, 2.0], "r": {"w": [3.0, None]}},
    {"id": 2, "v": None, "r": {"w": None}},
    {"id": 3, "v": [None, 4.0], "r": {"w": [5.0, 6.0]}},
]


CONTAINED: list[dict[str, Any]] = [
    {"r": None, "a": None, "m": None, "rs": None},
    {
        "r": {"w": [1.0, 2.0], "x": [None, [3.0, None]]},
        "a": [[4.0, 5.0], None, [6.0, 7.0]],
        "m": [("k", [8.0, 9.0]), ("l", None)],
        "rs": [None, {"w": None, "x": []}, {"w": [0.0, 1.0], "x": None}],
    },
    {"r": {"w": None, "x": None}, "a": [], "m": [], "rs": []},
    {"r": None, "a": [None], "m": [("k", None)], "rs": [None]},
]


def parquet(path: Path, rows: list[dict[str, Any]], stored: pa.Schema = STORED) -> None:
    pq.write_table(pa.Table.from_pylist(rows, stored), path, store_schema=False)


def parquet_of_arrow(path: Path, rows: list[dict[str, Any]], stored: pa.Schema = STORED) -> None:
    """As writers in Rust have it, whose null vectors pyarrow cannot write itself."""
    columns = COLUMNS if stored is STORED else containers(VECTOR)
    told = base64.b64encode(columns.serialize().to_pybytes())
    pq.write_table(pa.Table.from_pylist(rows, stored).replace_schema_metadata({b"ARROW:schemX": told}), path)
    data = path.read_bytes().replace(b"ARROW:schema", b"ARROW:schemY").replace(b"ARROW:schemX", b"ARROW:schema")
    path.write_bytes(data)
    assert "fixed_size_list" in str(pq.read_schema(path))


def write_orc(path: Path, rows: list[dict[str, Any]], stored: pa.Schema = STORED) -> None:
    orc.write_table(pa.Table.from_pylist(rows, stored), str(path))


def avro(path: Path, rows: list[dict[str, Any]], stored: pa.Schema = STORED) -> None:
    names = map("row{}".format, itertools.count())
    schema = {"type": "record", "name": "r", "fields": [avro_field(field, names) for field in stored]}
    maps = [field.name for field in stored if pa.types.is_map(field.type)]
    told = [row | {name: None if row[name] is None else dict(row[name]) for name in maps} for row in rows]
    with path.open("wb") as out:
        fastavro.writer(out, schema, told)


def avro_field(field: pa.Field, names: Iterator[str]) -> dict[str, Any]:
    return {"name": field.name, "type": ["null", avro_type(field.type, names)]}


def avro_type(kind: pa.DataType, names: Iterator[str]) -> Any:
    if pa.types.is_struct(kind):
        return {"type": "record", "name": next(names), "fields": [avro_field(field, names) for field in kind]}
    if pa.types.is_map(kind):
        return {"type": "map", "values": ["null", avro_type(kind.item_type, names)]}
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", avro_type(kind.value_type, names)]}
    return {pa.int32(): "int", pa.float32(): "float"}[kind]


FORMATS = pytest.mark.parametrize(
    ("suffix", "write"),
    [("parquet", parquet), ("parquet", parquet_of_arrow), ("orc", write_orc), ("avro", avro)],
    ids=["parquet", "parquet of Arrow", "orc", "avro"],
)


def file_of(table: Any, suffix: str, write: Any, rows: list[dict[str, Any]], *stored: pa.Schema) -> Any:
    path = Path(str(table.table_path)) / "bucket-0" / f"a.{suffix}"
    path.parent.mkdir(parents=True)
    write(path, rows, *stored)
    return meta(path, len(rows))


@FORMATS
@pytest.mark.parametrize("batch_size", [1, 3, 1000])
def test_null_vectors_are_null(warehouse: Any, suffix: str, write: Any, batch_size: int) -> None:
    table = create_table(warehouse, "t", COLUMNS)
    plan = [split(SplitMode.ROWS, [file_of(table, suffix, write, ROWS)])]
    for names in (("id", "v", "r"), ("v",)):
        read = reader(table, batch_size=batch_size, include_row_kind=False, projection=names)
        found = read.to_arrow(plan)
        found.validate(full=True)
        assert found.schema.field("v").type == VECTOR
        assert found.to_pylist() == [{name: row[name] for name in names} for row in ROWS]


@FORMATS
@pytest.mark.parametrize("rows", [CONTAINED, CONTAINED[:1] * 3, []], ids=["some null", "all null", "none"])
def test_vectors_in_other_types(warehouse: Any, suffix: str, write: Any, rows: list[dict[str, Any]]) -> None:
    table = create_table(warehouse, "t", containers(VECTOR))
    file = file_of(table, suffix, write, rows, containers(LIST))
    found = reader(table, include_row_kind=False).to_arrow([split(SplitMode.ROWS, [file])])
    found.validate(full=True)
    assert found.schema == containers(VECTOR) and found.to_pylist() == rows


@FORMATS
def test_a_vector_of_another_length_is_an_error(warehouse: Any, suffix: str, write: Any) -> None:
    table = create_table(warehouse, "t", COLUMNS)
    file = file_of(table, suffix, write, [*ROWS, {"id": 4, "v": [1.0, 2.0, 3.0], "r": None}])
    with pytest.raises(CorruptTableError, match="a vector of 2 elements is stored with 3"):
        reader(table).to_arrow([split(SplitMode.ROWS, [file])])
