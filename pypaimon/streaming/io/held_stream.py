"""A file that is read twice, to be checked and to be decoded, and asked for once."""

from __future__ import annotations

import io
from typing import Any

from pypaimon.streaming.io.binary_file import BinaryFile


class HeldStream(BinaryFile):
    """A binary file that keeps some of its bytes in memory.

    Args:
        stream: The file, which can seek.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._position = 0
        self._held: list[tuple[int, bytes]] = []
        self._pinned: list[tuple[int, bytes]] = []
        super().__init__()

    def hold(self, start: int, end: int) -> bytes:
        """Read a range, and keep it until `forget`.

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
        """Let go of what is held; what is pinned stays."""
        self._held.clear()

    def _whole(self, start: int, end: int) -> bytes:
        self._position = start
        data = self.read(end - start)
        if len(data) != end - start:
            raise ValueError(f"the file ends before byte {end}")
        return data

    def read(self, size: int | None = -1) -> bytes:
        """So many bytes from the position on, fewer only at the end; without a number all."""
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
        """Go to a place; returns it."""
        if whence == io.SEEK_END:
            self._position = int(self._stream.seek(offset, whence))
        else:
            self._position = offset + (self._position if whence == io.SEEK_CUR else 0)
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def close(self) -> None:
        """Let go of what is kept; the file stays open, for whoever opened it."""
        self.closed = True
        self._held.clear()
        self._pinned.clear()
