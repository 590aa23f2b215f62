"""Data files in a store: every read of them is a request of the store's, timed out, retried and counted."""

from __future__ import annotations

import io
from typing import Any

from pypaimon.streaming.io.binary_file import BinaryFile
from pypaimon.streaming.io.io_requests import one_request
from pypaimon.streaming.io.object_client import Part
from pypaimon.streaming.io.store import Store

_WHOLE = 4 << 20
"""Bytes up to which a file is read at once: a round trip costs more than the columns that are not needed."""

_AHEAD = 1 << 20
"""Bytes that are read at least: columns of a row group lie side by side."""

_TAIL = 256 << 10
"""Bytes of the end that are read with the size: the footer, but of very many columns or row groups."""

_NOTHING = Part(b"", 0, 0)


def open_remote(store: Store, path: str, size: int | None) -> Any:
    """Open a data file for reading.

    Args:
        store: Where it lies.
        path: The file.
        size: Its size as the manifest has it, None if only a part is wanted; decides only how it is read.

    Returns:
        A binary file that can seek.

    Raises:
        FileNotFoundError: It is missing.
        CorruptTableError: It may not be read.
        StoreError: The store kept failing (retriable); `IOTimeoutError` if it hung.
    """
    return RemoteFile(store, path) if size is None or size > _WHOLE else io.BytesIO(store.read(path))


class RemoteFile(BinaryFile):
    """A binary file in a store, for one thread at a time.

    Where the store's client needs no size to read, the end of the file, which readers want first, tells it. What a
    request holds, its stream, is given up with it: a request that hung is asked again on a stream of its own.

    Args:
        store: Where it lies.
        path: The file.
    """

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self._path = path
        self._stream: Any = None
        self._position = 0
        self._block = _NOTHING
        self._size: int | None = None
        super().__init__()

    def read(self, size: int | None = -1) -> Any:
        """So many bytes from the position on, as a buffer, fewer only at the end; without a number all, as `bytes`."""
        if size is None or size < 0:
            return bytes(self.read(max(0, self._end() - self._position)))
        wanted = size if self._size is None else min(size, max(0, self._size - self._position))
        if not wanted:
            return b""
        skipped = self._position - self._block.start
        if not 0 <= skipped <= len(self._block.data) - wanted:
            ahead = wanted if self._size is None else min(max(wanted, _AHEAD), self._size - self._position)
            self._load(self._position, ahead)
            skipped = 0
        block = self._block.data
        data = block if not skipped and wanted >= len(block) else block[skipped : skipped + wanted]
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; returns it."""
        start = {io.SEEK_SET: lambda: 0, io.SEEK_CUR: self.tell, io.SEEK_END: self._end}[whence]()
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def close(self) -> None:
        """Let the stream go."""
        self.closed = True
        stream, self._stream, self._block = self._stream, None, _NOTHING
        if stream is not None:
            stream.close()

    def _end(self) -> int:
        return self._load(None, _TAIL).size if self._size is None else self._size

    def _load(self, start: int | None, length: int) -> Part:
        """Make bytes from a place on, or the last ones, the block that is at hand."""
        part = self._store.call("read", self._path, lambda _: self._fetch(start, length))
        self._block, self._size = part, part.size
        return part

    def _fetch(self, start: int | None, length: int) -> Part:
        part = self._store.objects.part(self._path, start, length, lambda: self._from_stream(start, length))
        if start is not None and len(part.data) != max(0, min(length, part.size - start)):
            raise OSError(f"it ends after {start + len(part.data)} bytes, it should have {part.size}")
        return part

    def _from_stream(self, start: int | None, length: int) -> Part:
        stream, self._stream = self._stream, None
        if stream is None:
            stream = self._store.file_io.new_input_stream(self._path)
        size = self._size
        if size is None:
            with one_request():
                end = stream.seek(0, io.SEEK_END)
                size = int(stream.tell() if end is None else end)
        data = b""
        if start is not None and start < size:
            with one_request():
                stream.seek(start)
                data = bytes(stream.read(length))
        self._stream = stream
        return Part(data, size if start is None else start, size)
