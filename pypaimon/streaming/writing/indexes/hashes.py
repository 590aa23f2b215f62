"""Hashes of keys for bloom filters: of whole numbers Thomas Wang's, of bytes XXH64 with seed 0."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]

_MOST_BYTES = 8 << 20
"""Bytes of keys of one length that are hashed at once."""

_PRIME_1, _PRIME_2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3, _PRIME_4 = np.uint64(0x165667B19E3779F9), np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_LANES = 0x60EA27EEADC0B5D6, 0xC2B2AE3D27D4EB4F, 0, 0x61C8864E7A143579
"""With seed 0: the first two primes together, the second one, 0, the first one taken from 0."""


def hashes_of(keys: pa.Array) -> Hashes:
    """The hash of each key.

    Args:
        keys: Integers or large binary, without nulls.
    """
    if not pa.types.is_large_binary(keys.type):
        return _of_numbers(keys.cast(pa.int64()).to_numpy())
    _, offsets, data = keys.buffers()
    starts = np.frombuffer(offsets, np.int64)[keys.offset : keys.offset + len(keys) + 1]
    content = np.frombuffer(data or b"", np.uint8)
    lengths = np.diff(starts)
    hashes = np.empty(len(keys), np.uint64)
    for rows in _alike(lengths):
        length = int(lengths[rows[0]])
        hashes[rows] = _of_bytes(content[starts[rows][:, None] + np.arange(length)])
    return hashes


def _alike(lengths: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    """Rows of one length, not too many at once."""
    order = np.argsort(lengths, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1) if len(lengths) else ():
        most = max(1, _MOST_BYTES // max(1, int(lengths[group[0]])))
        yield from (group[first : first + most] for first in range(0, len(group), most))


def _of_numbers(key: npt.NDArray[np.int64]) -> Hashes:
    # Shifts to the right keep the sign.
    key = ~key + (key << 21)
    key = key ^ (key >> 24)
    key = key + (key << 3) + (key << 8)
    key = key ^ (key >> 14)
    key = key + (key << 2) + (key << 4)
    key = key ^ (key >> 28)
    return (key + (key << 31)).view(np.uint64)


def _of_bytes(data: npt.NDArray[np.uint8]) -> Hashes:
    """Of rows that are equally long."""
    count, length = data.shape
    words = np.ascontiguousarray(data[:, : length // 8 * 8]).view("<u8")
    used = 0
    if length >= 32:
        lanes = [np.full(count, each, np.uint64) for each in _LANES]
        for used in range(0, length // 32 * 4, 4):
            lanes = [_round(lane, words[:, used + number]) for number, lane in enumerate(lanes)]
        used += 4
        hashed = _turned(lanes[0], 1) + _turned(lanes[1], 7) + _turned(lanes[2], 12) + _turned(lanes[3], 18)
        for lane in lanes:
            hashed = (hashed ^ _round(np.zeros(count, np.uint64), lane)) * _PRIME_1 + _PRIME_4
    else:
        hashed = np.full(count, _PRIME_5, np.uint64)
    hashed = hashed + np.uint64(length)
    for number in range(used, length // 8):
        hashed = hashed ^ _round(np.zeros(count, np.uint64), words[:, number])
        hashed = _turned(hashed, 27) * _PRIME_1 + _PRIME_4
    position = length // 8 * 8
    if length - position >= 4:
        half = np.ascontiguousarray(data[:, position : position + 4]).view("<u4")[:, 0].astype(np.uint64)
        hashed = _turned(hashed ^ half * _PRIME_1, 23) * _PRIME_2 + _PRIME_3
        position += 4
    for column in range(position, length):
        hashed = _turned(hashed ^ data[:, column].astype(np.uint64) * _PRIME_5, 11) * _PRIME_1
    hashed = (hashed ^ hashed >> np.uint64(33)) * _PRIME_2
    hashed = (hashed ^ hashed >> np.uint64(29)) * _PRIME_3
    return hashed ^ hashed >> np.uint64(32)


def _round(lane: Hashes, word: Hashes) -> Hashes:
    return _turned(lane + word * _PRIME_2, 31) * _PRIME_1


def _turned(number: Hashes, count: int) -> Hashes:
    return number << np.uint64(count) | number >> np.uint64(64 - count)
