"""Maps in the layout `shared-shredding`: as written, in slices, in both formats; damaged ones are errors."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
import zstandard
from pypaimon.schema.data_types import DataField, PyarrowFieldParser

from pypaimon.streaming.errors import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.files import data_files
from pypaimon.streaming.files.schema_mapping import map_columns
from pypaimon.streaming.model.plan import SplitMode
from pypaimon.streaming.model.time_zone import time_zone
from support.pyarrow_limits import read_or_refused
from support.samples import sample_seed
from support.tables.handles import create_table
from support.tables.stream_files import meta, reader, split, write

PREFIX = "paimon.map.shared-shredding."
KEYS = {"a": 0, "b": 1, "c": 2, "ä": 5}
BIGINT = pa.int64()
MAP = pa.map_(pa.string(), BIGINT)
COLUMNS = pa.schema([("id", pa.int32()), ("m", MAP)])
STORED: list[dict[str, Any]] = [
    {"__field_mapping": [0, 1], "__col_0": 1, "__col_1": None, "__overflow": None},
    {"__field_mapping": [-1, -1], "__col_0": None, "__col_1": None, "__overflow": None},
    None,  # type: ignore[list-item]
    {"__field_mapping": [-1, 5], "__col_0": None, "__col_1": 2, "__overflow": [(2, 3), (1, None)]},
    {"__field_mapping": [2, -1], "__col_0": 4, "__col_1": None, "__overflow": []},
]
ROWS = [[("a", 1), ("b", None)], [], None, [("ä", 2), ("c", 3), ("b", None)], [("c", 4)]]
FORMATS = pytest.mark.parametrize("suffix", ["parquet", "orc"])


def told(
    keys: dict[str, Any] = KEYS, compression: str | None = "zstd", columns: int = 2, **changes: Any
) -> dict[str, str]:
    """The metadata of a column. Changes replace values (`_` for `-`), None takes them away."""
    text = json.dumps(keys).encode()
    data = {"zstd": zstandard.compress, "lz4": lz4}.get(compression or "zstd", bytes)(text)
    metadata = {
        "version": "1",
        "field_dict": data.decode("latin-1"),
        "field_dict_compression": compression,
        "field_dict_original_size": str(len(text)),
        "num_columns": str(columns),
    } | changes
    found = {PREFIX + name.replace("_", "-"): value for name, value in metadata.items() if value is not None}
    return {"paimon.map.storage-layout": "shared-shredding"} | found


def lz4(text: bytes) -> bytes:
    data = bytes(pa.Codec("lz4_raw").compress(text))
    return len(data).to_bytes(4, "little") + len(text).to_bytes(4, "little") + data


def row_type(value: pa.DataType = BIGINT, columns: int = 2, overflow: bool = True) -> pa.StructType:
    fields = [("__field_mapping", pa.list_(pa.int32()))]
    fields += [(f"__col_{index}", value) for index in range(columns)]
    return pa.struct(fields + ([("__overflow", pa.map_(pa.int32(), value))] if overflow else []))


def read(
    warehouse: Any,
    suffix: str,
    metadata: dict[str, str],
    stored: Sequence[dict[str, Any] | None] = STORED,
    kind: pa.StructType | None = None,
    columns: pa.Schema = COLUMNS,
    batch_size: int = 1000,
) -> list[Any]:
    """The maps of a file of these rows, as a read gives them."""
    table = create_table(warehouse, "t", columns)
    path = Path(str(table.table_path)) / "bucket-0" / f"a.{suffix}"
    path.parent.mkdir(parents=True)
    rows = pa.table({"id": pa.array(range(len(stored)), pa.int32()), "m": pa.array(stored, kind or row_type())})
    schema = pa.schema([rows.schema.field("id"), rows.schema.field("m").with_metadata(metadata)])
    if suffix == "orc":
        schema = schema.with_metadata({"ARROW:schema": base64.b64encode(schema.serialize().to_pybytes())})
        orc.write_table(rows.cast(schema), str(path))
    else:
        pq.write_table(rows.cast(schema), path)
    found = reader(table, include_row_kind=False, batch_size=batch_size).to_arrow(
        [split(SplitMode.ROWS, [meta(path, len(stored))])]
    )
    found.validate(full=True)
    assert found.schema == columns
    return found["m"].to_pylist()  # type: ignore[no-any-return]


@FORMATS
@pytest.mark.parametrize("batch_size", [1, 2, 1000])
def test_entries_of_columns_and_of_the_overflow(warehouse: Any, suffix: str, batch_size: int) -> None:
    assert read(warehouse, suffix, told(), batch_size=batch_size) == ROWS


def test_more_rows_than_are_assembled_at_once(warehouse: Any) -> None:
    assert read(warehouse, "parquet", told(), STORED * 4000, batch_size=20_000) == ROWS * 4000


@FORMATS
def test_the_keys_of_a_file_are_not_kept(warehouse: Any, suffix: str) -> None:
    data_files._kept.clear()
    assert read(warehouse, suffix, told()) == ROWS
    assert not data_files._kept


@FORMATS
@pytest.mark.parametrize("compression", ["zstd", "lz4", "none", "ZSTD", None])
def test_compressions_of_the_keys(warehouse: Any, suffix: str, compression: str | None) -> None:
    """Files of the first writers do not name the one that all of them used."""
    metadata = told(compression=compression and compression.lower(), field_dict_compression=compression)
    assert read(warehouse, suffix, metadata) == ROWS


@FORMATS
@pytest.mark.parametrize("stored", [[], [None], [None] * 3 + STORED[1:2]], ids=["none", "null", "null and empty"])
def test_a_file_without_an_entry(warehouse: Any, suffix: str, stored: list[Any]) -> None:
    assert read(warehouse, suffix, told({}), stored) == [None if row is None else [] for row in stored]


@FORMATS
def test_a_file_without_an_overflow(warehouse: Any, suffix: str) -> None:
    assert read(warehouse, suffix, told(), STORED[:3], row_type(overflow=False)) == ROWS[:3]


def test_values_below_a_null_row_do_not_count() -> None:
    rows = pa.array([STORED[3], STORED[3], STORED[0]], row_type())
    masked = pa.StructArray.from_arrays(rows.flatten(), fields=list(row_type()), mask=pa.array([False, True, False]))
    batch = pa.record_batch([masked], schema=pa.schema([pa.field("m", row_type(), metadata=told())]))
    field = DataField(0, "m", PyarrowFieldParser.to_paimon_type(MAP, True))
    (column,) = map_columns(batch.schema, [field], [field], exact=False, zone=time_zone("UTC"))
    found = column.read(batch)
    found.validate(full=True)
    assert found.to_pylist() == [ROWS[3], None, ROWS[0]] and len(found.keys) == len(ROWS[3] or ()) + len(ROWS[0] or ())


def test_timestamps_in_columns_that_hold_other_ranges(warehouse: Any) -> None:
    """A column of an ORC file whose timestamps lie beyond nanoseconds has another type than the others."""
    near, far, kind = datetime(2024, 2, 29, 12, 0, 0, 1), datetime(9999, 12, 31), pa.timestamp("us")
    stored = [{"__field_mapping": [0, 1], "__col_0": near, "__col_1": far, "__overflow": [(2, far), (5, None)]}]
    columns = pa.schema([("id", pa.int32()), ("m", pa.map_(pa.string(), kind))])
    with read_or_refused():
        found = read(warehouse, "orc", told(), stored, row_type(kind), columns)
        assert found == [[("a", near), ("b", far), ("c", far), ("ä", None)]]


def test_vectors_next_to_a_map(warehouse: Any) -> None:
    """What Arrow's schema says of vectors is not believed; what it says of maps is."""
    value = pa.list_(pa.float32(), 2)
    stored = [
        {"__field_mapping": [0, 1], "__col_0": [1.0, 2.0], "__col_1": [3.0, 4.0], "__overflow": [(2, [5.0, 6.0])]}
    ]
    columns = pa.schema([("id", pa.int32()), ("m", pa.map_(pa.string(), value))])
    found = read(warehouse, "parquet", told(), stored, row_type(value), columns)
    assert found == [[("a", [1.0, 2.0]), ("b", [3.0, 4.0]), ("c", [5.0, 6.0])]]


@pytest.mark.parametrize("policy", ["plain", "sequential", "lru"])
def test_random_maps_that_pypaimon_writes(warehouse: Any, policy: str) -> None:
    random = Random(f"{sample_seed()} {policy}")
    value = pa.struct([("n", pa.decimal128(20, 4)), ("tags", pa.list_(pa.string()))])
    columns = pa.schema([("id", pa.int32()), ("m", pa.map_(pa.string(), value)), ("plain", MAP), ("k", MAP)])
    layout = {"map.storage-layout": "shared-shredding", "map.shared-shredding.column-placement-policy": policy}
    widths = {"m": random.choice([1, 3, 40]), "k": 2}
    options = {f"fields.{name}.{key}": text for name in widths for key, text in layout.items()}
    options |= {f"fields.{name}.map.shared-shredding.max-columns": str(width) for name, width in widths.items()}
    table = create_table(warehouse, "t", columns, options=options)
    rows = pa.Table.from_pylist([random_row(random, index) for index in range(700)], columns)
    files = write(table, rows)
    for batch_size in (64, 1000):
        found = reader(table, include_row_kind=False, batch_size=batch_size).to_arrow([split(SplitMode.ROWS, files)])
        found.validate(full=True)
        assert sorted_maps(found) == sorted_maps(rows)
    assert sorted_maps(
        reader(table, include_row_kind=False, projection=("k",)).to_arrow([split(SplitMode.ROWS, files)])
    ) == sorted_maps(rows.select(["k"]))


def random_row(random: Random, index: int) -> dict[str, Any]:
    def entries(value: Any) -> Any:
        if random.random() < 0.15:
            return None
        return [(f"key{key}", value()) for key in random.sample(range(50), random.choice([0, 1, 2, 3, 12]))]

    def number() -> Any:
        return random.choice([None, random.randrange(10**6)])

    def row() -> Any:
        return random.choice([None, {"n": None, "tags": None}, {"n": index, "tags": ["x", None] * random.randrange(3)}])

    return {"id": index, "m": entries(row), "plain": entries(number), "k": entries(number)}


def sorted_maps(table: pa.Table) -> list[dict[str, Any]]:
    """Rows; the order of entries in a map means nothing."""
    return [
        {name: sorted(value, key=str) if isinstance(value, list) else value for name, value in row.items()}
        for row in table.to_pylist()
    ]


# What is damaged is an error that names the file, the column and what is wrong.


@FORMATS
@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "the file lacks the metadata that explains it"),
        (told(version=None), "the metadata .*version is missing"),
        (told(version="one"), "the metadata .*version is not an integer: 'one'"),
        (told(num_columns=None), "the metadata .*num-columns is missing"),
        (told(columns=3), "a map in 3 columns is stored as"),
        (told(columns=1), "a map in 1 columns is stored as"),
        (told(columns=-1), "a map in -1 columns is stored as"),
        (told(field_dict=None), "the metadata .*field-dict is missing"),
        (told(field_dict_original_size=None), "the metadata .*field-dict-original-size is missing"),
        (told(field_dict_original_size="-1"), "take -1 bytes"),
        (told(field_dict_original_size=str(1 << 40)), "take 1099511627776 bytes"),
        (told(field_dict_original_size="3"), "holds more than 3 bytes"),
        (told(field_dict_original_size="999"), "instead of 999"),
        (told(compression="none", field_dict_original_size="999"), "instead of 999"),
        (told(compression="lz4", field_dict_original_size="999"), "cut off"),
        (told(compression="none", field_dict_compression="zstd"), "cannot be decompressed"),
        (told(field_dict="€"), "latin-1"),
        (told(KEYS | {"d": 1}), "'b' and 'd' of a map have the same number"),
        (told(KEYS | {"d": -1}), "not a JSON object of numbers"),
        (told(KEYS | {"d": 1 << 40}), "not a JSON object of numbers"),
        (told(KEYS | {"d": True}), "not a JSON object of numbers"),
        (told(KEYS | {"d": "3"}), "not a JSON object of numbers"),
        (told(compression="none", field_dict="[1]", field_dict_original_size="3"), "not a JSON object of numbers"),
        (told(compression="none", field_dict="{1:2", field_dict_original_size="4"), "Expecting property name"),
    ],
)
def test_damaged_metadata_is_an_error(warehouse: Any, suffix: str, metadata: dict[str, str], message: str) -> None:
    with pytest.raises(CorruptTableError, match=f"a.{suffix}.*column m.*{message}"):
        read(warehouse, suffix, metadata)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"__field_mapping": None}, "which keys its 2 columns hold"),
        ({"__field_mapping": [0]}, "which keys its 2 columns hold"),
        ({"__field_mapping": [0, 1, 2]}, "which keys its 2 columns hold"),
        ({"__field_mapping": [0, None]}, "which keys its 2 columns hold"),
        ({"__field_mapping": [0, 3]}, "a key of number 3, which"),
        ({"__field_mapping": [0, 6]}, "a key of number 6, which"),
        ({"__field_mapping": [0, 7]}, "a key of number 7, which"),
        ({"__overflow": [(4, 1)]}, "a key of number 4, which"),
        ({"__overflow": [(99, 1)]}, "a key of number 99, which"),
        ({"__overflow": [(-1, 1)]}, "a key of number -1, which"),
    ],
)
def test_a_damaged_row_is_an_error(warehouse: Any, row: dict[str, Any], message: str) -> None:
    with pytest.raises(CorruptTableError, match=f"a.parquet.*column m: a row .*{message}"):
        read(warehouse, "parquet", told(), [*STORED, STORED[0] | row])


@FORMATS
@pytest.mark.parametrize(
    "kind",
    [
        row_type(columns=3),
        pa.struct([*row_type(overflow=False), ("__overflow", pa.int64())]),
        pa.struct([("__field_mapping", pa.int32()), *list(row_type())[1:]]),
        pa.struct([*list(row_type())[::-1]]),
        pa.struct([("x", pa.int32())]),
    ],
    ids=["columns", "overflow", "mapping", "order", "another row"],
)
def test_another_row_than_the_metadata_says_is_an_error(warehouse: Any, suffix: str, kind: pa.StructType) -> None:
    with pytest.raises(CorruptTableError, match=r"column m: a map in .*columns is stored as"):
        read(warehouse, suffix, told(), [None, None], kind)


def test_less_than_no_columns_is_an_error(warehouse: Any) -> None:
    with pytest.raises(CorruptTableError, match="column m: a map in -1 columns is stored as"):
        read(warehouse, "parquet", told(columns=-1), [None], row_type(columns=0))


@FORMATS
def test_a_later_version_and_unknown_compressions_are_refused_by_name(warehouse: Any, suffix: str) -> None:
    with pytest.raises(UnsupportedTableError, match="version 2 of the layout 'shared-shredding'"):
        read(warehouse, suffix, told(version="2"))


def test_an_unknown_compression_is_refused_by_name(warehouse: Any) -> None:
    with pytest.raises(UnsupportedTableError, match="compressed with 'lzo'"):
        read(warehouse, "parquet", told(field_dict_compression="lzo"))


@pytest.mark.parametrize("text", ["?", base64.b64encode(b"no schema").decode(), ""], ids=["text", "bytes", "empty"])
def test_a_damaged_arrow_schema_is_an_error(warehouse: Any, text: str) -> None:
    table = create_table(warehouse, "t", COLUMNS)
    path = Path(str(table.table_path)) / "bucket-0" / "a.orc"
    path.parent.mkdir(parents=True)
    rows = pa.table({"id": pa.array([1], pa.int32()), "m": pa.array(STORED[:1], row_type())})
    orc.write_table(rows.replace_schema_metadata({"ARROW:schema": text}), str(path))
    with pytest.raises(CorruptTableError, match=r"a\.orc"):
        reader(table).to_arrow([split(SplitMode.ROWS, [meta(path, 1)])])
