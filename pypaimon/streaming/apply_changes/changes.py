"""What a batch comes to: rows to set and rows to take away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.batches.batch import Batch, BlockingBatch
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.model import row_kinds
from pypaimon.streaming.model.plan import PlanKind

AnyBatch = Batch | BlockingBatch

RESERVED = "_paimon_"
"""What the names of the columns and tables begin with that targets need for themselves, in any case."""
_ORDER = f"{RESERVED}order"


def last_changes(batch: AnyBatch, keys: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """What a batch comes to: one row per key.

    Args:
        batch: Changes, in order.
        keys: Columns of the key; the batch must have them.

    Returns:
        The rows to set, and the rows to take away, without their kinds.

    Raises:
        StreamConfigError: A key column is not in the batch; rows may move between partitions, which are not part of
            the key; or the name of a column is reserved.
    """
    rows, kinds = batch.rows, batch.kinds
    refuse_reserved("column", rows.schema.names)
    _refuse_moving_rows(batch, keys)
    missing = [key for key in keys if key not in rows.schema.names]
    if missing or not keys:
        raise StreamConfigError(f"keys {list(keys)}: the batch has columns {rows.schema.names}")
    if any(_differ(rows[key]) for key in keys):
        last = None
    else:
        numbered = rows.select(list(keys)).append_column(_ORDER, pa.array(np.arange(rows.num_rows)))
        last = numbered.group_by(list(keys)).aggregate([(_ORDER, "max")])[f"{_ORDER}_max"].sort()
    if last is not None and len(last) < rows.num_rows:
        rows, kinds = rows.take(last), kinds.take(last)
    sets = row_kinds.are_added(kinds)
    if sets.all():
        return rows, rows.slice(0, 0)
    return rows.filter(pa.array(sets)), rows.filter(pa.array(~sets))


def refuse_reserved(what: str, names: Iterable[str]) -> None:
    """Refuse names that targets need for themselves.

    Args:
        what: What they name: `column` or `table`.
        names: The names.

    Raises:
        StreamConfigError: One begins with `_paimon_`.
    """
    for name in names:
        if name.lower().startswith(RESERVED):
            advice = "leave it out with with_projection(...)" if what == "column" else "give another name"
            raise StreamConfigError(
                f"{what} {name!r}: names that begin with '{RESERVED}' are reserved for targets. Rename it, or {advice}."
            )


def _refuse_moving_rows(batch: AnyBatch, keys: Sequence[str]) -> None:
    """A row that moves is set in one partition and taken away in another, in the order of these.

    With the partition in the key it is another row there.
    """
    lacking = [name for name in moved_by(batch.schema) if name not in keys]
    if lacking:
        raise StreamConfigError(
            f"keys {list(keys)}: the primary key {batch.schema.primary_keys} lacks the partition columns {lacking}, so "
            "that a row may move to another partition, and be set there before it is taken away where it was: give "
            f"them as keys too, {[*keys, *lacking]}. There is still one row for each primary key after each plan."
        )


def moved_by(schema: TableSchema) -> list[str]:
    """Partition columns that are not part of the primary key, so that an update of them moves a row."""
    return [name for name in schema.partition_keys if schema.primary_keys and name not in schema.primary_keys]


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
