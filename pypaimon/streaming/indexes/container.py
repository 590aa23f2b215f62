"""The container of a file index: the indexes of all columns in one file, or in a manifest entry."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

INDEX_FILE = ".index"
"""Suffix of the files next to a data file that hold a container."""
_MAGIC = 1493475289347502
_VERSION = 1
_PREFIX_BYTES = 16
_NO_INDEX = -1


class BytesReader:
    """Reads big-endian values, as Java's `DataInput` does. Every method raises ValueError at the end of the bytes."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def take(self, length: int) -> bytes:
        start, end = self.position, self.position + length
        if not 0 <= start <= end <= len(self.data):
            raise ValueError(f"bytes {start} to {end} are out of range: there are {len(self.data)}")
        self.position = end
        return self.data[start:end]

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size))

    def number(self, code: str) -> int:
        """An integer with a format code of `struct`."""
        value: int = struct.unpack(f">{code}", self.take(struct.calcsize(f">{code}")))[0]
        return value

    def int8(self) -> int:
        return self.number("b")

    def int32(self) -> int:
        return self.number("i")

    def length(self) -> int:
        """A number of four bytes that is not negative."""
        value = self.int32()
        if value < 0:
            raise ValueError(f"a length is negative: {value}")
        return value

    def flag(self) -> bool:
        return self.int8() != 0

    def version(self, *known: int) -> int:
        """A byte that must be one of the known versions."""
        value = self.int8()
        if value not in known:
            raise ValueError(f"it is of version {value}, known are {', '.join(map(str, known))}")
        return value


@dataclass(frozen=True, slots=True)
class IndexPart:
    """Where the index of one column is in its container."""

    kind: str
    start: int
    length: int


def head_length(data: bytes) -> int:
    """The length of the head of a container. Raises ValueError if it is not a file index, or of another version."""
    reader = BytesReader(data)
    if reader.number("q") != _MAGIC:
        raise ValueError("it is not a file index")
    version = reader.int32()
    if version != _VERSION:
        raise ValueError(f"it is of version {version}, known is {_VERSION}")
    length = reader.int32()
    if length < _PREFIX_BYTES:
        raise ValueError(f"its head has {length} bytes")
    return length


def index_parts(data: bytes) -> Mapping[str, list[IndexPart]]:
    """The indexes of a container, by column. Raises ValueError if it is not a file index, of another version, or
    damaged.
    """
    reader = BytesReader(data[: head_length(data)], _PREFIX_BYTES)
    parts: dict[str, list[IndexPart]] = {}
    for _ in range(reader.length()):
        column = _read_text(reader)
        found = [IndexPart(_read_text(reader), reader.int32(), reader.length()) for _ in range(reader.length())]
        parts.setdefault(column, []).extend(part for part in found if part.start != _NO_INDEX)
    return parts


def _read_text(reader: BytesReader) -> str:
    """A text of Java's `writeUTF`: each surrogate has three bytes, and the character 0 has two."""
    encoded = reader.take(reader.number("H")).replace(b"\xc0\x80", b"\0")
    return encoded.decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16")


def encode_container(indexes: Mapping[str, Mapping[str, bytes]], mark: bytes = b"") -> bytes:
    """A container of indexes, by column and kind. `mark`: Bytes that readers ignore, to make it differ from others."""
    body = b"".join(data for found in indexes.values() for data in found.values())
    length = _PREFIX_BYTES + len(_head(indexes, 0, mark))
    return struct.pack(">qii", _MAGIC, _VERSION, length) + _head(indexes, length, mark) + body


def _head(indexes: Mapping[str, Mapping[str, bytes]], place: int, mark: bytes) -> bytes:
    head = struct.pack(">i", len(indexes))
    for column, found in indexes.items():
        head += written_text(column) + struct.pack(">i", len(found))
        for kind, data in found.items():
            head += written_text(kind) + struct.pack(">ii", place, len(data))
            place += len(data)
    # Fields that later versions may add, which the known one passes over.
    return head + struct.pack(">i", len(mark)) + mark


def written_text(text: str) -> bytes:
    """A text as Java's `writeUTF` writes it."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    encoded = "".join(map(chr, units)).encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    return struct.pack(">H", len(encoded)) + encoded
