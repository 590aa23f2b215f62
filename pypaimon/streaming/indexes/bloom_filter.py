"""Bloom filters: which keys are certainly not in a column."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.indexes.column_index import ColumnIndex, Key, KeyType, double_bits
from pypaimon.streaming.indexes.container import BytesReader
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions

Hashes = npt.NDArray[np.uint64]
_Word: TypeAlias = Any
"""An unsigned integer of 64 bits, or an array of them (`Hashes`)."""
_Words: TypeAlias = Any
"""A sequence of these."""

_MOST_BYTES = 8 << 20
"""Bytes of keys of one length to hash at once."""

_MASK = (1 << 64) - 1
_PRIME_1, _PRIME_2 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F
_PRIME_3, _PRIME_4, _PRIME_5 = 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_LANES = (_PRIME_1 + _PRIME_2) & _MASK, _PRIME_2, 0, -_PRIME_1 & _MASK
_LANE_TURNS = 1, 7, 12, 18


def hashes_of(keys: pa.Array) -> Hashes:
    if not pa.types.is_large_binary(keys.type):
        numbers: Hashes = _wang(keys.cast(pa.int64()).to_numpy()).view(np.uint64)
        return numbers
    _, offsets, data = keys.buffers()
    starts = np.frombuffer(offsets, np.int64)[keys.offset : keys.offset + len(keys) + 1]
    content = np.frombuffer(data or b"", np.uint8)
    lengths = np.diff(starts)
    hashes = np.empty(len(keys), np.uint64)
    for rows in _of_one_length(lengths):
        length = int(lengths[rows[0]])
        data = content[starts[rows][:, None] + np.arange(length)]
        words = np.ascontiguousarray(data[:, : length // 8 * 8]).view("<u8").T
        rest = data[:, length // 8 * 8 :]
        half = np.ascontiguousarray(rest[:, :4]).view("<u4").T.astype(np.uint64) if length & 4 else ()
        hashes[rows] = _xxh64(length, words, half, rest[:, length & 4 :].T.astype(np.uint64))
    return hashes


def hash_of(key: int | bytes) -> int:
    """The hash of one key; integers are signed, of 64 bits."""
    if isinstance(key, int):
        return int(_wang(key) & _MASK)
    whole = len(key) // 8 * 8
    words = struct.unpack_from(f"<{whole // 8}Q", key)
    half = struct.unpack_from("<I", key, whole) if len(key) & 4 else ()
    hashed: int = _xxh64(len(key), words, half, key[whole + (len(key) & 4) :])
    return hashed


def _of_one_length(lengths: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    order = np.argsort(lengths, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1) if len(lengths) else ():
        most = max(1, _MOST_BYTES // max(1, int(lengths[group[0]])))
        yield from (group[first : first + most] for first in range(0, len(group), most))


def _wang(key: Any) -> Any:
    """The hash of signed numbers; right shifts keep the sign."""
    key = _signed(~key + (key << 21))
    key = key ^ (key >> 24)
    key = _signed(key + (key << 3) + (key << 8))
    key = key ^ (key >> 14)
    key = _signed(key + (key << 2) + (key << 4))
    key = key ^ (key >> 28)
    return _signed(key + (key << 31))


def _signed(number: Any) -> Any:
    """Wrap to 64 bits, as arrays do by themselves."""
    return (number + (1 << 63) & _MASK) - (1 << 63) if isinstance(number, int) else number


def _xxh64(length: int, words: _Words, half: _Words, rest: _Words) -> _Word:
    used = 0
    if length >= 32:
        lanes: list[_Word] = list(_LANES)
        used = length // 32 * 4
        for first in range(0, used, 4):
            lanes = [_round(lane, words[first + number]) for number, lane in enumerate(lanes)]
        hashed = sum(map(_turned, lanes, _LANE_TURNS)) & _MASK
        for lane in lanes:
            hashed = ((hashed ^ _round(0, lane)) * _PRIME_1 + _PRIME_4) & _MASK
    else:
        hashed = _PRIME_5
    hashed = (hashed + length) & _MASK
    for word in words[used:]:
        hashed = (_turned(hashed ^ _round(0, word), 27) * _PRIME_1 + _PRIME_4) & _MASK
    for word in half:
        hashed = (_turned(hashed ^ (word * _PRIME_1 & _MASK), 23) * _PRIME_2 + _PRIME_3) & _MASK
    for byte in rest:
        hashed = _turned(hashed ^ (byte * _PRIME_5 & _MASK), 11) * _PRIME_1 & _MASK
    hashed = (hashed ^ hashed >> 33) * _PRIME_2 & _MASK
    hashed = (hashed ^ hashed >> 29) * _PRIME_3 & _MASK
    return hashed ^ hashed >> 32


def _round(lane: _Word, word: _Word) -> _Word:
    return _turned((lane + word * _PRIME_2) & _MASK, 31) * _PRIME_1 & _MASK


def _turned(number: _Word, count: int) -> _Word:
    return (number << count | number >> (64 - count)) & _MASK


_MOST_FUNCTIONS = 1000


class BloomFilterIndex(ColumnIndex):
    """Knows only that no row has a key. Java has none of booleans and decimals.

    The first four bytes are the number of hash functions, the others the bits.
    """

    def __init__(self, data: bytes, keys: KeyType) -> None:
        reader = BytesReader(data)
        self._functions = reader.length()
        self._bits = data[reader.position :]
        self._keys = keys
        if not 0 < self._functions <= _MOST_FUNCTIONS or not self._bits:
            raise ValueError(f"invalid bloom filter of {self._functions} functions and {len(self._bits)} bytes")

    def one_of(self, keys: Sequence[Key]) -> BitMap | None:
        return None if any(self._may_hold(self._hash(key)) for key in keys) else BitMap()

    def _may_hold(self, hashed: int) -> bool:
        low, high = hashed & 0xFFFFFFFF, hashed >> 32
        for function in range(1, self._functions + 1):
            # Java's int: if it overflows it is negative, and all bits are flipped.
            combined = (low + function * high) & 0xFFFFFFFF
            if combined >> 31:
                combined ^= 0xFFFFFFFF
            bit = combined % (len(self._bits) * 8)
            if not self._bits[bit >> 3] >> (bit & 7) & 1:
                return False
        return True

    def _hash(self, key: Key) -> int:
        if isinstance(key, bytes):
            return hash_of(key)
        if self._keys.code == "f":
            return hash_of(struct.unpack(">i", struct.pack(">f", math.nan if math.isnan(key) else key))[0])
        return hash_of(double_bits(float(key)) if self._keys.code == "d" else int(key))


class BloomFilterWriter:
    """Makes the filter of one column of one file, by the options `items`, the expected number of values, and `fpp`, the
    share of false positives.
    """

    def __init__(self, options: TableOptions) -> None:
        items = option_keys.FILE_INDEX_BLOOM_FILTER_ITEMS.last.of(options)
        text = option_keys.FILE_INDEX_BLOOM_FILTER_FPP.last.of(options)
        try:
            share = float(text)
        except ValueError:
            share = math.nan
        if items < 1 or not 0 < share < 1:
            raise StreamConfigError(
                f"'file-index.bloom-filter': expected items from 1 and fpp between 0 and 1, got {items} and {text}."
            )
        bits = int(-items * math.log(share) / (math.log(2) * math.log(2)))
        size = bits + 8 - bits % 8
        self._functions = max(1, math.floor(size / items * math.log(2) + 0.5))
        self._bytes = np.zeros(size // 8, np.uint8)

    def add(self, keys: pa.Array) -> None:
        hashes = hashes_of(keys.drop_null().unique())
        low, high = hashes.astype(np.uint32), (hashes >> np.uint64(32)).astype(np.uint32)
        for function in range(1, self._functions + 1):
            combined = low + np.uint32(function) * high
            # Java flips all bits of a negative number.
            combined = np.where(combined >> np.uint32(31), ~combined, combined)
            place = combined % np.uint32(len(self._bytes) * 8)
            np.bitwise_or.at(self._bytes, place >> np.uint32(3), (1 << (place & np.uint32(7))).astype(np.uint8))

    def data(self) -> bytes:
        return struct.pack(">i", self._functions) + self._bytes.tobytes()
