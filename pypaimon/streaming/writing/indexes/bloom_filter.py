"""`BloomFilter`: the index by which a value is certainly not in a file."""

from __future__ import annotations

import math
import struct

import numpy as np
import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.writing.indexes.hashes import hashes_of

_ITEMS, _FALSE = 1_000_000, "0.1"


class BloomFilter:
    """The filter of one column of one file.

    Args:
        options: Of the index: `items`, for how many values it is made, and `fpp`, how many others it takes for there.

    Raises:
        StreamConfigError: One of them cannot be read.
    """

    def __init__(self, options: OptionValues) -> None:
        items = options.integer("items")
        items = _ITEMS if items is None else items
        text = options.text("fpp") or _FALSE
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
        """Take the keys of more rows."""
        hashes = hashes_of(keys.drop_null().unique())
        low, high = hashes.astype(np.uint32), (hashes >> np.uint64(32)).astype(np.uint32)
        for function in range(1, self._functions + 1):
            combined = low + np.uint32(function) * high
            # Of what would be negative in Java, all bits are flipped.
            combined = np.where(combined >> np.uint32(31), ~combined, combined)
            place = combined % np.uint32(len(self._bytes) * 8)
            np.bitwise_or.at(self._bytes, place >> np.uint32(3), (1 << (place & np.uint32(7))).astype(np.uint8))

    def data(self) -> bytes:
        """The index."""
        return struct.pack(">i", self._functions) + self._bytes.tobytes()
