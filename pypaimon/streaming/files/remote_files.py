"""Data files in a store: every read of them is a request of the store's, timed out, retried and counted."""

from __future__ import annotations

import io
from typing import Any

from pypaimon.streaming.store import Store

_WHOLE = 4 << 20
"""Bytes up to which a file is read at once: a round trip costs more than the columns that are not needed."""

_AHEAD = 1 << 20
"""Bytes that are read at least: columns of a row group lie side by side."""


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


class RemoteFile:
    """A binary file in a store, for one thread at a time.

    What a request holds, its stream, is given up with it: a request that hung is asked again on a stream of its own.

    Args:
        store: Where it lies.
        path: The file.
    """

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self._path = path
        self._stream: Any = None
        self._position = 0
        self._block = b""
        self._block_start = 0
        self.closed = False
        self._size: int = store.call("read", path, self._open)

    def read(self, size: int | None = -1) -> bytes:
        """So many bytes from the position on, fewer only at the end; all without a number."""
        left = max(0, self._size - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        skipped = self._position - self._block_start
        if not 0 <= skipped <= len(self._block) - wanted:
            length = min(max(wanted, _AHEAD), left)
            self._block = self._store.call("read", self._path, lambda _: self._fetch(self._position, length))
            self._block_start, skipped = self._position, 0
        self._position += wanted
        whole = not skipped and wanted == len(self._block)
        return self._block if whole else self._block[skipped : skipped + wanted]

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; returns it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def writable(self) -> bool:
        """Never."""
        return False

    def close(self) -> None:
        """Let the stream go."""
        self.closed = True
        stream, self._stream, self._block = self._stream, None, b""
        if stream is not None:
            stream.close()

    def _open(self, path: str) -> int:
        stream = self._store.file_io.new_input_stream(path)
        size = stream.seek(0, io.SEEK_END)
        self._stream = stream
        return int(stream.tell() if size is None else size)

    def _fetch(self, position: int, length: int) -> bytes:
        stream, self._stream = self._stream, None
        if stream is None:
            stream = self._store.file_io.new_input_stream(self._path)
        stream.seek(position)
        data = bytes(stream.read(length))
        if len(data) != length:
            raise OSError(f"it ends after {position + len(data)} bytes, it should have {self._size}")
        self._stream = stream
        return data
