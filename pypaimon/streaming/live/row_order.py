"""`RowOrder`: the rows of a batch, ordered by some of its columns; and `RowRange`, which is looked for in it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.live.hash_index import comparable
from pypaimon.streaming.live.row_store import LookupKeys

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RowRange:
    """Rows that are equal in some columns, or between two bounds in the order of these columns.

    Attributes:
        names: The columns.
        low: The least values, as columns of one row, of the first columns or all; None: any.
        high: The greatest values; None: any.
        includes_high: Whether rows with the greatest values are in the range.
    """

    names: tuple[str, ...]
    low: Sequence[pa.Array] | None
    high: Sequence[pa.Array] | None
    includes_high: bool = False


def rows_equal_to(columns: pa.Schema, names: str | Sequence[str], value: Any) -> RowRange:
    """The rows with a value in a column, or with a value in each of several ones.

    Raises:
        StreamConfigError: A column does not exist or cannot be looked up, or the value does not fit.
    """
    wanted = (names,) if isinstance(names, str) else tuple(names)
    if not wanted or len(set(wanted)) < len(wanted):
        raise StreamConfigError(f"find: columns={names!r}: give a column, or several different ones")
    for name in wanted:
        if name not in columns.names:
            raise StreamConfigError(f"find: there is no column {name!r}; columns: {', '.join(columns.names)}")
        if pa.types.is_nested(columns.field(name).type):
            raise StreamConfigError(f"find: column {name!r} is {columns.field(name).type}, which has no order")
    keys = LookupKeys(wanted, [columns.field(name).type for name in wanted], is_primary=False)
    values = keys.arrays(keys.values(value))
    return RowRange(wanted, values, values, includes_high=True)


def rows_between(columns: pa.Schema, key: Sequence[str], low: Any, high: Any) -> RowRange:
    """The rows whose key is not less than `low`, and less than `high`. Raises StreamConfigError if they do not fit."""
    return RowRange(tuple(key), _bound(columns, key, low), _bound(columns, key, high))


def _bound(columns: pa.Schema, key: Sequence[str], value: Any) -> Sequence[pa.Array] | None:
    if value is None:
        return None
    if len(key) > 1 and isinstance(value, (tuple, list)) and 0 < len(value) < len(key):
        key = key[: len(value)]
        value = value[0] if len(value) == 1 else value
    keys = LookupKeys(key, [columns.field(name).type for name in key])
    return keys.arrays(keys.values(value))


class RowOrder:
    """The rows of one batch in order. Rows with a null in one of the columns are in no range, and left out."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._columns = [_ordered(column) for column in columns]
        pairs = zip(self._columns, columns, strict=True)
        self._copied = sum(int(column.nbytes) for column, given in pairs if _copies(given))
        names = [str(number) for number in range(len(columns))]
        batch = pa.RecordBatch.from_arrays(self._columns, names)
        order = pc.sort_indices(batch, sort_keys=[(name, "ascending") for name in names]).to_numpy()
        valid = np.ones(len(order), np.bool_)
        for column in self._columns:
            if column.null_count:
                valid &= column.is_valid().to_numpy(zero_copy_only=False)
        self._order = (order if valid.all() else order[valid[order]]).astype(np.uint32)

    @property
    def nbytes(self) -> int:
        return int(self._order.nbytes) + self._copied

    def rows(self, wanted: RowRange) -> Rows:
        """The numbers, in this batch, of the rows in a range."""
        begin, end = 0, len(self._order)
        if wanted.low is not None:
            begin = self._place(wanted.low, after=False)
        if wanted.high is not None:
            end = self._place(wanted.high, after=wanted.includes_high)
        found: Rows = self._order[begin:end].astype(np.int64)
        return found

    def _place(self, bound: Sequence[pa.Array], *, after: bool) -> int:
        columns = self._columns[: len(bound)]
        values = tuple(_ordered(each)[0].as_py() for each in bound)
        if None in values:
            # A null is in no range.
            return 0
        place = bisect_right if after else bisect_left
        return place(self._order, values, key=lambda row: tuple(column[int(row)].as_py() for column in columns))


def in_order(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows without nulls in some columns, ordered by these."""
    order = RowOrder([rows.column(name).combine_chunks() for name in names])
    return rows.take(pa.array(order.rows(RowRange(tuple(names), None, None))))


def _copies(column: pa.Array) -> bool:
    return bool(pa.types.is_floating(column.type) or pa.types.is_boolean(column.type))


def _ordered(column: pa.Array) -> pa.Array:
    """A column as integers, bytes or decimals in the order of its values: 0.0 equals -0.0, NaN is the greatest."""
    if not pa.types.is_floating(column.type):
        return comparable(column)
    bits = comparable(pc.add(column, pa.scalar(0.0, column.type)))
    # The bits of negative numbers ascend where the numbers descend.
    turned = pc.bit_wise_xor(bits, pa.scalar((1 << (bits.type.bit_width - 1)) - 1, bits.type))
    return pc.if_else(pc.less(bits, pa.scalar(0, bits.type)), turned, bits)
