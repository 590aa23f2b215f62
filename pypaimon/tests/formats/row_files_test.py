"""Data files of the format `row`: as pypaimon writes them, merged, of some columns; damaged ones."""

from __future__ import annotations

import datetime as dt
import io
import random
import struct
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema
from pypaimon.write.writer.format_row_writer import FormatRowWriter

from pypaimon.streaming import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.files.data_files import stored_fields
from pypaimon.streaming.formats import row_writer
from pypaimon.streaming.formats.file_format import WriteSettings
from pypaimon.streaming.formats.row_format import RowFileReader, _OneFile
from pypaimon.streaming.formats.row_writer import RowFileWriter
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.arrow_types import arrow_schema, with_arrow_types
from pypaimon.streaming.model.normal_form import normal_table, normal_type
from pypaimon.streaming.model.plan import SplitMode
from pypaimon.streaming.paimon.internals import ArrayType, AtomicType, DataField, DataType, MapType, RowType
from pypaimon.streaming.paimon.read_internals import FormatRowReader
from support.corpus.cases import load
from support.samples import SOAK, examples, seeded
from support.tables.handles import create_table, current_files
from support.tables.sample_values import ArrowRows
from support.tables.stream_files import reader, split, write

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ALL = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.decimal128(20, 3)),
        ("t", pa.timestamp("us")),
        ("day", pa.date32()),
        ("x", pa.binary()),
        ("l", pa.list_(pa.int32())),
        ("m", pa.map_(pa.string(), pa.float64())),
        ("r", pa.struct([("a", pa.int16()), ("c", pa.string())])),
    ]
)
KEYED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


def value_of(kind: pa.DataType, number: int) -> Any:
    if pa.types.is_struct(kind):
        return {field.name: value_of(field.type, number + place) for place, field in enumerate(kind)}
    if pa.types.is_map(kind):
        return [(f"k{place}", value_of(kind.item_type, number + place)) for place in range(number % 4)]
    if pa.types.is_list(kind):
        return [value_of(kind.value_type, number + place) for place in range(number % 5)]
    if number % 7 == 6:
        return None
    return {
        pa.bool_(): number % 2 == 0,
        pa.string(): "é" * (number % 300),
        pa.binary(): b"\0" * (number % 3),
        pa.decimal128(20, 3): Decimal(number).scaleb(-3) * (-1) ** number,
        pa.timestamp("us"): dt.datetime(1969, 12, 31) + dt.timedelta(hours=number, seconds=number),
        pa.date32(): dt.date(1969, 12, 1) + dt.timedelta(days=number),
    }.get(kind, number)


def rows(count: int) -> pa.Table:
    """Values of every type, nulls and empty ones among them."""
    made = {
        field.name: pa.array(
            [None if (number + place) % 11 == 10 else value_of(field.type, number) for number in range(count)],
            field.type,
        )
        for place, field in enumerate(ALL)
    }
    return pa.table(made, schema=ALL)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of many blocks."""
    monkeypatch.setattr(FormatRowWriter.__init__, "__defaults__", (2048, 1))


@pytest.fixture
def table(warehouse: Any, small_blocks: None) -> Any:
    return create_table(warehouse, "t", ALL, options={"file.format": "row"})


@pytest.mark.parametrize("projection", [None, ("id",), ("r", "m"), ("s", "id")])
def test_values_of_every_type(table: Any, projection: tuple[str, ...] | None) -> None:
    written = rows(500)
    files = write(table, written)
    assert Path(files[0].file_path).suffix == ".row"
    read = reader(table, projection=projection, include_row_kind=False, batch_size=7)
    batches = list(read.iter_batches([split(SplitMode.ROWS, files)]))
    assert max(batch.num_rows for batch in batches) == 7
    assert pa.Table.from_batches(batches).to_pylist() == written.select(projection or ALL.names).to_pylist()


def test_files_of_a_primary_key_table_are_merged(warehouse: Any, small_blocks: None) -> None:
    """Java's own merge of such files loses keys."""
    table = create_table(warehouse, "k", KEYED, primary_keys=["id"], options={"file.format": "row", "bucket": "1"})
    for batch, start in enumerate((0, 100)):
        write(table, pa.table({"id": range(start, start + 200), "v": [f"{batch}"] * 200}, schema=KEYED))
    read = reader(table, include_row_kind=False).to_arrow([split(SplitMode.MERGE, current_files(table))])
    assert read.to_pylist() == [{"id": number, "v": "0" if number < 100 else "1"} for number in range(300)]


@pytest.mark.parametrize(
    ("options", "write_cols", "names"),
    [
        ({}, None, ["_KEY_id", "_SEQUENCE_NUMBER", "_VALUE_KIND", "id", "v"]),
        ({"data-file.thin-mode": "true"}, None, ["_SEQUENCE_NUMBER", "_VALUE_KIND", "id", "v"]),
        ({}, ["v", "_ROW_ID"], ["v", "_ROW_ID"]),
    ],
    ids=["whole", "thin", "some"],
)
def test_columns_of_a_file_follow_from_its_schema(
    warehouse: Any, options: dict[str, str], write_cols: list[str] | None, names: list[str]
) -> None:
    """pypaimon writes no thin files, Java does."""
    table = create_table(warehouse, "k", KEYED, primary_keys=["id"], options=options)
    assert [field.name for field in stored_fields(table.table_schema, write_cols)] == names


def encoded(schema: pa.Schema, parts: list[pa.Table]) -> bytes:
    out = io.BytesIO()
    writer = RowFileWriter(out, schema, WriteSettings("none"))
    for part in parts:
        writer.write(part)
    writer.close()
    assert writer.size() < len(out.getvalue())
    return out.getvalue()


def blocks(data: bytes, fields: list[DataField]) -> list[bytes]:
    opened = RowFileReader(io.BytesIO(data), fields)
    return [opened._block(number) for number in range(opened._index._block_count)]


@pytest.mark.parametrize("scenario", ["row_format_append", "row_format_pk_none"])
def test_blocks_are_those_that_java_has_written(scenario: str) -> None:
    table = CatalogFactory.create({"warehouse": str(load("java-2.1-more", scenario).warehouse)}).get_table("d.t")
    files = current_files(table)
    assert len(files) == 4
    for file in files:
        data = Path(file.file_path).read_bytes()
        fields = stored_fields(TableDirectory.of(table).schema(file.schema_id), file.write_cols)
        opened = RowFileReader(io.BytesIO(data), fields)
        batches = list(opened.batches(opened.schema.names, 1))
        ours = encoded(opened.schema, [pa.Table.from_batches([batch]) for batch in batches])
        assert blocks(ours, fields) == blocks(data, fields)
        # The same numbers of rows and blocks, version and magic.
        assert (ours[-32:-20], ours[-8:]) == (data[-32:-20], data[-8:])


def test_a_file_ends_a_block_as_pypaimon_does() -> None:
    fields, data, out = Schema.from_pyarrow_schema(ALL).fields, rows(900), io.BytesIO()
    theirs = FormatRowWriter(out, fields)
    theirs.write_table(data)
    theirs.close()
    ours = encoded(ALL, [data.slice(0, 1), data.slice(1, 500), data.slice(501)])
    assert len(blocks(ours, fields)) > 3
    assert blocks(ours, fields) == blocks(out.getvalue(), fields)
    assert ours == out.getvalue()


def test_rows_of_any_type_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_writer, "_BLOCK_BYTES", 200)
    monkeypatch.setattr(row_writer, "_ENCODED_BYTES", 500)
    source = seeded("row writer")
    drawn = ArrowRows(source)
    for _ in range(examples(60)):
        schema = pa.schema([drawn.field(source.randint(1, 4), f"c{number}") for number in range(source.choice([1, 9]))])
        schema = pa.schema([each.with_type(normal_type(each.type)) for each in schema])
        parts = []
        for size in (source.randrange(30), source.randrange(3)):
            columns = [pa.array([drawn.value(field) for _ in range(size)], field.type) for field in schema]
            parts.append(normal_table(pa.Table.from_arrays(columns, names=schema.names), schema))
        opened = RowFileReader(io.BytesIO(encoded(schema, parts)), Schema.from_pyarrow_schema(schema).fields)
        found = [row for batch in opened.batches(schema.names, 7) for row in batch.to_pylist()]
        assert found == [row for part in parts for row in part.to_pylist()]
        assert opened.num_rows == len(found)


def test_long_decimals_have_the_fewest_bytes() -> None:
    numbers = [sign * (1 << bits) + step for bits in range(0, 121, 4) for sign in (1, -1) for step in (-1, 0, 1)]
    schema = pa.schema([("d", pa.decimal128(38, 0))])
    data = encoded(schema, [pa.table({"d": list(map(Decimal, numbers))}, schema)])
    (block,) = blocks(data, Schema.from_pyarrow_schema(schema).fields)
    sizes = [max(number, ~number).bit_length() // 8 + 1 for number in numbers]
    stored = zip(sizes, numbers, strict=True)
    content = b"".join(bytes([0, size]) + number.to_bytes(size, "big", signed=True) for size, number in stored)
    assert block.startswith(content + (0).to_bytes(4, "little"))


@pytest.mark.parametrize("short", [0, 1 << 20])
def test_lengths_of_texts_have_any_number_of_bytes(monkeypatch: pytest.MonkeyPatch, short: int) -> None:
    monkeypatch.setattr(row_writer, "_SHORT", short)
    schema = pa.schema([("s", pa.string()), ("t", pa.list_(pa.string()))])
    texts = ["x" * size for size in (0, 1, 127, 128, 16_383, 16_384, 1, 2_097_152)]
    table = pa.table({"s": texts, "t": [texts[:place] for place in range(8)]}, schema)
    opened = RowFileReader(io.BytesIO(encoded(schema, [table])), Schema.from_pyarrow_schema(schema).fields)
    assert [row for batch in opened.batches(["s", "t"], 3) for row in batch.to_pylist()] == table.to_pylist()


def damaged(data: bytes, drawn: random.Random) -> bytes:
    if drawn.random() < 0.2:
        return data[: drawn.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(drawn.choice([1, 1, 4])):
        # Half of it in the index and the footer.
        place = drawn.randrange(len(data)) if drawn.random() < 0.5 else len(data) - 1 - drawn.randrange(100)
        changed[place] = drawn.randrange(256)
    return bytes(changed)


def test_a_damaged_file_is_an_error_with_its_path_or_read_as_many_rows(table: Any) -> None:
    drawn, (file,) = seeded("row files"), write(table, rows(100))
    path = Path(file.file_path)
    data = path.read_bytes()
    told = []
    for _ in range(200 if SOAK else 60):
        path.write_bytes(damaged(data, drawn))
        try:
            assert reader(table).to_arrow([split(SplitMode.ROWS, [file])]).num_rows == 100
        except CorruptTableError as error:
            told.append(error.path)
    assert set(told) == {str(path)}
    assert len(told) > (100 if SOAK else 30)


def test_a_block_does_not_grow_beyond_what_the_file_says(table: Any) -> None:
    """A frame tells its own size, for which memory would be taken."""
    (file,) = write(table, rows(10))
    path = Path(file.file_path)
    data = bytearray(path.read_bytes())
    assert data[:4] == struct.pack("<I", 0xFD2FB528)
    # A window descriptor, and a content size of 8 bytes: 64 GB.
    path.write_bytes(bytes(data[:4]) + b"\xe0" + struct.pack("<Q", 64 << 30) + bytes(data[13:]))
    with pytest.raises(CorruptTableError, match="holds more than"):
        reader(table).to_arrow([split(SplitMode.ROWS, [file])])


def test_a_format_that_is_not_known_is_refused(table: Any) -> None:
    (file,) = write(table, rows(1))
    path = Path(file.file_path)
    renamed = path.rename(path.with_suffix(".csv"))
    file.file_path, file.file_name = str(renamed), renamed.name
    with pytest.raises(UnsupportedTableError, match=r"format 'csv'.*avro, lance, mosaic, orc, parquet, row, vortex"):
        reader(table).to_arrow([split(SplitMode.ROWS, [file])])


ATOMS = [
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DATE",
    "TIME(3)",
    "TIMESTAMP(0)",
    "TIMESTAMP(3)",
    "TIMESTAMP(6)",
    "TIMESTAMP(9)",
    "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "STRING",
    "CHAR(3)",
    "VARBINARY(9)",
    "DECIMAL(9, 2)",
    "DECIMAL(38, 10)",
]


def random_type(drawn: random.Random, depth: int = 0) -> DataType:
    shape = drawn.choice(["atom", "atom", "array", "map", "row"]) if depth < 3 else "atom"
    if shape == "array":
        return ArrayType(True, random_type(drawn, depth + 1))
    if shape == "map":
        return MapType(True, AtomicType(drawn.choice(["STRING", "INT"]), False), random_type(drawn, depth + 1))
    if shape == "row":
        inner = [DataField(9, f"f{place}", random_type(drawn, depth + 1)) for place in range(drawn.randint(1, 10))]
        return RowType(True, inner)
    return AtomicType(drawn.choice(ATOMS))


def random_value(drawn: random.Random, kind: pa.DataType, nullable: bool = True) -> Any:
    if nullable and drawn.random() < 0.2:
        return None
    if pa.types.is_struct(kind):
        return {field.name: random_value(drawn, field.type) for field in kind}
    if pa.types.is_map(kind):
        keys = {random_value(drawn, kind.key_type, nullable=False) for _ in range(drawn.randint(0, 12))}
        return [(key, random_value(drawn, kind.item_type)) for key in sorted(keys)]
    if pa.types.is_list(kind):
        return [random_value(drawn, kind.value_type) for _ in range(drawn.choice([0, 1, 3, 20]))]
    if pa.types.is_boolean(kind):
        return drawn.random() < 0.5
    if pa.types.is_integer(kind):
        most = 1 << kind.bit_width - 1
        return drawn.choice([0, -1, most - 1, -most, drawn.randrange(-most, most)])
    if pa.types.is_floating(kind):
        return drawn.choice([0.0, -1.5, float("inf"), 1e10])
    if pa.types.is_decimal(kind):
        unscaled = drawn.randrange(-(10**kind.precision) + 1, 10**kind.precision)
        return Decimal(drawn.choice([0, -1, 255, -256, unscaled])).scaleb(-kind.scale, Context(prec=60))
    if pa.types.is_timestamp(kind):
        zone = dt.timezone.utc if kind.tz else None
        return dt.datetime(1970, 1, 1, tzinfo=zone) + dt.timedelta(
            milliseconds=drawn.randrange(-(10**12), 10**12) // 1000 * 1000
        )
    if pa.types.is_date(kind):
        return dt.date(1970, 1, 1) + dt.timedelta(days=drawn.randrange(-(10**4), 10**4))
    if pa.types.is_time(kind):
        return dt.time(drawn.randrange(24), 5, 6, 7000)
    text = drawn.choice(["", "a", "é\0", "x" * 300])
    return text if pa.types.is_string(kind) else text.encode()


def test_values_are_those_that_pypaimon_reads() -> None:
    """Of any type in any other, in rows of many blocks; of some of the columns, in any order."""
    drawn = seeded("rows of any type")
    for number in range(300 if SOAK else 4):
        fields = [DataField(place, f"c{place}", random_type(drawn)) for place in range(drawn.randint(1, 12))]
        schema = arrow_schema(fields)
        count = drawn.choice([0, 1, 200])
        columns = {name: [random_value(drawn, schema.field(name).type) for _ in range(count)] for name in schema.names}
        out = io.BytesIO()
        writer = FormatRowWriter(out, fields, 4096)
        writer.write_table(pa.table({name: pa.array(columns[name], schema.field(name).type) for name in columns}))
        writer.close()
        names = drawn.sample(schema.names, drawn.randint(1, len(fields)))
        source = RowFileReader(out, fields)
        theirs = FormatRowReader(_OneFile(out), "", names, with_arrow_types(fields), None)
        expected = list(iter(theirs.read_arrow_batch, None))
        found = list(source.batches(names, 50))
        assert source.num_rows == count == sum(batch.num_rows for batch in found), f"example {number}"
        rows = [row for batch in found for row in batch.to_pylist()]
        assert rows == [row for batch in expected for row in batch.to_pylist()], f"example {number}: {fields}"
        for batch in found:
            batch.validate(full=True)
            assert batch.schema.types == [schema.field(name).type for name in names]
