"""x"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.formats.binary_row import decode
from pypaimon.streaming.internals import DataField, GenericRow, GenericRowSerializer, PyarrowFieldParser

_ARITY_BYTES = 4
_COMPACT_DIGITS = 18


class StoredRow(tuple[Any, ...]):
    """Values of a row as a manifest holds it: whoever names it again does so by the same bytes, whoever made them.

    Attributes:
        row: It, serialised.
    """

    row: bytes

    def __new__(cls, values: Iterable[Any], row: bytes) -> StoredRow:
        """A tuple of the values.

        Args:
            values: They.
            row: The row, serialised.
        """
        made = super().__new__(cls, values)
        made.row = row
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredRow, (tuple(self), self.row)


def encoded_row(values: Sequence[Any], fields: Sequence[DataField]) -> bytes:
    """A row, with the number of its fields in front, as manifests hold it.

    pypaimon's serialiser gives decimals of more than 18 digits a byte too many where the first bit of the last one is
    taken, and nulls of those, and of moments finer than milliseconds, no place behind the row: of such columns the
    bytes are made here.

    Args:
        values: As Python has them; those of a `StoredRow` are as they are stored.
        fields: Their fields.

    Raises:
        ValueError: A row has no column of such a type.
    """
    if isinstance(values, StoredRow):
        return values.row
    if not any(_is_laid_out_otherwise(field) for field in fields):
        return _pypaimons(values, fields)
    kinds = (PyarrowFieldParser.from_paimon_type(field.type) for field in fields)
    return encoded_columns([pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)])[0]


def encoded_columns(columns: Sequence[pa.Array]) -> list[bytes]:
    """As `encoded_row`, of rows of which these are the columns, of the table's types; one at least."""
    made = [row_column(column) for column in columns]
    rows = [b""] * len(columns[0])
    arity = len(columns).to_bytes(_ARITY_BYTES, "big")
    for places in layouts(made):
        for place, data in zip(places, serialised(made, places), strict=True):
            rows[place] = arity + data.tobytes()
    return rows


def all_forms(rows: Iterable[bytes], fields: Sequence[DataField]) -> set[bytes]:
    """Rows, and the bytes of the same values that Java and pypaimon have for them.

    Args:
        rows: Serialised rows.
        fields: Their fields.
    """
    found = set(rows)
    if any(_is_laid_out_otherwise(field) for field in fields):
        for row in tuple(found):
            values = decode(row, fields)
            forms = {encoded_row(values, fields), _pypaimons(values, fields)}
            # A row that is none of them has nanoseconds, which Python's values have not.
            found |= forms if row in forms else set()
    return found


def plain_row(row: bytes, fields: Sequence[DataField]) -> bytes:
    """The one form of all rows with the same values, down to microseconds.

    Args:
        row: A serialised row.
        fields: Its fields.
    """
    return encoded_row(decode(row, fields), fields) if any(map(_is_laid_out_otherwise, fields)) else row


def _pypaimons(values: Sequence[Any], fields: Sequence[DataField]) -> bytes:
    return bytes(GenericRowSerializer.to_bytes(GenericRow(list(values), list(fields))))


def _is_laid_out_otherwise(field: DataField) -> bool:
    kind = PyarrowFieldParser.from_paimon_type(field.type)
    if pa.types.is_decimal(kind):
        return bool(kind.precision > _COMPACT_DIGITS)
    return bool(pa.types.is_timestamp(kind) and kind.unit in ("us", "ns"))


def layouts(columns: Sequence[RowColumn]) -> Iterator[Longs]:
    """Rows of which each column takes as many words, so that they are serialised together."""
    count = len(columns[0].null)
    same = np.zeros(count, dtype=np.int64)
    for column in columns:
        # One number for the sizes of all columns so far; numbered anew each time, so that it stays small.
        _, same = np.unique(same * (column.sizes.max(initial=0) + 1) + column.sizes, return_inverse=True)
    order = np.argsort(same, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(same[order])) + 1) if count else ()


def serialised(columns: Sequence[RowColumn], rows: Longs) -> npt.NDArray[np.uint8]:
    """Rows of one layout: header and null bits, a slot of eight bytes per field, then what does not fit in there."""
    sizes = [int(column.sizes[rows[0]]) for column in columns]
    # Eight bits of header and a null bit per field, in whole words of eight bytes.
    header = (len(columns) + 63 + 8) // 64 * 8
    offset = header + 8 * len(columns)
    data = np.zeros((len(rows), offset + sum(sizes)), dtype=np.uint8)
    for index, (column, size) in enumerate(zip(columns, sizes, strict=True)):
        # A bit that is set says null.
        data[column.null[rows], (index + 8) // 8] |= np.uint8(1 << (index + 8) % 8)
        data[:, header + 8 * index : header + 8 * index + 8] = column.slots(rows, offset)
        if size:
            data[:, offset : offset + size] = column.behind(rows, size)
            offset += size
    return data


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
