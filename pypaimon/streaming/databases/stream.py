"""`DatabaseStream` and `BlockingDatabaseStream`: the rows of all tables of a database, as they are committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from pypaimon.streaming.batches.batch import Batch, BatchRows, BlockingBatch
from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.batches.stream import AsyncStream, BlockingStream, StreamLoop
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.concurrency.threads_to_asyncio import call_on_thread
from pypaimon.streaming.concurrency.waits import Wait, Waits, calling, run, run_async
from pypaimon.streaming.databases.engine import DatabaseEngine
from pypaimon.streaming.databases.engine_state import Item, TableChunk
from pypaimon.streaming.databases.events import DatabaseEvent
from pypaimon.streaming.databases.followed_table import FollowedTable
from pypaimon.streaming.databases.lag import DatabaseLag
from pypaimon.streaming.databases.position import DatabasePosition
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.stream_options import CommitMode
from pypaimon.streaming.scanning.lag import Lag

B = TypeVar("B")
OnEvent = Callable[[DatabaseEvent], object]


class _OfTable(BatchRows):
    """What batches of a database know in addition."""

    def __init__(self, item: TableChunk, commit: Callable[[], Any]) -> None:
        super().__init__(item.chunk, commit)
        self._table = item.table.name

    @property
    def table(self) -> str:
        """Name of the table, without the database."""
        return self._table


class TableBatch(_OfTable, Batch):
    """A batch of one table, of an asynchronous stream of a database.

    `position` is where the stream of its table continues; `commit` saves the progress of its table.
    """


class BlockingTableBatch(_OfTable, BlockingBatch):
    """A batch of one table, of a blocking stream of a database; as `TableBatch`."""


class _DatabaseLoop(StreamLoop[TableChunk, B]):
    """What is special about the stream of a database: its tables and events, and how it confirms plans of a table.

    Args:
        database: Name of the database.
        engine: Reads the tables.
        on_event: Called with each event, before the next batch, if given.
        clock: Where time comes from.
    """

    def __init__(self, database: str, engine: DatabaseEngine, on_event: OnEvent | None, clock: Clock) -> None:
        super().__init__(engine, clock)
        self.database = database
        self._engine = engine
        self._on_event = on_event
        self._confirmed: BatchChunk | None = None

    def __repr__(self) -> str:
        if not self._handover.is_here:
            return f"{type(self).__name__}({self.database}, opened before this process was forked)"
        return f"{type(self).__name__}({self.database}, {len(self.tables)} tables)"

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that are followed now. No IO."""
        self._handover.refuse_elsewhere()
        return self._engine.names

    @property
    def failed(self) -> Mapping[str, Exception]:
        """Parked tables and their errors; see `retry`. No IO."""
        self._handover.refuse_elsewhere()
        return self._engine.failed

    @property
    def position(self) -> DatabasePosition:
        """Where a restart continues after the last batch that was handed out. No IO."""
        self._handover.refuse_elsewhere()
        self._note_delivered()
        return DatabasePosition(self.database, self._engine.places)

    def _lag_now(self, fresh: bool) -> DatabaseLag:
        self._handover.refuse_elsewhere()
        self._note_delivered()
        lag = self._engine.lag(fresh=fresh)
        self._lag = Lag(lag.snapshots, lag.rows, None, lag.seconds, None, None, None)
        return lag

    def retry(self, table: str) -> None:
        """Resume a table that is parked. From any thread.

        Raises:
            StreamConfigError: The table is not parked.
        """
        self._handover.refuse_elsewhere()
        self._engine.retry(table)

    def park(self, table: str, error: Exception) -> None:
        """Stop reading a table because its rows cannot be used: until `retry`, or until another table has its name.

        Rows that were read before still come. From any thread; does nothing if the table is not read anyway.

        Args:
            table: Name of the table.
            error: The reason, reported as `TableFailed` and in `failed`.
        """
        self._handover.refuse_elsewhere()
        self._engine.park(table, error)

    def _ended(self) -> Wait[None]:
        # A plain `close` has waited already.
        return Wait(lambda: None, lambda: call_on_thread(self._engine.wait_for_writes, "paimon-database-close"))

    def _chunk_of(self, item: Item) -> BatchChunk | None:
        return item.chunk if isinstance(item, TableChunk) else None

    def _pass_over(self, item: Item) -> Waits[None]:
        if isinstance(item, TableChunk):
            self._note_received(item)
            yield from self._confirm_received(item)
            return
        if self._on_event is not None:
            yield calling(self._on_event, item)
        self._engine.drop(item)

    # ---- what is confirmed ----

    def _note_delivered(self) -> None:
        item = self._handover.state.item
        if item is not None:
            self._engine.delivered(*item)

    def _note_received(self, item: TableChunk) -> None:
        # Not earlier: if its table is renamed, what was not delivered comes again.
        self._engine.delivered(*item)
        self._engine.drop(item)

    def _confirm_received(self, item: TableChunk) -> Waits[None]:
        """Save progress after a chunk, unless the caller does. A permanent error parks the table."""
        table, chunk = item
        if chunk is self._confirmed:
            return
        position = chunk.position
        if position is not None and table.driver.commit_mode is CommitMode.AUTO:
            try:
                yield _saving(table, position)
            except PaimonStreamError as error:
                if error.retriable:
                    raise
                self._engine.could_not_save(table, error)
        self._confirmed = chunk

    def _commit(self, item: TableChunk) -> Waits[None]:
        table, chunk = item
        position = chunk.position
        if position is not None:
            yield _saving(table, position)
        self._confirmed = chunk


def _saving(table: FollowedTable, position: Position) -> Wait[None]:
    return Wait(lambda: table.scan.commit(position), lambda: table.scan.commit_async(position))


class DatabaseStream(_DatabaseLoop[TableBatch], AsyncStream[TableChunk, TableBatch]):
    """Batches of all tables for `async for`; made by `DatabaseStreamBuilder.open()`. Best within `async with`.

    The batches of one plan come in order; there is no order between tables. A cancelled wait loses nothing. With a
    consumer id, asking for the next batch confirms the one before, unless `commit="manual"`.
    """

    async def lag(self, *, fresh: bool = False) -> DatabaseLag:
        """The lag of what was handed out, for each table and in total.

        `status.lag` holds the total afterwards.

        Args:
            fresh: Ask each table for its latest snapshot. Otherwise the lag is that of the last polls, without IO.
        """
        return await call_on_thread(partial(self._lag_now, fresh), "paimon-database-lag-call")

    def _new_batch(self, item: TableChunk) -> TableBatch:
        return TableBatch(item, lambda: run_async(self._commit(item)))


class BlockingDatabaseStream(_DatabaseLoop[BlockingTableBatch], BlockingStream[TableChunk, BlockingTableBatch]):
    """As `DatabaseStream`, for a plain `for` and `with`; made by `DatabaseStreamBuilder.open_sync()`.

    Ctrl-C interrupts it and loses nothing.
    """

    def lag(self, *, fresh: bool = False) -> DatabaseLag:
        """As `DatabaseStream.lag`; from any thread."""
        return self._lag_now(fresh)

    def _new_batch(self, item: TableChunk) -> BlockingTableBatch:
        return BlockingTableBatch(item, lambda: run(self._commit(item)))
