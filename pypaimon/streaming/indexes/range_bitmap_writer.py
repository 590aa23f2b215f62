"""`RangeBitmapWriter` and `BsiWriter`: the indexes that `range_bitmap` reads, byte for byte as Java makes them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.indexes.bitmap import places_in_order, serialized, serialized_keys
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions

_Numbers = npt.NDArray[np.int64]
_VERSION = b"\x01"
_OFFSET_BYTES = 4
_EMPTY_SLICES = 64
"""Slices of an index without values, as in Java."""


def _slices(rows: _Numbers, numbers: _Numbers, width: int) -> list[bytes]:
    return [serialized(rows[(numbers >> bit & 1).astype(np.bool_)]) for bit in range(width)]


class BsiWriter:
    """Makes the bit-sliced index of one column of integers of one file."""

    def __init__(self) -> None:
        self._keys: list[pa.Array] = []

    def add(self, keys: pa.Array) -> None:
        self._keys.append(keys)

    def data(self) -> bytes | None:
        found = pa.chunked_array(self._keys).combine_chunks().cast(pa.int64())
        rows = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        numbers = found.drop_null().to_numpy()
        if len(numbers) and numbers.min() == np.iinfo(np.int64).min:
            # It has no absolute value, so such an index cannot hold it. Java's writer fails.
            return None
        sides = [self._side(rows[side], np.abs(numbers[side])) for side in (numbers >= 0, numbers < 0)]
        return _VERSION + struct.pack(">i", len(found)) + b"".join(sides)

    @staticmethod
    def _side(rows: _Numbers, numbers: _Numbers) -> bytes:
        if not len(rows):
            return b"\0"
        greatest = int(numbers.max())
        width = greatest.bit_length()
        head = b"\x01" + _VERSION + struct.pack(">qq", 0, greatest)
        return head + serialized(rows) + struct.pack(">i", width) + b"".join(_slices(rows, numbers, width))


class RangeBitmapWriter:
    """Makes the range bitmap of one column of one file, by the option `chunk-size`."""

    def __init__(self, options: TableOptions, kind: pa.DataType) -> None:
        given = option_keys.FILE_INDEX_RANGE_BITMAP_CHUNK_SIZE.last.of(options)
        # With keys this small one key is a chunk.
        is_small = pa.types.is_boolean(kind) or pa.types.is_int8(kind) or pa.types.is_int16(kind)
        self._chunk_bytes = given if given is not None else 0 if is_small else 16 << 10
        self._floats = bool(pa.types.is_floating(kind))
        self._keys: list[pa.Array] = []

    def add(self, keys: pa.Array) -> None:
        self._keys.append(keys)

    def data(self) -> bytes:
        found = pa.chunked_array(self._keys).combine_chunks().dictionary_encode()
        order = places_in_order(found.dictionary, floats=self._floats)
        keys = list(serialized_keys(found.dictionary.take(pa.array(order))))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        rows = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        codes = ranks[found.indices.drop_null().to_numpy()]
        dictionary = self._dictionary(keys, fixed=not pa.types.is_large_binary(found.dictionary.type))
        head = _VERSION + struct.pack(">ii", len(found), len(keys))
        head += b"".join((keys[0], keys[-1])) if keys else b""
        head += struct.pack(">i", len(dictionary))
        return _with_length(head) + dictionary + self._bits(rows, codes, len(keys))

    def _dictionary(self, keys: Sequence[bytes], *, fixed: bool) -> bytes:
        heads: list[bytes] = []
        bodies: list[bytes] = []
        place = 0
        for code, chunk in self._chunks(keys, fixed=fixed):
            first, others = chunk[0], chunk[1:]
            content = b"".join(others)
            if fixed:
                sizes = len(content), len(first)
            else:
                starts = list(accumulate(map(len, others), initial=0))[:-1]
                offsets = struct.pack(f">{len(others)}i", *starts)
                sizes = len(offsets), len(content)
                content = offsets + content
            heads.append(_VERSION + first + struct.pack(">iiiii", code, place, len(others), *sizes))
            bodies.append(content)
            place += len(content)
        ends = list(accumulate(map(len, heads), initial=0))
        offsets = struct.pack(f">{len(heads)}i", *ends[:-1])
        head = _VERSION + struct.pack(">iii", len(heads), len(offsets), ends[-1])
        return _with_length(head) + offsets + b"".join(heads) + b"".join(bodies)

    def _chunks(self, keys: Sequence[bytes], *, fixed: bool) -> Iterable[tuple[int, Sequence[bytes]]]:
        """Keys, each chunk with the place of its first one, which takes no room in it."""
        if fixed and keys:
            length = 1 + self._chunk_bytes // len(keys[0])
            yield from ((start, keys[start : start + length]) for start in range(0, len(keys), length))
            return
        start, size = 0, 0
        for place, key in enumerate(keys):
            if place == start:
                continue
            is_full = size + len(key) > self._chunk_bytes or _OFFSET_BYTES * (place - start) > self._chunk_bytes
            if is_full:
                yield start, keys[start:place]
                start, size = place, 0
            else:
                size += len(key)
        if keys:
            yield start, keys[start:]

    @staticmethod
    def _bits(rows: _Numbers, codes: _Numbers, distinct: int) -> bytes:
        width = max(1, (distinct - 1).bit_length()) if distinct else _EMPTY_SLICES
        valid, slices = serialized(rows), _slices(rows, codes, width)
        starts = accumulate(map(len, slices), initial=0)
        entries = b"".join(struct.pack(">ii", start, len(each)) for start, each in zip(starts, slices, strict=False))
        head = _VERSION + struct.pack(">Bii", width, len(valid), len(entries)) + entries
        return _with_length(head) + valid + b"".join(slices)


def _with_length(head: bytes) -> bytes:
    return struct.pack(">i", len(head)) + head
