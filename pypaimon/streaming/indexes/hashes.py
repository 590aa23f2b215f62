"""Hashes of keys in bloom filters: Thomas Wang's of integers, XXH64 with seed 0 of bytes.

Both are the same code for one key and for many. `xxhash` would be 60 times faster for one text, but no faster for many
of them, and no dependency brings it along.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
    """The hash of each key."""
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
