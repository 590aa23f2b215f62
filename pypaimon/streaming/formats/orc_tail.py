"""The tail of an ORC file: which columns hold timestamps beyond nanoseconds, and the file with these as integers.

Arrow makes every ORC timestamp one of nanoseconds, and those before 1677 or after 2262 wrap silently. An ORC timestamp
column stores whole seconds in the same streams as a LONG column stores its values. So a copy of the footer that calls
the column LONG makes Arrow give the seconds, from which the wrapped value can be put right (`orc_source`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from pypaimon.streaming.formats.orc_blocks import DEFAULT_BLOCK_SIZE, decompressed_blocks

# Wire types of protobuf: how the value of a field is stored.
VARINT, _FIXED64, LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}

# Kinds of types, as ORC numbers them.
_LONG, _TIMESTAMP, _TIMESTAMP_INSTANT = 4, 9, 18

_MOST_BLOCK_SIZE = 1 << 23
# The milliseconds whose nanoseconds fit 64 bits.
_FIRST_MILLIS = -(1 << 63) // 10**6
_LAST_MILLIS = ((1 << 63) - 1) // 10**6

_END = 16384
"""Bytes of the end that are read at once, as Arrow does."""

ReadRange = Callable[[int, int], bytes]
"""Reads the bytes of a file from one place to another, all of them; `ValueError` if it ends before."""
Field = tuple[int, int, Any]
"""A field of a protobuf message: its number, its wire type, its value (an integer or bytes)."""


class PostscriptField(IntEnum):
    """Numbers of the fields of `PostScript` in ORC's `orc_proto.proto`; below those of its other messages."""

    FOOTER_LENGTH = 1
    COMPRESSION = 2
    BLOCK_SIZE = 3
    METADATA_LENGTH = 5
    MAGIC = 8000


class FooterField(IntEnum):
    """Those of `Footer`."""

    CONTENT_LENGTH = 2
    STRIPES = 3
    TYPES = 4
    ROWS = 6
    STATISTICS = 7


class TypeField(IntEnum):
    """Those of `Type`."""

    KIND = 1
    SUBTYPES = 2
    FIELD_NAMES = 3


class _StatisticsField(IntEnum):
    """Those of `ColumnStatistics`."""

    VALUES = 1
    TIMESTAMP = 9


class _TimestampField(IntEnum):
    """Those of `TimestampStatistics`: milliseconds, zigzag-encoded."""

    MINIMUM_UTC = 3
    MAXIMUM_UTC = 4


@dataclass(frozen=True, slots=True)
class OrcTail:
    """Postscript and footer of an ORC file.

    Attributes:
        metadata: Length of everything before the statistics of the stripes, which lie before the footer, in bytes.
        body: Length of everything before the footer, in bytes.
        postscript: Fields of the postscript.
        footer: Fields of the footer.
    """

    metadata: int
    body: int
    postscript: list[Field]
    footer: list[Field]

    def overflowing(self) -> set[int]:
        """The types (by their place in the footer) whose statistics show, or do not rule out, too far a timestamp."""
        types = [dict(numbers(value)) for number, _, value in self.footer if number == FooterField.TYPES]
        statistics = [value for number, _, value in self.footer if number == FooterField.STATISTICS]
        return {
            index
            for index, kind in enumerate(types)
            if kind.get(TypeField.KIND) in (_TIMESTAMP, _TIMESTAMP_INSTANT)
            and not (index < len(statistics) and _fits_nanos(statistics[index]))
        }

    def with_seconds(self, content: bytes, types: set[int]) -> bytes:
        """The file again, some of its timestamp columns turned into LONG columns of seconds."""
        indexes = itertools.count()
        footer = [
            (number, wire, _as_long(value) if number == FooterField.TYPES and next(indexes) in types else value)
            for number, wire, value in self.footer
        ]
        return replace(self, footer=footer).behind(content[: self.body])

    def behind(self, content: bytes) -> bytes:
        """A file: what comes before the footer, then footer and postscript."""
        footer = encoded(self.footer)
        if self.codec:
            footer = _uncompressed_chunks(footer, self.block_size)
        postscript = encoded(
            [
                (number, wire, len(footer) if number == PostscriptField.FOOTER_LENGTH else value)
                for number, wire, value in self.postscript
            ]
        )
        return content + footer + postscript + bytes([len(postscript)])

    @property
    def codec(self) -> int:
        """The number of the compression."""
        return dict(numbers(self.postscript)).get(PostscriptField.COMPRESSION, 0)

    @property
    def block_size(self) -> int:
        """Most bytes of a block once it is decompressed."""
        return dict(numbers(self.postscript)).get(PostscriptField.BLOCK_SIZE, DEFAULT_BLOCK_SIZE)

    def decompressed(self, stored: bytes) -> bytes:
        """A part of the file as it was before it was compressed.

        Raises:
            ValueError: It is damaged.
        """
        return b"".join(decompressed_blocks(stored, self.codec, self.block_size)) if self.codec else stored


def read_tail(size: int, read: ReadRange) -> OrcTail:
    """Read postscript and footer from the end of a file.

    Raises:
        ValueError: The tail is damaged.
        UnsupportedTableError: It is compressed in a way that is not known.
    """
    try:
        return _tail(size, read)
    except (IndexError, KeyError) as error:
        raise ValueError(f"the ORC footer cannot be decoded: {error!r}") from error


def _tail(size: int, read: ReadRange) -> OrcTail:
    # From the end backwards: a byte with the length of the postscript, the postscript, the footer, the statistics.
    end = read(max(0, size - _END), size)
    length = end[-1]
    postscript = list(fields(end[-1 - length : -1]))
    if (PostscriptField.MAGIC, LENGTH_DELIMITED, b"ORC") not in postscript:
        raise ValueError("not an ORC file, or it is cut off")
    lengths = dict(numbers(postscript))
    body = size - 1 - length - lengths[PostscriptField.FOOTER_LENGTH]
    metadata = body - lengths.get(PostscriptField.METADATA_LENGTH, 0)
    if metadata < 0:
        raise ValueError("the ORC footer is larger than the file")
    if not 0 < lengths.get(PostscriptField.BLOCK_SIZE, DEFAULT_BLOCK_SIZE) <= _MOST_BLOCK_SIZE:
        raise ValueError(f"ORC blocks of {lengths[PostscriptField.BLOCK_SIZE]} bytes")
    tail = OrcTail(metadata, body, postscript, [])
    stored = read(body, body + lengths[PostscriptField.FOOTER_LENGTH])
    return replace(tail, footer=list(fields(tail.decompressed(stored))))


def reads_of(stream: Any) -> ReadRange:
    """Reads of a binary file that can seek."""

    def read(start: int, end: int) -> bytes:
        stream.seek(start)
        data = bytes(stream.read(end - start))
        if len(data) != end - start:
            raise ValueError(f"the ORC file ends before byte {end}")
        return data

    return read


def fields(message: bytes) -> Iterator[Field]:
    """The fields of a protobuf message, in its order.

    Raises:
        ValueError: It is damaged.
    """
    position = 0
    while position < len(message):
        # The key holds the number of the field, and in its lowest three bits the wire type.
        key, position = _varint(message, position)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, position = _varint(message, position)
            yield number, wire, value
            continue
        if wire == LENGTH_DELIMITED:
            length, position = _varint(message, position)
        else:
            length = _FIXED_SIZES.get(wire, -1)
        if not 0 <= length <= len(message) - position:
            raise ValueError("a part of the ORC footer is cut off")
        yield number, wire, message[position : position + length]
        position += length


def numbers(message: bytes | Sequence[Field]) -> Iterator[tuple[int, int]]:
    """Those fields of a message that are integers."""
    found = fields(message) if isinstance(message, bytes) else message
    return ((number, value) for number, wire, value in found if wire == VARINT)


def integers(packed: bytes) -> Iterator[int]:
    """A list of integers that a message holds in one field."""
    position = 0
    while position < len(packed):
        value, position = _varint(packed, position)
        yield value


def _fits_nanos(statistics: bytes) -> bool:
    found = {number: value for number, _, value in fields(statistics)}
    if not found.get(_StatisticsField.VALUES):
        return True
    if _StatisticsField.TIMESTAMP not in found:
        return False
    # Zigzag: signed numbers alternate around 0, so that small ones stay short.
    limits = {number: (value >> 1) ^ -(value & 1) for number, value in numbers(found[_StatisticsField.TIMESTAMP])}
    # Statistics of older writers are in their own time zone only: a day of margin.
    known, margin = [*limits.values()], 86_400_000
    if limits.keys() >= {*_TimestampField}:
        known, margin = [limits[field] for field in _TimestampField], 0
    return all(_FIRST_MILLIS + margin < limit <= _LAST_MILLIS - margin for limit in known)


def _as_long(type_message: bytes) -> bytes:
    return encoded(
        [
            (number, wire, _LONG if number == TypeField.KIND and value in (_TIMESTAMP, _TIMESTAMP_INSTANT) else value)
            for number, wire, value in fields(type_message)
        ]
    )


def _uncompressed_chunks(data: bytes, block_size: int) -> bytes:
    # The header of a block: its length, and in the lowest bit that it is stored as it is.
    parts = (data[start : start + block_size] for start in range(0, len(data), block_size))
    return b"".join((len(part) << 1 | 1).to_bytes(3, "little") + part for part in parts)


def _varint(message: bytes, position: int) -> tuple[int, int]:
    # Seven bits in each byte, the lowest first; the highest bit says that another byte follows.
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a number in the ORC footer is cut off")


def encoded(message: list[Field]) -> bytes:
    """The bytes of a protobuf message."""
    parts = []
    for number, wire, value in message:
        parts.append(_varint_bytes(number << 3 | wire))
        if wire == VARINT:
            parts.append(_varint_bytes(value))
        else:
            parts.append((_varint_bytes(len(value)) if wire == LENGTH_DELIMITED else b"") + value)
    return b"".join(parts)


def _varint_bytes(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
