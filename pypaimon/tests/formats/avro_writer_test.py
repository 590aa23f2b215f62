"""Container files that are written here: by every codec, read by fastavro and by this library."""

from __future__ import annotations

import io
import tracemalloc
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from pypaimon.streaming.formats import avro_container
from pypaimon.streaming.formats.avro_files import AvroWriter, avro_schema
from pypaimon.streaming.formats.file_format import WriteSettings
from pypaimon.streaming.formats.registry import new_file
from pypaimon.streaming.model.normal_form import normal_array, normal_table
from support.samples import seeded
from support.tables.sample_values import LEAVES, ArrowRows

pytestmark = pytest.mark.slow

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"], "default": None}],
}
ROWS = [{"id": number, "text": None if number % 3 else "ä" * (number % 7)} for number in range(20_000)]


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "zstandard", "snappy"])
def test_every_codec_is_read_again(codec: str) -> None:
    writer = AvroWriter(SCHEMA, codec)
    data = writer.file(map(writer.encode, ROWS))
    assert avro_container.to_records(avro_container.parse(data)) == ROWS
    if codec in ("null", "deflate", "bzip2", "xz"):  # the others need packages
        assert list(fastavro.reader(io.BytesIO(data))) == ROWS


def test_a_file_of_no_records_is_a_file() -> None:
    assert avro_container.parse(AvroWriter(SCHEMA, "zstandard").file([])).count == 0


def test_files_roll_at_their_size_and_hold_all_records_in_order() -> None:
    writer = AvroWriter(SCHEMA, "null")
    files = list(writer.files(((1, writer.encode(row)) for row in ROWS), target=64 << 10))
    counts = [avro_container.parse(data).count for _, data in files]
    assert counts == [count for count, _ in files] and len(counts) > 1
    assert all(len(data) >= 64 << 10 for _, data in files[:-1])
    assert [row for _, data in files for row in avro_container.to_records(avro_container.parse(data))] == ROWS
    assert not list(writer.files([], target=1))


def test_blocks_of_other_files_are_taken_over_as_they_are() -> None:
    writer = AvroWriter(SCHEMA, "zstandard")
    parsed = [avro_container.parse(writer.file(map(writer.encode, rows))) for rows in (ROWS[:5], ROWS[5:])]
    assert all(each.schema == writer.stored_schema for each in parsed)
    ((count, data),) = writer.files([block for each in parsed for block in each.blocks], target=1 << 30)
    assert count == len(ROWS) and avro_container.to_records(avro_container.parse(data)) == ROWS


def test_a_record_that_does_not_fit_and_an_unknown_codec_are_errors() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        AvroWriter(SCHEMA, "null").encode({"id": "text"})
    with pytest.raises(ValueError, match="'brotli' is not known"):
        AvroWriter(SCHEMA, "brotli")


@pytest.mark.parametrize("codec", ["none", "deflate", "bzip2", "xz", "zstd", "snappy"])
def test_columns_become_the_records_of_fastavro(codec: str) -> None:
    source = seeded(f"records of {codec}")
    drawn = ArrowRows(source, [kind for kind in LEAVES if not pa.types.is_temporal(kind)])
    for _ in range(50):
        field = drawn.field(source.randint(0, 4))
        arrays = [normal_array(drawn.laid_out(drawn.rows(field), field), field) for _ in range(2)]
        check_records(pa.table([pa.chunked_array(arrays, field.type)], schema=pa.schema([field])), codec)


def test_numbers_of_every_length_become_the_records_of_fastavro() -> None:
    near = [sign * (1 << bits) + more for bits in range(63) for sign in (1, -1) for more in (-1, 0, 1)]
    numbers = [*near, -(2**63), 2**63 - 1, None]
    columns = {
        f"int{bits}": pa.array(
            [each if each is not None and abs(each) < 1 << (bits - 1) else None for each in numbers], f"int{bits}"
        )
        for bits in (8, 16, 32)
    }
    columns["int64"] = pa.array(numbers, pa.int64())
    for name, scale in (("narrow", 0), ("wide", 18)):
        # For these fastavro takes a byte more than Java.
        longer = {-(1 << bits) for bits in range(7, 64, 8)}
        digits = [None if each is None or each in longer else Decimal(each).scaleb(scale) for each in numbers]
        columns[name] = pa.array(digits, pa.decimal128(38, 0))
    columns["double"] = columns["int64"].cast(pa.float64(), safe=False)
    columns["float"] = columns["int64"].cast(pa.float32(), safe=False)
    check_records(pa.table(columns), "zstd")


def test_the_digits_of_decimals_have_no_byte_too_many() -> None:
    """Java writes the fewest bytes, fastavro one more for these negative ones."""
    given = {-128: "02 80", -32768: "04 80 00", 128: "04 00 80", 0: "02 00"}
    kind = pa.decimal128(9, 2)
    digits = pa.array([Decimal(each).scaleb(-2) for each in given], kind)
    stream = io.BytesIO()
    schema = pa.schema([pa.field("d", kind, nullable=False)])
    writer = new_file("avro", stream, schema, WriteSettings("null"))
    writer.write(pa.table([digits], schema))
    writer.close()
    assert avro_container.parse(stream.getvalue()).records == bytes.fromhex("".join(given.values()))


def test_narrow_rows_are_encoded_a_few_at_once() -> None:
    given = pa.table({"flag": pa.array(np.zeros(2_000_000, np.bool_))})
    writer = new_file("avro", io.BytesIO(), given.schema, WriteSettings("null"))
    tracemalloc.start()
    try:
        writer.write(given)
        # They take 4 MB in the file, and twice these bytes if they were encoded all at once.
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
    writer.close()


def test_rows_fill_blocks_however_they_come() -> None:
    rows = 60_000
    given = pa.table({"number": range(rows), "text": [f"text {number}" * (number % 9) for number in range(rows)]})
    given = pa.concat_tables([given, pa.table({"number": [None], "text": ["x" * (3 << 20)]}, schema=given.schema)])
    stream = io.BytesIO()
    writer = new_file("avro", stream, given.schema, WriteSettings("null"))
    for first in range(100):
        writer.write(given.slice(first, 1))
    writer.write(given.slice(100))
    writer.close()
    found = avro_container.parse(stream.getvalue())
    assert avro_container.to_records(found) == given.to_pylist()
    assert all(64 << 10 <= len(block) < 65 << 10 for _, block in found.blocks[:-1])


def check_records(given: pa.Table, codec: str) -> None:
    stream = io.BytesIO()
    writer = new_file("avro", stream, given.schema, WriteSettings(codec))
    writer.write(normal_table(given, writer.schema))
    writer.close()
    wanted = io.BytesIO()
    schema = fastavro.parse_schema(avro_schema(given.schema))
    for row in given.to_pylist():
        fastavro.schemaless_writer(
            wanted, schema, {field.name: of_avro(row[field.name], field) for field in given.schema}
        )
    assert avro_container.parse(stream.getvalue()).records == wanted.getvalue()


def of_avro(value: Any, field: pa.Field) -> Any:
    """A value with dicts for maps."""
    kind = field.type
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_map(kind):
        return {key: of_avro(item, kind.item_field) for key, item in value}
    if pa.types.is_list(kind):
        return [of_avro(each, kind.value_field) for each in value]
    return {part.name: of_avro(value[part.name], part) for part in kind}
