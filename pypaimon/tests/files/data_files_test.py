"""Data files in the read schema: formats and types, evolved schemas, casts, merged changelog files."""

from __future__ import annotations

import io
import math
from collections import Counter
from contextlib import nullcontext
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from cachetools import LRUCache
from pypaimon import CatalogFactory
from pypaimon.schema.data_types import ArrayType, AtomicType, DataField, DataType, MapType, RowType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming.errors import CorruptTableError, SchemaChangedError, UnsupportedTableError
from pypaimon.streaming.files import data_files
from pypaimon.streaming.files.casts import CastError, cast
from pypaimon.streaming.files.data_files import read_file
from pypaimon.streaming.files.schema_mapping import map_columns
from pypaimon.streaming.formats import file_format
from pypaimon.streaming.io import local_files
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import SplitMode
from pypaimon.streaming.model.system_columns import ROW_ID, SEQUENCE_NUMBER, VALUE_KIND
from pypaimon.streaming.model.time_zone import time_zone
from support.corpus.cases import load
from support.corpus.values import column_values
from support.pyarrow_limits import read_or_refused
from support.tables.handles import create_table
from support.tables.stream_files import meta, put, reader, split, write

UTC = time_zone("UTC")
FLAT = pa.schema([("id", pa.int32()), ("v", pa.string())])


# Every type of the corpus, as Java reads it.


@pytest.mark.parametrize(
    "scenario",
    ["types_append_parquet", "types_append_orc", "types_before_epoch_parquet", "variant", "schema_type_changes"],
)
def test_types_of_append_files(scenario: str) -> None:
    with read_or_refused() if scenario == "types_append_orc" else nullcontext():
        compare_with_java("java-2.1", scenario, "data-*", SplitMode.ROWS)


@pytest.mark.parametrize("scenario", ["types_pk_input", "pk_avro_input", "pk_dedup_part_input"])
def test_types_of_changelog_files(scenario: str) -> None:
    compare_with_java("java-2.1", scenario, "changelog-*", SplitMode.CHANGELOG)


def compare_with_java(archive: str, name: str, pattern: str, mode: SplitMode) -> None:
    scenario = load(archive, name)
    table = CatalogFactory.create({"warehouse": str(scenario.warehouse)}).get_table("d.t")
    metas = [meta(path, count_of(path)) for path in file_paths(scenario.warehouse, pattern)]
    result = reader(table).to_arrow([split(mode, metas)])
    result.validate(full=True)
    assert Counter(map(repr, rows_of(result, scenario.fields))) == Counter(map(repr, java_rows(scenario)))


def count_of(path: Path) -> int:
    """The rows of a file, as others count them."""
    if path.suffix == ".avro":
        with path.open("rb") as file:
            return sum(1 for _ in fastavro.reader(file))
    return int(orc.ORCFile(path).nrows if path.suffix == ".orc" else pq.read_metadata(path).num_rows)


def file_paths(warehouse: Path, pattern: str) -> list[Path]:
    return sorted(path for path in warehouse.rglob(pattern) if path.parent.name.startswith("bucket-"))


def rows_of(table: pa.Table, fields: Any) -> list[list[Any]]:
    kinds = dict(fields)
    columns = [column_values(table[name], kinds.get(name, "")) for name in table.column_names]
    return [list(row) for row in zip(*columns, strict=True)]


def java_rows(scenario: Any) -> list[list[Any]]:
    return [row for plan in scenario.reads["restore_1"].java.plans for part in plan.splits for row in part.rows]


# Lists.


INTS = ArrayType(True, AtomicType("INT"))
PAIRS = MapType(True, AtomicType("INT", False), AtomicType("INT"))


@pytest.mark.parametrize(
    ("stored", "row", "source", "target", "expected"),
    [
        (pa.list_(pa.int32()), [1, 2], INTS, ArrayType(True, AtomicType("BIGINT")), [1, 2]),
        (pa.map_(pa.int32(), pa.int32()), [(1, 2)], PAIRS, MapType(True, PAIRS.key, AtomicType("BIGINT")), [(1, 2)]),
        (pa.list_(pa.struct([("k", pa.int32()), ("v", pa.int32())])), [{"k": 1, "v": 2}], PAIRS, PAIRS, [(1, 2)]),
    ],
    ids=["list", "map", "map as list"],
)
def test_a_slice_of_lists_converts_no_elements_but_its_own(
    stored: pa.DataType, row: Any, source: DataType, target: DataType, expected: Any
) -> None:
    """What a format gives at once is cut into batches: each of them would convert all of it."""
    rows = [row, None, row, [], row, None] * 20
    batch = pa.record_batch({"c": pa.array(rows, stored)})
    (column,) = map_columns(
        batch.schema, [DataField(0, "c", source)], [DataField(0, "c", target)], exact=False, zone=UTC
    )
    for start in (0, 1, 6, 64, 120):
        found = column.read(batch.slice(start, 7))
        found.validate(full=True)
        assert found.to_pylist() == [each and expected for each in rows[start : start + 7]]
        assert len(found.values if pa.types.is_list(found.type) else found.keys) == sum(
            len(each) for each in rows[start : start + 7] if each
        )


# Formats.


ORC_COLUMNS = pa.schema(
    [
        ("near", pa.timestamp("us")),
        ("far", pa.timestamp("us")),
        ("many", pa.list_(pa.timestamp("us"))),
        ("row", pa.struct([("t", pa.timestamp("us"))])),
        ("map", pa.map_(pa.string(), pa.timestamp("us"))),
        ("nanos", pa.timestamp("ns")),
    ]
)


@pytest.mark.parametrize("compression", ["uncompressed", "zstd", "zlib", "snappy", "lz4"])
@pytest.mark.parametrize("far", [datetime(9999, 12, 31, 23, 59, 59, 999_999), datetime(1, 1, 1, 0, 0, 0, 1)])
def test_orc_timestamps_beyond_nanoseconds(warehouse: Any, compression: str, far: datetime) -> None:
    table = create_table(warehouse, "t", ORC_COLUMNS, options={"file.format": "orc"})
    near = datetime(2024, 2, 29, 12, 34, 56, 789_123)
    full = {"near": near, "far": far, "many": [far, None], "row": {"t": far}, "map": [("k", far)], "nanos": near}
    data = pa.Table.from_pylist([full, dict.fromkeys(full), full], ORC_COLUMNS)
    file = put(table, "a.orc", data, compression=compression)
    with read_or_refused():
        assert read_all(table, file).to_pylist() == data.to_pylist()


def read_all(table: Any, file: Any, **arguments: Any) -> pa.Table:
    directory = TableDirectory.of(table)
    arguments.setdefault("schema_id", table.table_schema.id)
    return pa.Table.from_batches(read_file(directory, file, table.fields, **arguments))


def optional(kind: Any) -> list[Any]:
    return ["null", kind]


AVRO_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}
AVRO_ENTRY = [{"name": "key", "type": "int"}, {"name": "value", "type": optional(AVRO_DECIMAL)}]
AVRO_ROW = [{"name": "k", "type": optional("string")}, {"name": "t", "type": optional("long")}]
AVRO_FIELDS: dict[str, tuple[Any, pa.DataType]] = {
    "dec": (AVRO_DECIMAL, pa.decimal128(12, 3)),
    "list": ({"type": "array", "items": optional("int")}, pa.list_(pa.int32())),
    "rows": (
        {"type": "array", "items": optional({"type": "record", "name": "row", "fields": AVRO_ROW})},
        pa.list_(pa.struct([("k", pa.string()), ("t", pa.timestamp("us"))])),
    ),
    # As Java writes maps whose keys are no text.
    "numbered": (
        {"type": "array", "logicalType": "map", "items": {"type": "record", "name": "entry", "fields": AVRO_ENTRY}},
        pa.map_(pa.int32(), pa.decimal128(12, 3)),
    ),
    "named": ({"type": "map", "values": optional("long")}, pa.map_(pa.string(), pa.int64())),
}


def test_avro_timestamps_without_fractions_are_stored_in_milliseconds(warehouse: Any) -> None:
    table = create_table(warehouse, "t", pa.schema([("t", pa.timestamp("s")), ("z", pa.timestamp("s", "UTC"))]))
    path = Path(str(table.table_path)) / "bucket-0" / "a.avro"
    path.parent.mkdir(parents=True)
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [{"name": name, "type": optional(millis)} for name in ("t", "z")]
    schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": fields})
    with path.open("wb") as out:
        fastavro.writer(out, schema, [{"t": 1_709_210_096_000, "z": -86_401_000}, {"t": None, "z": None}])
    read = read_all(table, meta(path, 2))
    assert read["t"].to_pylist() == [datetime(2024, 2, 29, 12, 34, 56), None]
    assert read["z"].cast(pa.int64()).to_pylist() == [-86_401, None]


@pytest.mark.parametrize("key", [pa.int32(), pa.int64()], ids=["as it is", "cast"])
def test_a_null_key_of_a_map_is_refused(warehouse: Any, key: pa.DataType) -> None:
    """Paimon's maps may have one. Arrow ends the process where it finds one."""
    table = create_table(warehouse, "t", pa.schema([("m", pa.map_(key, pa.int32()))]))
    path = Path(str(table.table_path)) / "bucket-0" / "a.avro"
    path.parent.mkdir(parents=True)
    pair = {"type": "record", "name": "p", "fields": [{"name": each, "type": optional("int")} for each in "kv"]}
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "m", "type": optional({"type": "array", "items": pair})}],
    }
    with path.open("wb") as out:
        fastavro.writer(out, schema, [{"m": [{"k": 1, "v": 2}, {"k": None, "v": 3}]}, {"m": None}])
    with pytest.raises(UnsupportedTableError, match="a null key"):
        read_all(table, meta(path, 2))


@pytest.mark.parametrize("names", [list(AVRO_FIELDS)[:4], list(AVRO_FIELDS)], ids=["polars", "fastavro"])
def test_avro_decimals_arrays_and_maps(warehouse: Any, names: list[str]) -> None:
    table = create_table(warehouse, "t", pa.schema([(name, AVRO_FIELDS[name][1]) for name in names]))
    stored = [
        {
            "dec": Decimal(text),
            "list": [1, None],
            "rows": [{"k": "z", "t": 1}, None],
            "numbered": [{"key": 1, "value": Decimal(text)}, {"key": 2, "value": None}],
            "named": {"a": 1, "b": None},
        }
        for text in ("-1.234", "0.000", "999999999.999", "-999999999.999", "0.128", "-0.128")
    ]
    fields = [{"name": name, "type": optional(AVRO_FIELDS[name][0])} for name in names]
    path = Path(str(table.table_path)) / "bucket-0" / "a.avro"
    path.parent.mkdir(parents=True)
    schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": fields})
    with path.open("wb") as out:
        fastavro.writer(out, schema, [{name: row[name] for name in names} for row in [*stored, dict.fromkeys(names)]])
    read = read_all(table, meta(path, 7))
    read.validate(full=True)
    assert read.to_pylist() == [
        {
            name: {
                "rows": [{"k": "z", "t": datetime(1970, 1, 1, 0, 0, 0, 1)}, None],
                "numbered": [(1, row["dec"]), (2, None)],
                "named": [("a", 1), ("b", None)],
            }.get(name, row[name])
            for name in names
        }
        for row in stored
    ] + [dict.fromkeys(names)]


def test_system_columns_are_stored_or_come_from_the_manifest(warehouse: Any) -> None:
    table = create_table(warehouse, "t", FLAT)
    data = pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["a", "b"], "_VALUE_KIND": pa.array([0, 3], pa.int8())})
    file = put(table, "a.parquet", data, first_row_id=10, max_sequence_number=7)
    read = read_all(table, file, system_columns=(VALUE_KIND, SEQUENCE_NUMBER, ROW_ID))
    assert read.column_names == ["id", "v", "_VALUE_KIND", "_SEQUENCE_NUMBER", "_ROW_ID"]
    assert read["_VALUE_KIND"].to_pylist() == [0, 3]
    assert read["_SEQUENCE_NUMBER"].to_pylist() == [7, 7]
    assert read["_ROW_ID"].to_pylist() == [10, 11]


class StreamsOf:
    """A FileIO that opens files as another kind of stream, as those of object stores are."""

    def __init__(self, file_io: Any, kind: Any) -> None:
        self._file_io = file_io
        self._kind = kind

    def new_input_stream(self, path: str) -> Any:
        with self._file_io.new_input_stream(path) as stream:
            return self._kind(stream.read())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file_io, name)


@pytest.mark.parametrize("kind", [io.BytesIO, pa.BufferReader])
@pytest.mark.parametrize("scenario", ["types_append_parquet", "types_append_orc"])
def test_streams_of_other_stores(scenario: str, kind: Any) -> None:
    loaded = load("java-2.1", scenario)
    table = CatalogFactory.create({"warehouse": str(loaded.warehouse)}).get_table("d.t")
    metas = [meta(path, count_of(path)) for path in file_paths(loaded.warehouse, "data-*")]
    other = table.copy({})
    other.file_io = StreamsOf(table.file_io, kind)
    # NaN equals nothing, so the texts are compared.
    with read_or_refused() if scenario == "types_append_orc" else nullcontext():
        found, wanted = (reader(each).to_arrow([split(SplitMode.ROWS, metas)]).to_pylist() for each in (other, table))
        assert repr(found) == repr(wanted)


@pytest.mark.parametrize("name", ["data.json", "data.blob", "data.csv"])
def test_other_formats_are_refused_by_name(warehouse: Any, name: str) -> None:
    table = create_table(warehouse, "t", FLAT)
    with pytest.raises(UnsupportedTableError, match=name.rpartition(".")[2]):
        read_all(table, meta(Path(str(table.table_path)) / "bucket-0" / name, 1))


def avro_bytes(values: list[dict[str, Any]]) -> bytes:
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "id", "type": ["null", "int"]}, {"name": "v", "type": ["null", "string"]}],
    }
    out = io.BytesIO()
    fastavro.writer(out, schema, values)
    return out.getvalue()


def parquet_bytes(values: list[dict[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(values, FLAT), sink)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize(("extension", "encode"), [("cc-parquet", parquet_bytes), ("cc-avro", avro_bytes)])
def test_merged_changelog_files_are_read_from_their_range(warehouse: Any, extension: str, encode: Any) -> None:
    table = create_table(warehouse, "t", FLAT)
    first, second = encode([{"id": 1, "v": "a"}]), encode([{"id": 2, "v": "b"}])
    real = Path(str(table.table_path)) / "bucket-0" / f"compacted-changelog-x$0-{len(first)}.{extension}"
    real.parent.mkdir(parents=True)
    real.write_bytes(first + second)
    fake = f"bucket-1/compacted-changelog-x$0-{len(first)}-{len(first)}-{len(second)}.{extension}"
    assert read_all(table, meta(real, 1)).to_pylist() == [{"id": 1, "v": "a"}]
    assert read_all(table, meta(Path(str(table.table_path)) / fake, 1)).to_pylist() == [{"id": 2, "v": "b"}]
    real.write_bytes(first + second[:-1])
    with pytest.raises(CorruptTableError, match="ends before byte"):
        read_all(table, meta(Path(str(table.table_path)) / fake, 1))


def test_wide_rows_come_in_smaller_batches(warehouse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create_table(warehouse, "t", FLAT)
    rows = pa.table({"id": range(300), "v": [f"{number:0100}" for number in range(300)]}, FLAT)
    file = put(table, "a.parquet", rows)
    monkeypatch.setattr(file_format, "DECODED_BYTES", 3000)
    batches = list(reader(table, batch_size=100).iter_batches([split(SplitMode.ROWS, [file])]))
    assert sum(batch.num_rows for batch in batches) == 300
    assert max(batch.nbytes for batch in batches) < 4000


@pytest.mark.parametrize("name", ["a.parquet", "a.orc", "a.avro"])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"Obj\x01garbage", b"ORC" + bytes(40)])
def test_garbage_is_a_damaged_file_with_its_path(warehouse: Any, name: str, content: bytes) -> None:
    table = create_table(warehouse, "t", FLAT)
    path = Path(str(table.table_path)) / "bucket-0" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(CorruptTableError) as caught:
        read_all(table, meta(path, 1))
    assert caught.value.path == str(path)


# Evolved schemas.


def test_columns_are_found_by_field_id(warehouse: Any) -> None:
    table = create_table(warehouse, "t", pa.schema([("id", pa.int32()), ("a", pa.string()), ("b", pa.int64())]))
    files = write(table, pa.table({"id": pa.array([1], pa.int32()), "a": ["x"], "b": [5]}))
    for change in (
        [SchemaChange.rename_column("a", "renamed")],
        [SchemaChange.drop_column("b")],
        [SchemaChange.add_column("b", AtomicType("BIGINT"))],
        [SchemaChange.add_column("a", AtomicType("STRING"))],
        [SchemaChange.update_column_type("id", AtomicType("BIGINT"))],
    ):
        warehouse.alter_table("db.t", change, False)
    table = warehouse.get_table("db.t")
    assert read_all(table, files[0]).to_pylist() == [{"id": 1, "renamed": "x", "b": None, "a": None}]
    assert read_all(table, files[0]).schema.field("id").type == pa.int64()


def test_a_file_without_any_column_that_is_read_still_has_its_rows(warehouse: Any) -> None:
    table = create_table(warehouse, "t", FLAT)
    file = put(table, "a.parquet", pa.table({"other": [1, 2, 3]}))
    assert read_all(table, file, batch_size=2).to_pylist() == [{"id": None, "v": None}] * 3


def test_columns_are_mapped_once_for_files_of_one_schema(warehouse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped: list[pa.Schema] = []

    def counted(stored: pa.Schema, *fields: Any, **rules: Any) -> Any:
        mapped.append(stored)
        return map_columns(stored, *fields, **rules)

    monkeypatch.setattr(data_files, "map_columns", counted)
    table = create_table(warehouse, "t", FLAT)
    # Writers add metadata of the whole file, such as a range of an index.
    alike = [
        pa.table({"id": [number], "v": [str(number)]}, FLAT.with_metadata({"number": str(number)}))
        for number in range(3)
    ]
    other = pa.table({"v": ["3"], "id": pa.array([3], pa.int32())})
    files = [put(table, f"{number}.parquet", rows) for number, rows in enumerate([*alike, other, alike[0]])]
    read = reader(table).to_arrow([split(SplitMode.ROWS, files)])
    assert read.column("id").to_pylist() == [0, 1, 2, 3, 0]
    assert [schema.names for schema in mapped] == [["id", "v"], ["v", "id"]]


def test_columns_are_mapped_once_for_lists_of_the_same_fields(warehouse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped: list[list[str]] = []

    def counted(stored: pa.Schema, file_fields: Any, fields: Any, **rules: Any) -> Any:
        mapped.append([each.name for each in fields])
        return map_columns(stored, file_fields, fields, **rules)

    monkeypatch.setattr(data_files, "map_columns", counted)
    table = create_table(warehouse, "t", FLAT)
    file = put(table, "a.parquet", pa.table({"id": [1], "v": ["a"]}, FLAT))
    directory = TableDirectory.of(table)
    fields = list(directory.schema(0).fields)
    for wanted in (["id", "v"], ["id", "v"], ["id"]):
        fields = [each for each in fields if each.name in wanted]
        (batch,) = read_file(directory, file, fields, schema_id=0)
        assert batch.schema.names == wanted
    assert mapped == [["id", "v"], ["id"]]


def test_what_is_kept_about_columns_is_bounded(warehouse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = LRUCache[Any, Any](500, getsizeof=data_files._kept.getsizeof)
    monkeypatch.setattr(data_files, "_kept", kept)
    wide = pa.schema([(f"c{number}", pa.int32()) for number in range(20)])
    table = create_table(warehouse, "t", wide)
    file = put(table, "a.parquet", wide.empty_table())
    for _ in range(15):
        # Each time with fields of its own, as after the table was opened again.
        directory = TableDirectory.of(table)
        assert list(read_file(directory, file, list(directory.schema(0).fields), schema_id=0)) == []
    fields = sum(len(kind.file_fields) + len(kind.fields) for kind in kept)
    assert 400 < fields <= 500


def test_a_small_local_file_is_opened_once(warehouse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def counted(path: str, mode: str) -> pa.OSFile:
        opened.append(path)
        return os_file(path, mode)

    os_file = pa.OSFile
    monkeypatch.setattr(local_files.pa, "OSFile", counted)
    table = create_table(warehouse, "t", FLAT)
    small = put(table, "small.parquet", pa.table({"id": [1], "v": ["a"]}, FLAT))
    random = Random(0)
    texts = [random.randbytes(100).hex() for _ in range(4000)]
    large = put(table, "large.parquet", pa.table({"id": range(4000), "v": texts}, FLAT))
    assert read_all(table, small).num_rows == 1
    assert opened == []
    # The size that a manifest says does not make anybody read a large file at once.
    for size in (large.file_size, 10):
        large.file_size = size
        assert read_all(table, large).column("v").to_pylist() == texts
    assert opened == [str(large.file_path)] * 2


class CountedStream(io.BytesIO):
    """A stream that gives at most 64 KB at once, and counts what it gave."""

    given = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(64 << 10 if size is None or size < 0 else min(size, 64 << 10))
        CountedStream.given += len(data)
        return data


def test_a_stream_that_gives_less_than_a_small_file_is_read_in_pieces(warehouse: Any) -> None:
    table = create_table(warehouse, "t", FLAT)
    random = Random(0)
    rows = pa.table({"id": range(1000), "v": [random.randbytes(60).hex() for _ in range(1000)]}, FLAT)
    path = Path(str(table.table_path)) / "bucket-0" / "a.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(rows, path, row_group_size=200)
    file = meta(path, 1000)
    assert 64 << 10 < file.file_size < local_files._SMALL
    table.file_io = StreamsOf(table.file_io, CountedStream)
    assert read_all(table, file).column("v").to_pylist() == rows.column("v").to_pylist()


@pytest.mark.parametrize("size", [200_000, 150_000, 10])
def test_a_local_stream_is_read_as_far_as_was_asked(size: int) -> None:
    """Newer releases of pyarrow take less for the end of the file."""
    stream = local_files.MarkedStream(CountedStream(bytes(200_000)))
    assert len(stream.read(size)) == size
    assert len(stream.read(200_000)) == 200_000 - size


def test_a_large_part_of_a_merged_changelog_file_is_read_whole(warehouse: Any) -> None:
    table = create_table(warehouse, "t", FLAT)
    random = Random(0)
    texts = [random.randbytes(60).hex() for _ in range(1000)]
    part = parquet_bytes([{"id": 1, "v": text} for text in texts])
    assert len(part) > 64 << 10
    path = Path(str(table.table_path)) / "bucket-0" / f"compacted-changelog-x$0-{len(part)}.cc-parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(part)
    table.file_io = StreamsOf(table.file_io, CountedStream)
    assert read_all(table, meta(path, 1000, file_size=len(part))).column("v").to_pylist() == texts


def test_only_the_range_of_a_merged_changelog_file_is_read(warehouse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create_table(warehouse, "t", FLAT)
    part = parquet_bytes([{"id": 1, "v": "a"}])
    path = Path(str(table.table_path)) / "bucket-0" / f"compacted-changelog-x$0-{len(part)}.cc-parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(part + bytes(local_files._SMALL))
    file = meta(path, 1, file_size=len(part))
    table.file_io = StreamsOf(table.file_io, CountedStream)
    monkeypatch.setattr(CountedStream, "given", 0)
    assert read_all(table, file).to_pylist() == [{"id": 1, "v": "a"}]
    assert CountedStream.given < 64 << 10


def test_a_value_of_a_newer_file_that_does_not_fit_is_an_error(warehouse: Any) -> None:
    table = create_table(warehouse, "t", FLAT)
    warehouse.alter_table("db.t", [SchemaChange.update_column_type("id", AtomicType("BIGINT"))], False)
    fits = put(table, "a.parquet", pa.table({"id": pa.array([1], pa.int64()), "v": ["a"]}), schema_id=1)
    beyond = put(table, "b.parquet", pa.table({"id": pa.array([1 << 40], pa.int64()), "v": ["a"]}), schema_id=1)
    assert read_all(table, fits).to_pylist() == [{"id": 1, "v": "a"}]
    with pytest.raises(SchemaChangedError, match="id") as caught:
        read_all(table, beyond)
    assert (caught.value.old, caught.value.new) == (0, 1)


def field(number: int, name: str, kind: DataType) -> DataField:
    return DataField(number, name, kind)


INT, BIGINT, TEXT = AtomicType("INT"), AtomicType("BIGINT"), AtomicType("STRING")


def test_rows_in_arrays_and_maps_are_mapped_by_field_id() -> None:
    def nested(fields: list[DataField]) -> DataField:
        row = RowType(True, fields)
        return field(
            0,
            "n",
            RowType(
                True,
                [field(1, "list", ArrayType(True, row)), field(2, "map", MapType(True, AtomicType("INT", False), row))],
            ),
        )

    old = nested([field(3, "a", INT), field(4, "b", TEXT)])
    new = nested([field(4, "renamed", TEXT), field(5, "a", TEXT), field(3, "number", BIGINT)])
    inner = pa.struct([("a", pa.int32()), ("b", pa.string())])
    stored = pa.schema([("n", pa.struct([("list", pa.list_(inner)), ("map", pa.map_(pa.int32(), inner))]))])
    values = [
        {"list": [{"a": 1, "b": "x"}, None], "map": [(1, {"a": 2, "b": None}), (2, None)]},
        None,
        {"list": None, "map": []},
    ]
    batch = pa.RecordBatch.from_pylist([{"n": value} for value in values], stored)
    [column] = map_columns(stored, [old], [new], exact=False, zone=UTC)
    row = {"renamed": "x", "a": None, "number": 1}
    wanted = [
        {"list": [row, None], "map": [(1, {"renamed": None, "a": None, "number": 2}), (2, None)]},
        None,
        {"list": None, "map": []},
    ]
    for start in range(3):
        array = column.read(batch.slice(start))
        array.validate(full=True)
        assert array.to_pylist() == wanted[start:]
        assert array.type == column.target


@pytest.mark.parametrize("depth", ["a row", "rows in a list"])
def test_rows_that_look_alike_may_hold_other_fields(depth: str) -> None:
    """Fields that changed their names, or came anew under an old one: names and types of the row are as before."""

    def around(kind: Any, listed: Any) -> Any:
        return listed(kind) if depth == "rows in a list" else kind

    old_row = RowType(True, [field(1, "a", INT), field(2, "b", INT)])
    old = field(0, "n", around(old_row, lambda row: ArrayType(True, row)))
    inner = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    stored = pa.schema([("n", around(inner, pa.list_))])
    batch = pa.RecordBatch.from_pylist([{"n": around({"a": 1, "b": 2}, lambda row: [row])}], stored)
    for numbers, row in (((2, 1), {"a": 2, "b": 1}), ((1, 3), {"a": 1, "b": None}), ((1, 2), {"a": 1, "b": 2})):
        fields = [field(number, name, INT) for number, name in zip(numbers, "ab", strict=True)]
        new = field(0, "n", around(RowType(True, fields), lambda row: ArrayType(True, row)))
        [column] = map_columns(stored, [old], [new], exact=False, zone=UTC)
        assert column.read(batch).to_pylist() == [around(row, lambda value: [value])]


def test_a_row_that_became_a_number_is_refused() -> None:
    old, new = field(0, "n", RowType(True, [field(1, "a", INT)])), field(0, "n", INT)
    with pytest.raises(CastError, match="column n"):
        map_columns(pa.schema([("n", pa.struct([("a", pa.int32())]))]), [old], [new], exact=False, zone=UTC)


# Casts, as Java's CastExecutors.

CASTS: list[tuple[str, pa.DataType, Any, str, Any]] = [
    ("INT", pa.int32(), 5, "BIGINT", 5),
    ("BIGINT", pa.int64(), 5, "TINYINT", 5),
    ("INT", pa.int32(), 16_777_217, "FLOAT", 16_777_216.0),
    ("FLOAT", pa.float32(), 1.5, "DOUBLE", 1.5),
    ("DOUBLE", pa.float64(), -2.9, "INT", -2),
    ("INT", pa.int32(), 7, "DECIMAL(12, 2)", Decimal("7.00")),
    ("BIGINT", pa.int64(), -(10**17), "DECIMAL(38, 20)", Decimal(-(10**17))),
    ("DECIMAL(5, 2)", pa.decimal128(5, 2), Decimal("123.45"), "DECIMAL(12, 4)", Decimal("123.4500")),
    ("DECIMAL(5, 2)", pa.decimal128(5, 2), Decimal("-1.25"), "DECIMAL(5, 1)", Decimal("-1.3")),
    ("DECIMAL(5, 2)", pa.decimal128(5, 2), Decimal("-1.75"), "INT", -1),
    ("DECIMAL(5, 2)", pa.decimal128(5, 2), Decimal("1.25"), "DOUBLE", 1.25),
    ("DOUBLE", pa.float64(), 1.005, "DECIMAL(5, 2)", Decimal("1.01")),
    ("BOOLEAN", pa.bool_(), True, "INT", 1),
    ("BOOLEAN", pa.bool_(), False, "DECIMAL(3, 1)", Decimal("0.0")),
    ("INT", pa.int32(), -3, "BOOLEAN", True),
    ("BOOLEAN", pa.bool_(), True, "STRING", "true"),
    ("BIGINT", pa.int64(), -42, "STRING", "-42"),
    ("DOUBLE", pa.float64(), 1e10, "STRING", "1.0E10"),
    ("DOUBLE", pa.float64(), math.inf, "STRING", "Infinity"),
    ("FLOAT", pa.float32(), 0.10000000149011612, "STRING", "0.1"),
    ("DECIMAL(10, 8)", pa.decimal128(10, 8), Decimal("0.00000001"), "STRING", "0.00000001"),
    ("DATE", pa.date32(), date(2024, 2, 29), "STRING", "2024-02-29"),
    ("TIME(3)", pa.time32("ms"), time(1, 2, 3, 4000), "STRING", "01:02:03.004"),
    ("TIMESTAMP(3)", pa.timestamp("ms"), datetime(2024, 2, 29, 1, 2, 3, 40_000), "STRING", "2024-02-29 01:02:03.040"),
    ("TIMESTAMP(0)", pa.timestamp("s"), datetime(2024, 2, 29, 1, 2, 3), "STRING", "2024-02-29 01:02:03"),
    ("STRING", pa.string(), "abcdef", "VARCHAR(3)", "abc"),
    ("VARCHAR(3)", pa.string(), "é", "CHAR(3)", "é  "),
    ("STRING", pa.string(), " 12 ", "INT", 12),
    ("STRING", pa.string(), "1.255", "DECIMAL(5, 2)", Decimal("1.26")),
    ("STRING", pa.string(), "YES", "BOOLEAN", True),
    ("STRING", pa.string(), "2024-02-29", "DATE", date(2024, 2, 29)),
    ("STRING", pa.string(), "2024-02-29 01:02:03.5", "TIMESTAMP(3)", datetime(2024, 2, 29, 1, 2, 3, 500_000)),
    ("STRING", pa.string(), "ab", "BINARY(3)", b"ab\0"),
    ("BINARY(3)", pa.binary(), b"ab\0", "VARBINARY(2)", b"ab"),
    ("BYTES", pa.binary(), b"ab", "STRING", "ab"),
    (
        "TIMESTAMP(3)",
        pa.timestamp("ms"),
        datetime(1969, 12, 31, 23, 59, 59, 1000),
        "TIMESTAMP(6)",
        datetime(1969, 12, 31, 23, 59, 59, 1000),
    ),
    (
        "TIMESTAMP(6)",
        pa.timestamp("us"),
        datetime(1969, 12, 31, 23, 59, 59, 1),
        "TIMESTAMP(0)",
        datetime(1969, 12, 31, 23, 59, 59),
    ),
    ("TIMESTAMP(3)", pa.timestamp("ms"), datetime(1969, 12, 31, 23), "DATE", date(1969, 12, 31)),
    ("TIMESTAMP(3)", pa.timestamp("ms"), datetime(1969, 12, 31, 23, 1), "TIME(0)", time(23, 1)),
    ("DATE", pa.date32(), date(2021, 3, 4), "TIMESTAMP(3)", datetime(2021, 3, 4)),
    ("TIME(0)", pa.time32("ms"), time(1), "TIMESTAMP(3)", datetime(1970, 1, 1, 1)),
    ("TIMESTAMP(3)", pa.timestamp("ms"), datetime(1970, 1, 1, 0, 0, 5, 999_000), "BIGINT", 5),
    ("BIGINT", pa.int64(), 5, "TIMESTAMP(3)", datetime(1970, 1, 1, 0, 0, 5)),
]


@pytest.mark.parametrize(("source", "arrow", "value", "target", "wanted"), CASTS)
def test_casts(source: str, arrow: pa.DataType, value: Any, target: str, wanted: Any) -> None:
    convert = cast(AtomicType(source), AtomicType(target), exact=False, zone=UTC)
    assert convert(pa.array([value, None], arrow)).to_pylist() == [wanted, None]


LOSSES: list[tuple[str, pa.DataType, Any, str]] = [
    ("BIGINT", pa.int64(), 1 << 40, "INT"),
    ("DOUBLE", pa.float64(), math.nan, "INT"),
    ("DECIMAL(5, 2)", pa.decimal128(5, 2), Decimal("999.99"), "DECIMAL(3, 1)"),
    ("INT", pa.int32(), 1000, "DECIMAL(4, 2)"),
    ("STRING", pa.string(), "seven", "INT"),
    ("STRING", pa.string(), "maybe", "BOOLEAN"),
    ("STRING", pa.string(), "not a date", "DATE"),
]
ROUNDED: list[tuple[str, pa.DataType, Any, str]] = [
    ("DOUBLE", pa.float64(), 0.1, "FLOAT"),
    ("DOUBLE", pa.float64(), 2.5, "INT"),
    ("INT", pa.int32(), 16_777_217, "FLOAT"),
    ("DECIMAL(5, 2)", pa.decimal128(5, 2), Decimal("1.25"), "DECIMAL(5, 1)"),
    ("STRING", pa.string(), "abcd", "VARCHAR(3)"),
    ("BYTES", pa.binary(), b"abcd", "VARBINARY(3)"),
    ("TIMESTAMP(6)", pa.timestamp("us"), datetime(2024, 1, 1, 0, 0, 0, 1), "TIMESTAMP(3)"),
]


@pytest.mark.parametrize(("source", "arrow", "value", "target"), LOSSES)
def test_a_value_that_does_not_fit_is_an_error(source: str, arrow: pa.DataType, value: Any, target: str) -> None:
    with pytest.raises(CastError, match="does not fit"):
        cast(AtomicType(source), AtomicType(target), exact=False, zone=UTC)(pa.array([value], arrow))


@pytest.mark.parametrize(("source", "arrow", "value", "target"), [*LOSSES, *ROUNDED])
def test_exact_casts_lose_nothing(source: str, arrow: pa.DataType, value: Any, target: str) -> None:
    with pytest.raises(CastError, match="does not fit"):
        cast(AtomicType(source), AtomicType(target), exact=True, zone=UTC)(pa.array([value], arrow))


def test_types_without_a_cast_are_refused() -> None:
    with pytest.raises(CastError, match="DATE cannot be read as INT"):
        cast(AtomicType("DATE"), AtomicType("INT"), exact=False, zone=UTC)
