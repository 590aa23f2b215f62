"""The changes between two states of a bucket, and the rows in which the states differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.merge.groups import Kinds, Mask, value_columns
from pypaimon.streaming.merge.ordering import Ints, identity, numeric_codes
from pypaimon.streaming.merge.runs import Chunk, chunks
from pypaimon.streaming.model.row_kinds import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from pypaimon.streaming.model.system_columns import VALUE_KIND


def net_changes(
    before: Iterable[pa.RecordBatch],
    after: Iterable[pa.RecordBatch],
    keys: Sequence[str],
    compared: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The changes between two states that two calls of `merge_batches` with the same columns return.

    Args:
        compared: The columns to compare; None: all value columns.

    Yields:
        Batches in key order, none empty, with the columns of the states: +I for an added key, -D for a removed one,
        and for a changed row -U with the earlier row followed by +U with the later one. Values are compared as in
        Java: NaN equals NaN, -0.0 differs from 0.0. `_VALUE_KIND` of the states is not compared.
    """
    for chunk in chunks([before, after], keys):
        changes = _changes(chunk, value_columns(chunk.batch) if compared is None else compared)
        if changes.num_rows:
            yield changes


def differing_rows(
    before: Iterable[pa.RecordBatch], after: Iterable[pa.RecordBatch], keys: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The new, changed and removed rows of a later state, as in Java's difference of two snapshots.

    Args:
        before: The records of the earlier state, sorted by key, one per key, deletes included.

    Yields:
        Batches in key order, none empty: records of the later state with their stored row kind, if the earlier state
        does not have the key, or has another value or is a delete where the other is not; and rows of the earlier
        state, as -D, whose key the later state does not have.
    """
    for chunk in chunks([before, after], keys):
        rows = _differing(chunk)
        if rows.num_rows:
            yield rows


def _differing(chunk: Chunk) -> pa.RecordBatch:
    order, starts = chunk.by_key()
    if order is None:
        order = np.arange(len(chunk.codes))
    kinds = chunk.batch.column(VALUE_KIND).to_numpy(zero_copy_only=False)[order]
    adds = (kinds == INSERT) | (kinds == UPDATE_AFTER)
    is_after = order >= chunk.counts[0]
    kept = is_after | adds
    kinds = np.where(is_after, kinds, DELETE).astype(np.int8)
    # Rows of the earlier state come first in the batch and, because the order is stable, first in their key. `pairs`
    # has the earlier rows of keys in both states. The later row is right after each.
    pairs = starts[np.diff(starts, append=len(order)) > 1]
    earlier, later = order[pairs], order[pairs + 1]
    changed = adds[pairs] != adds[pairs + 1]
    for name in value_columns(chunk.batch):
        changed |= differing(chunk.batch.column(name), earlier, later)
    kept[pairs], kept[pairs + 1] = False, changed
    return _taken(chunk.batch, order[kept], kinds[kept])


def _changes(chunk: Chunk, compared: Sequence[str]) -> pa.RecordBatch:
    order, starts = chunk.by_key()
    if order is None:
        order = np.arange(len(chunk.codes))
    is_after = order >= chunk.counts[0]
    pairs = starts[np.diff(starts, append=len(order)) > 1]
    kinds = np.where(is_after, INSERT, DELETE).astype(np.int8)
    kinds[pairs], kinds[pairs + 1] = UPDATE_BEFORE, UPDATE_AFTER
    changed = np.ones(len(order), dtype=np.bool_)
    earlier, later = order[pairs], order[pairs + 1]
    differs = np.zeros(len(pairs), dtype=np.bool_)
    for name in compared:
        differs |= differing(chunk.batch.column(name), earlier, later)
    changed[pairs] = changed[pairs + 1] = differs
    return _taken(chunk.batch, order[changed], kinds[changed])


def _taken(batch: pa.RecordBatch, rows: Ints, kinds: Kinds) -> pa.RecordBatch:
    index = pa.array(rows)
    names = batch.schema.names
    columns = [pa.array(kinds) if name == VALUE_KIND else batch.column(name).take(index) for name in names]
    return pa.RecordBatch.from_arrays(columns, names=names)


def differing(column: pa.Array, earlier: Ints, later: Ints) -> Mask:
    codes = numeric_codes(column)
    differs: Mask
    if codes is not None:
        differs = codes[earlier] != codes[later]
    else:
        old, new = column.take(pa.array(earlier)), column.take(pa.array(later))
        if pa.types.is_nested(column.type):
            pairs = zip(old.to_pylist(), new.to_pylist(), strict=True)
            return np.array([identity(one) != identity(other) for one, other in pairs], dtype=np.bool_)
        differs = pc.fill_null(pc.not_equal(old, new), False).to_numpy(zero_copy_only=False)
    # So far a null compares as equal, or by an arbitrary code. It differs from every value.
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        differs = differs | (valid[earlier] != valid[later])
    return differs
