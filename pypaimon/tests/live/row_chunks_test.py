"""Rows in batches that are merged as they come; offsets of arrays that have gone past their 32 bits are found."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pypaimon.streaming.live import row_chunks
from pypaimon.streaming.live.row_chunks import RowChunks, is_overflown

OFFSETS = pa.py_buffer(np.array([0, 2**31 - 1, -5, 7], np.int32))
BROKEN = pa.StringArray.from_buffers(3, OFFSETS, pa.py_buffer(b"x" * 8))
WHOLE = pa.array(["a", None, "bc"])


@pytest.mark.parametrize("text", [BROKEN, WHOLE])
def test_offsets_that_overflow_are_found_at_any_depth(text: pa.StringArray) -> None:
    one = pa.array([0, len(text)], pa.int32())
    structs = pa.StructArray.from_arrays([pa.array([1, 2, 3]), text], ["number", "text"])
    arrays = [
        text,
        structs,
        pa.ListArray.from_arrays(one, text),
        pa.ListArray.from_arrays(one, structs),
        pa.MapArray.from_arrays(one, pa.array([1, 2, 3]), text),
    ]
    assert {is_overflown(array) for array in arrays} == {text is BROKEN}
    assert is_overflown(text.slice(1)) is (text is BROKEN)


def test_what_has_no_offsets_is_whole() -> None:
    assert not any(map(is_overflown, (pa.array([1]), pa.nulls(3), pa.array([], pa.string()), pa.nulls(2, pa.string()))))


@pytest.mark.parametrize("rows", [1, 7, 30, 70, 120])
def test_of_many_batches_few_are_left_to_merge_at_the_end(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(row_chunks, "_MOST_BYTES", 1000)
    schema = pa.schema([("id", pa.int64())])
    chunks, ids = RowChunks(schema), np.arange(6000)
    for begin in range(0, 6000, rows):
        chunks = chunks.added([pa.record_batch([ids[begin : begin + rows]], schema=schema)])
    merged = chunks.merged()
    assert chunks.nbytes == merged.nbytes == merged.nbytes_shared(merged)
    assert merged.nbytes - chunks.nbytes_shared(merged) <= 2 * 1000
    for each in (chunks, merged):
        assert each.to_table()["id"].to_numpy().tolist() == ids.tolist()
        assert max(batch.nbytes for batch in each.batches) <= 1000
