"""`RowChunks`: rows in immutable record batches, addressed by row number."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.live.row_order import RowOrder, RowRange
from pypaimon.streaming.model.arrow_types import one_batch

Rows = npt.NDArray[np.int64]
Orders = dict[tuple[str, ...], RowOrder]

_MOST_BYTES = 1 << 27
"""Batches are not merged into larger ones."""
_FAN = 8


class RowChunks:
    """Rows of one schema, immutable.

    Args:
        schema: Of the rows.
        batches: The rows, in order; no batch is empty.
        sizes: Bytes of each batch, if known: asking pyarrow takes as long as copying a few rows.
        orders: The orders of each batch that are known, by their columns.
    """

    def __init__(
        self,
        schema: pa.Schema,
        batches: Sequence[pa.RecordBatch] = (),
        sizes: Sequence[int] | None = None,
        orders: Sequence[Orders] | None = None,
    ) -> None:
        self.schema = schema
        self.batches = tuple(batches)
        self._sizes = [int(batch.nbytes) for batch in batches] if sizes is None else sizes
        self._orders: Sequence[Orders] = [{} for _ in batches] if orders is None else orders
        self._ends = np.cumsum([batch.num_rows for batch in batches], dtype=np.int64)
        self._begins = [0, *self._ends.tolist()]
        # pyarrow makes a new object each time that a column is asked for.
        self._columns: dict[int, dict[str, pa.Array]] = {}

    @property
    def num_rows(self) -> int:
        return int(self._ends[-1]) if self.batches else 0

    @property
    def nbytes(self) -> int:
        return sum(self._sizes) + sum(map(_nbytes_of, self._orders))

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches, self.schema)

    def place(self, row: int) -> tuple[dict[str, pa.Array], int]:
        """The columns of the batch of a row, by name, and its number there."""
        number = bisect_right(self._begins, row) - 1
        columns = self._columns.get(number)
        if columns is None:
            batch = self.batches[number]
            columns = self._columns[number] = dict(zip(batch.schema.names, batch.columns, strict=True))
        return columns, row - self._begins[number]

    def take(self, rows: Rows, columns: Sequence[str] | None = None) -> list[pa.Array]:
        """Some rows.

        Args:
            rows: Their numbers. -1 gives a row of nulls.
            columns: Which columns; None: all.

        Raises:
            StreamConfigError: Values of one column have 2 GiB or more.
        """
        names = self.schema.names if columns is None else columns
        kinds = [self.schema.field(name).type for name in names]
        missing = rows < 0
        masked = missing if missing.any() else None
        if not self.batches:
            return [pa.nulls(len(rows), kind) for kind in kinds]
        if len(self.batches) == 1:
            indices = pa.array(rows, mask=masked)
            return [_taken(self.batches[0].column(name), indices) for name in names]
        # pyarrow's take of a chunked array would copy all of its chunks into one.
        present = rows if masked is None else rows[~missing]
        number = self._ends.searchsorted(present, "right")
        # numpy sorts small integers much faster.
        order = np.argsort(number.astype(np.uint16) if len(self.batches) < 1 << 16 else number, kind="stable")
        ordered, number = present[order], number[order]
        cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(number)]
        parts: list[list[pa.Array]] = [[] for _ in names]
        for begin, end in pairwise(cuts):
            if begin == end:
                continue
            batch = self.batches[number[begin]]
            indices = pa.array(ordered[begin:end] - (int(self._ends[number[begin]]) - batch.num_rows))
            for part, name in zip(parts, names, strict=True):
                part.append(_taken(batch.column(name), indices))
        places = np.zeros(len(rows), np.int64)
        back = np.empty(len(present), np.int64)
        back[order] = np.arange(len(present))
        places[~missing] = back
        indices = pa.array(places, mask=masked)
        return [
            _taken(_joined(part) if part else pa.nulls(0, kind), indices)
            for part, kind in zip(parts, kinds, strict=True)
        ]

    def added(self, batches: Sequence[pa.RecordBatch]) -> RowChunks:
        """The rows with more rows appended. Small batches at the end are merged; row numbers stay."""
        all_batches, sizes, orders = list(self.batches), list(self._sizes), list(self._orders)
        for batch in filter(len, batches):
            all_batches.append(_own(batch))
            sizes.append(int(all_batches[-1].nbytes))
            orders.append({})
            while (count := _to_merge(all_batches, sizes)) > 1:
                all_batches[-count:] = [one_batch(all_batches[-count:])]
                sizes[-count:] = [int(all_batches[-1].nbytes)]
                orders[-count:] = [{}]
        return RowChunks(self.schema, all_batches, sizes, orders)

    def rows(self, wanted: RowRange) -> Rows:
        """The numbers of the rows in a range. The first look-up by some columns orders all rows by them."""
        orders = self.order(wanted.names)
        found = [order.rows(wanted) + begin for order, begin in zip(orders, self._begins, strict=False)]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def order(self, names: tuple[str, ...]) -> list[RowOrder]:
        """The order of each batch by some columns. An order is made once, and kept with its batch."""
        found = []
        for batch, known in zip(self.batches, self._orders, strict=True):
            order = known.get(names)
            if order is None:
                order = known[names] = RowOrder([batch.column(name) for name in names])
            found.append(order)
        return found

    def merged(self) -> RowChunks:
        groups: list[list[pa.RecordBatch]] = []
        size = _MOST_BYTES
        for batch, nbytes in zip(self.batches, self._sizes, strict=True):
            size += nbytes
            if size > _MOST_BYTES:
                groups.append([])
                size = nbytes
            groups[-1].append(batch)
        return RowChunks(self.schema, [one_batch(group) for group in groups])

    def without(self, dead: npt.NDArray[np.bool_]) -> RowChunks:
        """The rows without some of them. Later rows get other numbers."""
        batches = list(self.batches_without(dead))
        known = {id(batch): orders for batch, orders in zip(self.batches, self._orders, strict=True)}
        return RowChunks(self.schema, batches, orders=[known.get(id(batch), {}) for batch in batches])

    def batches_without(self, dead: npt.NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
        """The batches without some rows; no batch is empty."""
        begin = 0
        for batch in self.batches:
            gone = dead[begin : begin + batch.num_rows]
            begin += batch.num_rows
            left = batch.filter(pa.array(~gone)) if gone.any() else batch
            if left.num_rows:
                yield left

    def nbytes_shared(self, other: RowChunks) -> int:
        """Bytes of the batches that are also in `other`."""
        theirs = {id(batch) for batch in other.batches}
        return sum(
            nbytes + _nbytes_of(orders)
            for batch, nbytes, orders in zip(self.batches, self._sizes, self._orders, strict=True)
            if id(batch) in theirs
        )


def _nbytes_of(orders: Orders) -> int:
    # A reader may add one meanwhile.
    return sum(order.nbytes for order in tuple(orders.values()))


def _taken(column: pa.Array, indices: pa.Array) -> pa.Array:
    try:
        found = column.take(indices)
    except pa.ArrowInvalid as error:
        raise _too_large() from error
    if is_overflown(found):
        raise _too_large()
    return found


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    try:
        return pa.concat_arrays(parts)
    except pa.ArrowInvalid as error:
        raise _too_large() from error


def _too_large() -> StreamConfigError:
    return StreamConfigError(
        "The requested values of one column take 2 GiB or more, which an Arrow array cannot hold. Ask for fewer keys "
        "at once."
    )


def is_overflown(array: pa.Array) -> bool:
    """Whether the 32-bit offsets of an array have overflown, which pyarrow's `take` does not report."""
    kind = array.type
    if pa.types.is_struct(kind):
        return any(is_overflown(array.field(number)) for number in range(kind.num_fields))
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_list(kind) or pa.types.is_map(kind)):
        return False
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return False
    offsets = np.frombuffer(buffer, np.int32)[array.offset : array.offset + len(array) + 1]
    # Offsets become negative before they become positive again, unless one value has 2 GiB.
    if offsets.min() < 0:
        return True
    is_nested = pa.types.is_list(kind) or pa.types.is_map(kind)
    return is_nested and is_overflown(array.values if pa.types.is_list(kind) else array.items)


def _own(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch that does not keep a larger one in memory as its slice."""
    if batch.get_total_buffer_size() * 64 <= batch.nbytes * 65:
        return batch
    return batch.take(pa.array(np.arange(batch.num_rows)))


def _to_merge(batches: Sequence[pa.RecordBatch], sizes: Sequence[int]) -> int:
    """How many of the last batches to merge: batches of about one size, so that each row is copied rarely.

    Fewer than `_FAN` are merged if no more fit into one.
    """
    most = batches[-1].num_rows * _FAN
    count, size = 0, 0
    for batch, nbytes in zip(reversed(batches), reversed(sizes), strict=True):
        if size + nbytes > _MOST_BYTES:
            return count if count >= _FAN or size * 2 > _MOST_BYTES else 1
        if batch.num_rows > most:
            break
        size += nbytes
        count += 1
    return count if count >= _FAN else 1
