"""Space-filling curves: the place of each row on a curve through the values of several columns.

Rows that are near each other on the curve have similar values in every column, so that a file of neighbours has narrow
statistics in each. For the z-order values become bits as in Java's `ZIndexer`, unless these do not have the order of
the values (decimals, floats). As there, a column whose values differ more counts more. On Hilbert's curve all columns
count alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.merge.ordering import decimal_words, numeric_codes, padded_bytes

Words: TypeAlias = npt.NDArray[np.uint64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_WORD_BYTES = 8
_SIGN = np.uint64(1 << 63)
_GREATEST = (1 << 64) - 1
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def zorder(columns: Sequence[pa.Array], var_length_bytes: int) -> list[Words]:
    """The places of rows on the z-order curve, as words of 64 bits, the first one the most significant.

    Args:
        var_length_bytes: Number of leading bytes of texts and bytes that count.
    """
    parts = [_leading_bytes(column, var_length_bytes) for column in columns]
    bits = np.concatenate([np.unpackbits(part, axis=1) for part in parts], axis=1)
    # Bit after bit: the highest one of each column, then the next one of those that have more.
    starts = np.cumsum([0, *(8 * part.shape[1] for part in parts)])
    widths = [8 * part.shape[1] for part in parts]
    order = [
        start + bit
        for bit in range(max(widths))
        for start, width in zip(starts.tolist(), widths, strict=False)
        if bit < width
    ]
    return _words(np.packbits(bits[:, order], axis=1))


@dataclass(frozen=True, slots=True)
class WordRange:
    """The range of a column's values, as words, that is spread over all words. Others are taken for its ends."""

    least: int
    greatest: int

    @staticmethod
    def of(sample: pa.ChunkedArray) -> WordRange:
        """A range with twice the width of some values, in case others are outside of these."""
        values = sample.drop_null().combine_chunks()
        words = _first_word(values)
        if not len(words):
            return WordRange(0, _GREATEST)
        least, greatest = int(words.min()), int(words.max())
        margin = (greatest - least) // 2
        return WordRange(max(0, least - margin), min(_GREATEST, greatest + margin))

    def spread(self, words: Words) -> Words:
        shift = 64 - max(1, (self.greatest - self.least).bit_length())
        least = np.uint64(self.least)
        found: Words = (np.clip(words, least, np.uint64(self.greatest)) - least) << np.uint64(shift)
        return found


def hilbert(columns: Sequence[pa.Array], ranges: Sequence[WordRange]) -> list[Words]:
    """The places of rows on Hilbert's curve, as words of 64 bits, the first one the most significant.

    J. Skilling, "Programming the Hilbert curve" (2004), for all rows at once.
    """
    axes = [each.spread(_first_word(column)) for column, each in zip(columns, ranges, strict=True)]
    first = axes[0]
    for number in range(63, 0, -1):
        bit, low = np.uint64(1 << number), np.uint64((1 << number) - 1)
        for place, axis in enumerate(axes):
            is_set = (axis & bit) != 0
            # Invert the first axis where the bit is set, otherwise exchange its lower bits with those of this axis.
            exchanged = np.where(is_set, np.uint64(0), (first ^ axis) & low)
            first ^= np.where(is_set, low, exchanged)
            if place:
                axis ^= exchanged
    for before, axis in pairwise(axes):
        axis ^= before
    # Gray's code: each bit of the last axis inverts all lower ones.
    inverted = axes[-1] >> np.uint64(1)
    for shift in (1, 2, 4, 8, 16, 32):
        inverted ^= inverted >> np.uint64(shift)
    for axis in axes:
        axis ^= inverted
    return zorder([pa.array(axis) for axis in axes], _WORD_BYTES)


def _leading_bytes(column: pa.Array, var_length_bytes: int) -> Bytes:
    """Bytes that have the order of the values. Those of null are zeros."""
    if _is_bytes(column.type):
        values = pc.fill_null(column.cast(pa.binary()), b"")
        return padded_bytes(pc.binary_slice(values, 0, var_length_bytes), var_length_bytes)
    return _ordered(column).astype(">u8").view(np.uint8).reshape(-1, _WORD_BYTES)


def _first_word(column: pa.Array) -> Words:
    if _is_bytes(column.type):
        return _words(_leading_bytes(column, _WORD_BYTES))[0]
    return _ordered(column)


def _ordered(column: pa.Array) -> Words:
    """Values that are not bytes as words in their order; 0 for null."""
    words = _ordered_values(column)
    return (
        np.where(column.is_valid().to_numpy(zero_copy_only=False), words, np.uint64(0)) if column.null_count else words
    )


def _ordered_values(column: pa.Array) -> Words:
    kind = column.type
    if pa.types.is_unsigned_integer(kind):
        return np.array(column.to_numpy(zero_copy_only=False), np.uint64)
    if pa.types.is_floating(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_boolean(kind):
        # The highest bit, as large values of other columns have it.
        bits: Words = column.cast(pa.uint64()).fill_null(0).to_numpy(zero_copy_only=False)
        return np.left_shift(bits, np.uint64(63))
    numbers = numeric_codes(column)
    if numbers is None:
        return _decimals(column)
    if pa.types.is_timestamp(kind):
        # Milliseconds, so that columns of any precision count alike.
        per_second = _PER_SECOND[kind.unit]
        numbers = numbers * (1000 // per_second) if per_second < 1000 else numbers // (per_second // 1000)
    return np.bitwise_xor(numbers.astype(np.int64).view(np.uint64), _SIGN)


def _decimals(column: pa.Array) -> Words:
    """The highest 64 of the bits that a decimal of more than 18 digits may have."""
    words = decimal_words(column).view(np.uint64)
    dropped = max(0, int(10**column.type.precision).bit_length() + 1 - 64)
    low, high = words[:, 0], words[:, 1]
    if dropped:
        low = (low >> np.uint64(dropped)) | (high << np.uint64(64 - dropped)) if dropped < 64 else high
    return np.bitwise_xor(low, _SIGN)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind)) and not (
        pa.types.is_decimal(kind)
    )


def _words(data: Bytes) -> list[Words]:
    """Rows of bytes as words, padded with zeros."""
    rows, width = data.shape
    count = -(-width // _WORD_BYTES)
    padded = np.zeros((rows, count * _WORD_BYTES), dtype=np.uint8)
    padded[:, :width] = data
    words = padded.view(">u8").astype(np.uint64)
    return [np.ascontiguousarray(words[:, place]) for place in range(count)]
