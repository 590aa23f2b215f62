"""Bit-sliced indexes (`bsi`): a bitmap of the rows that have a number, and one for each bit that is set in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyroaring import BitMap

from pypaimon.streaming.indexes.bitmap import read_bitmap
from pypaimon.streaming.indexes.column_index import ColumnIndex, Key, KeyType
from pypaimon.streaming.indexes.container import BytesReader

_MOST_SLICES = 64


class BitSlices:
    """Compares the numbers of all rows with one number, bit by bit.

    Args:
        slices: Returns the rows in whose number a bit is set; bit 0 is the lowest.
    """

    def __init__(self, rows: BitMap, slices: Callable[[int], BitMap], width: int) -> None:
        self.rows = rows
        self._slices = slices
        self._width = width

    def equal(self, number: int) -> BitMap:
        """Rows with this number."""
        return self._compared(number)[0]

    def above(self, number: int, inclusive: bool) -> BitMap:
        """Rows with a greater number, or with this one."""
        equal, greater = self._compared(number)
        return greater | equal if inclusive else greater

    def below(self, number: int, inclusive: bool) -> BitMap:
        """Rows with a smaller number, or with this one."""
        return self.rows - self.above(number, not inclusive)

    def _compared(self, number: int) -> tuple[BitMap, BitMap]:
        """Rows with this number, and with a greater one."""
        if number < 0:
            return BitMap(), BitMap(self.rows)
        if number >> self._width:
            return BitMap(), BitMap()
        equal, greater = BitMap(self.rows), BitMap()
        for bit in reversed(range(self._width)):
            if not equal:
                break
            rows = self._slices(bit)
            if number >> bit & 1:
                equal &= rows
            else:
                greater |= equal & rows
                equal -= rows
        return equal, greater


class BsiIndex(ColumnIndex):
    """Knows nulls, equal values and ranges of integers; those below zero are held by their absolute values."""

    def __init__(self, data: bytes, keys: KeyType) -> None:
        if keys.is_floating or keys.code is None:
            raise ValueError("a bit-sliced index of values that are not integers")
        reader = BytesReader(data)
        reader.version(1)
        self.row_count = reader.length()
        self._positive = _Side(reader if reader.flag() else None)
        self._negative = _Side(reader if reader.flag() else None)

    def valid(self) -> BitMap | None:
        return self._positive.slices.rows | self._negative.slices.rows

    def one_of(self, keys: Sequence[Key]) -> BitMap | None:
        return BitMap.union(BitMap(), *(self._equal(int(key)) for key in keys))

    def above(self, key: Key, inclusive: bool) -> BitMap | None:
        number = int(key)
        if number < 0:
            return self._positive.slices.rows | self._negative.below(-number, inclusive)
        return self._positive.above(number, inclusive)

    def below(self, key: Key, inclusive: bool) -> BitMap | None:
        number = int(key)
        if number < 0:
            return self._negative.above(-number, inclusive)
        return self._negative.slices.rows | self._positive.below(number, inclusive)

    def _equal(self, number: int) -> BitMap:
        return self._negative.equal(-number) if number < 0 else self._positive.equal(number)


class _Side:
    """The absolute values of the numbers of one sign, minus the smallest of them."""

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
                raise ValueError(f"a bit-sliced index has {count} slices")
            slices = [read_bitmap(reader) for _ in range(count)]
        self.slices = BitSlices(rows, slices.__getitem__, len(slices))

    def equal(self, number: int) -> BitMap:
        return self.slices.equal(number - self._base)

    def above(self, number: int, inclusive: bool) -> BitMap:
        return self.slices.above(number - self._base, inclusive)

    def below(self, number: int, inclusive: bool) -> BitMap:
        return self.slices.below(number - self._base, inclusive)
