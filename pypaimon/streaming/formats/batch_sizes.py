"""`AdaptiveBatchSize`: how many rows to decode at once if only decoding shows how many bytes they take."""

from __future__ import annotations

DECODED_BYTES = 8 << 20
"""Bytes to decode at once, about."""

FIRST_ROWS = 1024
"""Most rows to decode first if their size is not known."""

_GROWTH = 64


class AdaptiveBatchSize:
    """Follows the size of the rows decoded last. It grows in steps, because the next rows may be larger."""

    def __init__(self, most: int, first: int = FIRST_ROWS, size: int = DECODED_BYTES) -> None:
        self._most = most
        self._size = size
        self.rows = max(1, min(most, first))

    def record(self, rows: int, size: int) -> None:
        if rows:
            self.rows = max(1, min(self._most, _GROWTH * rows, self._size * rows // max(size, 1)))
