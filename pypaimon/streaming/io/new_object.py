"""`NewObject`: an object that is written piece by piece, and in one request where it stays small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MOST_HELD = 8 << 20
"""Bytes from which on an object is written while it comes, in parts."""


class NewObject:
    """What Arrow's writers take for a file. Nothing is written that was not closed, unless it is large.

    Args:
        put: Writes the whole object.
        open_stream: Opens a stream into it.

    Attributes:
        closed: Whether it takes no more.
    """

    def __init__(self, put: Callable[[bytes], object], open_stream: Callable[[], Any]) -> None:
        self._put = put
        self._open_stream = open_stream
        self._held = bytearray()
        self._stream: Any = None
        self._size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Take bytes; raises `OSError` if they cannot be written."""
        view = memoryview(data).cast("B")
        self._size += len(view)
        if self._stream is None and len(self._held) + len(view) > MOST_HELD:
            self._stream = self._open_stream()
            held, self._held = self._held, bytearray()
            self._stream.write(held)
        if self._stream is None:
            self._held += view
        else:
            self._stream.write(view)
        return len(view)

    def tell(self) -> int:
        """Bytes so far."""
        return self._size

    def close(self) -> None:
        """Have it written whole; raises `OSError`, or an error of the store, if it was not."""
        if self.closed:
            return
        self.closed = True
        if self._stream is None:
            self._put(bytes(self._held))
            self._held.clear()
        else:
            self._stream.close()

    def abandon(self) -> bool:
        """Take no more, and write nothing that was not written yet; whether there may be an object all the same."""
        held = self._stream is None and not self.closed
        self.closed = True
        self._held.clear()
        if self._stream is not None:
            self._stream.close()
        return not held

    def flush(self) -> None:
        """Nothing: it is written when it is closed."""

    def readable(self) -> bool:
        """It is not."""
        return False

    def writable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is not."""
        return False
