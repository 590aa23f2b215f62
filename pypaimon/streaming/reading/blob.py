"""`Blob`: one value of a BLOB column, whose bytes are read on demand."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pypaimon.streaming.paimon.internals import BlobDescriptor, PaimonBlob
from pypaimon.streaming.reading.blob_fetcher import BlobFetcher

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory

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
    """The unbuffered bytes of a blob."""

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

    Raises:
        CorruptTableError: A value is not a descriptor.
        StoreError: The store kept failing (retriable).
    """
    cells = pa.array(descriptors, pa.large_binary())
    fetcher = BlobFetcher(directory.store, None)
    found = fetcher.references(cells, str(directory.table.table_path))
    values = zip(found.place.tolist(), found.offsets.tolist(), found.lengths.tolist(), strict=True)
    return [
        None if place < 0 else Blob(fetcher, BlobDescriptor(found.places[place], offset, length))
        for place, offset, length in values
    ]
