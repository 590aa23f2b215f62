"""What a batch comes to: rows to set and rows to take away."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.batches.batch import Batch, BlockingBatch
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.plan import PlanKind

AnyBatch = Batch | BlockingBatch
_SETS = pa.array(["+I", "+U"])
_ORDER = "__order"


def last_changes(batch: AnyBatch, keys: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """What a batch comes to: one row per key.

    Args:
        batch: Changes, in order.
        keys: Columns of the key; the batch must have them.

    Returns:
        The rows to set, and the rows to take away, without their kinds.

    Raises:
        StreamConfigError: A key column is not in the batch.
    """
    rows, kinds = batch.rows, batch.kinds
    missing = [key for key in keys if key not in rows.schema.names]
    if missing or not keys:
        raise StreamConfigError(f"keys {list(keys)}: the batch has columns {rows.schema.names}")
    if any(_differ(rows[key]) for key in keys):
        last = None
    else:
        numbered = rows.select(list(keys)).append_column(_ORDER, pa.array(range(rows.num_rows), pa.int64()))
        last = numbered.group_by(list(keys)).aggregate([(_ORDER, "max")])[f"{_ORDER}_max"].sort()
    if last is not None and len(last) < rows.num_rows:
        rows, kinds = rows.take(last), kinds.take(last)
    sets = pc.is_in(kinds, value_set=_SETS)
    if pc.all(sets).as_py():
        return rows, rows.slice(0, 0)
    return rows.filter(sets), rows.filter(pc.invert(sets))


def _differ(column: pa.ChunkedArray) -> bool:
    """Whether no two values are equal. Not knowing is False."""
    return len(column) == 0 or (pa.types.is_integer(column.type) and len(column.unique()) == len(column))


def inserts(batch: AnyBatch) -> pa.Table:
    """All rows of a batch, for a target without keys.

    Those of a full state are rows of the table, also where the last change of one was an update.

    Raises:
        StreamConfigError: Not all of them are inserts.
    """
    kinds = set(pc.unique(batch.kinds).to_pylist())
    if not kinds <= ({"+I", "+U"} if batch.kind is PlanKind.FULL else {"+I"}):
        raise StreamConfigError(f"rows of the kinds {', '.join(sorted(kinds))} cannot be appended: give the keys")
    return batch.rows
