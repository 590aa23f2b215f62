"""`HashIndex`: from the hash of a key to the number of its row, in one array of numpy."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pypaimon.streaming.live.key_hashes import Hashes

Rows = npt.NDArray[np.int64]
Same = Callable[[Rows, Rows], npt.NDArray[np.bool_]]
"""Compares wanted keys, given by position, with the keys of rows, given by row number."""

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_NONE = np.uint64(0)
MOST_ROWS = 0xFFFFFFFE
_LEAST_HOMES = 64
_OVERFLOW = 64
"""Slots after the last home. The index is rebuilt if they are used up."""
_FEW_AHEAD, _AHEAD = 8, 16
"""Slots that are compared in one step: the first step, and later ones. This many at the end stay free."""
_SLOT = 8
"""Bytes."""
_UPPER, _LOWER = (slice(half, None, 2) for half in ((1, 0) if sys.byteorder == "little" else (0, 1)))
_BLOCK = 1 << 16


class HashIndex:
    """Open addressing: a key is in the first free slot from its home on. Keys are never removed.

    A slot is 0, or the hash of a key, which is not 0, in its upper 32 bits and the number of a row, plus one, in its
    lower ones. Homes ascend with hashes, so sorted slots are in their final order.

    Args:
        packed: The filled slots, in any order. The array is sorted in place.
    """

    def __init__(self, packed: Hashes | None = None) -> None:
        if packed is None:
            packed = np.zeros(0, np.uint64)
        self._fill(packed)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._slots.nbytes

    def copy(self) -> HashIndex:
        copied = HashIndex.__new__(HashIndex)
        copied._slots, copied._homes, copied._used = self._slots.copy(), self._homes, self._used
        return copied

    def __len__(self) -> int:
        return self._used

    def renumbered(self, ends: npt.NDArray[np.uint32]) -> HashIndex:
        """A copy with new row numbers, after rows without a key here were removed."""
        other = self.copy()
        lower = other._slots.view(np.uint32)[_LOWER]
        lower[...] = np.concatenate([np.zeros(1, np.uint32), ends])[lower]
        return other

    def packed(self) -> Hashes:
        """The filled slots, as a new array."""
        filled: Hashes = self._slots[self._slots != _NONE]
        return filled

    def find(self, hashes: Hashes, same: Same) -> tuple[Rows, Rows]:
        """Look for keys."""
        at = self._homes_of(hashes)
        found = np.empty(len(at), np.uint64)
        # Blocks of this size stay in the cache of the processor between two steps.
        for begin in range(0, len(at), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            found[block] = self._slots[at[block]]
            self._pass_others(hashes[block], at[block], found[block], np.arange(len(found[block])))
        hits = np.flatnonzero(found)
        while len(hits):
            wrong = hits[~same(hits, _rows(found[hits]))]
            at[wrong] += 1
            found[wrong] = self._slots[at[wrong]]
            self._pass_others(hashes, at, found, wrong)
            hits = wrong[found[wrong] != _NONE]
        return at, _rows(found)

    def rows_of_hash(self, one: int) -> list[int]:
        """The numbers of the newest rows of all keys with a hash."""
        rows = []
        at = (one * self._homes) >> 32
        while value := self._slots.item(at):
            if value >> 32 == one:
                rows.append((value & 0xFFFFFFFF) - 1)
            at += 1
        return rows

    def has_room(self, count: int) -> bool:
        """Whether this many keys usually fit without a rebuild: it still happens if many hashes are close together."""
        return (self._used + count) * 10 <= self._homes * 7

    def replace(self, at: Rows, hashes: Hashes, rows: Rows) -> None:
        """Point the keys in some slots to other rows."""
        self._slots[at] = packed_of(hashes, rows)

    def add(self, at: Rows, hashes: Hashes, rows: Rows) -> None:
        packed = packed_of(hashes, rows)
        if not self.has_room(len(packed)):
            self._fill(np.concatenate([self.packed(), packed]))
            return
        self._used += len(packed)
        slots, left = self._slots, np.arange(len(packed))
        while len(left):
            if at[left].max() >= len(slots) - _AHEAD:
                self._fill(np.concatenate([self.packed(), packed[left]]))
                return
            slots[at[left]] = packed[left]
            left = left[slots[at[left]] != packed[left]]
            occupied = left
            while len(occupied):
                at[occupied] += 1
                occupied = occupied[slots[at[occupied]] != _NONE]

    def _fill(self, packed: Hashes) -> None:
        packed.sort()
        self._used = len(packed)
        self._homes = max(_LEAST_HOMES, len(packed) * 9 // 5)
        places = np.empty(len(packed), np.int64)
        highest = -1
        for begin in range(0, len(packed), _BLOCK):
            homes = self._homes_of(packed[begin : begin + _BLOCK] >> _HALF)
            steps = np.arange(len(homes))
            homes -= steps
            homes[0] = max(int(homes[0]), highest + 1)
            np.maximum.accumulate(homes, out=homes)
            homes += steps
            highest = int(homes[-1])
            places[begin : begin + _BLOCK] = homes
        slots = np.zeros(max(self._homes, highest + 1) + _OVERFLOW, np.uint64)
        slots[places] = packed
        self._slots = slots

    def _homes_of(self, hashes: Hashes) -> Rows:
        return ((hashes * np.uint64(self._homes)) >> _HALF).view(np.int64)

    def _pass_others(self, hashes: Hashes, at: Rows, found: Hashes, pending: Rows) -> None:
        pending = pending[_are_others(found[pending], hashes[pending])]
        places, wanted, ahead = at[pending], hashes[pending].astype(np.uint32), _FEW_AHEAD
        while len(pending):
            values = self._following(places, ahead)
            ends = values == wanted[:, np.newaxis]
            ends |= values == 0
            steps = ends.argmax(axis=1)
            unfinished = ~ends[np.arange(len(steps)), steps]
            places += steps + 1
            at[pending], found[pending] = places, self._slots[places]
            pending, wanted = pending[unfinished], wanted[unfinished]
            places = places[unfinished] + (ahead - 1)
            ahead = _AHEAD

    def _following(self, places: Rows, count: int) -> npt.NDArray[np.uint32]:
        slots = np.ndarray((len(self._slots) - count + 1, count), np.uint64, self._slots, strides=(_SLOT, _SLOT))
        return slots[places + 1].view(np.uint32)[:, _UPPER]


def _are_others(values: Hashes, hashes: Hashes) -> npt.NDArray[np.bool_]:
    others: npt.NDArray[np.bool_] = (values >> _HALF) != hashes
    others &= values != _NONE
    return others


def packed_of(hashes: Hashes, rows: Rows) -> Hashes:
    return (hashes << _HALF) | (rows + 1).view(np.uint64)


def rows_and_hashes(packed: Hashes) -> tuple[Rows, Hashes]:
    return _rows(packed), packed >> _HALF


def _rows(packed: Hashes) -> Rows:
    return (packed & _LOW).view(np.int64) - 1
