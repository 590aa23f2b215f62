"""`expanded`: columns that refer to entries of dictionaries as columns of their values, some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MANY_ROWS = 16_384
"""So many rows are expanded without a look at each of them."""


def expanded(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """The rows of a batch with the values of its dictionaries, so many bytes of these at a time, about."""
    columns = [column for column in batch.columns if pa.types.is_dictionary(column.type)]
    if not columns:
        yield batch
        return
    longest = sum(_longest(column.dictionary) for column in columns)
    rows = max(1, size // max(longest, 1))
    if rows >= min(_MANY_ROWS, batch.num_rows):
        ends = list(range(rows, batch.num_rows, rows))
    else:
        ends = _ends(np.sum([_lengths(column) for column in columns], axis=0), size)
    for start, end in zip([0, *ends], [*ends, batch.num_rows], strict=True):
        part = batch.slice(start, end - start)
        arrays = [each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in part.columns]
        yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _longest(dictionary: pa.Array) -> int:
    return pc.max(pc.binary_length(dictionary)).as_py() or 0


def _lengths(column: pa.DictionaryArray) -> np.ndarray:
    """Bytes of the value of each row."""
    lengths = pc.binary_length(column.dictionary).take(column.indices)
    return np.asarray(lengths.cast(pa.int64()).fill_null(0))


def _ends(lengths: np.ndarray, size: int) -> list[int]:
    """Where parts end, but the last one, that have so many bytes at most, or one row."""
    ends: list[int] = []
    totals = np.cumsum(lengths)
    start = passed = 0
    while start < len(totals) and totals[-1] - passed > size:
        start = max(start + 1, int(np.searchsorted(totals, passed + size, "right")))
        passed = int(totals[start - 1])
        ends.append(start)
    return ends if not ends or ends[-1] < len(totals) else ends[:-1]
