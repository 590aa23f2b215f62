"""Reduces a batch to rows to set and rows to remove, by the keys of a target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.batches.batch import Batch, BlockingBatch, refuse_other_keys
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model import row_kinds
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.options.arguments import a_batch
from pypaimon.streaming.options.table_traits import TableTraits, moved_by
from pypaimon.streaming.paimon.internals import TableSchema

AnyBatch = Batch | BlockingBatch
GivenKeys = str | Sequence[str] | None
RESERVED = "_paimon_"
"""Prefix of names that targets use for themselves, in upper or lower case."""
_ORDER = f"{RESERVED}order"


class TargetKeys:
    """The keys of one target.

    Args:
        given: A column, or several. Empty: rows are appended. None: the keys of the table.
    """

    def __init__(self, given: GivenKeys) -> None:
        self._given = None if given is None else key_columns(given)
        self._known: tuple[TableSchema, bool, list[str]] | None = None

    def of_batch(self, batch: AnyBatch) -> list[str]:
        """The keys for a batch; empty: its rows are appended."""
        _refuse_other_keys(batch)
        return self.of(batch.schema, has_keyed_rows(batch))

    def of(self, schema: TableSchema, keyed: bool) -> list[str]:
        known = self._known
        if known is None or known[0] is not schema or known[1] != keyed:
            keys = _key_of(schema, keyed) if self._given is None else self._given
            _check(schema, keyed, keys)
            self._known = known = schema, keyed, keys
        return known[2]


def key_columns(given: str | Sequence[str]) -> list[str]:
    """Key columns as a list; a string is one column."""
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise StreamConfigError(f"Invalid argument 'keys': expected a column or a sequence of columns, got {given!r}.")
    return list(dict.fromkeys(names))


def default_keys(batch: AnyBatch) -> list[str]:
    """The primary key, with partition columns between which rows move. Empty if rows have no key."""
    return _key_of(batch.schema, has_keyed_rows(batch))


def _key_of(schema: TableSchema, keyed: bool) -> list[str]:
    return [*schema.primary_keys, *moved_by(schema)] if keyed else []


def check_keys(batch: AnyBatch, keys: Sequence[str]) -> None:
    """Refuse keys that would merge two rows of the table, or split one."""
    _refuse_other_keys(batch)
    _check(batch.schema, has_keyed_rows(batch), keys)


def _refuse_other_keys(batch: AnyBatch) -> None:
    if has_keyed_rows(batch):
        refuse_other_keys(batch.schema, batch._fields)


def _check(schema: TableSchema, keyed: bool, keys: Sequence[str]) -> None:
    if not keyed:
        return
    wanted = _key_of(schema, keyed)
    if not keys:
        raise StreamConfigError(
            f"The table has the primary key {schema.primary_keys}, and the target has no keys, so that each change of "
            f"a row would be another row. Its keys have to be {wanted}."
        )
    if any(name not in keys for name in schema.primary_keys):
        raise StreamConfigError(
            f"keys {list(keys)} do not contain the primary key {schema.primary_keys} of the table, so that one row "
            f"would replace others. They have to be {wanted}."
        )
    if lacking := [name for name in moved_by(schema) if name not in keys]:
        # A move sets the row in one partition and deletes it in another, in the order of the partitions.
        raise StreamConfigError(
            f"keys {list(keys)}: the primary key {schema.primary_keys} lacks the partition columns {lacking}, so that "
            "a row may move to another partition, and be set there before it is deleted in the old one: give them as "
            f"keys too, {[*keys, *lacking]}. There is still one row for each primary key after each plan."
        )
    others = [name for name in keys if name not in wanted and name not in schema.partition_keys]
    if others and not TableTraits.of(schema).producer.complete:
        raise StreamConfigError(
            f"keys {list(keys)}: an update of {others} would leave the former row, because the changes of the table do "
            f"not name it. The keys have to be {wanted}."
        )


def comparable_keys(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Rows whose keys every target compares as Java does: all NaNs are one key."""
    for name in keys:
        column = rows[name]
        if not pa.types.is_floating(column.type):
            continue
        values = column.fill_null(1.0).to_numpy()
        # Java distinguishes -0.0 from 0.0; databases and dicts do not.
        if np.any(np.signbit(values) & (values == 0)):
            raise StreamConfigError(
                f"The key column '{name}' holds -0.0, which targets take for 0.0: have the writer of the "
                "table write 0.0."
            )
        if np.isnan(values).any():
            same = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), same)
    return rows


def refuse_hidden_kinds(batch: AnyBatch) -> None:
    if batch.schema.primary_keys and not has_keyed_rows(batch) and not batch._scope.view:
        raise StreamConfigError(
            "with_include_row_kind(False): without the kinds of its rows a target cannot distinguish deletes from "
            "inserts; leave it out."
        )


def has_keyed_rows(batch: AnyBatch) -> bool:
    """Whether rows are changes of rows with a key. Rows of a view are a log, without keys."""
    if not batch.schema.primary_keys:
        return False
    return ROW_KIND in batch.data.schema.names or not TableTraits.of(batch.schema).can_retract


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
    # One key column without repeats is enough: no key comes twice.
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


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def refuse_reserved(what: str, names: Iterable[str]) -> None:
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
    """
    kinds = set(pc.unique(batch.kinds).to_pylist())
    if not kinds <= ({"+I", "+U"} if batch.kind is PlanKind.FULL else {"+I"}):
        raise StreamConfigError(f"rows of the kinds {', '.join(sorted(kinds))} cannot be appended: give the keys")
    return batch.rows
