"""Footers of Parquet files, changed so that Arrow reads columns that it would refuse or falsify; INT96 timestamps.

Java's rules: docs/java-semantics.md#files.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats.codecs import varint

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
"""Numbers of the types."""

Struct: TypeAlias = dict[int, tuple[int, Any]]
"""Type and value by field number. A list is the type of its items and the items; a map is its types and pairs."""

_SIZES = {BYTE: 1, DOUBLE: 8, UUID: 16}
_INTEGERS = (I16, I32, I64)
# The header of a list has four bits for its size; 15 says that the size follows.
_LONGEST_SHORT_LIST = 14
_MOST_SHIFT = 63


def decode_struct(data: bytes, position: int = 0) -> tuple[Struct, int]:
    """Decode a struct; returns it and the position after it. Raises ValueError if it is damaged."""
    reader = _Reader(data, position)
    try:
        return reader.struct(), reader.position
    except (IndexError, RecursionError) as error:
        raise ValueError("a Thrift struct is cut off, or nested too deeply") from error


def encode_struct(fields: Struct) -> bytes:
    out = bytearray()
    _write_struct(out, fields)
    return bytes(out)


class _Reader:
    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self.position = position

    def struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while header := self._byte():
            # The upper half is the difference from the number before; 0: the number follows.
            delta, kind = header >> 4, header & 15
            number = number + delta if delta else _signed(self._varint())
            fields[number] = kind, kind == TRUE if kind in (TRUE, FALSE) else self._value(kind)
        return fields

    def _value(self, kind: int) -> Any:
        if kind in _INTEGERS:
            return _signed(self._varint())
        if kind == BINARY:
            return self._bytes(self._varint())
        if kind == STRUCT:
            return self.struct()
        if kind in (LIST, SET):
            return self._list()
        if kind == MAP:
            return self._map()
        if kind in (TRUE, FALSE):  # inside of a list
            return self._byte()
        if kind in _SIZES:
            return self._bytes(_SIZES[kind])
        raise ValueError(f"unknown Thrift type {kind}")

    def _list(self) -> tuple[int, list[Any]]:
        header = self._byte()
        size, kind = header >> 4, header & 15
        if size > _LONGEST_SHORT_LIST:
            size = self._varint()
        return kind, [self._value(kind) for _ in range(self._checked(size))]

    def _map(self) -> tuple[int, list[tuple[Any, Any]]]:
        size = self._checked(self._varint())
        kinds = self._byte() if size else 0
        return kinds, [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(size)]

    def _checked(self, size: int) -> int:
        # Every item takes at least one byte.
        if size > len(self._data) - self.position:
            raise ValueError("a Thrift list is longer than its struct")
        return size

    def _byte(self) -> int:
        byte = self._data[self.position]
        self.position += 1
        return byte

    def _bytes(self, size: int) -> bytes:
        start = self.position
        self.position += self._checked(size)
        return self._data[start : self.position]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) > 0x7F:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > _MOST_SHIFT:
                raise ValueError("a Thrift number is longer than 64 bits")
        return value | byte << shift


def _signed(value: int) -> int:
    """Zigzag: signed numbers alternate around 0, so that small ones stay short."""
    return (value >> 1) ^ -(value & 1)


def _write_struct(out: bytearray, fields: Struct) -> None:
    last = 0
    for number, (kind, value) in sorted(fields.items()):
        delta = number - last
        if 0 < delta < 16:
            out.append(delta << 4 | kind)
        else:
            out.append(kind)
            out += varint(_unsigned(number))
        last = number
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in _INTEGERS:
        out += varint(_unsigned(value))
    elif kind == BINARY:
        out += varint(len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        item_kind, items = value
        short = len(items) <= _LONGEST_SHORT_LIST
        out.append((len(items) if short else 15) << 4 | item_kind)
        if not short:
            out += varint(len(items))
        for item in items:
            _write_value(out, item_kind, item)
    elif kind == MAP:
        kinds, pairs = value
        out += varint(len(pairs))
        if pairs:
            out.append(kinds)
        for key, item in pairs:
            _write_value(out, kinds >> 4, key)
            _write_value(out, kinds & 15, item)
    elif kind in (TRUE, FALSE):
        out.append(value)
    else:
        out += value


def _unsigned(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


_MAGIC = b"PAR1"
_END_SIZE = 8
_ARROW_SCHEMA = b"ARROW:schema"
# Fields of `FileMetaData` in Parquet's `parquet.thrift`.
_SCHEMA, _ROW_GROUPS, _KEY_VALUES = 2, 4, 5
# Of `SchemaElement`.
_TYPE, _TYPE_LENGTH, _NAME, _CHILDREN, _CONVERTED_TYPE, _LOGICAL_TYPE = 1, 2, 4, 5, 6, 10
# Of `LogicalType` and `TimestampType`.
_TIMESTAMP, _IS_UTC, _UNIT = 8, 1, 2
# Of `RowGroup`, `ColumnChunk`, `ColumnMetaData` and `KeyValue`.
_COLUMNS, _META_DATA, _CHUNK_TYPE, _KEY, _VALUE = 1, 3, 1, 1, 2
# Of `PageHeader`, and of `DataPageHeaderV2`.
_COMPRESSED_SIZE, _DATA_PAGE_V2 = 3, 8
_DEFINITION_LEVELS, _REPETITION_LEVELS, _IS_COMPRESSED = 5, 6, 7
_INT96, _FIXED_LEN_BYTE_ARRAY, _INT96_SIZE = 3, 7, 12
# Unit in `TimestampType`, and number in `ConvertedType`.
_UNITS = {"s": (1, 9), "ms": (1, 9), "us": (2, 10)}
_LAST_LOGICAL_TYPE = 15
"""FLOAT16. All supported releases of pyarrow know the logical types up to it."""
BEYOND_NANOSECONDS = (
    "a timestamp of precision 7 to 9 is before 1677 or after 2262, beyond Arrow's nanoseconds: read without the "
    "column, or alter its type to TIMESTAMP(6)"
)
_PARTS = np.dtype([("nanos", "<i8"), ("day", "<i4")])
_EPOCH = 2_440_588
"""Julian day of 1970-01-01."""
_PER_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6}
_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3}
_MOST = (1 << 63) - 1
_DAYS_OF_NANOS = 106_752
"""Days that 64 bits of nanoseconds add at most."""


def as_stored(metadata: pq.FileMetaData) -> pq.FileMetaData:
    """Change a footer so that Arrow returns INT96 as 12 bytes, and ignores the Arrow schema of the writer.

    Arrow turns INT96 into timestamps that wrap, or that are 584 years late where Java wrote a negative time of day. By
    the schema of the writer it would refuse lists that are null because they were vectors, and return dictionaries.
    """
    out = pa.BufferOutputStream()
    metadata.write_metadata_file(out)
    footer = _footer(out.getvalue().to_pybytes())
    for element in _items(footer, _SCHEMA):
        if element.get(_TYPE) == (I32, _INT96):
            element[_TYPE] = I32, _FIXED_LEN_BYTE_ARRAY
            element[_TYPE_LENGTH] = I32, _INT96_SIZE
    for group in _items(footer, _ROW_GROUPS):
        for chunk in _items(group, _COLUMNS):
            content = chunk[_META_DATA][1]
            if content[_CHUNK_TYPE][1] == _INT96:
                content[_CHUNK_TYPE] = I32, _FIXED_LEN_BYTE_ARRAY
    if _KEY_VALUES in footer:
        kept = [pair for pair in _items(footer, _KEY_VALUES) if pair[_KEY][1] != _ARROW_SCHEMA]
        footer[_KEY_VALUES] = LIST, (STRUCT, kept)
    return _metadata(footer)


def without_unknown_types(stream: Any) -> tuple[pq.FileMetaData, dict[str, int]]:
    """Remove logical types that Arrow may not know from a footer; it would refuse the whole file. Returns the footer,
    and the number of the removed type by column. Raises ValueError if the footer is damaged.
    """
    stream.seek(-_END_SIZE, io.SEEK_END)
    length = int.from_bytes(bytes(stream.read(4)), "little")
    stream.seek(-_END_SIZE - length, io.SEEK_END)
    footer = _footer(bytes(stream.read(length + _END_SIZE)))
    unknown: dict[str, int] = {}
    column, left = "", 0
    for element in _items(footer, _SCHEMA)[1:]:
        # The schema is a tree in preorder: `left` elements are still to come within the column.
        if not left:
            column, left = element[_NAME][1].decode("utf-8", "replace"), 1
        left += element.get(_CHILDREN, (0, 0))[1] - 1
        kinds = element.get(_LOGICAL_TYPE, (0, {}))[1]
        if kinds and max(kinds) > _LAST_LOGICAL_TYPE:
            unknown[column] = max(kinds)
            del element[_LOGICAL_TYPE]
    return _metadata(footer), unknown


def end_with_timestamps(end: bytes, leaf_types: Sequence[pa.DataType], schema: pa.Schema) -> bytes:
    """Change the end of a file so that its numbers are the timestamps that they were made of.

    Args:
        end: At least the footer.
        leaf_types: The types of all columns that hold values, in their order. Timestamps but those of nanoseconds were
            written as numbers.
        schema: What the file is to say about itself.
    """
    footer = _footer(end)
    leaves = [element for element in _items(footer, _SCHEMA) if _CHILDREN not in element]
    for element, kind in zip(leaves, leaf_types, strict=True):
        if pa.types.is_timestamp(kind) and kind.unit != "ns":
            unit, converted = _UNITS[kind.unit]
            moment = {
                _IS_UTC: (FALSE if kind.tz is None else TRUE, kind.tz is not None),
                _UNIT: (STRUCT, {unit: (STRUCT, {})}),
            }
            if kind.tz is not None:
                # Readers that know only this, the older form, take every timestamp for a moment.
                element[_CONVERTED_TYPE] = I32, converted
            element[_LOGICAL_TYPE] = STRUCT, {_TIMESTAMP: (STRUCT, moment)}
    for pair in _items(footer, _KEY_VALUES):
        if pair[_KEY][1] == _ARROW_SCHEMA:
            pair[_VALUE] = BINARY, base64.b64encode(schema.serialize())
    return end[: len(end) - _END_SIZE - _footer_length(end)] + _framed(footer)


def has_empty_page(chunk: bytes) -> bool:
    """Whether a column chunk has a data page (version 2) without values that are marked as compressed."""
    position = 0
    while position < len(chunk):
        header, position = decode_struct(chunk, position)
        stored = header[_COMPRESSED_SIZE][1]
        page = header.get(_DATA_PAGE_V2, (0, {}))[1]
        levels = sum(page.get(field, (0, 0))[1] for field in (_DEFINITION_LEVELS, _REPETITION_LEVELS))
        if page and stored == levels and page.get(_IS_COMPRESSED, (0, True))[1]:
            return True
        position += stored
    return False


def _footer(data: bytes) -> Struct:
    if data[-4:] != _MAGIC:
        raise ValueError("the file does not end as Parquet does")
    return decode_struct(data[-_END_SIZE - _footer_length(data) : -_END_SIZE])[0]


def _footer_length(data: bytes) -> int:
    return int.from_bytes(data[-_END_SIZE:-4], "little")


def _framed(footer: Struct) -> bytes:
    data = encode_struct(footer)
    return b"".join((data, len(data).to_bytes(4, "little"), _MAGIC))


def _metadata(footer: Struct) -> pq.FileMetaData:
    return pq.read_metadata(pa.BufferReader(_MAGIC + _framed(footer)))


def _items(struct: Struct, field: int) -> list[Struct]:
    found: list[Struct] = struct[field][1][1]
    return found


def is_int96(stored: pa.DataType, arrow: pa.DataType) -> bool:
    """Whether a column that is read as a timestamp is stored as INT96."""
    is_stored_so = pa.types.is_fixed_size_binary(stored) and stored.byte_width == _INT96_SIZE
    return bool(is_stored_so and pa.types.is_timestamp(arrow))


def timestamps_of_int96(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Convert INT96 (nanoseconds of a day, and its Julian number) to timestamps, cut towards the past.

    The nanoseconds may be negative, as Java writes them before 1970, or more than a day. Raises UnsupportedTableError
    if a timestamp does not fit the type.
    """
    if array.null_count == len(array):
        return pa.nulls(len(array), arrow)
    start = array.offset * _INT96_SIZE
    content = np.frombuffer(array.buffers()[1] or b"", np.uint8)[start : start + len(array) * _INT96_SIZE]
    parts = content.view(_PARTS)
    missing = array.is_null().to_numpy(zero_copy_only=False)
    nanos = np.where(missing, 0, parts["nanos"])
    days = np.where(missing, _EPOCH, parts["day"]).astype(np.int64) - _EPOCH
    unit = "us" if arrow.unit == "ns" else arrow.unit
    per_day = _PER_DAY[unit]
    ticks, rest = np.divmod(nanos, _NANOS[unit])
    fits = np.abs(days) < _MOST // per_day - _DAYS_OF_NANOS
    ticks = np.where(fits, days, 0) * per_day + ticks
    if arrow.unit == "ns":
        # Of the last microsecond only a part fits into 64 bits of nanoseconds.
        whole, last = divmod(_MOST, 10**3)
        fits &= (ticks < whole) & (ticks >= -whole) | (ticks == whole) & (rest <= last)
        ticks = np.where(fits, ticks, 0) * 1000 + rest
    if not fits.all():
        raise UnsupportedTableError(BEYOND_NANOSECONDS)
    return pa.array(ticks, pa.int64(), mask=missing).cast(arrow)
