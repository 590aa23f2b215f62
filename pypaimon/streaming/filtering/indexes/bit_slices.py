"""Bit-sliced numbers of rows: a bitmap of the rows that have a number, and one for each bit that is set in it."""

from __future__ import annotations

from collections.abc import Callable

from pyroaring import BitMap


class BitSlices:
    """Compares the numbers of all rows with one, slice by slice.

    Args:
        rows: Those that have a number.
        slices: What gives the rows in whose number a bit is set, from the lowest bit on.
        width: Number of slices.
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
