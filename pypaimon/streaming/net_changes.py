"""One change per key between two states of a bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming import row_kinds
from pypaimon.streaming.data_files import VALUE_KIND
from pypaimon.streaming.merge.sections import Chunk, chunks

_SIDE = "_SIDE"


def net_changes(
    before: Iterator[pa.RecordBatch], after: Iterator[pa.RecordBatch], keys: Sequence[str], compared: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Compare two states, each with one row per key and sorted by key.

    Args:
        before: The rows before.
        after: The rows after, with the same columns.
        keys: The key columns.
        compared: The columns that make a row another one.

    Yields:
        `-D` for keys that are gone, `+I` for new ones, `-U` and `+U` one after the other for those that changed, in key
        order; nothing for the others. Codes of the kinds are in `_VALUE_KIND`.
    """
    for chunk in chunks([_marked(before, 0), _marked(after, 1)], keys):
        changed = _changes(chunk, compared)
        if changed.num_rows:
            yield changed


def _marked(batches: Iterator[pa.RecordBatch], side: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.append_column(_SIDE, pa.repeat(pa.scalar(side, pa.int8()), batch.num_rows))


def _changes(chunk: Chunk, compared: Sequence[str]) -> pa.RecordBatch:
    order = np.argsort(chunk.codes, kind="stable")
    codes = chunk.codes[order]
    rows = chunk.batch.take(pa.array(order))
    with_next = np.append(codes[:-1] == codes[1:], False)
    with_previous = np.insert(with_next[:-1], 0, False) if len(codes) else with_next
    old, new = np.flatnonzero(with_next), np.flatnonzero(with_previous)
    same = _same_rows(rows.select(list(compared)), old, new)
    alone = ~(with_next | with_previous)
    is_after = rows.column(_SIDE).to_numpy(zero_copy_only=False) == 1
    kinds = np.where(is_after, row_kinds.INSERT, row_kinds.DELETE).astype(np.int8)
    kinds[old] = row_kinds.UPDATE_BEFORE
    kinds[new] = row_kinds.UPDATE_AFTER
    keep = alone.copy()
    keep[old] = keep[new] = ~same
    place = rows.schema.get_field_index(VALUE_KIND)
    result = rows.set_column(place, rows.schema.field(VALUE_KIND), pa.array(kinds, pa.int8()))
    return result.filter(pa.array(keep)).drop_columns([_SIDE])


def _same_rows(rows: pa.RecordBatch, left: npt.NDArray[np.intp], right: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    same = np.ones(len(left), dtype=np.bool_)
    for column in rows.columns:
        equal = _same_values(column.take(pa.array(left)), column.take(pa.array(right)))
        same &= equal.to_numpy(zero_copy_only=False)
    return same


def _same_values(left: pa.Array, right: pa.Array) -> pa.Array:
    """Whether values are the same; null is the same as null, NaN as NaN."""
    if pa.types.is_nested(left.type):
        return pa.array([mine.equals(other) for mine, other in zip(left, right, strict=True)], pa.bool_())
    equal = pc.fill_null(pc.equal(left, right), False)
    if pa.types.is_floating(left.type):
        equal = pc.or_(equal, pc.fill_null(pc.and_(pc.is_nan(left), pc.is_nan(right)), False))
    return pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))
