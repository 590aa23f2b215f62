"""Bloom filters: which keys are certainly not in a column."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from pyroaring import BitMap

from pypaimon.streaming.filtering.indexes.bytes_reader import BytesReader
from pypaimon.streaming.filtering.indexes.column_index import ColumnIndex
from pypaimon.streaming.filtering.indexes.keys import Key, KeyType, double_bits

_MOST_FUNCTIONS = 1000
_MASK = (1 << 64) - 1
_PRIME_1, _PRIME_2 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F
_PRIME_3, _PRIME_4, _PRIME_5 = 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


class BloomFilterIndex(ColumnIndex):
    """Knows only that no row has a key; it hashes all but booleans and decimals.

    Its bytes are the number of hash functions, 4 of them, and the bits.
    """

    def __init__(self, data: bytes, keys: KeyType) -> None:
        reader = BytesReader(data)
        self._functions = reader.length()
        self._bits = data[reader.position :]
        self._keys = keys
        if not 0 < self._functions <= _MOST_FUNCTIONS or not self._bits:
            raise ValueError(f"a bloom filter of {self._functions} functions over {len(self._bits)} bytes was recorded")

    def one_of(self, keys: Sequence[Key]) -> BitMap | None:
        """See `ColumnIndex`."""
        return None if any(self._may_hold(self._hash(key)) for key in keys) else BitMap()

    def _may_hold(self, hashed: int) -> bool:
        low, high = hashed & 0xFFFFFFFF, hashed >> 32
        for function in range(1, self._functions + 1):
            # Java's int: what overflows is negative, and all of its bits are flipped then.
            combined = (low + function * high) & 0xFFFFFFFF
            if combined >> 31:
                combined ^= 0xFFFFFFFF
            bit = combined % (len(self._bits) * 8)
            if not self._bits[bit >> 3] >> (bit & 7) & 1:
                return False
        return True

    def _hash(self, key: Key) -> int:
        if isinstance(key, bytes):
            return hash_bytes(key)
        if self._keys.code == "f":
            return hash_integer(struct.unpack(">i", struct.pack(">f", math.nan if math.isnan(key) else key))[0])
        return hash_integer(double_bits(float(key)) if self._keys.code == "d" else int(key))


def hash_integer(number: int) -> int:
    """Thomas Wang's hash of a signed integer of 64 bits, as an unsigned one."""
    key = (~number + (number << 21)) & _MASK
    key ^= _shifted(key, 24)
    key = (key + (key << 3) + (key << 8)) & _MASK
    key ^= _shifted(key, 14)
    key = (key + (key << 2) + (key << 4)) & _MASK
    key ^= _shifted(key, 28)
    return (key + (key << 31)) & _MASK


def _shifted(key: int, count: int) -> int:
    """Shifted to the right with its sign, as Java's `>>`."""
    return (key >> count) | (_MASK << (64 - count) & _MASK if key >> 63 else 0)


def hash_bytes(data: bytes) -> int:
    """XXH64 with seed 0."""
    position, length = 0, len(data)
    if length >= 32:
        lanes = [(_PRIME_1 + _PRIME_2) & _MASK, _PRIME_2, 0, -_PRIME_1 & _MASK]
        while position <= length - 32:
            words = struct.unpack_from("<4Q", data, position)
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
            position += 32
        turns = zip(lanes, (1, 7, 12, 18), strict=True)
        hashed = sum(_turned(lane, count) for lane, count in turns) & _MASK
        for lane in lanes:
            hashed = ((hashed ^ _round(0, lane)) * _PRIME_1 + _PRIME_4) & _MASK
    else:
        hashed = _PRIME_5
    hashed = (hashed + length) & _MASK
    while position <= length - 8:
        hashed ^= _round(0, struct.unpack_from("<Q", data, position)[0])
        hashed = (_turned(hashed, 27) * _PRIME_1 + _PRIME_4) & _MASK
        position += 8
    if position <= length - 4:
        hashed ^= struct.unpack_from("<I", data, position)[0] * _PRIME_1 & _MASK
        hashed = (_turned(hashed, 23) * _PRIME_2 + _PRIME_3) & _MASK
        position += 4
    for byte in data[position:]:
        hashed = _turned(hashed ^ byte * _PRIME_5 & _MASK, 11) * _PRIME_1 & _MASK
    hashed = (hashed ^ hashed >> 33) * _PRIME_2 & _MASK
    hashed = (hashed ^ hashed >> 29) * _PRIME_3 & _MASK
    return hashed ^ hashed >> 32


def _round(lane: int, word: int) -> int:
    return _turned((lane + word * _PRIME_2) & _MASK, 31) * _PRIME_1 & _MASK


def _turned(number: int, count: int) -> int:
    return (number << count | number >> (64 - count)) & _MASK
