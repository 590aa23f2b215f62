"""Values of `ARRAY<BLOB>` and `MAP<X, BLOB>` as blob files hold them: elements, or keys and values, and indexes.

An array is magic, version and count; its elements, one after the other; their lengths; the length of that index. A map
has its keys before its values, and an index of each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pypaimon.streaming.formats.blob_index import NULL, Numbers, decode_varints
from pypaimon.streaming.internals import DataType, map_key_serializer

_HEADER = struct.Struct("<IBI")
_ARRAY_MAGIC = 0x41424342
_MAP_MAGIC = 0x4D424342
_VERSION = 1

Fetch = Callable[[int, int], bytes]
"""Bytes of a payload: from where on, how many."""


@dataclass(frozen=True, slots=True)
class Elements:
    """What an array or a map holds.

    Attributes:
        keys: Of a map.
        offsets: First byte of each element, from the beginning of the payload.
        lengths: Bytes of each element; `NULL` where it is null.
    """

    keys: list[Any]
    offsets: Numbers
    lengths: Numbers


def array_elements(size: int, fetch: Fetch) -> Elements:
    """Where the elements of an array lie; asks for its header and its index only.

    Args:
        size: Bytes of the payload.
        fetch: Gives bytes of it.

    Raises:
        ValueError: The payload is damaged.
    """
    count = _count(fetch, size, _ARRAY_MAGIC, "array", 4)
    (index_size,) = struct.unpack("<I", fetch(size - 4, 4))
    start = size - 4 - index_size
    if start < _HEADER.size:
        raise ValueError("the index of an array of blobs is longer than the array")
    lengths = np.cumsum(decode_varints(fetch(start, index_size)))
    return Elements([], _offsets(lengths, count, _HEADER.size, start), lengths)


def map_elements(size: int, fetch: Fetch, key_type: DataType) -> Elements:
    """As `array_elements`, of a map; asks for its keys too."""
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
        raise ValueError(f"the key of a map of blobs is no {key_type}: {error}") from error
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
    """First bytes of elements that fill the bytes from `start` to `end`."""
    sizes = np.maximum(lengths, 0)
    if len(lengths) != count or (lengths < NULL).any() or (sizes > end).any() or start + int(sizes.sum()) != end:
        raise ValueError("the lengths in the index of a collection of blobs do not fit it")
    return np.cumsum(sizes) - sizes + start
