"""Container files that are written here: by every codec, read by fastavro and by this library."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest

from pypaimon.streaming.formats import avro_container
from pypaimon.streaming.formats.avro_files import AvroWriter

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
