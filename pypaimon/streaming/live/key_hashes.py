"""Hashes of keys, for whole columns and for one key, and equality of keys."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

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
