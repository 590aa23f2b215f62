"""Deletion vectors: which rows of a data file are deleted, as masks over its batches."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.internals import DeletionFile
from pypaimon.streaming.io.store import Store

if TYPE_CHECKING:
    from pyroaring import BitMap, BitMap64

_WORD = 4
_MAGIC_32 = 1581511376
_MAGIC_64 = 1681511377


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


def read(store: Store, deletion_file: DeletionFile, row_count: int | None = None) -> DeletionVector:
    """Read a deletion vector, of Java's 32-bit or 64-bit format. One request.

    Args:
        row_count: Rows of the data file: what is deleted beyond them is damage.

    Raises:
        FileNotFoundError: The index file is missing.
        CorruptTableError: It does not hold this deletion vector, or the vector is damaged.
    """
    return store.parse(deletion_file.dv_index_path, partial(parse, deletion_file=deletion_file, row_count=row_count))


def parse(data: bytes, deletion_file: DeletionFile, row_count: int | None = None) -> DeletionVector:
    """Take one deletion vector out of an index file.

    It is a length (big-endian), a magic number and a bitmap of that length together, and a CRC32 of those. The recorded
    length counts magic number and bitmap in the 32-bit format, everything in the 64-bit format.

    Raises:
        ValueError: It is not there, or its length, checksum, format or number of rows is not what it must be.
    """
    if deletion_file.offset < 0:
        raise ValueError(f"a deletion vector at byte {deletion_file.offset} was recorded")
    start = deletion_file.offset + _WORD
    size = int.from_bytes(data[deletion_file.offset : start], "big")
    content = data[start : start + size]
    checksum = data[start + size : start + size + _WORD]
    if len(content) != size or len(checksum) != _WORD:
        raise ValueError(f"the deletion vector at byte {deletion_file.offset} is cut off")
    if zlib.crc32(content) != int.from_bytes(checksum, "big"):
        raise ValueError(f"the checksum of the deletion vector at byte {deletion_file.offset} is wrong")
    rows, recorded_size = _bitmap(content)
    if deletion_file.length is not None and deletion_file.length != recorded_size:
        raise ValueError(f"a deletion vector of {deletion_file.length} bytes was recorded, {recorded_size} are there")
    if deletion_file.cardinality is not None and deletion_file.cardinality != len(rows):
        raise ValueError(f"a deletion vector of {deletion_file.cardinality} rows was recorded, {len(rows)} are there")
    # A few bytes can stand for any number of rows: none is listed before it is known that there are not more.
    if row_count is not None and len(rows) and rows.max() >= row_count:
        raise ValueError(f"a row is deleted beyond the {row_count} rows of the data file")
    return DeletionVector(np.fromiter(rows, dtype=np.uint64, count=len(rows)))


def framed(data: bytes, deletion_file: DeletionFile) -> bytes:
    """The bytes of one deletion vector with its length and checksum, as they may stand in another index file.

    Raises:
        ValueError: As `parse`.
    """
    parse(data, deletion_file)
    start = deletion_file.offset
    return data[start : start + 2 * _WORD + int.from_bytes(data[start : start + _WORD], "big")]


def rows_of(data: bytes, deletion_file: DeletionFile) -> BitMap:
    """The deleted rows of one deletion vector of an index file, compressed.

    Raises:
        ValueError: As `parse`.
    """
    from pyroaring import BitMap

    return BitMap(parse(data, deletion_file).positions.astype(np.uint32))


def encoded(rows: BitMap, *, bitmap64: bool) -> tuple[bytes, int]:
    """A deletion vector as it stands in an index file, and the length that a manifest records for it.

    Args:
        rows: Places of the deleted rows in the data file.
        bitmap64: Whether it has Java's 64-bit format.
    """
    from pyroaring import BitMap64

    if bitmap64:
        content = _MAGIC_64.to_bytes(_WORD, "little") + BitMap64(rows).serialize()
    else:
        content = _MAGIC_32.to_bytes(_WORD, "big") + rows.serialize()
    framed = len(content).to_bytes(_WORD, "big") + content + zlib.crc32(content).to_bytes(_WORD, "big")
    return framed, len(framed) if bitmap64 else len(content)


def _bitmap(content: bytes) -> tuple[BitMap | BitMap64, int]:
    """The deleted rows, and the length that a manifest records for them."""
    from pyroaring import BitMap, BitMap64

    magic, bitmap = content[:_WORD], content[_WORD:]
    if int.from_bytes(magic, "big") == _MAGIC_32:
        return BitMap.deserialize(bitmap), len(content)
    if int.from_bytes(magic, "little") == _MAGIC_64:
        return BitMap64.deserialize(bitmap), len(content) + 2 * _WORD
    raise ValueError(f"a deletion vector starts with {magic.hex()}, which is no known format")
