"""`NewObject`: an object that is written piece by piece, but in one request if it stays small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MOST_HELD = 8 << 20
"""Larger objects are uploaded in parts while they are written."""


class NewObject:
    """A file for Arrow's writers. A small object is uploaded only when it is closed.

    Args:
        put: Writes the whole object.
        open_stream: Opens a stream into the object.
    """

    def __init__(self, put: Callable[[bytes], object], open_stream: Callable[[], Any]) -> None:
        self._put = put
        self._open_stream = open_stream
        self._held = bytearray()
        self._stream: Any = None
        self._size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Write bytes; raises `OSError` if that fails."""
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
        """The number of bytes written so far."""
        return self._size

    def close(self) -> None:
        """Finish the object; raises `OSError`, or an error of the store, if it was not written."""
        if self.closed:
            return
        self.closed = True
        if self._stream is None:
            self._put(bytes(self._held))
            self._held.clear()
        else:
            self._stream.close()

    def abandon(self) -> bool:
        """Discard the object; returns whether it may exist nevertheless, because parts of it were uploaded."""
        held = self._stream is None and not self.closed
        self.closed = True
        self._held.clear()
        if self._stream is not None:
            self._stream.close()
        return not held

    def flush(self) -> None:
        """Do nothing: the object is written when it is closed."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False
