"""`HashIndex`: from the hash of a key to the number of its row, in one array of numpy."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]
"""32 bits each, and not 0."""

_MASK = (1 << 64) - 1
_FIRST, _SECOND = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
_LONG = 256
"""Bytes; longer values are hashed one by one."""
_WORD = 8


def comparable(column: pa.Array) -> pa.Array:
    """A key column as integers, bytes or decimals that are equal as Java's keys are: NaN equals NaN, 0.0 not -0.0."""
    kind = column.type
    if pa.types.is_floating(kind):
        column = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), kind), column)
        return column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    if pa.types.is_temporal(kind):
        return column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return column
    return column.cast(pa.binary())


def hashes_of(columns: Sequence[pa.Array]) -> Hashes:
    total: Hashes | None = None
    for column in columns:
        if column.null_count:
            column = pc.fill_null(column, _zero(column.type))
        if pa.types.is_binary(column.type):
            hashed = _hashed_bytes(column)
        elif pa.types.is_decimal(column.type):
            words = np.frombuffer(column.buffers()[1], np.uint64).reshape(-1, column.type.byte_width // _WORD)
            words = words[column.offset : column.offset + len(column)]
            hashed = np.zeros(len(column), np.uint64)
            for number in range(words.shape[1]):
                hashed = _mixed(hashed ^ words[:, number])
        else:
            hashed = _mixed(column.to_numpy().astype(np.int64).view(np.uint64))
        total = hashed if total is None else _mixed(total + hashed)
    assert total is not None
    hashes: Hashes = np.maximum(total >> np.uint64(32), np.uint64(1))
    return hashes


def hash_of_one(values: Sequence[int | bytes]) -> int:
    total = None
    for value in values:
        hashed = _bytes_hashed(value) if isinstance(value, bytes) else _int_mixed(value & _MASK)
        total = hashed if total is None else _int_mixed((total + hashed) & _MASK)
    assert total is not None
    return max(total >> 32, 1)


def are_equal(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Whether two keys are equal, row by row. Their columns are `comparable`; two nulls are equal."""
    equal = np.ones(len(left[0]), np.bool_)
    for one, other in zip(left, right, strict=True):
        if one.null_count or other.null_count:
            same = pc.fill_null(pc.equal(one, other), False)
            same = pc.or_(same, pc.and_(one.is_null(), other.is_null()))
        else:
            same = pc.equal(one, other)
        equal &= same.to_numpy(zero_copy_only=False)
    return equal


def last_of_each(columns: Sequence[pa.Array], hashes: Hashes) -> npt.NDArray[np.int64] | None:
    """The last row of each key, in order. None if every row is."""
    ordered = (hashes << np.uint64(32)) | np.arange(len(hashes), dtype=np.uint64)
    ordered.sort()
    rows = (ordered & np.uint64(0xFFFFFFFF)).astype(np.int64)
    ordered >>= np.uint64(32)
    together = np.flatnonzero(ordered[1:] == ordered[:-1])
    if not len(together):
        return None
    earlier, later = pa.array(rows[together]), pa.array(rows[together + 1])
    if are_equal([each.take(earlier) for each in columns], [each.take(later) for each in columns]).all():
        is_last = np.ones(len(hashes), np.bool_)
        is_last[rows[together]] = False
        return np.flatnonzero(is_last)
    # Different keys share a hash, and may stand between two equal ones.
    is_last = np.ones(len(hashes), np.bool_)
    is_last[rows[together]] = is_last[rows[together + 1]] = False
    several = pa.array(np.flatnonzero(~is_last))
    names = [f"key {number}" for number in range(len(columns))]
    numbered = pa.table([*(each.take(several) for each in columns), several], [*names, "row"])
    is_last[numbered.group_by(names).aggregate([("row", "max")])["row_max"].to_numpy()] = True
    return None if is_last.all() else np.flatnonzero(is_last)


def _zero(kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(b"" if pa.types.is_binary(kind) else 0, kind)


def _mixed(values: Hashes) -> Hashes:
    mixed = values ^ (values >> np.uint64(33))
    mixed *= np.uint64(_FIRST)
    mixed ^= mixed >> np.uint64(33)
    mixed *= np.uint64(_SECOND)
    mixed ^= mixed >> np.uint64(33)
    return mixed


def _int_mixed(value: int) -> int:
    value = ((value ^ (value >> 33)) * _FIRST) & _MASK
    value = ((value ^ (value >> 33)) * _SECOND) & _MASK
    return value ^ (value >> 33)


def _hashed_bytes(column: pa.Array) -> Hashes:
    _, offsets, data = column.buffers()
    places = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    begins, lengths = places[:-1], np.diff(places)
    hashed = lengths.astype(np.uint64)
    if not len(column) or places[0] == places[-1]:
        return _mixed(hashed)
    first = int(places[0])
    padded = np.zeros(int(places[-1]) - first + _WORD, np.uint8)
    padded[:-_WORD] = np.frombuffer(data, np.uint8)[first : places[-1]]
    words = np.ndarray(len(padded) - _WORD + 1, np.dtype("<u8"), padded, strides=(1,))
    left = np.flatnonzero((lengths > 0) & (lengths <= _LONG))
    at = begins[left] - first
    rest = lengths[left]
    while len(left):
        word = words[at]
        short = rest < _WORD
        word[short] &= (np.uint64(1) << (rest[short] * 8).astype(np.uint64)) - np.uint64(1)
        hashed[left] = _mixed(hashed[left] ^ word)
        more = rest > _WORD
        left, at, rest = left[more], at[more] + _WORD, rest[more] - _WORD
    for row in np.flatnonzero(lengths > _LONG):
        begin = int(begins[row]) - first
        hashed[row] = _long_hashed(padded[begin : begin + int(lengths[row])].tobytes())
    return _mixed(hashed)


def _bytes_hashed(value: bytes) -> int:
    if len(value) > _LONG:
        return _int_mixed(_long_hashed(value))
    hashed = len(value)
    for begin in range(0, len(value), _WORD):
        hashed = _int_mixed(hashed ^ int.from_bytes(value[begin : begin + _WORD], "little"))
    return _int_mixed(hashed)


def _long_hashed(value: bytes) -> int:
    return zlib.crc32(value) << 32 | zlib.adler32(value)


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
