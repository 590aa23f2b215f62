"""Blob files: the index of their values, and collections of blobs within a value.

A blob file holds one column of consecutive rows. Each value is in a record, with four bytes of magic before it and
twelve of length and checksum after it. After all records is the index: the lengths of the records, as differences of
variable length. The last five bytes are the length of the index and the version of the format. Rows whose value is
null, or is in an older file, have no record.

A value of type ARRAY<BLOB> is magic, version and count, then the elements, then their lengths (the index), then the
length of the index. MAP<X, BLOB> has keys before values, and an index of each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pypaimon.streaming.paimon.internals import DataType, map_key_serializer

NULL = -1
"""Length of a value that is null."""

PLACEHOLDER = -2
"""Length of a value that is in an older file."""

FRAME = 16
"""Bytes of a record in addition to its value."""

FOOTER = 5
"""Bytes after the index."""

_BEFORE = 4
_INDEX_VERSION = 1
_LONGEST = 10

Numbers = npt.NDArray[np.int64]
_HEADER = struct.Struct("<IBI")
_ARRAY_MAGIC = 0x41424342
_MAP_MAGIC = 0x4D424342
_VERSION = 1
Fetch = Callable[[int, int], bytes]
"""Returns bytes of a payload, given the first byte and the length."""


@dataclass(frozen=True, slots=True)
class BlobIndex:
    """Where the values of a blob file are."""

    offsets: Numbers
    lengths: Numbers  # Bytes of each value; `NULL` or `PLACEHOLDER` if there is none


def tail_length(footer: bytes, file_size: int) -> int:
    """Bytes of the index and the footer, given at least the last `FOOTER` bytes of the file. Raises ValueError if this
    is not the end of a supported blob file.
    """
    if len(footer) < FOOTER:
        raise ValueError(f"a blob file has at least {FOOTER} bytes, this one has {file_size}")
    length, version = struct.unpack("<iB", footer[-FOOTER:])
    if version != _INDEX_VERSION:
        raise ValueError(f"it is not a blob file of version {_INDEX_VERSION}, but of version {version}")
    if not 0 <= length <= file_size - FOOTER:
        raise ValueError(f"its index has {length} bytes, the file {file_size}")
    return int(length) + FOOTER


def parse_index(tail: bytes, file_size: int) -> BlobIndex:
    """The index of a blob file. Raises ValueError if the index is damaged, or does not fit the file."""
    records = np.cumsum(decode_varints(tail[:-FOOTER]))
    empty = (records == NULL) | (records == PLACEHOLDER)
    sizes = np.where(empty, 0, records)
    end = file_size - len(tail)
    # Summed as floats first, because the numbers of a damaged index may overflow integers.
    if (sizes < np.where(empty, 0, FRAME)).any() or sizes.sum(dtype=np.float64) > 2 * file_size or sizes.sum() != end:
        raise ValueError(f"the lengths in its index do not add up to the {end} bytes before it")
    offsets = np.cumsum(sizes) - sizes + _BEFORE
    return BlobIndex(offsets, np.where(empty, records, records - FRAME))


def decode_varints(data: bytes) -> Numbers:
    """Integers of variable length, seven bits to a byte, the sign in the lowest bit. Raises ValueError if one of them
    has no end, or too many bytes.
    """
    content = np.frombuffer(data, np.uint8)
    if not len(content):
        return np.empty(0, np.int64)
    ends = np.flatnonzero(content < 0x80)
    if not len(ends) or ends[-1] != len(content) - 1:
        raise ValueError("an index ends within a number")
    starts = np.concatenate(([0], ends[:-1] + 1))
    sizes = ends - starts + 1
    if sizes.max() > _LONGEST:
        raise ValueError(f"a number in an index has more than {_LONGEST} bytes")
    shifts = (np.arange(len(content)) - np.repeat(starts, sizes)) * 7
    bits = (content & 0x7F).astype(np.uint64) << shifts.astype(np.uint64)
    joined = np.bitwise_or.reduceat(bits, starts)
    signs: Numbers = -(joined & np.uint64(1)).astype(np.int64)
    return (joined >> np.uint64(1)).astype(np.int64) ^ signs


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of an array or a map."""

    keys: list[Any]
    offsets: Numbers
    lengths: Numbers  # Bytes of each element; `NULL` if it is null


def array_elements(size: int, fetch: Fetch) -> Elements:
    """Find the elements of an array; fetches its header and its index only. Raises ValueError if the payload is
    damaged.
    """
    count = _count(fetch, size, _ARRAY_MAGIC, "array", 4)
    (index_size,) = struct.unpack("<I", fetch(size - 4, 4))
    start = size - 4 - index_size
    if start < _HEADER.size:
        raise ValueError("the index of an array of blobs is longer than the array")
    lengths = np.cumsum(decode_varints(fetch(start, index_size)))
    return Elements([], _offsets(lengths, count, _HEADER.size, start), lengths)


def map_elements(size: int, fetch: Fetch, key_type: DataType) -> Elements:
    """As `array_elements`, for a map; fetches its keys too."""
    count = _count(fetch, size, _MAP_MAGIC, "map", 8)
    key_index_size, value_index_size = struct.unpack("<II", fetch(size - 8, 8))
    start = size - 8 - key_index_size - value_index_size
    if start < _HEADER.size:
        raise ValueError("the indexes of a map of blobs are longer than the map")
    indexes = fetch(start, key_index_size + value_index_size)
    key_lengths = np.cumsum(decode_varints(indexes[:key_index_size]))
    key_bytes = int(np.maximum(key_lengths, 0).sum())
    values = _HEADER.size + key_bytes
    if not 0 <= key_bytes <= start - _HEADER.size:
        raise ValueError("the keys of a map of blobs are longer than the map")
    key_offsets = _offsets(key_lengths, count, 0, key_bytes)
    if (key_lengths < 0).any():
        raise ValueError("a map of blobs has a key that is null, which maps of Arrow cannot hold")
    content, serializer = fetch(_HEADER.size, key_bytes), map_key_serializer(key_type)
    spans = zip(key_offsets.tolist(), key_lengths.tolist(), strict=True)
    try:
        keys = [serializer.deserialize(content[offset : offset + length]) for offset, length in spans]
    except OverflowError as error:
        raise ValueError(f"a key of a map of blobs is not of type {key_type}: {error}") from error
    lengths = np.cumsum(decode_varints(indexes[key_index_size:]))
    return Elements(keys, _offsets(lengths, count, values, start), lengths)


def _count(fetch: Fetch, size: int, magic: int, what: str, index_sizes: int) -> int:
    if size < _HEADER.size + index_sizes:
        raise ValueError(f"{size} bytes are too few for a {what} of blobs")
    found, version, count = _HEADER.unpack(fetch(0, _HEADER.size))
    if found != magic or version != _VERSION:
        raise ValueError(f"it does not begin as a {what} of blobs of version {_VERSION}")
    return int(count)


def _offsets(lengths: Numbers, count: int, start: int, end: int) -> Numbers:
    sizes = np.maximum(lengths, 0)
    if len(lengths) != count or (lengths < NULL).any() or (sizes > end).any() or start + int(sizes.sum()) != end:
        raise ValueError("the lengths in the index of a collection of blobs do not fit it")
    return np.cumsum(sizes) - sizes + start
