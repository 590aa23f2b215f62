"""`BinaryFile`: files that Arrow reads through Python. `HeldStream`: one that keeps some of its bytes in memory.
`read_fully`: reads all of what is asked for.
"""

from __future__ import annotations

import io
from typing import Any

from pypaimon.streaming.io.io_requests import one_request


def read_fully(stream: Any, size: int | None = -1) -> bytes:
    """Read this many bytes, or fewer at the end of the file; None or a negative number reads all.

    A stream may give fewer at once than it has, which others take for the end of the file. Each read is a request.
    """
    with one_request():
        data = bytes(stream.read(size))
    while size is not None and 0 < len(data) < size:
        with one_request():
            more = stream.read(size - len(data))
        if not more:
            break
        data += bytes(more)
    return data


class BinaryFile:
    """A file that can be read and can seek, but not be written."""

    def __init__(self) -> None:
        self.closed = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False


class HeldStream(BinaryFile):
    """A file that is read twice, to be checked and then decoded, but requested once.

    Args:
        stream: The file; must be able to seek.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._position = 0
        self._held: list[tuple[int, bytes]] = []
        self._pinned: list[tuple[int, bytes]] = []
        super().__init__()

    def hold(self, start: int, end: int) -> bytes:
        """Read a range, and keep it until `forget` is called.

        Raises:
            ValueError: The file ends before.
        """
        data = self._whole(start, end)
        self._held.append((start, data))
        return data

    def pin(self, start: int, end: int) -> bytes:
        """As `hold`, kept until the file is closed."""
        data = self._whole(start, end)
        self._pinned.append((start, data))
        return data

    def forget(self) -> None:
        """Release the ranges of `hold`; those of `pin` are kept."""
        self._held.clear()

    def _whole(self, start: int, end: int) -> bytes:
        self._position = start
        data = self.read(end - start)
        if len(data) != end - start:
            raise ValueError(f"the file ends before byte {end}")
        return data

    def read(self, size: int | None = -1) -> bytes:
        """Read this many bytes, or fewer at the end of the file; None or a negative number reads all."""
        kept = None if size is None or size < 0 else self._kept(self._position, size)
        if kept is None:
            self._stream.seek(self._position)
            kept = bytes(self._stream.read(size))
        self._position += len(kept)
        return kept

    def _kept(self, start: int, size: int) -> bytes | None:
        for first, data in (*self._held, *self._pinned):
            if first <= start and start + size <= first + len(data):
                return data[start - first : start - first + size]
        return None

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            self._position = int(self._stream.seek(offset, whence))
        else:
            self._position = offset + (self._position if whence == io.SEEK_CUR else 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        """Release all ranges. The underlying file stays open; its owner closes it."""
        self.closed = True
        self._held.clear()
        self._pinned.clear()
