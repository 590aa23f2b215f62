"""Reduces a batch to rows to set and rows to remove."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model import row_kinds
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.options.arguments import a_batch
from pypaimon.streaming.targets.target_keys import AnyBatch as AnyBatch
from pypaimon.streaming.targets.target_keys import check_keys, comparable_keys, key_columns

RESERVED = "_paimon_"
"""Prefix of names that targets use for themselves, in upper or lower case."""
_ORDER = f"{RESERVED}order"


def last_changes(batch: AnyBatch, keys: str | Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Reduce a batch to one row per key.

    Args:
        batch: Changes, in order.
        keys: The key column, or several; the batch must have them.

    Returns:
        The rows to set, and the rows to remove, without their kinds.

    Raises:
        StreamConfigError: A key column is not in the batch, or holds -0.0; the keys do not contain the primary key, or
            the partition columns between which rows move; or the name of a column is reserved.
    """
    a_batch("last_changes: batch", batch)
    keys = key_columns(keys)
    rows, kinds = batch.rows, batch.kinds
    refuse_reserved("column", rows.schema.names)
    missing = [key for key in keys if key not in rows.schema.names]
    if missing or not keys:
        raise StreamConfigError(f"keys {keys}: the batch has columns {rows.schema.names}")
    check_keys(batch, keys)
    rows = comparable_keys(rows, keys)
    if any(_differ(rows[key]) for key in keys):
        last = None
    else:
        numbered = rows.select(keys).append_column(_ORDER, pa.array(np.arange(rows.num_rows)))
        last = numbered.group_by(keys).aggregate([(_ORDER, "max")])[f"{_ORDER}_max"].sort()
    if last is not None and len(last) < rows.num_rows:
        rows, kinds = rows.take(last), kinds.take(last)
    sets = row_kinds.are_added(kinds)
    if sets.all():
        return rows, rows.slice(0, 0)
    return rows.filter(pa.array(sets)), rows.filter(pa.array(~sets))


def refuse_reserved(what: str, names: Iterable[str]) -> None:
    """Refuse reserved names."""
    for name in names:
        if name.lower().startswith(RESERVED):
            advice = "leave it out with with_projection(...)" if what == "column" else "give another name"
            raise StreamConfigError(
                f"{what} {name!r}: names that begin with '{RESERVED}' are reserved for targets.",
                advice=f"Rename it, or {advice}.",
                option="with_projection" if what == "column" else None,
            )


def _differ(column: pa.ChunkedArray) -> bool:
    """Whether all values are known to be distinct."""
    return len(column) == 0 or (pa.types.is_integer(column.type) and len(column.unique()) == len(column))


def inserts(batch: AnyBatch) -> pa.Table:
    """All rows of a batch, for a target without keys.

    A full state may contain updates: each of its rows is a row of the table.

    Raises:
        StreamConfigError: The batch has updates or deletes.
    """
    kinds = set(pc.unique(batch.kinds).to_pylist())
    if not kinds <= ({"+I", "+U"} if batch.kind is PlanKind.FULL else {"+I"}):
        raise StreamConfigError(f"rows of the kinds {', '.join(sorted(kinds))} cannot be appended: give the keys")
    return batch.rows
