"""The tail of an ORC file: which columns hold timestamps beyond nanoseconds, and the file with these as integers.

Arrow makes every ORC timestamp one of nanoseconds, and those before 1677 or after 2262 wrap silently. An ORC timestamp
column stores whole seconds in the same streams as a LONG column stores its values. So a copy of the footer that calls
the column LONG makes Arrow give the seconds, from which the wrapped value can be put right (`orc_files`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.files.orc_blocks import DEFAULT_BLOCK_SIZE, decompressed_blocks

_LONG, _TIMESTAMP, _TIMESTAMP_INSTANT = 4, 9, 18
_FIRST_MILLIS = -(1 << 63) // 10**6
_LAST_MILLIS = ((1 << 63) - 1) // 10**6

Field = tuple[int, int, Any]
"""A field of a protobuf message: its number, its wire type, its value (an integer or bytes)."""


@dataclass(frozen=True, slots=True)
class OrcTail:
    """Postscript and footer of an ORC file.

    Attributes:
        body: Length of everything before the footer, in bytes.
        postscript: Fields of the postscript.
        footer: Fields of the footer.
    """

    body: int
    postscript: list[Field]
    footer: list[Field]

    def overflowing(self) -> set[int]:
        """The types (by their place in the footer) whose statistics show, or do not rule out, too far a timestamp."""
        types = [dict(_numbers(value)) for number, _, value in self.footer if number == 4]
        statistics = [value for number, _, value in self.footer if number == 7]
        return {
            place
            for place, kind in enumerate(types)
            if kind.get(1) in (_TIMESTAMP, _TIMESTAMP_INSTANT)
            and not (place < len(statistics) and _fits_nanos(statistics[place]))
        }

    def with_seconds(self, content: bytes, types: set[int]) -> bytes:
        """The file again, some of its timestamp columns turned into LONG columns of seconds."""
        place = itertools.count()
        fields = [
            (number, wire, _as_long(value) if number == 4 and next(place) in types else value)
            for number, wire, value in self.footer
        ]
        footer = _encode(fields)
        if self._codec:
            footer = _uncompressed_chunks(footer, self._block_size)
        fields = self.postscript
        postscript = _encode([(number, wire, len(footer) if number == 1 else value) for number, wire, value in fields])
        return content[: self.body] + footer + postscript + bytes([len(postscript)])

    @property
    def _codec(self) -> int:
        return int(next((value for number, _, value in self.postscript if number == 2), 0))

    @property
    def _block_size(self) -> int:
        return int(next((value for number, _, value in self.postscript if number == 3), DEFAULT_BLOCK_SIZE))


def read_tail(stream: Any, size: int) -> OrcTail:
    """Read postscript and footer from the end of a file.

    Raises:
        ValueError: The tail is damaged.
        UnsupportedTableError: It is compressed in a way that is not known.
    """
    try:
        return _tail(stream, size)
    except (IndexError, KeyError) as error:
        raise ValueError(f"the footer cannot be decoded: {error!r}") from error


def _tail(stream: Any, size: int) -> OrcTail:
    end = _read(stream, max(0, size - 16384), size)
    length = end[-1]
    postscript = list(_fields(end[-1 - length : -1]))
    numbers = {number: value for number, _, value in postscript}
    footer_size = int(numbers[1])
    start = size - 1 - length - footer_size
    stored = _read(stream, start, start + footer_size)
    codec = int(numbers.get(2, 0))
    footer = b"".join(decompressed_blocks(stored, codec, int(numbers.get(3, DEFAULT_BLOCK_SIZE)))) if codec else stored
    return OrcTail(start, postscript, list(_fields(footer)))


def _read(stream: Any, start: int, end: int) -> bytes:
    stream.seek(start)
    return bytes(stream.read(end - start))


def _fits_nanos(statistics: bytes) -> bool:
    fields = {number: value for number, _, value in _fields(statistics)}
    if not fields.get(1):
        return True
    if 9 not in fields:
        return False
    limits = {number: (value >> 1) ^ -(value & 1) for number, value in _numbers(fields[9])}
    # Statistics of older writers are in their own time zone only: a day of margin.
    known, margin = ([limits[3], limits[4]], 0) if limits.keys() >= {3, 4} else ([*limits.values()], 86_400_000)
    return all(_FIRST_MILLIS + margin < limit <= _LAST_MILLIS - margin for limit in known)


def _numbers(message: bytes) -> Iterator[tuple[int, int]]:
    return ((number, value) for number, wire, value in _fields(message) if wire == 0)


def _as_long(type_message: bytes) -> bytes:
    fields = [
        (number, wire, _LONG if number == 1 and value in (_TIMESTAMP, _TIMESTAMP_INSTANT) else value)
        for number, wire, value in _fields(type_message)
    ]
    return _encode(fields)


def _uncompressed_chunks(data: bytes, block_size: int) -> bytes:
    parts = (data[start : start + block_size] for start in range(0, len(data), block_size))
    return b"".join((len(part) << 1 | 1).to_bytes(3, "little") + part for part in parts)


def _fields(message: bytes) -> Iterator[Field]:
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, position = _varint(message, position)
            yield number, wire, value
            continue
        length, position = _varint(message, position) if wire == 2 else ({1: 8, 5: 4}[wire], position)
        yield number, wire, message[position : position + length]
        position += length


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _encode(fields: list[Field]) -> bytes:
    parts = []
    for number, wire, value in fields:
        parts.append(_varint_bytes(number << 3 | wire))
        if wire == 0:
            parts.append(_varint_bytes(value))
        else:
            parts.append((_varint_bytes(len(value)) if wire == 2 else b"") + value)
    return b"".join(parts)


def _varint_bytes(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
