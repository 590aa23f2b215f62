"""What the index of a column can say about its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pyroaring import BitMap

from pypaimon.streaming.filtering.indexes.keys import Key


class ColumnIndex(Protocol):
    """The index of one column of one file.

    Each answer is the bitmap of the rows for which it holds, a new one; None where the index does not know. Methods
    raise ValueError where the index is damaged.
    """

    @property
    def row_count(self) -> int | None:
        """Rows of the file; None where the index does not tell."""

    def valid(self) -> BitMap | None:
        """Rows whose value is not null."""

    def one_of(self, keys: Sequence[Key]) -> BitMap | None:
        """Rows with one of these keys."""

    def above(self, key: Key, inclusive: bool) -> BitMap | None:
        """Rows with a key above one, or equal to it."""

    def below(self, key: Key, inclusive: bool) -> BitMap | None:
        """Rows with a key below one, or equal to it."""
