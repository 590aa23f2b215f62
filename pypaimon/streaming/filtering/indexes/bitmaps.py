"""Bitmaps of rows in Roaring's portable format, checked before they are used: nothing else guards their bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from pypaimon.streaming.filtering.indexes.bytes_reader import BytesReader

_WITH_RUNS, _WITHOUT_RUNS = 12347, 12346
_OFFSETS_FROM = 4
"""Containers from which a bitmap with runs says where they are."""

_MOST_IN_ARRAY = 4096
_BITSET_BYTES = 8192
_MOST_CONTAINERS = 1 << 16
_Numbers = npt.NDArray[np.int64]


def read_bitmap(reader: BytesReader) -> BitMap:
    """The bitmap at a reader's position, which moves behind it.

    Raises:
        ValueError: There is none, or what is there does not ascend or counts wrongly.
    """
    start = reader.position
    cookie = int.from_bytes(reader.take(4), "little")
    runs = np.zeros(0, dtype=np.bool_)
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = np.frombuffer(reader.take((count + 7) // 8), dtype=np.uint8)
        runs = np.unpackbits(flags, bitorder="little")[:count].astype(np.bool_)
    elif cookie == _WITHOUT_RUNS:
        count = int.from_bytes(reader.take(4), "little")
        if count > _MOST_CONTAINERS:
            raise ValueError(f"a bitmap of {count} containers was recorded")
        runs = np.zeros(count, dtype=np.bool_)
    else:
        raise ValueError(f"a bitmap starts with {cookie}, which is no known format")
    keys, sizes = _shorts(reader, 2 * count).reshape(count, 2).T
    _check_ascending(keys)
    if cookie == _WITHOUT_RUNS or count >= _OFFSETS_FROM:
        reader.take(4 * count)
    for size, is_run in zip((sizes + 1).tolist(), runs.tolist(), strict=True):
        _check_container(reader, size, is_run)
    return BitMap.deserialize(reader.data[start : reader.position])


def _check_container(reader: BytesReader, size: int, is_run: bool) -> None:
    if is_run:
        pairs = _shorts(reader, 2 * int(_shorts(reader, 1)[0])).reshape(-1, 2)
        starts, ends = pairs[:, 0], pairs.sum(axis=1)
        if np.any(starts[1:] <= ends[:-1]) or np.any(ends > 0xFFFF) or int((ends - starts + 1).sum()) != size:
            raise ValueError("the runs of a bitmap overlap, or count wrongly")
    elif size <= _MOST_IN_ARRAY:
        _check_ascending(_shorts(reader, size))
    elif int(np.unpackbits(np.frombuffer(reader.take(_BITSET_BYTES), dtype=np.uint8)).sum()) != size:
        raise ValueError("a bitmap holds another number of rows than it says")


def _check_ascending(numbers: _Numbers) -> None:
    if np.any(numbers[1:] <= numbers[:-1]):
        raise ValueError("the rows of a bitmap do not ascend")


def _shorts(reader: BytesReader, count: int) -> _Numbers:
    return np.frombuffer(reader.take(2 * count), dtype="<u2").astype(np.int64)
