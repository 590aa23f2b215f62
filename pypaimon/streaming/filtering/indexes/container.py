"""The container of a file index: the indexes of many columns in one file, or in a manifest entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pypaimon.streaming.filtering.indexes.bytes_reader import BytesReader

_MAGIC = 1493475289347502
_VERSION = 1
_PREFIX_BYTES = 16
_NO_INDEX = -1


@dataclass(frozen=True, slots=True)
class IndexPart:
    """Where the index of one column lies in its container.

    Attributes:
        kind: Its type, `bloom-filter` and so on.
        start: Its first byte.
        length: Its bytes.
    """

    kind: str
    start: int
    length: int


def head_length(data: bytes) -> int:
    """The bytes of the head that a container begins with.

    Raises:
        ValueError: It is no file index, or one of another version.
    """
    reader = BytesReader(data)
    if reader.number("q") != _MAGIC:
        raise ValueError("it does not begin as a file index does")
    version = reader.int32()
    if version != _VERSION:
        raise ValueError(f"it is of version {version}, known is {_VERSION}")
    length = reader.int32()
    if length < _PREFIX_BYTES:
        raise ValueError(f"a head of {length} bytes was recorded")
    return length


def index_parts(data: bytes) -> Mapping[str, list[IndexPart]]:
    """The indexes of a container, by column.

    Args:
        data: At least its head.

    Raises:
        ValueError: It is no file index, one of another version, or its head is damaged.
    """
    reader = BytesReader(data[: head_length(data)], _PREFIX_BYTES)
    parts: dict[str, list[IndexPart]] = {}
    for _ in range(reader.length()):
        column = _text(reader)
        found = [IndexPart(_text(reader), reader.int32(), reader.length()) for _ in range(reader.length())]
        parts.setdefault(column, []).extend(part for part in found if part.start != _NO_INDEX)
    return parts


def _text(reader: BytesReader) -> str:
    """A text as Java's `writeUTF` writes it: characters beyond the basic plane are two of three bytes each."""
    encoded = reader.take(reader.number("H")).replace(b"\xc0\x80", b"\0")
    return encoded.decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16")
