"""Bit-sliced indexes (`bsi`): the numbers of a column, those below zero by their absolute values."""

from __future__ import annotations

from collections.abc import Sequence

from pyroaring import BitMap

from pypaimon.streaming.filtering.indexes.bit_slices import BitSlices
from pypaimon.streaming.filtering.indexes.bitmaps import read_bitmap
from pypaimon.streaming.filtering.indexes.bytes_reader import BytesReader
from pypaimon.streaming.filtering.indexes.column_index import ColumnIndex
from pypaimon.streaming.filtering.indexes.keys import Key, KeyType

_MOST_SLICES = 64


class BsiIndex(ColumnIndex):
    """Knows nulls, equal values and ranges of integers."""

    def __init__(self, data: bytes, keys: KeyType) -> None:
        if keys.is_floating or keys.code is None:
            raise ValueError("a bit-sliced index was recorded for values that are no integers")
        reader = BytesReader(data)
        reader.version(1)
        self.row_count = reader.length()
        self._positive = _Side(reader if reader.flag() else None)
        self._negative = _Side(reader if reader.flag() else None)

    def valid(self) -> BitMap | None:
        """See `ColumnIndex`."""
        return self._positive.slices.rows | self._negative.slices.rows

    def one_of(self, keys: Sequence[Key]) -> BitMap | None:
        """See `ColumnIndex`."""
        return BitMap.union(BitMap(), *(self._equal(int(key)) for key in keys))

    def above(self, key: Key, inclusive: bool) -> BitMap | None:
        """See `ColumnIndex`."""
        number = int(key)
        if number < 0:
            return self._positive.slices.rows | self._negative.below(-number, inclusive)
        return self._positive.above(number, inclusive)

    def below(self, key: Key, inclusive: bool) -> BitMap | None:
        """See `ColumnIndex`."""
        number = int(key)
        if number < 0:
            return self._negative.above(-number, inclusive)
        return self._negative.slices.rows | self._positive.below(number, inclusive)

    def _equal(self, number: int) -> BitMap:
        return self._negative.equal(-number) if number < 0 else self._positive.equal(number)


class _Side:
    """The numbers of one sign, each less the smallest of them."""

    def __init__(self, reader: BytesReader | None) -> None:
        self._base = 0
        slices: list[BitMap] = []
        rows = BitMap()
        if reader is not None:
            reader.version(1)
            self._base = reader.number("q")
            reader.number("q")
            rows = read_bitmap(reader)
            count = reader.length()
            if count > _MOST_SLICES:
                raise ValueError(f"a bit-sliced index of {count} slices was recorded")
            slices = [read_bitmap(reader) for _ in range(count)]
        self.slices = BitSlices(rows, slices.__getitem__, len(slices))

    def equal(self, number: int) -> BitMap:
        return self.slices.equal(number - self._base)

    def above(self, number: int, inclusive: bool) -> BitMap:
        return self.slices.above(number - self._base, inclusive)

    def below(self, number: int, inclusive: bool) -> BitMap:
        return self.slices.below(number - self._base, inclusive)
