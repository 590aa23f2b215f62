"""The tail of an ORC file (postscript and footer), its protobuf messages, and its compressed blocks.

Arrow turns every ORC timestamp into nanoseconds, and those before 1677 or after 2262 wrap silently. An ORC timestamp
column stores whole seconds in the same streams in which a LONG column stores its values. So with a copy of the footer
that calls the column LONG, Arrow returns the seconds, from which the wrapped value can be repaired (`orc_reader`). With
a copy that calls it TIMESTAMP_INSTANT, Arrow does not apply the time zone of the writer (`orc_timestamps`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats import codecs

# Wire types of protobuf: how the value of a field is stored.
VARINT, _FIXED64, LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}

# Kinds of types, as ORC numbers them.
LONG, TIMESTAMP, TIMESTAMP_INSTANT = 4, 9, 18

DEFAULT_BLOCK_SIZE = 1 << 18
HEADER_SIZE = 3
# The header of a block has 23 bits for its length.
_MOST_BLOCK_SIZE = 1 << 23
# By ORC's `CompressionKind`; 3 is LZO, which cannot be read here.
_CODECS: dict[int, Callable[[bytes, int], bytes]] = {
    1: codecs.deflate,
    2: codecs.snappy,
    4: codecs.lz4,
    5: codecs.zstd_frame,
}

DAY_MILLIS = 86_400_000
# The milliseconds whose nanoseconds fit 64 bits.
_FIRST_MILLIS = -(1 << 63) // 10**6
_LAST_MILLIS = ((1 << 63) - 1) // 10**6

_END = 16384
"""Bytes of the end to read at once, as Arrow does."""

ReadRange = Callable[[int, int], bytes]
"""Reads the bytes of a file between two positions; `ValueError` if the file ends before."""
Field = tuple[int, int, Any]
"""A field of a protobuf message: its number, its wire type, its value (an integer or bytes)."""


class PostscriptField(IntEnum):
    """Field numbers of `PostScript` in ORC's `orc_proto.proto`; its other messages follow."""

    FOOTER_LENGTH = 1
    COMPRESSION = 2
    BLOCK_SIZE = 3
    METADATA_LENGTH = 5
    MAGIC = 8000


class FooterField(IntEnum):
    CONTENT_LENGTH = 2
    STRIPES = 3
    TYPES = 4
    ROWS = 6
    STATISTICS = 7
    INDEX_STRIDE = 8


class TypeField(IntEnum):
    KIND = 1
    SUBTYPES = 2
    FIELD_NAMES = 3


class _StatisticsField(IntEnum):
    VALUES = 1
    TIMESTAMP = 9


class _TimestampField(IntEnum):
    """Milliseconds, zigzag-encoded."""

    MINIMUM_UTC = 3
    MAXIMUM_UTC = 4


@dataclass(frozen=True, slots=True)
class OrcTail:
    """Postscript and footer of an ORC file."""

    metadata: int  # Bytes before the statistics of the stripes, which are before the footer
    body: int
    postscript: list[Field]
    footer: list[Field]

    def overflowing(self, margin: int) -> set[int]:
        """The types (by their place in the footer) that may hold a timestamp which overflows, by their statistics.
        Values may be further out than these say, by `margin` milliseconds.
        """
        statistics = [value for number, _, value in self.footer if number == FooterField.STATISTICS]
        stamps = self.of_kind(TIMESTAMP) | self.of_kind(TIMESTAMP_INSTANT)
        return {each for each in stamps if not (each < len(statistics) and _fits_nanos(statistics[each], margin))}

    def of_kind(self, kind: int) -> set[int]:
        types = [dict(numbers(value)) for number, _, value in self.footer if number == FooterField.TYPES]
        return {index for index, found in enumerate(types) if found.get(TypeField.KIND, 0) == kind}

    def bounds(self, type_id: int) -> tuple[int, int] | None:
        """The least and the greatest timestamp of a column, in milliseconds since 1970; None if they are not known.

        For a TIMESTAMP they are local times.
        """
        statistics = [value for number, _, value in self.footer if number == FooterField.STATISTICS]
        limits = (
            _limits({number: value for number, _, value in fields(statistics[type_id])})
            if type_id < len(statistics)
            else {}
        )
        if not limits.keys() >= {*_TimestampField}:
            return None
        return limits[_TimestampField.MINIMUM_UTC], limits[_TimestampField.MAXIMUM_UTC]

    def retyped(self, kinds: Mapping[int, int]) -> list[Field]:
        """The footer with other kinds for some types (by their places in it)."""
        indexes = itertools.count()
        return [
            (number, wire, _of_kind(value, kinds.get(next(indexes))) if number == FooterField.TYPES else value)
            for number, wire, value in self.footer
        ]

    def end(self, footer: list[Field], *, metadata_length: int | None = None) -> bytes:
        """The end of the file, from the footer on, with another footer. `metadata_length`: that of the statistics of
        the stripes before the footer; None: unchanged.
        """
        content = self.stored(encode(footer))
        lengths: dict[int, int] = {PostscriptField.FOOTER_LENGTH: len(content)}
        if metadata_length is not None:
            lengths[PostscriptField.METADATA_LENGTH] = metadata_length
        postscript = encode([(number, wire, lengths.get(number, value)) for number, wire, value in self.postscript])
        return content + postscript + bytes([len(postscript)])

    def stored(self, data: bytes) -> bytes:
        """Frame a part of the file: in uncompressed blocks, if the file has blocks."""
        return _uncompressed_chunks(data, self.block_size) if self.codec else data

    @property
    def codec(self) -> int:
        return dict(numbers(self.postscript)).get(PostscriptField.COMPRESSION, 0)

    @property
    def block_size(self) -> int:
        return dict(numbers(self.postscript)).get(PostscriptField.BLOCK_SIZE, DEFAULT_BLOCK_SIZE)

    def decompressed(self, stored: bytes) -> bytes:
        """Decompress a part of the file. Raises ValueError if it is damaged."""
        return b"".join(decompressed_blocks(stored, self.codec, self.block_size)) if self.codec else stored


def read_tail(size: int, read: ReadRange) -> OrcTail:
    """Read postscript and footer from the end of a file. Raises ValueError if the tail is damaged,
    UnsupportedTableError if the compression is not known.
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


def decompressed_blocks(stored: bytes, codec: int, block_size: int) -> Iterator[bytes]:
    """Decompress the blocks of a part of a file: a header of three bytes, then the data, compressed or not. Raises
    ValueError if a block is damaged or too large.
    """
    decompress = _CODECS.get(codec)
    if decompress is None:
        raise UnsupportedTableError(f"ORC files compressed with codec {codec} cannot be read.")
    position = 0
    while position < len(stored):
        # The header is the length of the data; its lowest bit says that the data is not compressed.
        start = position + HEADER_SIZE
        header = int.from_bytes(stored[position:start], "little")
        position = start + (header >> 1)
        if position > len(stored):
            raise ValueError("a block is cut off")
        block = stored[start:position]
        if header & 1 and len(block) > block_size:
            raise ValueError("a block is larger than the block size")
        yield block if header & 1 else decompress(block, block_size)


def reads_of(stream: Any) -> ReadRange:
    def read(start: int, end: int) -> bytes:
        stream.seek(start)
        data = bytes(stream.read(end - start))
        if len(data) != end - start:
            raise ValueError(f"the ORC file ends before byte {end}")
        return data

    return read


def fields(message: bytes) -> Iterator[Field]:
    """The fields of a protobuf message, in its order. Raises ValueError if it is damaged."""
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
    found = fields(message) if isinstance(message, bytes) else message
    return ((number, value) for number, wire, value in found if wire == VARINT)


def integers(packed: bytes) -> Iterator[int]:
    position = 0
    while position < len(packed):
        value, position = _varint(packed, position)
        yield value


def _fits_nanos(statistics: bytes, margin: int) -> bool:
    found = {number: value for number, _, value in fields(statistics)}
    if not found.get(_StatisticsField.VALUES):
        return True
    if _StatisticsField.TIMESTAMP not in found:
        return False
    limits = _limits(found)
    known = [limits[field] for field in _TimestampField if field in limits]
    if len(known) < len(_TimestampField):
        # Older writers keep statistics in their own time zone only.
        known, margin = [*limits.values()], DAY_MILLIS
    return all(_FIRST_MILLIS + margin < limit <= _LAST_MILLIS - margin for limit in known)


def _limits(statistics: Mapping[int, Any]) -> dict[int, int]:
    # Zigzag: signed numbers alternate around 0, so that small ones stay short.
    found = numbers(statistics.get(_StatisticsField.TIMESTAMP, b""))
    return {number: (value >> 1) ^ -(value & 1) for number, value in found}


def with_bounds(statistics: bytes, turned: Callable[[int], int]) -> bytes:
    """The statistics of a column of timestamps with other bounds, in milliseconds."""

    def bounds(message: bytes) -> bytes:
        limits = _limits({_StatisticsField.TIMESTAMP: message})
        found = ((field, turned(limits[field])) for field in _TimestampField if field in limits)
        return encode([(field, VARINT, (limit << 1) ^ (limit >> 63)) for field, limit in found])

    return encode(
        [
            (number, wire, bounds(value) if number == _StatisticsField.TIMESTAMP else value)
            for number, wire, value in fields(statistics)
        ]
    )


def _of_kind(type_message: bytes, kind: int | None) -> bytes:
    if kind is None:
        return type_message
    return encode(
        [(number, wire, kind if number == TypeField.KIND else value) for number, wire, value in fields(type_message)]
    )


def _uncompressed_chunks(data: bytes, block_size: int) -> bytes:
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


def encode(message: Sequence[Field]) -> bytes:
    parts = []
    for number, wire, value in message:
        parts.append(codecs.varint(number << 3 | wire))
        if wire == VARINT:
            parts.append(codecs.varint(value))
        else:
            parts.append((codecs.varint(len(value)) if wire == LENGTH_DELIMITED else b"") + value)
    return b"".join(parts)
