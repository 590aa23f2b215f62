"""Decodes Paimon's serialised `BinaryRow`s in bulk: an Arrow array per field, no object per row.

A serialised row is its arity (4 bytes, big-endian), then the row itself, little-endian: a header byte and one null bit
per field, padded to 8 bytes; one slot of 8 bytes per field; the variable part. A slot holds the value or its offset.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.paimon.internals import DataField, GenericRow

_ARITY_SIZE = 4
_HEADER_BITS = 8
# Up to these precisions Java stores decimals and timestamps as a number in the slot.
_MAX_COMPACT_DECIMAL = 18
_MAX_COMPACT_TIMESTAMP = 3
_NANOS_FROM = 7
_TYPE = re.compile(r"(?P<name>\w+)(\s*\(\s*(?P<first>\d+)\s*(,\s*(?P<second>\d+)\s*)?\))?(?P<rest>.*)")

_FIXED: dict[str, tuple[str, pa.DataType]] = {
    "BOOLEAN": ("u1", pa.bool_()),
    "TINYINT": ("<i1", pa.int8()),
    "SMALLINT": ("<i2", pa.int16()),
    "INT": ("<i4", pa.int32()),
    "INTEGER": ("<i4", pa.int32()),
    "BIGINT": ("<i8", pa.int64()),
    "FLOAT": ("<f4", pa.float32()),
    "DOUBLE": ("<f8", pa.float64()),
    "DATE": ("<i4", pa.date32()),
    "TIME": ("<i4", pa.time32("ms")),
}
_VARIABLE: dict[str, pa.DataType] = {
    "CHAR": pa.string(),
    "VARCHAR": pa.string(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "BYTES": pa.binary(),
}
_EXACT = Context(prec=100)
_Longs = npt.NDArray[np.int64]


def decode_column(rows: pa.Array | pa.ChunkedArray, index: int, data_type: object) -> pa.Array:
    """Decode one field of many rows. A row that is null itself gives null. Rows may differ in arity.

    Args:
        data_type: Type of the field; `str()` of it must be Paimon's SQL text, such as `DECIMAL(10, 2) NOT NULL`.

    Returns:
        Timestamps are in microseconds up to precision 6, otherwise in nanoseconds; those with local time zone are in
        UTC. TIME is in milliseconds.

    Raises:
        ValueError: A row is cut off or lacks the field.
        OverflowError: A timestamp of precision 7 to 9 does not fit 64 bits of nanoseconds (years 1677 to 2262).
        TypeError: The type is not supported (nested types, VARIANT).
    """
    parsed = _TYPE.fullmatch(str(data_type).strip().upper())
    name = parsed["name"] if parsed else str(data_type)
    fields = _Slots.of(rows, index)
    if name in _FIXED:
        dtype, arrow_type = _FIXED[name]
        return fields.array(fields.fixed(dtype), arrow_type)
    if name in _VARIABLE:
        return fields.variable(_VARIABLE[name])
    if parsed and name in ("DECIMAL", "NUMERIC"):
        return _decimals(fields, int(parsed["first"] or 10), int(parsed["second"] or 0))
    if parsed and name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        zone = "UTC" if name == "TIMESTAMP_LTZ" or "LOCAL TIME ZONE" in parsed["rest"] else None
        return _timestamps(fields, int(parsed["first"] or 6), zone)
    raise TypeError(f"serialised rows of type {data_type} are not supported")


def decode_rows(rows: pa.Array | pa.ChunkedArray, fields: Sequence[DataField]) -> list[GenericRow]:
    """Decode rows to pypaimon's row objects; equal rows share one object.

    A TIMESTAMP is a `datetime` without zone (nanoseconds are cut off), a TIMESTAMP_LTZ one in UTC. Raises ValueError if
    a row is cut off or has fewer fields, TypeError if the type of a field is not supported.
    """
    if isinstance(rows, pa.ChunkedArray):
        rows = rows.combine_chunks()
    if not fields:
        return rows_of([], fields, len(rows))
    encoded = rows.dictionary_encode()
    distinct = rows_of(decode_columns(encoded.dictionary, fields), fields, len(encoded.dictionary))
    return [distinct[index] for index in encoded.indices.to_pylist()]


def decode_columns(rows: pa.Array | pa.ChunkedArray, fields: Sequence[DataField]) -> list[pa.Array]:
    """Decode the fields of many rows, for `rows_of`; errors as `decode_rows`."""
    return [_python_column(decode_column(rows, index, field.type)) for index, field in enumerate(fields)]


def rows_of(columns: Sequence[pa.Array], fields: Sequence[DataField], count: int) -> list[GenericRow]:
    """Row objects of decoded columns; without fields all rows are one empty object."""
    if not fields:
        return [GenericRow([], [])] * count
    shared_fields = list(fields)
    values = zip(*(column.to_pylist() for column in columns), strict=True)
    return [GenericRow(list(each), shared_fields) for each in values]


def decode(row: bytes, fields: Sequence[DataField]) -> tuple[Any, ...]:
    """Decode one row; errors as `decode_rows`."""
    return tuple(decode_rows(pa.array([row], pa.binary()), fields)[0].values)


def _python_column(column: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(column.type):
        return column
    return pc.floor_temporal(column, unit="microsecond").cast(pa.timestamp("us", column.type.tz))


@dataclass(frozen=True, slots=True)
class _Slots:
    """The slots of one field in many rows.

    `rows`, `ends` and `slots` are positions in `data`, only of rows whose field is `present` (not null).
    """

    data: npt.NDArray[np.uint8]
    present: npt.NDArray[np.bool_]
    rows: _Longs
    ends: _Longs
    slots: _Longs

    @classmethod
    def of(cls, array: pa.Array | pa.ChunkedArray, index: int) -> _Slots:
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        present = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
        # The array may be a slice: its offsets are cut here, and point into all of its data.
        binary = array.cast(pa.large_binary())
        _, offset_buffer, data_buffer = binary.buffers()
        data = np.frombuffer(data_buffer or b"", dtype=np.uint8)
        offsets = np.frombuffer(offset_buffer or bytes(8), dtype=np.int64)[binary.offset :][: len(binary) + 1]
        starts, ends = offsets[:-1][present], offsets[1:][present]
        if np.any(ends - starts < _ARITY_SIZE):
            raise ValueError("a serialised row is cut off")
        arity = _gather(data, starts, ">i4").astype(np.int64)
        if np.any((arity <= index) | (arity < 0)):
            raise ValueError(f"a serialised row has no field {index}")
        rows = starts + _ARITY_SIZE
        # Header and null bits take whole words of 8 bytes, as many as the arity of the row needs.
        slots = rows + (arity + 63 + _HEADER_BITS) // 64 * 8 + 8 * index
        if np.any(slots + 8 > ends):
            raise ValueError("a serialised row is cut off")
        bit = index + _HEADER_BITS
        # A set bit means null. `filled` has one entry per row that is not null itself; the assignment keeps the rows
        # whose field is not null either in `present`.
        filled = data[rows + bit // 8] & (1 << bit % 8) == 0
        present[present] = filled
        return cls(data, present, rows[filled], ends[filled], slots[filled])

    def fixed(self, dtype: str) -> npt.NDArray[Any]:
        return _gather(self.data, self.slots, dtype)

    def array(self, values: npt.NDArray[Any], arrow_type: pa.DataType) -> pa.Array:
        spread = np.zeros(len(self.present), dtype=values.dtype)
        spread[self.present] = values
        mask = ~self.present
        if pa.types.is_boolean(arrow_type):
            return pa.array(spread != 0, mask=mask)
        # Dates and times are stored as integers of the same width, so a view is enough.
        bits = {1: pa.int8(), 2: pa.int16(), 4: pa.int32(), 8: pa.int64()}[values.dtype.itemsize]
        if pa.types.is_floating(arrow_type):
            return pa.array(spread, arrow_type, mask=mask)
        return pa.array(spread, bits, mask=mask).view(arrow_type)

    def pieces(self) -> tuple[_Longs, _Longs]:
        """Start and length of every value, inline in its slot (up to 7 bytes) or in the variable part."""
        slot = self.fixed("<i8")
        # The highest bit marks inline values: the last byte of the slot is 0x80 and the length, the value is before it.
        # Otherwise the upper half is the offset from the start of the row, the lower half the length.
        inline = slot < 0
        lengths = np.where(inline, slot >> 56 & 0x7F, slot & 0xFFFFFFFF)
        starts = np.where(inline, self.slots, self.rows + (slot >> 32))
        if np.any(starts + lengths > self.ends):
            raise ValueError("a serialised row is cut off")
        return starts, lengths

    def variable(self, arrow_type: pa.DataType) -> pa.Array:
        starts, lengths = self.pieces()
        ends = np.cumsum(lengths)
        # The position in `data` of each byte of the result: running numbers, shifted for each value by the distance
        # from its start in the result to its start in `data`.
        source = np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
        # Arrow's offsets are running totals of the sizes, in which nulls take no bytes.
        sizes = np.zeros(len(self.present) + 1, dtype=np.int64)
        sizes[1:][self.present] = lengths
        buffers = [
            pa.py_buffer(np.packbits(self.present, bitorder="little")),
            pa.py_buffer(np.cumsum(sizes).astype(np.int32)),
            pa.py_buffer(self.data[source]),
        ]
        array = pa.Array.from_buffers(arrow_type, len(self.present), buffers)
        array.validate(full=True)
        return array


def _gather(data: npt.NDArray[np.uint8], positions: _Longs, dtype: str) -> npt.NDArray[Any]:
    width = np.dtype(dtype).itemsize
    # A row of `width` bytes for each position, then seen as numbers; positions need not be aligned.
    gathered: npt.NDArray[Any] = data[positions[:, None] + np.arange(width)].reshape(-1).view(dtype)
    return gathered


def _decimals(fields: _Slots, precision: int, scale: int) -> pa.Array:
    arrow_type = pa.decimal128(precision, scale)
    if precision > _MAX_COMPACT_DECIMAL:
        unscaled = (None if raw is None else int.from_bytes(raw, "big", signed=True) for raw in _big_integers(fields))
        values = [None if value is None else Decimal(value).scaleb(-scale, _EXACT) for value in unscaled]
        return pa.array(values, arrow_type)
    spread = np.zeros((len(fields.present), 2), dtype="<i8")
    spread[fields.present, 0] = fields.fixed("<i8")
    # Arrow's decimals are two words of 64 bits, the lower one first: the upper one repeats the sign.
    spread[:, 1] = spread[:, 0] >> 63
    validity = pa.py_buffer(np.packbits(fields.present, bitorder="little"))
    return pa.Array.from_buffers(arrow_type, len(spread), [validity, pa.py_buffer(spread)])


def _big_integers(fields: _Slots) -> list[bytes | None]:
    raw: list[bytes | None] = fields.variable(pa.binary()).to_pylist()
    return raw


def _timestamps(fields: _Slots, precision: int, zone: str | None) -> pa.Array:
    slot = fields.fixed("<i8")
    if precision <= _MAX_COMPACT_TIMESTAMP:
        millis, nanos = slot, np.zeros_like(slot)
    else:
        # Upper half: offset of the milliseconds in the variable part; lower half: nanoseconds beyond them.
        positions = fields.rows + (slot >> 32)
        if np.any((slot < 0) | (positions + 8 > fields.ends)):
            raise ValueError("a serialised row is cut off")
        millis, nanos = _gather(fields.data, positions, "<i8"), slot & 0xFFFFFFFF
    if precision < _NANOS_FROM:
        return fields.array(millis * 1000 + nanos // 1000, pa.timestamp("us", zone))
    if np.any(np.abs(millis) > np.iinfo(np.int64).max // 1_000_000 - 1):
        raise OverflowError("a timestamp is outside of the years 1677 to 2262, which nanoseconds in 64 bits can hold")
    return fields.array(millis * 1_000_000 + nanos, pa.timestamp("ns", zone))
