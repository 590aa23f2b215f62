"""`Blob`: a blob as pypaimon's object; `BlobFetcher`: reads blobs at the places that descriptors name."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from pypaimon.streaming.errors import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.files.blob_files import References, references_of
from pypaimon.streaming.io.byte_ranges import GAP, ByteRanges, Range
from pypaimon.streaming.io.conditional_writes import is_local
from pypaimon.streaming.paimon.internals import BlobDescriptor, PaimonBlob, local_path

if TYPE_CHECKING:
    from pypaimon.streaming.io.store import Store
    from pypaimon.streaming.metadata.table_directory import TableDirectory

_SAME_SCHEME = {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True, slots=True)
class Place:
    """A file or a directory, with a normalised path."""

    file_system: str  # Scheme and authority, such as `s3://bucket`; empty for the files of this machine
    path: str  # Its path in the file system, which begins with `/`

    @staticmethod
    def of(path: str) -> Place:
        if is_local(path):
            return Place("", _absolute(local_path(path)))
        parts = urlsplit(path)
        scheme = parts.scheme.lower()
        return Place(f"{_SAME_SCHEME.get(scheme, scheme)}://{parts.netloc}", _absolute(parts.path))

    def holds(self, other: Place) -> bool:
        """Whether another place is this one or below it."""
        if self.file_system != other.file_system:
            return False
        return other.path == self.path or other.path.startswith(self.path.rstrip("/") + "/")

    def __str__(self) -> str:
        return self.file_system + self.path


@dataclass(frozen=True, slots=True)
class BlobPlaces:
    """The directories that blobs may be read from."""

    directories: tuple[Place, ...]

    @staticmethod
    def of(table_path: str, allowed: Iterable[str] | None) -> BlobPlaces:
        """The places of a table. `allowed`: other directories; None: the whole file system, or bucket, of the table."""
        own = Place.of(table_path)
        if allowed is None:
            return BlobPlaces((Place(own.file_system, "/"),))
        return BlobPlaces((own, *map(Place.of, allowed)))

    def check(self, path: str) -> None:
        """Refuse a place outside of these directories."""
        place = Place.of(path)
        if not any(directory.holds(place) for directory in self.directories):
            raise UnsupportedTableError(
                f"A blob descriptor points to {path}, outside of the allowed places: "
                f"{', '.join(map(str, self.directories))}.",
                advice="Name it in with_blob_places(...) if it is to be read.",
                option="with_blob_places",
            )


def _absolute(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))


_SMALL = 16 << 10
"""Average size up to which blobs are read together."""

_BLOCK = 4 << 20
"""Approximate bytes of a block of small blobs."""

_LARGE = 16 << 20
"""From this length on the size of the file is requested before memory is allocated for the blob."""

_FAR = 1 << 60
"""An offset beyond any file. Adding a length to a greater one might overflow."""


class BlobFetcher:
    """Reads blobs of one file system; for one thread at a time.

    Args:
        places: Where descriptors may point; None: they were checked when they were given out.
        own: Paths of the table's own files, which may be anywhere and may have expired.
    """

    def __init__(self, store: Store, places: BlobPlaces | None, own: Collection[str] = ()) -> None:
        self._ranges = ByteRanges(store)
        self._places = places
        self._own = frozenset(own)
        self._checked: set[str] = set()
        self._sizes: dict[str, int] = {}

    def close(self) -> None:
        self._ranges.close()

    def references(self, cells: pa.Array, holder: str) -> References:
        """The places that cells refer to, with a length for each blob. Raises CorruptTableError if a cell is not a
        descriptor, or points to nothing, UnsupportedTableError if a descriptor points outside of the allowed places.
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
        # Check a large one before memory is allocated for it. Reading the others finds a wrong length.
        for index in np.flatnonzero((lengths < 0) | (lengths > _LARGE) | (found.offsets > _FAR)).tolist():
            place, start = found.places[found.place[index]], int(found.offsets[index])
            size = self.size(place)
            end = size if lengths[index] < 0 else start + int(lengths[index])
            if max(start, end) > size:
                raise CorruptTableError(place, f"it has {size} bytes, but a blob descriptor says {start} to {end}")
            lengths[index] = end - start
        return References(found.places, found.place, found.offsets, lengths)

    def fetch(self, found: References) -> pa.LargeBinaryArray:
        """The blobs, or null. Raises what `references` does."""
        held = found.place >= 0
        total = int(found.lengths[held].sum())
        return self._one_by_one(found, total) if total > _SMALL * int(held.sum()) else self._together(found)

    def _one_by_one(self, found: References, total: int) -> pa.LargeBinaryArray:
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
        """Read adjacent blobs as one block, which Arrow cuts."""
        rows = np.flatnonzero(found.place >= 0)
        if not len(rows):
            return pa.nulls(len(found.place), pa.large_binary())
        rows = rows[np.lexsort((found.offsets[rows], found.place[rows]))]
        place, starts = found.place[rows], found.offsets[rows]
        ends = starts + found.lengths[rows]
        gaps = starts[1:] - ends[:-1]
        cuts = np.flatnonzero((np.diff(place) != 0) | (gaps < 0) | (gaps > GAP)) + 1
        # So far the rows are cut into contiguous parts of files. A part is read in blocks.
        firsts = np.concatenate(([0], cuts))
        reached = starts - np.repeat(starts[firsts], np.diff(np.append(firsts, len(rows))))
        firsts = np.union1d(firsts, np.flatnonzero(np.diff(reached // _BLOCK) > 0) + 1)
        blocks, ranges = [], []
        for first, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(rows)], strict=True):
            begin, length = int(starts[first]), int(ends[end - 1] - starts[first])
            block = pa.allocate_buffer(length)
            ranges.append(Range(found.places[place[first]], begin, memoryview(block).cast("B")))
            # Blob, gap, blob, gap, ...: take every other piece.
            bounds = np.stack([starts[first:end], ends[first:end]], axis=1).ravel() - begin
            pieces = pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), block])
            blocks.append((pieces, pa.array(np.arange(0, len(bounds), 2))))
        self._fill(ranges)
        cut = [pieces.take(chosen) for pieces, chosen in blocks]
        index = np.zeros(len(found.place), np.int64)
        index[rows] = np.arange(len(rows))
        return pa.concat_arrays(cut).take(pa.array(index, mask=found.place < 0))

    def size(self, place: str) -> int:
        """The size of a file, with one request per file. Raises what `references` does."""
        if place not in self._sizes:
            try:
                self._sizes[place] = self._ranges.size(place)
            except FileNotFoundError as error:
                raise self._missing(place, error) from error
        return self._sizes[place]

    def part(self, place: str, start: int, length: int) -> bytes:
        """Some bytes of a file. Raises what `references` does."""
        data = bytearray(length)
        self.fill(place, start, memoryview(data))
        return bytes(data)

    def fill(self, place: str, start: int, target: memoryview) -> None:
        self._fill([Range(place, start, target)])

    def _fill(self, ranges: Iterable[Range]) -> None:
        try:
            self._ranges.fill(list(ranges))
        except FileNotFoundError as error:
            raise self._missing(str(error.filename), error) from error

    def _missing(self, place: str, error: FileNotFoundError) -> Exception:
        """The error for a missing file: a file of the table may have expired, the target of a descriptor must exist."""
        if place in self._own:
            return FileNotFoundError(error.errno, f"the blob file is missing: {error}", place)
        return CorruptTableError(place, "a blob descriptor points to it, and there is no such file")


_BUFFER = 1 << 20
"""Bytes that an open blob requests at once if less is read from it."""


class Blob(PaimonBlob):
    """A blob in its file, made by `StreamTableRead.blobs`. A subclass of pypaimon's `Blob`; not thread-safe.

    Every method that reads raises:
        CorruptTableError: The file does not exist (any more), or ends within the blob.
        StoreError: The store kept failing (retriable); `IOTimeoutError` if it hung.

    Attributes:
        uri: The file that holds the blob.
        offset: Its first byte in the file.
        length: Its size in bytes.
    """

    def __init__(self, fetcher: BlobFetcher, descriptor: BlobDescriptor) -> None:
        self._fetcher = fetcher
        self.uri: str = descriptor.uri
        self.offset: int = descriptor.offset
        self.length: int = descriptor.length

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """Some bytes of the blob; fewer if it ends before.

        Args:
            offset: The first byte, counted from the beginning of the blob.
            length: The number of bytes; None: all that are left.

        Raises:
            ValueError: A number is negative.
        """
        if offset < 0 or (length is not None and length < 0):
            raise ValueError(f"read({offset}, {length}): neither may be negative")
        left = max(0, self.length - offset)
        return self._fetcher.part(self.uri, self.offset + offset, left if length is None else min(length, left))

    def open(self) -> io.BufferedReader:
        """A binary file of the blob, which can seek and is fetched block by block."""
        return io.BufferedReader(_Stream(self._fetcher, self), max(1, min(_BUFFER, self.length)))

    def to_data(self) -> bytes:
        """All bytes of the blob."""
        return self.read()

    def to_descriptor(self) -> BlobDescriptor:
        """The place of the blob as pypaimon's descriptor."""
        return BlobDescriptor(self.uri, self.offset, self.length)

    def new_input_stream(self) -> io.BufferedReader:
        """As `open`, under pypaimon's name."""
        return self.open()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blob) and self.to_descriptor() == other.to_descriptor()

    def __hash__(self) -> int:
        return hash(self.to_descriptor())

    def __repr__(self) -> str:
        return f"Blob({self.uri!r}, offset={self.offset}, length={self.length})"


class _Stream(io.RawIOBase):
    def __init__(self, fetcher: BlobFetcher, blob: Blob) -> None:
        super().__init__()
        self._fetcher = fetcher
        self._blob = blob
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._blob.length}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, target: Any) -> int:
        view = memoryview(target).cast("B")
        count = max(0, min(len(view), self._blob.length - self._position))
        self._fetcher.fill(self._blob.uri, self._blob.offset + self._position, view[:count])
        self._position += count
        return count


def blobs_of(directory: TableDirectory, descriptors: Iterable[bytes | None]) -> list[Blob | None]:
    """Blobs by their serialised descriptors. Only a blob without a length needs a request, for the size of its file.
    Raises CorruptTableError if a value is not a descriptor.
    """
    cells = pa.array(descriptors, pa.large_binary())
    fetcher = BlobFetcher(directory.store, None)
    found = fetcher.references(cells, str(directory.table.table_path))
    values = zip(found.place.tolist(), found.offsets.tolist(), found.lengths.tolist(), strict=True)
    return [
        None if place < 0 else Blob(fetcher, BlobDescriptor(found.places[place], offset, length))
        for place, offset, length in values
    ]
