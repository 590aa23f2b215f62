"""What the index of a column can say about its rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pyroaring import BitMap

from pypaimon.streaming.filtering.indexes.keys import Key, KeyType


class ColumnIndex(ABC):
    """The index of one column of one file.

    Each answer is the bitmap of the rows for which it holds, a new one; None where the index does not know. Methods
    raise ValueError where the index is damaged.

    Args:
        data: The index.
        keys: The type of the keys.

    Attributes:
        row_count: Rows of the file; None where the index does not tell.

    Raises:
        ValueError: It is damaged, or of another version.
    """

    row_count: int | None = None

    @abstractmethod
    def __init__(self, data: bytes, keys: KeyType) -> None: ...

    def valid(self) -> BitMap | None:
        """Rows whose value is not null."""
        return None

    @abstractmethod
    def one_of(self, keys: Sequence[Key]) -> BitMap | None:
        """Rows with one of these keys."""

    def above(self, key: Key, inclusive: bool) -> BitMap | None:
        """Rows with a key above one, or equal to it."""
        return None

    def below(self, key: Key, inclusive: bool) -> BitMap | None:
        """Rows with a key below one, or equal to it."""
        return None
