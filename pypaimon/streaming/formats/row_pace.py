"""`RowPace`: how many rows to decode at once, where only decoding shows how many bytes they take."""

from __future__ import annotations

DECODED_BYTES = 8 << 20
"""Bytes that are decoded at once, about."""

FIRST_ROWS = 1024
"""Rows that are decoded first, at most, where nothing says how large they are."""

_GROWTH = 64


class RowPace:
    """Follows what rows took, up and down; up in steps, because the next ones may be larger.

    Args:
        most: Rows, at most.
        first: Rows that are decoded first.
        size: Bytes that are decoded at once, about.

    Attributes:
        rows: How many to decode next.
    """

    def __init__(self, most: int, first: int = FIRST_ROWS, size: int = DECODED_BYTES) -> None:
        self._most = most
        self._size = size
        self.rows = max(1, min(most, first))

    def took(self, rows: int, size: int) -> None:
        """Note the bytes of the rows that were decoded."""
        if rows:
            self.rows = max(1, min(self._most, _GROWTH * rows, self._size * rows // max(size, 1)))
