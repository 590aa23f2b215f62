"""`BytesReader`: values out of a piece of bytes, one after the other, never beyond its end."""

from __future__ import annotations

import struct


class BytesReader:
    """Reads big-endian values, as Java's `DataInput`.

    Every method raises ValueError where the bytes end too early.

    Args:
        data: The bytes.
        position: Where to begin.

    Attributes:
        data: The bytes.
        position: Of the next value.
    """

    __slots__ = ("data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def take(self, length: int) -> bytes:
        """So many bytes."""
        start, end = self.position, self.position + length
        if not 0 <= start <= end <= len(self.data):
            raise ValueError(f"bytes {start} to {end} of {len(self.data)} are asked for")
        self.position = end
        return self.data[start:end]

    def number(self, code: str) -> int:
        """An integer of one of the formats of `struct`."""
        value: int = struct.unpack(f">{code}", self.take(struct.calcsize(f">{code}")))[0]
        return value

    def int8(self) -> int:
        """A signed byte."""
        return self.number("b")

    def int32(self) -> int:
        """A signed integer of four bytes."""
        return self.number("i")

    def length(self) -> int:
        """An integer of four bytes that counts something."""
        value = self.int32()
        if value < 0:
            raise ValueError(f"a length of {value} was recorded")
        return value

    def flag(self) -> bool:
        """Whether a byte is not 0."""
        return self.int8() != 0

    def version(self, *known: int) -> int:
        """A byte that is one of these versions."""
        value = self.int8()
        if value not in known:
            raise ValueError(f"it is of version {value}, known are {', '.join(map(str, known))}")
        return value
