"""Two states of a bucket: the changes that turn one into the other, and the rows in which they differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.merge.groups import Mask, value_columns
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
    """The changes between two states, as two calls of `merge_batches` with the same columns give them.

    Args:
        before: The rows of the earlier state, sorted by key, one per key.
        after: Those of the later state.
        keys: The primary key without partition columns.
        compared: The columns that make a row another one; None: all value columns.

    Yields:
        Batches in key order, none empty, with the columns of the states: a key that came is +I, one that went -D, one
        whose row differs -U with the earlier row and right behind it +U with the later one. Values are compared as Java
        compares them: NaN equals NaN, -0.0 differs from 0.0. `_VALUE_KIND` of the states does not count.
    """
    for chunk in chunks([before, after], keys):
        changes = _changes(chunk, value_columns(chunk.batch) if compared is None else compared)
        if changes.num_rows:
            yield changes


def differing_rows(
    before: Iterable[pa.RecordBatch], after: Iterable[pa.RecordBatch], keys: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """What is new or another in a later state, and what is gone, as Java's difference of two snapshots.

    Args:
        before: The records of the earlier state, sorted by key, one per key, deletes among them.
        after: Those of the later state.
        keys: The primary key without partition columns.

    Yields:
        Batches in key order, none empty: records of the later state with the kind that they are stored with, where the
        earlier one has no record of the key, or one that differs in a value or in being a delete; and rows of the
        earlier one, as -D, whose key the later one does not have.
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
    # Rows of the earlier state come first in the batch and, since the order is stable, first in their key: `pairs` has
    # the earlier rows of keys in both states, and right behind each is the later one.
    pairs = starts[np.diff(starts, append=len(order)) > 1]
    earlier, later = order[pairs], order[pairs + 1]
    changed = adds[pairs] != adds[pairs + 1]
    for name in value_columns(chunk.batch):
        changed |= differing(chunk.batch.column(name), earlier, later)
    kept[pairs], kept[pairs + 1] = False, changed
    rows = pa.array(order[kept])
    columns = {
        name: pa.array(kinds[kept]) if name == VALUE_KIND else chunk.batch.column(name).take(rows)
        for name in chunk.batch.schema.names
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


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
    rows = pa.array(order[changed])
    columns = {
        name: pa.array(kinds[changed]) if name == VALUE_KIND else chunk.batch.column(name).take(rows)
        for name in chunk.batch.schema.names
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def differing(column: pa.Array, earlier: Ints, later: Ints) -> Mask:
    """Whether the values of two rows differ, pair by pair."""
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
    # A null compares as equal so far, or by what its code happens to be: it differs from every value.
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        differs = differs | (valid[earlier] != valid[later])
    return differs
