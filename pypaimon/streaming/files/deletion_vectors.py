"""Deletion vectors: which rows of a data file are deleted, and the index files that hold those of a plan."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cachetools import LRUCache

from pypaimon.streaming.concurrency.forking import cache_lock
from pypaimon.streaming.io.conditional_writes import is_local
from pypaimon.streaming.io.fetch_ahead import Piece
from pypaimon.streaming.io.remote_files import RemoteFile
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.metadata.index_manifests import DeletionRange
from pypaimon.streaming.paimon.internals import DeletionFile

if TYPE_CHECKING:
    from pyroaring import BitMap, BitMap64

_WORD = 4
_MAGIC_32 = 1581511376
_MAGIC_64 = 1681511377
KEPT_BYTES = 32 << 20
_GAP_BYTES, _BLOCK_BYTES = 256 << 10, 8 << 20
"""Vectors with smaller gaps are read together, up to `_BLOCK_BYTES` at once."""
_FRAME_BYTES = 8
"""Size and checksum of a vector, in addition to the length in the manifest."""
_Ranges = list[tuple[int, int]]
_VERSION = b"\x01"


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """The deleted rows of one data file."""

    positions: npt.NDArray[np.uint64]  # Positions of the deleted rows in the file, from 0, ascending

    def keep_mask(self, row_offset: int, length: int) -> pa.BooleanArray:
        """True for each row of a batch that is not deleted."""
        first, end = np.searchsorted(self.positions, np.array([row_offset, row_offset + length], dtype=np.uint64))
        mask = np.ones(length, dtype=np.bool_)
        mask[self.positions[first:end] - np.uint64(row_offset)] = False
        return pa.array(mask)


def read(store: Store, deletion_file: DeletionFile, row_count: int | None = None) -> DeletionVector:
    """Read a deletion vector, of Java's 32-bit or 64-bit format. One request. Raises FileNotFoundError if the index
    file is missing, CorruptTableError if the vector is missing or damaged, or has positions beyond `row_count`.
    """
    return store.parse(deletion_file.dv_index_path, partial(parse, deletion_file=deletion_file, row_count=row_count))


def parse(data: bytes, deletion_file: DeletionFile, row_count: int | None = None) -> DeletionVector:
    """Parse one deletion vector of an index file.

    It consists of a length (big-endian), a magic number and a bitmap, which together have this length, and their CRC32.
    The length in the manifest counts magic number and bitmap in the 32-bit format, everything in the 64-bit format.
    Raises ValueError if the vector is missing, or its length, checksum, format or number of rows is wrong.
    """
    if deletion_file.offset < 0:
        raise ValueError(f"a deletion vector cannot begin at byte {deletion_file.offset}")
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
        raise ValueError(f"a deletion vector has {recorded_size} bytes, its manifest says {deletion_file.length}")
    if deletion_file.cardinality is not None and deletion_file.cardinality != len(rows):
        raise ValueError(f"a deletion vector has {len(rows)} rows, its manifest says {deletion_file.cardinality}")
    # A few bytes can stand for any number of rows, so the greatest row is checked before they are listed.
    if row_count is not None and len(rows) and rows.max() >= row_count:
        raise ValueError(f"a row is deleted beyond the {row_count} rows of the data file")
    return DeletionVector(np.fromiter(rows, dtype=np.uint64, count=len(rows)))


def are_equal(store: Store, one: DeletionFile, other: DeletionFile) -> bool:
    """Whether two deletion vectors delete the same rows. Up to two requests; raises what `read` raises."""
    sizes = one.cardinality, other.cardinality
    if None not in sizes and sizes[0] != sizes[1]:
        return False
    return np.array_equal(read(store, one).positions, read(store, other).positions)


def framed(data: bytes, deletion_file: DeletionFile) -> bytes:
    """The bytes of one deletion vector with its length and checksum, to copy into another index file."""
    parse(data, deletion_file)
    start = deletion_file.offset
    return data[start : start + 2 * _WORD + int.from_bytes(data[start : start + _WORD], "big")]


def rows_of(data: bytes, deletion_file: DeletionFile) -> BitMap:
    """The deleted rows of one deletion vector of an index file, compressed."""
    from pyroaring import BitMap

    return BitMap(parse(data, deletion_file).positions.astype(np.uint32))


def encoded(rows: BitMap, *, bitmap64: bool) -> tuple[bytes, int]:
    """Encode a deletion vector for an index file, in Java's 64-bit format or the 32-bit one; returns also the length
    for the manifest.
    """
    from pyroaring import BitMap64

    if bitmap64:
        content = _MAGIC_64.to_bytes(_WORD, "little") + BitMap64(rows).serialize()
    else:
        content = _MAGIC_32.to_bytes(_WORD, "big") + rows.serialize()
    framed = len(content).to_bytes(_WORD, "big") + content + zlib.crc32(content).to_bytes(_WORD, "big")
    return framed, len(framed) if bitmap64 else len(content)


def index_file(vectors: Iterable[tuple[DeletionRange, bytes]]) -> tuple[bytes, tuple[DeletionRange, ...]]:
    """An index file of vectors as `framed` and `encoded` return them, and their places in it."""
    parts, ranges, size = [_VERSION], list[DeletionRange](), len(_VERSION)
    for found, piece in vectors:
        ranges.append(replace(found, offset=size))
        parts.append(piece)
        size += len(piece)
    return b"".join(parts), tuple(ranges)


def _bitmap(content: bytes) -> tuple[BitMap | BitMap64, int]:
    """The deleted rows, and the length that belongs into the manifest."""
    from pyroaring import BitMap, BitMap64

    magic, bitmap = content[:_WORD], content[_WORD:]
    if int.from_bytes(magic, "big") == _MAGIC_32:
        return BitMap.deserialize(bitmap), len(content)
    if int.from_bytes(magic, "little") == _MAGIC_64:
        return BitMap64.deserialize(bitmap), len(content) + 2 * _WORD
    raise ValueError(f"a deletion vector starts with {magic.hex()}, an unknown format")


class IndexBlocks:
    """A cache of pieces of index files, which never change. Thread-safe."""

    def __init__(self, store: Store, kept_bytes: int = KEPT_BYTES) -> None:
        self.store = store
        self._kept: LRUCache[tuple[str, int, int], bytes] = LRUCache(kept_bytes, getsizeof=len)
        self._lock = cache_lock(self._kept)

    def get(self, path: str, start: int, end: int) -> bytes:
        """Bytes of a file, fewer only at its end. One request unless cached. Raises FileNotFoundError if the file is
        missing.
        """
        key = path, start, end
        found = self._kept_of(key)
        if found is None:
            on_its_way = self.store.ahead.take(Piece(path, start, end - start))
            if on_its_way is not None:
                found = bytes(on_its_way().data)
            else:
                with closing(RemoteFile(self.store, path)) as file:
                    file.seek(start)
                    found = bytes(file.read(end - start))
            with self._lock.held:
                if len(found) <= self._kept.maxsize:
                    self._kept[key] = found
        return found

    def is_kept(self, path: str, start: int, end: int) -> bool:
        return self._kept_of((path, start, end)) is not None

    def _kept_of(self, key: tuple[str, int, int]) -> bytes | None:
        with self._lock.held:
            return self._kept.get(key)


class PlanVectors:
    """Deletion vectors of the data files of a plan, read in few pieces instead of one by one."""

    def __init__(self, blocks: IndexBlocks, wanted: Iterable[DeletionFile | None]) -> None:
        self._blocks = blocks
        self._ranges = _together(wanted)

    def read(self, file: DeletionFile, row_count: int | None = None) -> DeletionVector:
        """Read a deletion vector; arguments and errors as for the function `read`."""
        ranges = self._ranges.get(file.dv_index_path)
        if ranges is None or file.length is None:
            return read(self._blocks.store, file, row_count)
        start, end = ranges[max(0, bisect_right(ranges, file.offset, key=itemgetter(0)) - 1)]
        data = self._blocks.get(file.dv_index_path, start, end)
        try:
            return parse(data, replace(file, offset=file.offset - start), row_count)
        except ValueError:
            # The vector was not in `wanted`, or the file is damaged: that is an error only after several reads.
            return read(self._blocks.store, file, row_count)

    def load(self, files: Iterable[DeletionFile | None]) -> None:
        """Fetch the pieces with these vectors into the cache; errors as `read`."""
        for path, start, end in self._holding(files):
            self._blocks.get(path, start, end)

    def missing(self, files: Iterable[DeletionFile | None]) -> Iterator[Piece]:
        """The pieces with these vectors that are in a store and not cached."""
        for path, start, end in self._holding(files):
            if not (is_local(path) or self._blocks.is_kept(path, start, end)):
                yield Piece(path, start, end - start)

    def _holding(self, files: Iterable[DeletionFile | None]) -> Iterator[tuple[str, int, int]]:
        for path, ranges in _together(files).items():
            for start, end in self._ranges.get(path, []):
                if any(first < end and start < last for first, last in ranges):
                    yield path, start, end


def _together(files: Iterable[DeletionFile | None]) -> dict[str, _Ranges]:
    wanted: dict[str, set[tuple[int, int]]] = {}
    for file in files:
        # A damaged manifest may have any numbers here; such a vector is read from the whole file.
        if file is not None and file.length is not None and file.offset >= 0 <= file.length <= _BLOCK_BYTES:
            end = file.offset + file.length + _FRAME_BYTES
            wanted.setdefault(file.dv_index_path, set()).add((file.offset, end))
    found: dict[str, _Ranges] = {}
    for path, ranges in wanted.items():
        together = found[path] = []
        for start, end in sorted(ranges):
            if together and start - together[-1][1] <= _GAP_BYTES and end - together[-1][0] <= _BLOCK_BYTES:
                together[-1] = together[-1][0], max(end, together[-1][1])
            else:
                together.append((start, end))
    return found
