"""Index files of deletion vectors: read in few pieces for all data files of a plan, not once for each of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from operator import itemgetter

from cachetools import LRUCache

from pypaimon.streaming.concurrency.forking import cache_lock
from pypaimon.streaming.files import deletion_vectors
from pypaimon.streaming.files.deletion_vectors import DeletionVector
from pypaimon.streaming.internals import DeletionFile
from pypaimon.streaming.io.conditional_writes import is_local
from pypaimon.streaming.io.fetch_ahead import Piece
from pypaimon.streaming.io.remote_files import RemoteFile
from pypaimon.streaming.io.store import Store

KEPT_BYTES = 32 << 20
_GAP_BYTES, _BLOCK_BYTES = 256 << 10, 8 << 20
"""Vectors that lie no farther apart are read together, up to so many bytes at once."""

_FRAME_BYTES = 8
"""Beside the recorded length of a vector: its size and its checksum."""

_Ranges = list[tuple[int, int]]


class IndexBlocks:
    """Pieces of index files, which are never written again under their names. Thread-safe.

    Args:
        store: Where they are.
        kept_bytes: Bytes of those used last that are kept.
    """

    def __init__(self, store: Store, kept_bytes: int = KEPT_BYTES) -> None:
        self.store = store
        self._kept: LRUCache[tuple[str, int, int], bytes] = LRUCache(kept_bytes, getsizeof=len)
        self._lock = cache_lock(self._kept)

    def get(self, path: str, start: int, end: int) -> bytes:
        """Bytes of a file, fewer only where it ends. One request unless kept.

        Raises:
            FileNotFoundError: The file is missing.
            CorruptTableError: It may not be read.
            StoreError: The store kept failing (retriable).
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
        """Whether `get` has these bytes at hand."""
        return self._kept_of((path, start, end)) is not None

    def _kept_of(self, key: tuple[str, int, int]) -> bytes | None:
        with self._lock.held:
            return self._kept.get(key)


class PlanVectors:
    """Deletion vectors of the data files of a plan.

    Args:
        blocks: Pieces of index files.
        wanted: Where all deletion vectors are that may be asked for.
    """

    def __init__(self, blocks: IndexBlocks, wanted: Iterable[DeletionFile | None]) -> None:
        self._blocks = blocks
        self._ranges = _together(wanted)

    def read(self, file: DeletionFile, row_count: int | None = None) -> DeletionVector:
        """A deletion vector; arguments and errors as those of `deletion_vectors.read`."""
        ranges = self._ranges.get(file.dv_index_path)
        if ranges is None or file.length is None:
            return deletion_vectors.read(self._blocks.store, file, row_count)
        start, end = ranges[max(0, bisect_right(ranges, file.offset, key=itemgetter(0)) - 1)]
        data = self._blocks.get(file.dv_index_path, start, end)
        try:
            return deletion_vectors.parse(data, replace(file, offset=file.offset - start), row_count)
        except ValueError:
            # It was not expected, or the file is read again a few times, and is damaged then.
            return deletion_vectors.read(self._blocks.store, file, row_count)

    def load(self, files: Iterable[DeletionFile | None]) -> None:
        """Have the pieces at hand that these vectors are in; errors as `read`."""
        for path, start, end in self._holding(files):
            self._blocks.get(path, start, end)

    def missing(self, files: Iterable[DeletionFile | None]) -> Iterator[Piece]:
        """The pieces that these vectors are in, of index files in a store, as far as they are not at hand."""
        for path, start, end in self._holding(files):
            if not (is_local(path) or self._blocks.is_kept(path, start, end)):
                yield Piece(path, start, end - start)

    def _holding(self, files: Iterable[DeletionFile | None]) -> Iterator[tuple[str, int, int]]:
        for path, ranges in _together(files).items():
            for start, end in self._ranges.get(path, []):
                if any(first < end and start < last for first, last in ranges):
                    yield path, start, end


def _together(files: Iterable[DeletionFile | None]) -> dict[str, _Ranges]:
    """The ranges of index files that vectors are in, in order, near ones put together."""
    wanted: dict[str, set[tuple[int, int]]] = {}
    for file in files:
        # What a manifest says may be wrong; a file is then read as a whole, as far as there is any of it.
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
