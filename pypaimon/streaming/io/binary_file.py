"""`BinaryFile`: what every file that is read here, and is none of Python's own, tells Arrow of itself."""

from __future__ import annotations


class BinaryFile:
    """A file that can be read and sought, never written.

    Attributes:
        closed: Whether it was closed.
    """

    def __init__(self) -> None:
        self.closed = False

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def writable(self) -> bool:
        """Never."""
        return False
