"""`row_column`: a column as Java's `BinaryRow` has it: eight bytes in each row, and what lies behind.

The slots (those bytes) of values that lie behind all slots hold where they begin in the row (upper half) and their
length (lower half).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_INLINE = 7
_COMPACT_DIGITS = 18
_DECIMAL_BYTES, _MOMENT_BYTES = 16, 8
_PER_MILLISECOND = {"us": 1_000, "ns": 1_000_000}


class RowColumn(Protocol):
    """One column.

    Attributes:
        null: Which values are null.
        sizes: How many bytes each row has behind its slots for this column, in whole words.
    """

    null: npt.NDArray[np.bool_]
    sizes: Longs

    def slots(self, rows: Longs, offset: int) -> Bytes:
        """The slots of rows, as rows of bytes.

        Args:
            rows: They, which have as many bytes behind the slots.
            offset: Where those begin in the row.
        """

    def behind(self, rows: Longs, size: int) -> Bytes:
        """What lies behind the slots of these rows."""


def row_column(column: pa.Array) -> RowColumn:
    """A column of keys or partitions.

    Args:
        column: Its values, of the table's type.

    Raises:
        ValueError: No key has a column of this type.
    """
    kind, types = column.type, pa.types
    if types.is_decimal(kind):
        return _Fixed(column, _unscaled(column)[:, :8]) if kind.precision <= _COMPACT_DIGITS else _WideDecimals(column)
    if types.is_timestamp(kind):
        if kind.unit in _PER_MILLISECOND:
            return _FineMoments(column)
        column = column.cast(pa.timestamp("ms", kind.tz)).cast(pa.int64())
    elif types.is_date(kind):
        column = column.cast(pa.int32())
    elif types.is_time(kind):
        column = column.cast(pa.time32("ms")).cast(pa.int32())
    elif types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not (types.is_integer(kind) or types.is_floating(kind)):
        if types.is_nested(kind):
            raise ValueError(f"no key has columns of type {kind}")
        return _Texts(column)
    numbers = np.ascontiguousarray(pc.fill_null(column, 0).to_numpy(zero_copy_only=False))
    # The bytes behind the value are zero, also for negative numbers.
    unsigned = numbers.view(f"<u{numbers.itemsize}").astype("<u8")
    return _Fixed(column, unsigned.view(np.uint8).reshape(-1, 8))


class _Fixed:
    """Values that lie in their slots."""

    def __init__(self, column: pa.Array, slots: Bytes) -> None:
        self.null = column.is_null().to_numpy(zero_copy_only=False)
        self.sizes = np.zeros(len(column), np.int64)
        self._slots = np.where(self.null[:, None], np.uint8(0), slots)

    def slots(self, rows: Longs, offset: int) -> Bytes:
        found: Bytes = self._slots[rows]
        return found

    def behind(self, rows: Longs, size: int) -> Bytes:
        return np.zeros((len(rows), size), np.uint8)


class _Texts:
    """Texts and bytes: short ones lie in the slot, whose last byte is 0x80 and their length."""

    def __init__(self, column: pa.Array) -> None:
        binary = pc.fill_null(column.cast(pa.large_binary()), b"")
        _, offsets, data = binary.buffers()
        starts = np.frombuffer(offsets, dtype=np.int64)[binary.offset : binary.offset + len(binary) + 1]
        self.null = column.is_null().to_numpy(zero_copy_only=False)
        self._bytes = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, np.uint8)
        self._starts: Longs = starts[:-1]
        self._lengths: Longs = np.diff(starts)
        self.sizes = np.where(self._lengths > _INLINE, (self._lengths + 7) // 8 * 8, 0)

    def slots(self, rows: Longs, offset: int) -> Bytes:
        lengths = self._lengths[rows]
        if self.sizes[rows[0]]:
            return _places(offset, lengths)
        inline = np.where(self.null[rows], 0, lengths | 0x80).astype(np.uint8)
        return np.concatenate([self.behind(rows, _INLINE), inline[:, None]], axis=1)

    def behind(self, rows: Longs, size: int) -> Bytes:
        # A matrix with a row of `size` bytes for each text; `inside` marks the bytes that the text has.
        offsets = np.arange(size)
        inside = offsets < self._lengths[rows][:, None]
        result = np.zeros((len(rows), size), dtype=np.uint8)
        result[inside] = self._bytes[(self._starts[rows][:, None] + offsets)[inside]]
        return result


class _WideDecimals:
    """Decimals of more than 18 digits: their fewest bytes, highest first, in sixteen, which a null has too."""

    def __init__(self, column: pa.Array) -> None:
        self.null = column.is_null().to_numpy(zero_copy_only=False)
        self.sizes = np.full(len(column), _DECIMAL_BYTES)
        highest_first = np.where(self.null[:, None], np.uint8(0), _unscaled(column)[:, ::-1])
        negative = highest_first[:, 0] >> 7
        differs = highest_first != (negative * np.uint8(0xFF))[:, None]
        first = np.where(differs.any(axis=1), differs.argmax(axis=1), _DECIMAL_BYTES - 1)
        # The highest bit that is kept is the sign.
        sign = highest_first[np.arange(len(first)), first] >> 7
        first = first - (sign != negative)
        self._lengths = np.where(self.null, 0, _DECIMAL_BYTES - first)
        place = first[:, None] + np.arange(_DECIMAL_BYTES)
        inside = place < _DECIMAL_BYTES
        shifted = np.take_along_axis(highest_first, np.where(inside, place, 0), axis=1)
        self._behind = np.where(inside, shifted, np.uint8(0))

    def slots(self, rows: Longs, offset: int) -> Bytes:
        return _places(offset, self._lengths[rows])

    def behind(self, rows: Longs, size: int) -> Bytes:
        found: Bytes = self._behind[rows]
        return found


class _FineMoments:
    """Moments finer than milliseconds: these in the slot's lower half, milliseconds behind, which a null has too."""

    def __init__(self, column: pa.Array) -> None:
        self.null = column.is_null().to_numpy(zero_copy_only=False)
        self.sizes = np.full(len(column), _MOMENT_BYTES)
        per = _PER_MILLISECOND[column.type.unit]
        ticks = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
        self._millis = np.floor_divide(ticks, per)
        self._nanos = np.mod(ticks, per) * (1_000_000 // per)

    def slots(self, rows: Longs, offset: int) -> Bytes:
        return _places(offset, self._nanos[rows])

    def behind(self, rows: Longs, size: int) -> Bytes:
        found: Bytes = self._millis[rows].astype("<i8").view(np.uint8).reshape(-1, _MOMENT_BYTES)
        return found


def _places(offset: int, lower: Longs) -> Bytes:
    return ((offset << 32) | lower).astype("<u8").view(np.uint8).reshape(-1, 8)


def _unscaled(column: pa.Array) -> Bytes:
    """The numbers of decimals without their point, sixteen bytes each, lowest first."""
    data = column.cast(pa.decimal128(column.type.precision, column.type.scale)).buffers()[1]
    numbers: Bytes = np.frombuffer(data, np.uint8).reshape(-1, _DECIMAL_BYTES)
    found: Bytes = numbers[column.offset : column.offset + len(column)]
    return found
