"""`UnsupportedContentError`: what a sound file holds and is not read here, for those who know the file."""

from __future__ import annotations

from pypaimon.streaming.errors import UnsupportedTableError


class UnsupportedContentError(UnsupportedTableError):
    """Something in a file is not read here; whoever opened the file makes an `UnsupportedFileError` of it.

    Attributes:
        column: The column of the file that holds it; None: the file as a whole.
    """

    def __init__(self, detail: str, column: str | None = None) -> None:
        self.column = column
        super().__init__(detail)
