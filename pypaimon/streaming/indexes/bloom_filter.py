"""Bloom filters: which keys are certainly not in a column."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.indexes.column_index import ColumnIndex, Key, KeyType, double_bits
from pypaimon.streaming.indexes.container import BytesReader
from pypaimon.streaming.indexes.hashes import hash_of, hashes_of
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions

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
    """Makes the filter of one column of one file.

    Args:
        options: Options of the index: `items`, the expected number of values, and `fpp`, the share of false positives.

    Raises:
        StreamConfigError: An option is invalid.
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
        """Add the keys of more rows."""
        hashes = hashes_of(keys.drop_null().unique())
        low, high = hashes.astype(np.uint32), (hashes >> np.uint64(32)).astype(np.uint32)
        for function in range(1, self._functions + 1):
            combined = low + np.uint32(function) * high
            # Java flips all bits of a negative number.
            combined = np.where(combined >> np.uint32(31), ~combined, combined)
            place = combined % np.uint32(len(self._bytes) * 8)
            np.bitwise_or.at(self._bytes, place >> np.uint32(3), (1 << (place & np.uint32(7))).astype(np.uint8))

    def data(self) -> bytes:
        """The bytes of the index."""
        return struct.pack(">i", self._functions) + self._bytes.tobytes()
