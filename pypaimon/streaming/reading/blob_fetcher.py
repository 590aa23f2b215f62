"""`BlobFetcher`: the bytes that cells refer to, from the files of the table and from where descriptors point."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.files.blob_cells import References, references_of
from pypaimon.streaming.io.byte_ranges import ByteRanges, Range
from pypaimon.streaming.reading.blob_places import BlobPlaces

if TYPE_CHECKING:
    from pypaimon.streaming.io.store import Store

_LARGE = 16 << 20
"""Bytes from which on a place is asked for its size before memory is taken for a blob of it."""


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
        for index in np.flatnonzero((lengths < 0) | (lengths > _LARGE)).tolist():
            place, start = found.places[found.place[index]], int(found.offsets[index])
            size = self.size(place)
            end = size if lengths[index] < 0 else start + int(lengths[index])
            if max(start, end) > size:
                raise CorruptTableError(place, f"it has {size} bytes, a descriptor of a blob says {start} to {end}")
            lengths[index] = end - start
        return References(found.places, found.place, found.offsets, lengths)

    def fetch(self, found: References) -> pa.LargeBinaryArray:
        """Blobs, null where there is none. Raises what `references` does."""
        missing = found.place < 0
        ends = np.cumsum(np.where(missing, 0, found.lengths))
        starts = np.concatenate(([0], ends))
        data = pa.allocate_buffer(int(starts[-1]))
        view = memoryview(data).cast("B")
        self._fill(
            Range(found.places[place], offset, view[start:end])
            for place, offset, start, end in zip(
                found.place.tolist(), found.offsets.tolist(), starts.tolist(), ends.tolist(), strict=False
            )
            if place >= 0
        )
        validity = pa.array(~missing).buffers()[1] if missing.any() else None
        buffers = [validity, pa.py_buffer(starts), data]
        return pa.Array.from_buffers(pa.large_binary(), len(missing), buffers, int(missing.sum()))

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
