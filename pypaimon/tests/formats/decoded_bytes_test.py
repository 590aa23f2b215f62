"""Files that store long values once for many rows, or compress them well: what one read decodes is bounded in bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pytest

from pypaimon.streaming.formats.avro_files import AvroFileReader
from pypaimon.streaming.formats.orc_reader import OrcFileReader
from pypaimon.streaming.formats.parquet_reader import ParquetFileReader
from support.tables.crafted_files import parquet

ROWS = 6_000
LONG = 20_000
ALL = ROWS * LONG
LETTERS = [chr(97 + index) * LONG for index in range(5)]


def cycle() -> pa.Array:
    return pa.array(LETTERS).take(pa.array([row % len(LETTERS) for row in range(ROWS)]))


def sorted_by_length() -> pa.Array:
    """Long ones after many short ones, from which nobody would guess them."""
    return pa.concat_arrays([pa.array([f"short {row % 7}" for row in range(100_000)]), cycle()])


def in_lists(texts: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(range(0, len(texts) + 1, 2), pa.int32()), texts)


def in_maps(texts: pa.Array) -> pa.Array:
    keys = pa.array([f"key {row % 3}" for row in range(len(texts))])
    return pa.MapArray.from_arrays(pa.array(range(len(texts) + 1), pa.int32()), keys, texts)


def few_and_huge() -> pa.Array:
    return pa.array([chr(97 + index) * (1 << 20) for index in range(2)]).take(pa.array([row % 2 for row in range(110)]))


def avro(texts: pa.Array) -> bytes:
    out = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": "v", "type": "string"}]}
    fastavro.writer(out, fastavro.parse_schema(schema), ({"v": text} for text in texts.to_pylist()), codec="zstandard")
    return out.getvalue()


def orc_file(texts: pa.Array, **options: Any) -> bytes:
    out = io.BytesIO()
    with orc.ORCWriter(out, **options) as writer:
        for start in range(0, len(texts), 1000):
            writer.write(pa.table({"v": texts.slice(start, 1000)}))
    return out.getvalue()


WITH_DELTAS: dict[str, Any] = {"use_dictionary": False, "column_encoding": {"v": "DELTA_BYTE_ARRAY"}}
FILES: dict[str, tuple[type[Any], Callable[[], pa.Array], Callable[[pa.Array], bytes]]] = {
    "parquet": (ParquetFileReader, cycle, lambda texts: parquet(pa.table({"v": texts}))),
    "parquet, sorted": (ParquetFileReader, sorted_by_length, lambda texts: parquet(pa.table({"v": texts}))),
    "parquet, of dictionaries": (
        ParquetFileReader,
        lambda: cycle().dictionary_encode(),
        lambda texts: parquet(pa.table({"v": texts})),
    ),
    "parquet, large text": (
        ParquetFileReader,
        lambda: cycle().cast(pa.large_string()),
        lambda texts: parquet(pa.table({"v": texts})),
    ),
    "parquet, prefixes": (
        ParquetFileReader,
        lambda: cycle().sort(),
        lambda texts: parquet(pa.table({"v": texts}), **WITH_DELTAS),
    ),
    "parquet, lists": (ParquetFileReader, lambda: in_lists(cycle()), lambda texts: parquet(pa.table({"v": texts}))),
    "parquet, maps": (ParquetFileReader, lambda: in_maps(cycle()), lambda texts: parquet(pa.table({"v": texts}))),
    "parquet, huge": (ParquetFileReader, few_and_huge, lambda texts: parquet(pa.table({"v": texts}))),
    "orc": (OrcFileReader, cycle, lambda texts: orc_file(texts, compression="zstd", dictionary_key_size_threshold=1)),
    "orc, direct": (OrcFileReader, cycle, lambda texts: orc_file(texts, compression="zlib")),
    "avro": (AvroFileReader, cycle, avro),
}


def batches(source: Any) -> Iterator[pa.RecordBatch]:
    return iter(source.batches(["v"], 1 << 19))


def texts_of(array: pa.Array) -> pa.Array:
    """The texts of a column, one after the other."""
    if pa.types.is_list(array.type):
        return array.flatten()
    if pa.types.is_map(array.type):
        first, *_, last = array.offsets.to_pylist()
        return array.items.slice(first, last - first)
    return array.cast(pa.string())


def in_a_store(content: bytes) -> Any:
    """A file whose bytes pass through Python."""
    return io.BufferedReader(io.BytesIO(content))


@pytest.mark.parametrize(
    ("name", "opened"),
    [*((name, pa.BufferReader) for name in FILES), *((name, in_a_store) for name in ("parquet", "orc", "orc, direct"))],
)
def test_what_one_read_decodes_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch, name: str, opened: Any) -> None:
    source_class, values, write = FILES[name]
    expected = texts_of(values())
    content = write(values())
    assert len(content) < ALL / 20
    # Stripes of ORC are read whole up to twice of this.
    monkeypatch.setattr("pypaimon.streaming.formats.orc_reader._WHOLE_STRIPE", 1 << 24)
    before = pa.total_allocated_bytes()
    texts = 0
    source = source_class(opened(content))
    rows = most = largest = 0
    for batch in batches(source):
        rows += batch.num_rows
        found = texts_of(batch.column(0))
        assert found.equals(expected.slice(texts, len(found)))
        texts += len(found)
        most = max(most, pa.total_allocated_bytes() - before)
        largest = max(largest, batch.nbytes)
    assert (rows, texts) == (source.num_rows, len(expected))
    # Where the first rows of a file may be any, they are those that take 32 MiB if all values are as long as can be.
    assert largest < 33 << 20
    # The whole is 120 MB; of ORC some batches are decoded ahead.
    assert most < 0.75 * ALL
