"""Encodes rows of partitions and keys in the bytes of Java's `BinaryRow`, by which Java distinguishes partitions.

A row has a slot of eight bytes for each column, then a variable part. The slot of a value in the variable part holds
its offset in the row (upper half) and its length (lower half).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.formats.binary_row import decode
from pypaimon.streaming.paimon.internals import DataField, GenericRow, GenericRowSerializer, PyarrowFieldParser

_ARITY_BYTES = 4
_COMPACT_DIGITS = 18
Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
_INLINE = 7
_DECIMAL_BYTES, _TIMESTAMP_BYTES = 16, 8
_PER_MILLISECOND = {"us": 1_000, "ns": 1_000_000}


class StoredRow(tuple[Any, ...]):
    """The values of a manifest row, with its bytes: Java and pypaimon may serialise the same values differently."""

    row: bytes

    def __new__(cls, values: Iterable[Any], row: bytes) -> StoredRow:
        made = super().__new__(cls, values)
        made.row = row
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredRow, (tuple(self), self.row)


def encoded_row(values: Sequence[Any], fields: Sequence[DataField]) -> bytes:
    """Serialise a row for a manifest, after the number of its fields.

    pypaimon's serialiser differs from Java for two types, which are encoded here: decimals of more than 18 digits get a
    byte too many if their highest bit is set, and their nulls, as those of timestamps finer than milliseconds, get no
    bytes in the variable part. Raises ValueError if rows cannot have a column of such a type.

    Args:
        values: Python's values; a `StoredRow` keeps its bytes.
    """
    if isinstance(values, StoredRow):
        return values.row
    if not any(_is_laid_out_otherwise(field) for field in fields):
        return _pypaimons(values, fields)
    kinds = (PyarrowFieldParser.from_paimon_type(field.type) for field in fields)
    return encoded_columns([pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)])[0]


def encoded_columns(columns: Sequence[pa.Array]) -> list[bytes]:
    """As `encoded_row`, for many rows, given as at least one column of the table's types."""
    made = [row_column(column) for column in columns]
    rows = [b""] * len(columns[0])
    arity = len(columns).to_bytes(_ARITY_BYTES, "big")
    for places in layouts(made):
        for place, data in zip(places, serialised(made, places), strict=True):
            rows[place] = arity + data.tobytes()
    return rows


def all_forms(rows: Iterable[bytes], fields: Sequence[DataField]) -> set[bytes]:
    """The rows, and the other bytes that Java or pypaimon have for the same values."""
    found = set(rows)
    if any(_is_laid_out_otherwise(field) for field in fields):
        for row in tuple(found):
            values = decode(row, fields)
            forms = {encoded_row(values, fields), _pypaimons(values, fields)}
            # A row with nanoseconds differs from both, because Python's values lack them.
            found |= forms if row in forms else set()
    return found


def plain_row(row: bytes, fields: Sequence[DataField]) -> bytes:
    """A form that is the same for all rows with the same values, down to microseconds."""
    return encoded_row(decode(row, fields), fields) if any(map(_is_laid_out_otherwise, fields)) else row


def _pypaimons(values: Sequence[Any], fields: Sequence[DataField]) -> bytes:
    return bytes(GenericRowSerializer.to_bytes(GenericRow(list(values), list(fields))))


def _is_laid_out_otherwise(field: DataField) -> bool:
    kind = PyarrowFieldParser.from_paimon_type(field.type)
    if pa.types.is_decimal(kind):
        return bool(kind.precision > _COMPACT_DIGITS)
    return bool(pa.types.is_timestamp(kind) and kind.unit in ("us", "ns"))


def layouts(columns: Sequence[RowColumn]) -> Iterator[Longs]:
    """Groups of rows with the same size in each column, which are serialised together."""
    count = len(columns[0].null)
    same = np.zeros(count, dtype=np.int64)
    for column in columns:
        # One number for the sizes of all columns so far, renumbered each time so that it stays small.
        _, same = np.unique(same * (column.sizes.max(initial=0) + 1) + column.sizes, return_inverse=True)
    order = np.argsort(same, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(same[order])) + 1) if count else ()


def serialised(columns: Sequence[RowColumn], rows: Longs) -> npt.NDArray[np.uint8]:
    """Serialise rows of one layout: header and null bits, a slot of eight bytes per field, the variable part."""
    sizes = [int(column.sizes[rows[0]]) for column in columns]
    # Eight bits of header and a null bit per field, in whole words of eight bytes.
    header = (len(columns) + 63 + 8) // 64 * 8
    offset = header + 8 * len(columns)
    data = np.zeros((len(rows), offset + sum(sizes)), dtype=np.uint8)
    for index, (column, size) in enumerate(zip(columns, sizes, strict=True)):
        # A set bit means null.
        data[column.null[rows], (index + 8) // 8] |= np.uint8(1 << (index + 8) % 8)
        data[:, header + 8 * index : header + 8 * index + 8] = column.slots(rows, offset)
        if size:
            data[:, offset : offset + size] = column.tail(rows, size)
            offset += size
    return data


class RowColumn(Protocol):
    """One column."""

    null: npt.NDArray[np.bool_]
    sizes: Longs  # Bytes of each row in the variable part for this column, in whole words

    def slots(self, rows: Longs, offset: int) -> Bytes:
        """The slots of rows with equal `sizes`, whose bytes in the variable part begin at `offset`."""

    def tail(self, rows: Longs, size: int) -> Bytes:
        """The bytes of these rows in the variable part, `size` for each."""


def row_column(column: pa.Array) -> RowColumn:
    """Encode a column of keys or partitions, of the table's type. Raises ValueError if keys cannot have columns of this
    type.
    """
    kind, types = column.type, pa.types
    if types.is_decimal(kind):
        return _Fixed(column, _unscaled(column)[:, :8]) if kind.precision <= _COMPACT_DIGITS else _WideDecimals(column)
    if types.is_timestamp(kind):
        if kind.unit in _PER_MILLISECOND:
            return _FineTimestamps(column)
        column = column.cast(pa.timestamp("ms", kind.tz)).cast(pa.int64())
    elif types.is_date(kind):
        column = column.cast(pa.int32())
    elif types.is_time(kind):
        column = column.cast(pa.time32("ms")).cast(pa.int32())
    elif types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not (types.is_integer(kind) or types.is_floating(kind)):
        if types.is_nested(kind):
            raise ValueError(f"keys cannot have columns of type {kind}")
        return _Texts(column)
    numbers = np.ascontiguousarray(pc.fill_null(column, 0).to_numpy(zero_copy_only=False))
    # The bytes after the value are zero, also for negative numbers.
    unsigned = numbers.view(f"<u{numbers.itemsize}").astype("<u8")
    return _Fixed(column, unsigned.view(np.uint8).reshape(-1, 8))


class _Fixed:
    """Values that fit into their slots."""

    def __init__(self, column: pa.Array, slots: Bytes) -> None:
        self.null = column.is_null().to_numpy(zero_copy_only=False)
        self.sizes = np.zeros(len(column), np.int64)
        self._slots = np.where(self.null[:, None], np.uint8(0), slots)

    def slots(self, rows: Longs, offset: int) -> Bytes:
        found: Bytes = self._slots[rows]
        return found

    def tail(self, rows: Longs, size: int) -> Bytes:
        return np.zeros((len(rows), size), np.uint8)


class _Texts:
    """Texts and bytes: short ones are in the slot, whose last byte is 0x80 and their length."""

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
        return np.concatenate([self.tail(rows, _INLINE), inline[:, None]], axis=1)

    def tail(self, rows: Longs, size: int) -> Bytes:
        # A matrix with a row of `size` bytes for each text; `inside` marks the bytes of the text.
        offsets = np.arange(size)
        inside = offsets < self._lengths[rows][:, None]
        result = np.zeros((len(rows), size), dtype=np.uint8)
        result[inside] = self._bytes[(self._starts[rows][:, None] + offsets)[inside]]
        return result


class _WideDecimals:
    """Decimals of more than 18 digits: the fewest bytes, highest first, padded to sixteen; nulls have these too."""

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
        self._tail = np.where(inside, shifted, np.uint8(0))

    def slots(self, rows: Longs, offset: int) -> Bytes:
        return _places(offset, self._lengths[rows])

    def tail(self, rows: Longs, size: int) -> Bytes:
        found: Bytes = self._tail[rows]
        return found


class _FineTimestamps:
    """Timestamps with nanoseconds of a millisecond in the slot and milliseconds as its tail, which nulls have too."""

    def __init__(self, column: pa.Array) -> None:
        self.null = column.is_null().to_numpy(zero_copy_only=False)
        self.sizes = np.full(len(column), _TIMESTAMP_BYTES)
        per = _PER_MILLISECOND[column.type.unit]
        ticks = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
        self._millis = np.floor_divide(ticks, per)
        self._nanos = np.mod(ticks, per) * (1_000_000 // per)

    def slots(self, rows: Longs, offset: int) -> Bytes:
        return _places(offset, self._nanos[rows])

    def tail(self, rows: Longs, size: int) -> Bytes:
        found: Bytes = self._millis[rows].astype("<i8").view(np.uint8).reshape(-1, _TIMESTAMP_BYTES)
        return found


def _places(offset: int, lower: Longs) -> Bytes:
    return ((offset << 32) | lower).astype("<u8").view(np.uint8).reshape(-1, 8)


def _unscaled(column: pa.Array) -> Bytes:
    """The unscaled numbers of decimals, sixteen bytes each, lowest first."""
    data = column.cast(pa.decimal128(column.type.precision, column.type.scale)).buffers()[1]
    numbers: Bytes = np.frombuffer(data, np.uint8).reshape(-1, _DECIMAL_BYTES)
    found: Bytes = numbers[column.offset : column.offset + len(column)]
    return found
