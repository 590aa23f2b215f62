"""Deletion vectors: which rows of a data file are deleted, as masks over its batches."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.internals import DeletionFile

if TYPE_CHECKING:
    from pyroaring import BitMap, BitMap64

T = TypeVar("T")

_SIZE = 4
_MAGIC_32 = 1581511376
_MAGIC_64 = 1681511377


class VectorStore(Protocol):
    """What this room asks of a store; `Store` is one."""

    def parse(self, path: str, parser: Callable[[bytes], T]) -> T: ...


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """The deleted rows of one data file.

    Attributes:
        positions: Places of the deleted rows in the file, ascending, from 0.
    """

    positions: npt.NDArray[np.uint64]

    def keep_mask(self, row_offset: int, length: int) -> pa.BooleanArray:
        """Which rows of a batch are kept: true for those that are not deleted.

        Args:
            row_offset: Place of the batch's first row in the file.
            length: Number of rows of the batch.
        """
        first, end = np.searchsorted(self.positions, np.array([row_offset, row_offset + length], dtype=np.uint64))
        mask = np.ones(length, dtype=np.bool_)
        mask[self.positions[first:end] - np.uint64(row_offset)] = False
        return pa.array(mask)


def read(store: VectorStore, deletion_file: DeletionFile) -> DeletionVector:
    """Read a deletion vector, of Java's 32-bit or 64-bit format. One request.

    Raises:
        FileNotFoundError: The index file is missing.
        CorruptTableError: It does not hold this deletion vector, or the vector is damaged.
    """
    vector: DeletionVector = store.parse(deletion_file.dv_index_path, partial(parse, deletion_file=deletion_file))
    return vector


def parse(data: bytes, deletion_file: DeletionFile) -> DeletionVector:
    """Take one deletion vector out of an index file.

    Raises:
        ValueError: It is not there, or its length, checksum, format or number of rows is not what it must be.
    """
    start = deletion_file.offset
    size = int.from_bytes(data[start : start + _SIZE], "big")
    content = data[start + _SIZE : start + _SIZE + size]
    checksum = data[start + _SIZE + size : start + _SIZE + size + _SIZE]
    if size != deletion_file.length or len(content) != size or len(checksum) != _SIZE:
        raise ValueError(f"no deletion vector of {deletion_file.length} bytes at byte {start} (length there: {size})")
    if zlib.crc32(content) != int.from_bytes(checksum, "big"):
        raise ValueError(f"the checksum of the deletion vector at byte {start} is wrong")
    positions = _positions(content)
    if deletion_file.cardinality is not None and len(positions) != deletion_file.cardinality:
        raise ValueError(
            f"the deletion vector at byte {start} holds {len(positions)} rows, not {deletion_file.cardinality}"
        )
    return DeletionVector(positions)


def _positions(content: bytes) -> npt.NDArray[np.uint64]:
    from pyroaring import BitMap, BitMap64

    magic, bitmap = content[:_SIZE], content[_SIZE:]
    if int.from_bytes(magic, "big") == _MAGIC_32:
        return _ascending(BitMap.deserialize(bitmap))
    if int.from_bytes(magic, "little") == _MAGIC_64:
        return _ascending(BitMap64.deserialize(bitmap))
    raise ValueError(f"a deletion vector starts with {magic.hex()}, which is no known format")


def _ascending(rows: BitMap | BitMap64) -> npt.NDArray[np.uint64]:
    return np.fromiter(rows, dtype=np.uint64, count=len(rows))
