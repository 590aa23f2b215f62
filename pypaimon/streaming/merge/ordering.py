"""The order of keys and sequence fields as in Java, encoded as arrays of numbers or bytes."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Codes = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

_WIDEST_PADDED_VALUE = 256
_LONG_DECIMAL = 18


class KeyCodec:
    """Encodes key columns as one array of codes that sort and compare as the keys in Java.

    Java's order (`RecordComparator` as Paimon generates it): nulls first, numbers by value, floats by `Double.compare`
    (-0.0 before 0.0, NaN last), text and bytes as unsigned bytes, booleans false first, composite keys field by field.
    This is the order since Paimon 2. Before, floats were compared by < and >: zeros were equal, and NaN was equal to
    every number, which is not transitive, so that the result depended on the order of comparisons.

    The codes of one codec can be compared as long as `fit` returned False for every batch since. After it returned
    True, earlier batches must be encoded again. A single numeric column is encoded as numbers, other keys as rows of
    bytes, padded to the longest value so far. If values are longer than 256 bytes, each row is a `bytes` object.
    """

    def __init__(self, columns: int) -> None:
        self._widths = [0] * columns
        self._nullable = [False] * columns
        self._as_objects = False

    def fit(self, columns: Sequence[pa.Array]) -> bool:
        """Widen the layout until the columns fit; True if it changed."""
        before = (tuple(self._widths), tuple(self._nullable), self._as_objects)
        for position, column in enumerate(columns):
            self._nullable[position] |= column.null_count > 0
            if _is_bytes(column.type):
                longest = pc.max(pc.binary_length(column)).as_py() or 0
                if longest > _WIDEST_PADDED_VALUE:
                    self._as_objects = True
                elif longest > self._widths[position]:
                    # In powers of two, because each change has earlier batches encoded again.
                    self._widths[position] = max(4, 1 << (longest - 1).bit_length())
        return before != (tuple(self._widths), tuple(self._nullable), self._as_objects)

    def encode(self, columns: Sequence[pa.Array]) -> Codes:
        """One code per row; the columns must fit."""
        if self._as_objects:
            return _objects(columns, self._nullable)
        if len(columns) == 1 and not self._nullable[0]:
            numbers = numeric_codes(columns[0])
            if numbers is not None:
                return numbers
        parts: list[Codes] = []
        for column, width, nullable in zip(columns, self._widths, self._nullable, strict=True):
            if nullable:
                parts.append(_validity(column).astype(np.uint8).reshape(-1, 1))
            parts.append(_padded(column, width) if _is_bytes(column.type) else _big_endian(column))
        rows = np.concatenate(parts, axis=1)
        length, width = rows.shape
        # Up to 8 bytes sort as one integer, padded with zeros.
        if width <= 8:
            words = np.zeros((length, 8), dtype=np.uint8)
            words[:, :width] = rows
            return words.view(">u8").reshape(-1).astype(np.uint64)
        return np.ascontiguousarray(rows).view(f"S{width}").reshape(-1)


def stable_order(codes: Codes) -> Ints:
    """The order of codes that come in any order; equal ones stay as they are. Runs that ascend are faster with
    `np.argsort`, which merges them.
    """
    count = len(codes)
    if count and codes.dtype.kind in "iu":
        least, bits = codes.min(), (count - 1).bit_length()
        if int(codes.max()) - int(least) < 1 << 63 - bits:
            # numpy sorts numbers ten times as fast as their places, so each number gets its place as its low bits.
            order: Ints = codes.astype(np.int64) - least.astype(np.int64) << bits | np.arange(count)
            order.sort()
            order &= (1 << bits) - 1
            return order
    return np.argsort(codes, kind="stable")


def numeric_codes(column: pa.Array) -> Codes | None:
    """Numbers in the order of the values, 0 for null; None for a type that cannot be a number."""
    kind = column.type
    codes: Codes
    if pa.types.is_boolean(kind):
        codes = _primitive(column.cast(pa.uint8()), np.uint8)
    elif pa.types.is_float32(kind):
        codes = _ordered_bits(_primitive(column, np.float32), np.int32)
    elif pa.types.is_float64(kind):
        codes = _ordered_bits(_primitive(column, np.float64), np.int64)
    elif pa.types.is_decimal128(kind):
        if kind.precision > _LONG_DECIMAL:
            return None
        codes = decimal_words(column)[:, 0]
    elif pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        codes = _primitive(column, np.dtype(f"i{kind.bit_width // 8}"))
    else:
        return None
    return np.where(_validity(column), codes, codes.dtype.type(0)) if column.null_count else codes


def ranks(column: pa.Array) -> Codes:
    """Positive integers in the order of the values, and 0 for null: nulls first, as in Java. Raises TypeError if values
    of this type have no order here (arrays, maps, rows).
    """
    codes = numeric_codes(column)
    if codes is None:
        codec = KeyCodec(1)
        if not is_ordered(column.type):
            raise TypeError(f"values of type {column.type} have no order")
        codec.fit([column])
        codes = codec.encode([column])
    # The index among the distinct values, in order.
    ranked = np.unique(codes, return_inverse=True)[1].astype(np.int64) + 1
    return np.where(_validity(column), ranked, 0)


def is_ordered(kind: pa.DataType) -> bool:
    return _is_bytes(kind) or not (pa.types.is_nested(kind) or pa.types.is_dictionary(kind) or pa.types.is_null(kind))


def python_order(value: Any) -> Any:
    """A Python value of a key as a value that Python compares as Java compares the key."""
    if value is None:
        return (0,)
    if isinstance(value, str):
        return (1, value.encode())
    if isinstance(value, float):
        bits = struct.unpack(">q", struct.pack(">d", math.nan if math.isnan(value) else value))[0]
        # As `_ordered_bits`.
        return (1, bits if bits >= 0 else bits ^ 0x7FFFFFFFFFFFFFFF)
    return (1, value)


def identity(value: Any) -> Any:
    """A Python value as a hashable that is equal if Java finds the values equal."""
    if isinstance(value, dict):
        return tuple(identity(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return tuple(identity(item) for item in value)
    return python_order(value)


def decimal_words(column: pa.Array) -> Codes:
    """Decimals as rows of two 64-bit words, the lower one first."""
    return _primitive_buffer(column, np.int64, 2).reshape(-1, 2)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or (pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind))
    )


def _validity(column: pa.Array) -> npt.NDArray[np.bool_]:
    if column.null_count == 0:
        return np.ones(len(column), dtype=np.bool_)
    return cast("npt.NDArray[np.bool_]", column.is_valid().to_numpy(zero_copy_only=False))


def _primitive(column: pa.Array, dtype: npt.DTypeLike) -> Codes:
    return _primitive_buffer(column, dtype, 1)


def _primitive_buffer(column: pa.Array, dtype: npt.DTypeLike, words: int) -> Codes:
    buffer = column.buffers()[1]
    if buffer is None or len(column) == 0:
        return np.zeros(len(column) * words, dtype=dtype)
    begin = column.offset * words
    return np.frombuffer(buffer, dtype=dtype, count=begin + len(column) * words)[begin:]


def _ordered_bits(values: Codes, dtype: npt.DTypeLike) -> Codes:
    """Float bits as integers in the order of the floats; every NaN is the same greatest number."""
    bits: Codes = np.where(np.isnan(values), values.dtype.type(np.nan), values).view(dtype)
    # The bits of negative floats grow as the values fall, so flip all bits but the sign.
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _big_endian(column: pa.Array) -> Codes:
    numbers = numeric_codes(column)
    if numbers is not None:
        size = numbers.dtype.itemsize
        unsigned = numbers.view(f"u{size}")
        if numbers.dtype.kind == "i":
            # Flip the sign bit, so that negative numbers come first as unsigned numbers and as big-endian bytes.
            unsigned = unsigned ^ unsigned.dtype.type(1 << (size * 8 - 1))
        return unsigned.astype(f">u{size}").view(np.uint8).reshape(-1, size)
    if not pa.types.is_decimal128(column.type):
        raise TypeError(f"values of type {column.type} have no order")
    words = np.where(_validity(column).reshape(-1, 1), decimal_words(column), 0).view(np.uint64)
    # The same for 128 bits, with the upper word first.
    high = words[:, 1] ^ np.uint64(1 << 63)
    return np.stack([high, words[:, 0]], axis=1).astype(">u8").view(np.uint8).reshape(-1, 16)


def _padded(column: pa.Array, width: int) -> Codes:
    """Values padded with zeros, then their length."""
    if width == 0:
        return np.zeros((len(column), 2), dtype=np.uint8)
    values = pc.fill_null(column.cast(pa.binary()), b"")
    lengths = _primitive(pc.binary_length(values), np.int32)
    # The length distinguishes values that end with zero bytes.
    return np.concatenate([padded_bytes(values, width), lengths.astype(">u2").view(np.uint8).reshape(-1, 2)], axis=1)


def padded_bytes(values: pa.BinaryArray, width: int) -> Codes:
    """Values without nulls, none longer than `width`, as rows of this many bytes, padded with zeros."""
    # Arrow can only pad texts. ASCII padding does not interpret the bytes, so any bytes may pass as text.
    text = pa.Array.from_buffers(pa.string(), len(values), values.buffers(), offset=values.offset)
    padded = pc.ascii_rpad(text, width, padding="\0")
    return _bytes_of(padded, width).reshape(len(values), width)


def _bytes_of(padded: pa.Array, width: int) -> Codes:
    if len(padded) == 0:
        return np.zeros(0, dtype=np.uint8)
    begin = int(np.frombuffer(padded.buffers()[1], dtype=np.int32)[padded.offset])
    return np.frombuffer(padded.buffers()[2], dtype=np.uint8, count=begin + len(padded) * width)[begin:]


def _objects(columns: Sequence[pa.Array], nullable: Sequence[bool]) -> Codes:
    codes = [b""] * len(columns[0])
    for column, with_nulls in zip(columns, nullable, strict=True):
        valid = _validity(column)
        if _is_bytes(column.type):
            # Escape zero bytes, so that a value sorts before every longer one that it is a prefix of.
            values = pc.fill_null(column.cast(pa.binary()), b"").to_pylist()
            parts = [value.replace(b"\0", b"\0\1") + b"\0\0" for value in values]
        else:
            parts = [row.tobytes() for row in _big_endian(column)]
        if with_nulls:
            parts = [(b"\1" if there else b"\0") + part for there, part in zip(valid, parts, strict=True)]
        codes = [code + part for code, part in zip(codes, parts, strict=True)]
    result = np.empty(len(codes), dtype=object)
    result[:] = codes
    return result
