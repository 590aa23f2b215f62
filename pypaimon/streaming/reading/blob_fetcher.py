"""`BlobFetcher`: the bytes that cells refer to, from the files of the table and from where descriptors point."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.files.blob_files import References, references_of
from pypaimon.streaming.io.byte_ranges import GAP, ByteRanges, Range
from pypaimon.streaming.reading.blob_places import BlobPlaces

if TYPE_CHECKING:
    from pypaimon.streaming.io.store import Store

_SMALL = 16 << 10
"""Bytes up to which blobs are read together, on average."""

_BLOCK = 4 << 20
"""Bytes of a block of small blobs, about."""

_LARGE = 16 << 20
"""Bytes from which on a place is asked for its size before memory is taken for a blob of it."""

_FAR = 1 << 60
"""An offset that no file reaches, so that what is added to it may be more than an integer holds."""


class BlobFetcher:
    """Reads blobs of one file system; for one thread at a time.

    Args:
        store: Where they lie.
        places: Where descriptors may point; None: that was checked when they were given out.
        own: Paths of the table's own files, which may lie anywhere, and that may have expired.
    """

    def __init__(self, store: Store, places: BlobPlaces | None, own: Collection[str] = ()) -> None:
        self._ranges = ByteRanges(store)
        self._places = places
        self._own = frozenset(own)
        self._checked: set[str] = set()
        self._sizes: dict[str, int] = {}

    def close(self) -> None:
        """Let files go. Idempotent."""
        self._ranges.close()

    def references(self, cells: pa.Array, holder: str) -> References:
        """What cells refer to, with a length for each blob.

        Args:
            cells: They, as large binary.
            holder: What holds them, for errors.

        Raises:
            CorruptTableError: One is no descriptor, or points to nothing.
            UnsupportedTableError: One points outside of the places that are allowed.
            StoreError: The store kept failing (retriable).
        """
        try:
            found = references_of(cells)
        except ValueError as error:
            raise CorruptTableError(holder, str(error)) from error
        for place in found.places:
            if self._places is not None and place not in self._checked and place not in self._own:
                self._places.check(place)
                self._checked.add(place)
        lengths = found.lengths.copy()
        # A large one is checked before memory is taken for it; of others the read tells.
        for index in np.flatnonzero((lengths < 0) | (lengths > _LARGE) | (found.offsets > _FAR)).tolist():
            place, start = found.places[found.place[index]], int(found.offsets[index])
            size = self.size(place)
            end = size if lengths[index] < 0 else start + int(lengths[index])
            if max(start, end) > size:
                raise CorruptTableError(place, f"it has {size} bytes, a descriptor of a blob says {start} to {end}")
            lengths[index] = end - start
        return References(found.places, found.place, found.offsets, lengths)

    def fetch(self, found: References) -> pa.LargeBinaryArray:
        """Blobs, null where there is none. Raises what `references` does."""
        held = found.place >= 0
        total = int(found.lengths[held].sum())
        return self._one_by_one(found, total) if total > _SMALL * int(held.sum()) else self._together(found)

    def _one_by_one(self, found: References, total: int) -> pa.LargeBinaryArray:
        """Each read to where it belongs, without a copy in between."""
        held = found.place >= 0
        starts = np.concatenate(([0], np.cumsum(np.where(held, found.lengths, 0))))
        data = pa.allocate_buffer(total)
        view = memoryview(data).cast("B")
        spans = zip(found.place.tolist(), found.offsets.tolist(), starts.tolist(), starts[1:].tolist(), strict=False)
        self._fill(
            Range(found.places[place], offset, view[start:end]) for place, offset, start, end in spans if place >= 0
        )
        validity = None if held.all() else pa.array(held).buffers()[1]
        buffers = [validity, pa.py_buffer(starts), data]
        return pa.Array.from_buffers(pa.large_binary(), len(held), buffers, int((~held).sum()))

    def _together(self, found: References) -> pa.LargeBinaryArray:
        """Those that lie side by side read as one block, and cut out of it by Arrow."""
        rows = np.flatnonzero(found.place >= 0)
        if not len(rows):
            return pa.nulls(len(found.place), pa.large_binary())
        rows = rows[np.lexsort((found.offsets[rows], found.place[rows]))]
        place, starts = found.place[rows], found.offsets[rows]
        ends = starts + found.lengths[rows]
        gaps = starts[1:] - ends[:-1]
        cuts = np.flatnonzero((np.diff(place) != 0) | (gaps < 0) | (gaps > GAP)) + 1
        # What is cut so far are files, or parts of them; a part is read in blocks.
        firsts = np.concatenate(([0], cuts))
        reached = starts - np.repeat(starts[firsts], np.diff(np.append(firsts, len(rows))))
        firsts = np.union1d(firsts, np.flatnonzero(np.diff(reached // _BLOCK) > 0) + 1)
        blocks, ranges = [], []
        for first, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(rows)], strict=True):
            begin, length = int(starts[first]), int(ends[end - 1] - starts[first])
            block = pa.allocate_buffer(length)
            ranges.append(Range(found.places[place[first]], begin, memoryview(block).cast("B")))
            # Blob, gap, blob, gap, ...: every other one is taken.
            bounds = np.stack([starts[first:end], ends[first:end]], axis=1).ravel() - begin
            pieces = pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), block])
            blocks.append((pieces, pa.array(np.arange(0, len(bounds), 2))))
        self._fill(ranges)
        cut = [pieces.take(chosen) for pieces, chosen in blocks]
        index = np.zeros(len(found.place), np.int64)
        index[rows] = np.arange(len(rows))
        return pa.concat_arrays(cut).take(pa.array(index, mask=found.place < 0))

    def size(self, place: str) -> int:
        """The bytes of a place; one request for each. Raises what `references` does."""
        if place not in self._sizes:
            try:
                self._sizes[place] = self._ranges.size(place)
            except FileNotFoundError as error:
                raise self._missing(place, error) from error
        return self._sizes[place]

    def part(self, place: str, start: int, length: int) -> bytes:
        """Some bytes of a place. Raises what `references` does."""
        data = bytearray(length)
        self.fill(place, start, memoryview(data))
        return bytes(data)

    def fill(self, place: str, start: int, target: memoryview) -> None:
        """As `part`, into memory that is there."""
        self._fill([Range(place, start, target)])

    def _fill(self, ranges: Iterable[Range]) -> None:
        try:
            self._ranges.fill(list(ranges))
        except FileNotFoundError as error:
            raise self._missing(str(error.filename), error) from error

    def _missing(self, place: str, error: FileNotFoundError) -> Exception:
        """A file of the table may have expired; what a descriptor points to should be there."""
        if place in self._own:
            return FileNotFoundError(error.errno, f"the blob file is missing: {error}", place)
        return CorruptTableError(place, "a descriptor of a blob points there, and there is no such file")
