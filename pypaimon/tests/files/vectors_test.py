"""VECTOR columns: null vectors, null elements, vectors in rows, in files of every format and writer."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from stream_files import create, meta, reader, split

from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.model.plan import SplitMode

VECTOR, LIST = pa.list_(pa.float32(), 2), pa.list_(pa.float32())
COLUMNS = pa.schema([("id", pa.int32()), ("v", VECTOR), ("r", pa.struct([("w", VECTOR)]))])
STORED = pa.schema([("id", pa.int32()), ("v", LIST), ("r", pa.struct([("w", LIST)]))])
ROWS: list[dict[str, Any]] = [
    {"id": 0, "v": None, "r": None},
    {"id": 1, "v": [1.0, 2.0], "r": {"w": [3.0, None]}},
    {"id": 2, "v": None, "r": {"w": None}},
    {"id": 3, "v": [None, 4.0], "r": {"w": [5.0, 6.0]}},
]


def parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows, STORED), path, store_schema=False)


def parquet_of_arrow(path: Path, rows: list[dict[str, Any]]) -> None:
    """As writers in Rust have it, whose null vectors pyarrow cannot write itself."""
    told = base64.b64encode(COLUMNS.serialize().to_pybytes())
    pq.write_table(pa.Table.from_pylist(rows, STORED).replace_schema_metadata({b"ARROW:schemX": told}), path)
    data = path.read_bytes().replace(b"ARROW:schema", b"ARROW:schemY").replace(b"ARROW:schemX", b"ARROW:schema")
    path.write_bytes(data)
    assert pq.read_schema(path).field("v").type == pa.list_(pa.field("element", pa.float32()), 2)


def write_orc(path: Path, rows: list[dict[str, Any]]) -> None:
    orc.write_table(pa.Table.from_pylist(rows, STORED), str(path))


def avro(path: Path, rows: list[dict[str, Any]]) -> None:
    vector = ["null", {"type": "array", "items": ["null", "float"]}]
    row = {"type": "record", "name": "x", "fields": [{"name": "w", "type": vector}]}
    kinds = {"id": ["null", "int"], "v": vector, "r": ["null", row]}
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    with path.open("wb") as out:
        fastavro.writer(out, {"type": "record", "name": "r", "fields": fields}, rows)


FORMATS = pytest.mark.parametrize(
    ("suffix", "write"),
    [("parquet", parquet), ("parquet", parquet_of_arrow), ("orc", write_orc), ("avro", avro)],
    ids=["parquet", "parquet of Arrow", "orc", "avro"],
)


def file_of(table: Any, suffix: str, write: Any, rows: list[dict[str, Any]]) -> Any:
    path = Path(str(table.table_path)) / "bucket-0" / f"a.{suffix}"
    path.parent.mkdir(parents=True)
    write(path, rows)
    return meta(path, len(rows))


@FORMATS
@pytest.mark.parametrize("batch_size", [1, 3, 1000])
def test_null_vectors_are_null(warehouse: Any, suffix: str, write: Any, batch_size: int) -> None:
    table = create(warehouse, "t", COLUMNS)
    plan = [split(SplitMode.ROWS, [file_of(table, suffix, write, ROWS)])]
    for names in (("id", "v", "r"), ("v",)):
        read = reader(table, batch_size=batch_size, include_row_kind=False, projection=names)
        found = read.to_arrow(plan)
        found.validate(full=True)
        assert found.schema.field("v").type == VECTOR
        assert found.to_pylist() == [{name: row[name] for name in names} for row in ROWS]


@FORMATS
def test_a_vector_of_another_length_is_an_error(warehouse: Any, suffix: str, write: Any) -> None:
    table = create(warehouse, "t", COLUMNS)
    file = file_of(table, suffix, write, [*ROWS, {"id": 4, "v": [1.0, 2.0, 3.0], "r": None}])
    with pytest.raises(CorruptTableError, match="a vector of 2 elements is stored with 3"):
        reader(table).to_arrow([split(SplitMode.ROWS, [file])])
