"""`TableBatch` and `BlockingTableBatch`: rows of one table of a database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pypaimon.streaming.batches.batch import Batch, BlockingBatch
from pypaimon.streaming.batches.chunks import BatchChunk


class TableBatch(Batch):
    """A batch of an asynchronous stream of a database: as `Batch`, of one table.

    `position` is where the stream of its table goes on; `commit` saves progress of its table.
    """

    def __init__(self, table: str, chunk: BatchChunk, commit: Callable[[BatchChunk], Awaitable[None]]) -> None:
        super().__init__(chunk, commit)
        self._table = table

    @property
    def table(self) -> str:
        """Name of the table, without the database."""
        return self._table


class BlockingTableBatch(BlockingBatch):
    """As `TableBatch`, of a blocking stream."""

    def __init__(self, table: str, chunk: BatchChunk, commit: Callable[[BatchChunk], None]) -> None:
        super().__init__(chunk, commit)
        self._table = table

    @property
    def table(self) -> str:
        """Name of the table, without the database."""
        return self._table
