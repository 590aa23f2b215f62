"""Updates as pairs of the row before and the row after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.row_kinds import DELETE, NAMES, UPDATE_AFTER, UPDATE_BEFORE
from pypaimon.streaming.model.system_columns import ROW_KIND

_BEFORE, _AFTER, _DELETED = NAMES[UPDATE_BEFORE], NAMES[UPDATE_AFTER], NAMES[DELETE]


def pairs_unbroken(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, cut so that no batch ends with a -U whose +U is the next row.

    Only such a pair is copied, into a batch of its own.
    """
    held: pa.RecordBatch | None = None
    for batch in batches:
        if held is not None:
            if _kind(batch, 0) == _AFTER and batch.schema == held.schema:
                yield pa.Table.from_batches([held, batch.slice(0, 1)]).combine_chunks().to_batches()[0]
                batch = batch.slice(1)
            else:
                yield held
            held = None
        if _kind(batch, batch.num_rows - 1) == _BEFORE:
            batch, held = batch.slice(0, batch.num_rows - 1), batch.slice(batch.num_rows - 1)
        if batch.num_rows:
            yield batch
    if held is not None:
        yield held


def paired(rows: pa.Table, kinds: pa.ChunkedArray, keys: Sequence[str]) -> pa.Table:
    """One row per change: `_row_kind`, and the structs `before` and `after`, each with all columns or null.

    Args:
        rows: The rows without their kinds.
        kinds: The kind of each row.
        keys: Columns of the primary key: a -U and the next +U are one change if these are equal.

    Raises:
        StreamConfigError: The rows lack a column of the key.
    """
    if missing := [key for key in keys if key not in rows.column_names]:
        raise StreamConfigError(
            f"updates are paired by the primary key, and the rows lack {', '.join(missing)}: "
            "add it to with_projection(...) under its own name"
        )
    names = np.asarray(kinds.to_pylist(), dtype=object)
    pairs = _pairs(rows, names, keys)
    begins = np.delete(np.arange(len(names)), pairs + 1)
    is_pair = np.isin(begins, pairs)
    has_before = np.isin(names[begins], (_BEFORE, _DELETED))
    has_after = is_pair | ~has_before
    values = pa.chunked_array(
        [batch.to_struct_array() for batch in rows.to_batches()], type=pa.struct(list(rows.schema))
    )
    return pa.table(
        {
            ROW_KIND: pa.array(np.where(is_pair, _AFTER, names[begins]), type=pa.string()),
            "before": values.take(pa.array(begins, mask=~has_before)),
            "after": values.take(pa.array(begins + is_pair, mask=~has_after)),
        }
    )


def _pairs(rows: pa.Table, names: npt.NDArray[np.object_], keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """Index of the first row of each pair."""
    pairs = np.flatnonzero((names[:-1] == _BEFORE) & (names[1:] == _AFTER))
    for key in keys if len(pairs) else ():
        before, after = (rows.column(key).take(pa.array(at)).combine_chunks() for at in (pairs, pairs + 1))
        same = pc.equal(before, after)
        if pa.types.is_floating(before.type):
            same = pc.or_(same, pc.and_(pc.is_nan(before), pc.is_nan(after)))
        pairs = pairs[same.to_numpy(zero_copy_only=False)]
    return pairs


def _kind(batch: pa.RecordBatch, row: int) -> str | None:
    """The kind of a row; None if rows have no kinds."""
    place = batch.schema.get_field_index(ROW_KIND)
    return None if place < 0 or not batch.num_rows else str(batch.column(place)[row])
