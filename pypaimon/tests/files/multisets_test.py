"""MULTISET columns are maps from elements to how many times they are there, in files of every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pypaimon import Schema
from pypaimon.schema.data_types import ArrayType, AtomicType, DataField, DataType, MultisetType, RowType

from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.files.schema_mapping import map_columns
from pypaimon.streaming.model.arrow_types import arrow_schema, arrow_type
from pypaimon.streaming.model.plan import SplitMode
from pypaimon.streaming.model.time_zone import time_zone
from support.tables.stream_files import meta, reader, split


def multiset(element: str) -> MultisetType:
    return MultisetType(True, AtomicType(element))


FIELDS = [
    DataField(0, "texts", multiset("STRING")),
    DataField(1, "numbers", multiset("INT")),
    DataField(2, "in_row", RowType(True, [DataField(4, "m", multiset("STRING"))])),
    DataField(3, "many", ArrayType(True, multiset("STRING"))),
]
COUNTS = pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))
COLUMNS = pa.schema(
    [
        ("texts", COUNTS),
        ("numbers", pa.map_(pa.int32(), pa.field("value", pa.int32(), nullable=False))),
        ("in_row", pa.struct([("m", COUNTS)])),
        ("many", pa.list_(COUNTS)),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "texts": [("a", 2), ("b", 1)],
        "numbers": [(7, 3), (-1, 1)],
        "in_row": {"m": [("c", 4)]},
        "many": [[("d", 5)], None],
    },
    {"texts": [], "numbers": [], "in_row": {"m": None}, "many": []},
    {"texts": None, "numbers": None, "in_row": None, "many": None},
    {"texts": [("", 1)], "numbers": [(0, 2)], "in_row": {"m": []}, "many": [[]]},
]


def parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS, COLUMNS), path, store_schema=False)


def write_orc(path: Path) -> None:
    orc.write_table(pa.Table.from_pylist(ROWS, COLUMNS), str(path))


def avro(path: Path) -> None:
    """Maps of texts are maps, others are lists of pairs."""

    def nullable(name: str, kind: Any) -> dict[str, Any]:
        return {"name": name, "type": ["null", kind]}

    texts = {"type": "map", "values": "int"}
    pair = {"type": "record", "name": "pair", "fields": [{"name": each, "type": "int"} for each in ("key", "value")]}
    schema = {
        "type": "record",
        "name": "row",
        "fields": [
            nullable("texts", texts),
            nullable("numbers", {"type": "array", "logicalType": "map", "items": pair}),
            nullable("in_row", {"type": "record", "name": "inner", "fields": [nullable("m", texts)]}),
            nullable("many", {"type": "array", "items": ["null", texts]}),
        ],
    }
    rows = [
        {
            "texts": counted(row["texts"]),
            "numbers": row["numbers"] and [{"key": key, "value": count} for key, count in row["numbers"]],
            "in_row": row["in_row"] and {"m": counted(row["in_row"]["m"])},
            "many": row["many"] and list(map(counted, row["many"])),
        }
        for row in ROWS
    ]
    with path.open("wb") as out:
        fastavro.writer(out, schema, rows)


def counted(pairs: Any) -> Any:
    return None if pairs is None else dict(pairs)


def create(catalog: Any, fields: list[DataField]) -> Any:
    catalog.create_table("db.t", Schema(fields=fields), False)
    return catalog.get_table("db.t")


@pytest.mark.parametrize(("suffix", "write"), [("parquet", parquet), ("orc", write_orc), ("avro", avro)])
@pytest.mark.parametrize("names", [("texts", "numbers", "in_row", "many"), ("numbers",), ("many", "texts")])
@pytest.mark.parametrize("batch_size", [1, 1000])
def test_multisets_are_maps(warehouse: Any, suffix: str, write: Any, names: tuple[str, ...], batch_size: int) -> None:
    table = create(warehouse, FIELDS)
    path = Path(str(table.table_path)) / "bucket-0" / f"a.{suffix}"
    path.parent.mkdir(parents=True)
    write(path)
    read = reader(table, include_row_kind=False, projection=names, batch_size=batch_size)
    found = read.to_arrow([split(SplitMode.ROWS, [meta(path, len(ROWS))])])
    found.validate(full=True)
    assert found.schema == pa.schema([COLUMNS.field(name) for name in names])
    assert found.to_pylist() == [{name: row[name] for name in names} for row in ROWS]


def test_the_type_in_arrow() -> None:
    assert arrow_schema(FIELDS) == COLUMNS
    assert arrow_type(MultisetType(False, AtomicType("DECIMAL(5, 2)"))) == pa.map_(
        pa.decimal128(5, 2), pa.field("value", pa.int32(), nullable=False)
    )
    assert FIELDS[0].type == multiset("STRING")


@pytest.mark.parametrize(
    ("stored", "wanted", "expected"),
    [
        (multiset("INT"), multiset("BIGINT"), [[(1, 2)], None]),
        (multiset("INT"), multiset("STRING"), [[("1", 2)], None]),
    ],
)
def test_elements_of_another_type_are_cast(stored: DataType, wanted: DataType, expected: list[Any]) -> None:
    column = pa.array([[(1, 2)], None], pa.map_(pa.int32(), pa.int32()))
    batch = pa.record_batch({"s": column})
    (found,) = map_columns(
        batch.schema, [DataField(3, "s", stored)], [DataField(3, "x", wanted)], exact=False, zone=time_zone("UTC")
    )
    assert found.read(batch).to_pylist() == expected


def test_a_file_with_something_else_is_damaged(warehouse: Any) -> None:
    table = create(warehouse, FIELDS[:1])
    path = Path(str(table.table_path)) / "bucket-0" / "a.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"texts": pa.array([["a"]])}), path)
    with pytest.raises(CorruptTableError, match=r"a\.parquet.*MAP<STRING, INT NOT NULL> is stored as list"):
        reader(table).to_arrow([split(SplitMode.ROWS, [meta(path, 1)])])
