"""Parquet files in batches: the same rows in the same order, however many of them Arrow decodes at once."""

from __future__ import annotations

import io
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pypaimon.streaming.formats import file_format, parquet_reader
from pypaimon.streaming.formats import parquet_reader as parquet_files
from pypaimon.streaming.formats.file_format import WriteSettings
from pypaimon.streaming.formats.parquet_reader import ParquetFileReader
from pypaimon.streaming.formats.parquet_writer import ParquetFileWriter
from pypaimon.streaming.model.normal_form import normal_table

pytestmark = pytest.mark.slow


@given(
    groups=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    batch_size=st.integers(1, 50),
    decoded=st.integers(1, 5000),
    few_rows=st.sampled_from([0, 1000]),
    harmless=st.sampled_from([0, 1 << 26]),
    columns=st.sampled_from([["k"], ["s", "k"], ["r"], ["k", "s", "r"], ["d", "k"], ["l", "d"], ["k", "l", "s", "d"]]),
    lengths=st.lists(st.none() | st.integers(0, 300), min_size=1, max_size=5),
    options=st.sampled_from(
        [{}, {"use_dictionary": False}, {"dictionary_pagesize_limit": 200, "write_batch_size": 8, "data_page_size": 64}]
    ),
)
def test_batches_hold_the_rows_of_the_file(
    groups: list[int],
    batch_size: int,
    decoded: int,
    few_rows: int,
    harmless: int,
    columns: list[str],
    lengths: list[int | None],
    options: dict[str, Any],
) -> None:
    """Also where texts come as entries of dictionaries, and where only decoding shows how long they are."""
    out = pa.BufferOutputStream()
    numbers = pa.array(range(sum(groups)), pa.int64())
    rows = pa.StructArray.from_arrays([numbers, numbers.cast(pa.string())], ["a", "b"])
    texts = [None if length is None else "x" * length for length in lengths]
    repeated = pa.array([texts[number % len(texts)] for number in range(sum(groups))])
    lists = pa.array([[texts[number % len(texts)]] * (number % 3) for number in range(sum(groups))])
    table = pa.table({"k": numbers, "s": numbers.cast(pa.string()), "r": rows, "d": repeated, "l": lists})
    with pq.ParquetWriter(out, table.schema, **options) as writer:
        start = 0
        for size in groups:
            writer.write_table(table.slice(start, size))
            start += size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_format, "DECODED_BYTES", decoded)
        patch.setattr(parquet_files, "_FEW_ROWS", few_rows)
        patch.setattr(parquet_files, "_FIRST_BYTES", decoded)
        patch.setattr(parquet_reader, "_HARMLESS", harmless)
        batches = list(ParquetFileReader(pa.BufferReader(out.getvalue())).batches(columns, batch_size))
    assert all(0 < batch.num_rows <= batch_size for batch in batches)
    found = pa.Table.from_batches(batches)
    assert sorted(found.column_names) == sorted(columns)
    assert found.select(columns) == table.select(columns)


def test_rows_that_a_dictionary_makes_small_are_decoded_in_bounded_memory() -> None:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"s": pa.repeat("s" * 100, 1_200_000)}), out)
    content = out.getvalue()
    assert content.size < 20_000
    batches = ParquetFileReader(pa.BufferReader(content)).batches(["s"], 1 << 19)
    before = pa.total_allocated_bytes()
    first = next(batches)
    # Values, and as much as that for what refers to them; all of the file would be 125 MB.
    assert pa.total_allocated_bytes() - before < 2 * file_format.DECODED_BYTES
    assert first.num_rows + sum(batch.num_rows for batch in batches) == 1_200_000


@pytest.mark.parametrize(("batch_size", "decoded"), [(1024, 8192), (4096, 16_384), (20_000, 20_000)])
def test_small_batches_are_decoded_together_and_large_ones_alone(batch_size: int, decoded: int) -> None:
    """A merge has a batch of each file in memory, and what was decoded with it."""
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": range(100_000)}), out)
    batches = ParquetFileReader(pa.BufferReader(out.getvalue())).batches(["k"], batch_size)
    first = next(batches)
    assert first.num_rows == batch_size
    assert 0.9 * 8 * decoded < first.get_total_buffer_size() < 1.1 * 8 * decoded
    assert pa.Table.from_batches([first, *batches])["k"].to_pylist() == list(range(100_000))


SECOND, MILLI, MICRO, NANO = (pa.timestamp(unit) for unit in ("s", "ms", "us", "ns"))
COARSE = {
    "second": SECOND,
    "milli": pa.timestamp("ms", "UTC"),
    "micro": MICRO,
    "list": pa.list_(MICRO),
    "map": pa.map_(MILLI, MICRO),
    "row": pa.struct([pa.field("a", MICRO, nullable=False), pa.field("b", pa.int32())]),
}
FINE = {"nano": NANO, "nanos": pa.list_(NANO)}
MOMENTS: list[dict[str, Any]] = [
    {
        **dict.fromkeys(("second", "milli", "micro"), -7),
        "list": [1, None],
        "map": [(-1, None), (2, 3)],
        "row": {"a": 1, "b": None},
        "nano": -1,
        "nanos": [5, None],
    },
    {},
    {**dict.fromkeys(("second", "milli", "micro"), 7), "list": [], "map": [], "nano": 10**18 + 1, "nanos": []},
]


def written(kinds: dict[str, pa.DataType], rows: list[dict[str, Any]]) -> bytes:
    out, schema = io.BytesIO(), pa.schema(kinds)
    writer = ParquetFileWriter(out, schema, WriteSettings("zstd"))
    for row in rows:
        writer.write(normal_table(pa.Table.from_pylist([{name: row.get(name) for name in kinds}], schema), schema))
    writer.close()
    return out.getvalue()


def elements(data: bytes) -> dict[str, tuple[str, Any, Any]]:
    schema = pq.ParquetFile(pa.BufferReader(data)).schema
    columns = (schema.column(index) for index in range(len(schema)))
    return {each.path: (each.physical_type, str(each.logical_type), each.converted_type) for each in columns}


@pytest.mark.parametrize("count", [0, 2, 3])
def test_timestamps_of_all_precisions_are_in_one_file_as_in_files_of_their_own(count: int) -> None:
    """Those of precision 7 to 9 as INT96, others as INT64, as in Java's files."""
    rows = MOMENTS[:count]
    mixed, coarse, fine = written({**COARSE, **FINE}, rows), written(COARSE, rows), written(FINE, rows)
    assert elements(mixed) == {**elements(coarse), **elements(fine)}
    assert [elements(mixed)[name][0] for name in ("second", "micro", "nano")] == ["INT64", "INT64", "INT96"]
    found = pq.read_table(pa.BufferReader(mixed))
    assert found.select(list(COARSE)).equals(pq.read_table(pa.BufferReader(coarse)))
    assert found.select(list(FINE)).equals(pq.read_table(pa.BufferReader(fine)))
    if rows:
        group = pq.ParquetFile(pa.BufferReader(mixed)).metadata.row_group(0)
        assert group.column(0).statistics.min == datetime(1969, 12, 31, 23, 59, 53)
