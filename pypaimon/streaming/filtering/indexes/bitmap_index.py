"""Bitmap indexes, versions 1 and 2: for each value of a column the rows that have it."""

from __future__ import annotations

from collections.abc import Sequence

from pyroaring import BitMap

from pypaimon.streaming.filtering.indexes.bitmaps import read_bitmap
from pypaimon.streaming.filtering.indexes.bytes_reader import BytesReader
from pypaimon.streaming.filtering.indexes.column_index import ColumnIndex
from pypaimon.streaming.filtering.indexes.keys import Key, KeyType


class BitmapIndex(ColumnIndex):
    """Knows nulls, and the rows of each value.

    Version 1 lists all values with their bitmaps; version 2 lists them in sorted blocks, of which only those are read
    that a key can be in.
    """

    row_count: int

    def __init__(self, data: bytes, keys: KeyType) -> None:
        self._data = data
        self._keys = keys
        reader = BytesReader(data)
        version = reader.version(1, 2)
        self.row_count = reader.length()
        values = reader.length()
        self._null_offset = None
        if reader.flag():
            self._null_offset = reader.int32()
            if version == 2:
                reader.length()
        self._blocks: list[tuple[Key, int]] = []
        self._offsets: dict[Key, int] = {}
        if version == 1:
            self._offsets = {_named(keys.read(reader)): reader.int32() for _ in range(values)}
            self._body = reader.position
            return
        self._blocks = [(keys.read(reader), reader.length()) for _ in range(reader.length())]
        length = reader.length()
        self._first_block = reader.position
        self._body = self._first_block + length

    def valid(self) -> BitMap | None:
        """See `ColumnIndex`."""
        nulls = BitMap() if self._null_offset is None else self._bitmap(self._null_offset)
        return BitMap(range(self.row_count)) - nulls

    def one_of(self, keys: Sequence[Key]) -> BitMap | None:
        """See `ColumnIndex`."""
        offsets = (self._offset(key) for key in keys)
        return BitMap.union(BitMap(), *(self._bitmap(offset) for offset in offsets if offset is not None))

    def _offset(self, key: Key) -> int | None:
        order = self._keys.order
        starts = [start for first, start in self._blocks if order(first) <= order(key)]
        if not starts:
            return self._offsets.get(_named(key))
        reader = BytesReader(self._data[: self._body], self._first_block + starts[-1])
        for _ in range(reader.length()):
            found, offset = self._keys.read(reader), reader.int32()
            reader.int32()
            if _named(found) == _named(key):
                return offset
        return None

    def _bitmap(self, offset: int) -> BitMap:
        """The rows at an offset; of one row it is the offset itself that says which."""
        return BitMap([-1 - offset]) if offset < 0 else read_bitmap(BytesReader(self._data, self._body + offset))


def _named(key: Key) -> Key:
    """A key that equals no other: NaN equals itself, and -0.0 is not 0.0."""
    return str(key).encode() if isinstance(key, float) else key
