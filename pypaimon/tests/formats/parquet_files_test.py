"""Parquet files in batches: the same rows in the same order, however many of them Arrow decodes at once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pypaimon.streaming.formats import parquet_source as parquet_files
from pypaimon.streaming.formats.parquet_source import ParquetSource

pytestmark = pytest.mark.slow


@given(
    groups=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    batch_size=st.integers(1, 50),
    decoded=st.integers(1, 5000),
    few_rows=st.sampled_from([0, 1000]),
    columns=st.sampled_from([["k"], ["s", "k"], ["r"], ["k", "s", "r"]]),
)
def test_batches_hold_the_rows_of_the_file(
    groups: list[int], batch_size: int, decoded: int, few_rows: int, columns: list[str]
) -> None:
    out = pa.BufferOutputStream()
    numbers = pa.array(range(sum(groups)), pa.int64())
    rows = pa.StructArray.from_arrays([numbers, numbers.cast(pa.string())], ["a", "b"])
    table = pa.table({"k": numbers, "s": numbers.cast(pa.string()), "r": rows})
    with pq.ParquetWriter(out, table.schema) as writer:
        start = 0
        for size in groups:
            writer.write_table(table.slice(start, size))
            start += size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_files, "_DECODED_BYTES", decoded)
        patch.setattr(parquet_files, "_FEW_ROWS", few_rows)
        batches = list(ParquetSource(pa.BufferReader(out.getvalue())).batches(columns, batch_size))
    assert all(0 < batch.num_rows <= batch_size for batch in batches)
    found = pa.Table.from_batches(batches)
    assert sorted(found.column_names) == sorted(columns)
    assert found.select(columns) == table.select(columns)


def test_rows_that_a_dictionary_makes_small_are_decoded_in_bounded_memory() -> None:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"s": pa.repeat("s" * 100, 1_200_000)}), out)
    content = out.getvalue()
    assert content.size < 20_000
    batches = ParquetSource(pa.BufferReader(content)).batches(["s"], 1 << 19)
    before = pa.total_allocated_bytes()
    first = next(batches)
    # Strings of 100 bytes and their offsets; all of the file would be twice as much.
    assert pa.total_allocated_bytes() - before < 1.5 * 104 * first.num_rows
    assert first.num_rows + sum(batch.num_rows for batch in batches) == 1_200_000
