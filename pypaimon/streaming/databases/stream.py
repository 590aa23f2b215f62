"""`DatabaseStream` and `BlockingDatabaseStream`: the rows of all tables of a database, as they are committed."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

from pypaimon.streaming.batches.batch import Batch, BlockingBatch
from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.concurrency.background_threads import spawn_detached
from pypaimon.streaming.concurrency.clock import Clock, Sleeper
from pypaimon.streaming.concurrency.threads_to_asyncio import wait_for_future
from pypaimon.streaming.concurrency.waits import Wait, Waits, run, run_async
from pypaimon.streaming.databases.engine import DatabaseEngine
from pypaimon.streaming.databases.events import DatabaseEvent
from pypaimon.streaming.databases.followed_table import FollowedTable
from pypaimon.streaming.databases.lag import DatabaseLag
from pypaimon.streaming.databases.position import DatabasePosition
from pypaimon.streaming.errors import EndOfScan, PaimonStreamError
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.stream_options import CommitMode
from pypaimon.streaming.scanning.handover import Handover

B = TypeVar("B")
OnEvent = Callable[[DatabaseEvent], object]
_Delivered = tuple[FollowedTable, BatchChunk] | None


class TableBatch(Batch):
    """A batch of one table, of an asynchronous stream of a database.

    `position` is where the stream of its table continues; `commit` saves the progress of its table.
    """

    def __init__(self, table: str, chunk: BatchChunk, commit: Callable[[BatchChunk], Awaitable[None]]) -> None:
        super().__init__(chunk, commit)
        self._table = table

    @property
    def table(self) -> str:
        """Name of the table, without the database."""
        return self._table


class BlockingTableBatch(BlockingBatch):
    """A batch of one table, of a blocking stream of a database; as `TableBatch`."""

    def __init__(self, table: str, chunk: BatchChunk, commit: Callable[[BatchChunk], None]) -> None:
        super().__init__(chunk, commit)
        self._table = table

    @property
    def table(self) -> str:
        """Name of the table, without the database."""
        return self._table


class _DatabaseLoop(Generic[B]):
    """What both streams share.

    Args:
        database: Name of the database.
        engine: Reads the tables.
        on_event: Called with each event, before the next batch, if given.
        clock: Where time comes from.
    """

    def __init__(self, database: str, engine: DatabaseEngine, on_event: OnEvent | None, clock: Clock) -> None:
        self.database = database
        self._engine = engine
        self._on_event = on_event
        self._clock = clock
        busy = "this stream is being read by another call; open one stream per reader"
        self._handover: Handover[B, _Delivered] = Handover(None, busy)
        self._confirmed: BatchChunk | None = None
        self._sleeper = Sleeper(clock)
        self._stopping = False
        self._over = False
        # The threads must not outlive a stream that is garbage.
        weakref.finalize(self, spawn_detached, engine.close)

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

    def lag(self, *, fresh: bool = False) -> DatabaseLag:
        """The lag of what was handed out, for each table and in total. From any thread.

        Args:
            fresh: Ask each table for its latest snapshot, which blocks. Otherwise the lag is that of the last polls,
                and needs no IO.
        """
        self._handover.refuse_elsewhere()
        self._note_delivered()
        return self._engine.lag(fresh=fresh)

    async def lag_async(self, *, fresh: bool = False) -> DatabaseLag:
        """As `lag`, without blocking the event loop."""
        pool = IOPool(1, timeout=float("inf"), name="paimon-database-lag-call")
        try:
            return await wait_for_future(pool.submit(partial(self.lag, fresh=fresh)))
        finally:
            pool.close()

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

    def stop(self) -> None:
        """End gracefully, from any thread or a signal handler: the rest of the current plan still comes."""
        self._stopping = True
        self._sleeper.wake()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop()` was called."""
        return self._stopping

    def _pause(self, seconds: float) -> Wait[None]:
        """Wait for this time, or until the stream is stopped or closed."""
        return self._sleeper.until_due(self._clock.monotonic() + seconds, lambda: self._stopping or self._over)

    def _end(self) -> None:
        self._over = True
        self._engine.close()
        self._sleeper.wake()

    def _is_stopped(self) -> bool:
        hand = self._handover.state
        return self._stopping and (hand is None or hand[1].last)

    def _note_delivered(self) -> None:
        hand = self._handover.state
        if hand is not None:
            self._engine.delivered(*hand)

    def _find(self, new_batch: Callable[[FollowedTable, BatchChunk], B]) -> Waits[None]:
        """Put the next batch into the handover; EndOfScan if there is no next one."""
        hand = self._handover.state
        if hand is not None and not self._handover.has_item:
            self._engine.delivered(*hand)
            self._engine.drop(hand)
            table, chunk = hand
            if chunk is not self._confirmed:
                yield from self._confirm(table, chunk)
        while not (self._over or self._handover.has_item):
            yield self._sleeper.until_done(self._engine.ready(), self._is_stopped)
            if self._is_stopped():
                raise EndOfScan("the stream was stopped")
            item = self._engine.peek()
            if isinstance(item, DatabaseEvent):
                yield from self._emit(item)
                self._engine.drop(item)
            elif item is not None:
                yield from self._offer(item, new_batch)
        if self._over:
            raise EndOfScan("the stream is closed")

    def _offer(
        self, item: tuple[FollowedTable, BatchChunk], new_batch: Callable[[FollowedTable, BatchChunk], B]
    ) -> Waits[None]:
        table, chunk = item
        if chunk.data is not None:
            self._handover.offer(new_batch(table, chunk), item)
            return
        # A plan without rows is confirmed, but gives no batch.
        self._engine.delivered(table, chunk)
        self._engine.drop(item)
        yield from self._confirm(table, chunk)

    def _emit(self, event: DatabaseEvent) -> Waits[None]:
        on_event = self._on_event
        if on_event is not None:
            yield Wait(lambda: on_event(event), lambda: _awaited(on_event(event)))

    def _confirm(self, table: FollowedTable, chunk: BatchChunk) -> Waits[None]:
        """Save progress after a chunk, unless the caller does. A permanent error parks the table."""
        position = _position_after(chunk)
        if position is not None and table.driver.commit_mode is CommitMode.AUTO:
            yield self._saving(table, position)
        self._confirmed = chunk

    def _saving(self, table: FollowedTable, position: Position) -> Wait[None]:
        def block() -> None:
            try:
                table.scan.commit(position)
            except PaimonStreamError as error:
                self._on_unsaved(table, error)

        async def awaitable() -> None:
            try:
                await table.scan.commit_async(position)
            except PaimonStreamError as error:
                self._on_unsaved(table, error)

        return Wait(block, awaitable)

    def _on_unsaved(self, table: FollowedTable, error: PaimonStreamError) -> None:
        if error.retriable:
            raise error
        self._engine.could_not_save(table, error)

    def _commit(self, table: FollowedTable, chunk: BatchChunk) -> Waits[None]:
        position = _position_after(chunk)
        if position is not None:
            yield Wait(lambda: table.scan.commit(position), lambda: table.scan.commit_async(position))
        self._confirmed = chunk


def _position_after(chunk: BatchChunk) -> Position | None:
    """Where the table continues after a chunk; within a plan that is the beginning of the plan."""
    return chunk.plan.position if chunk.last else chunk.before


async def _awaited(answer: Any) -> None:
    if inspect.isawaitable(answer):
        await answer


class DatabaseStream(_DatabaseLoop[TableBatch]):
    """Batches of all tables for `async for`; made by `DatabaseStreamBuilder.open()`. Best within `async with`.

    The batches of one plan come in order; there is no order between tables. A cancelled wait loses nothing. With a
    consumer id, asking for the next batch confirms the one before, unless `commit="manual"`.
    """

    def __aiter__(self) -> DatabaseStream:
        return self

    async def __anext__(self) -> TableBatch:
        try:
            await self._handover.exclusively_async(lambda: run_async(self._find(self._new_batch)))
        except EndOfScan:
            self._end()
            raise StopAsyncIteration from None
        return self._handover.take()

    def _new_batch(self, table: FollowedTable, chunk: BatchChunk) -> TableBatch:
        return TableBatch(table.name, chunk, lambda chunk: run_async(self._commit(table, chunk)))

    async def pause(self, seconds: float) -> None:
        """Wait for this time, or until `stop()` or `aclose()`: for handlers that retry."""
        await self._pause(seconds).awaitable()

    async def aclose(self) -> None:
        """End at once, without confirming anything. Idempotent."""
        self._end()
        pool = IOPool(1, timeout=float("inf"), name="paimon-database-close")
        try:
            await wait_for_future(pool.submit(self._engine.wait_for_writes))
        finally:
            pool.close()

    async def __aenter__(self) -> DatabaseStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> NoReturn:
        self._end()
        raise TypeError("open() is for `async with` and `async for`; without asyncio it is `with builder.open_sync()`")

    def __exit__(self, *_: object) -> None:
        """Never called; `with` requires it."""


class BlockingDatabaseStream(_DatabaseLoop[BlockingTableBatch]):
    """As `DatabaseStream`, for a plain `for` and `with`. Ctrl-C interrupts it and loses nothing."""

    def __iter__(self) -> BlockingDatabaseStream:
        return self

    def __next__(self) -> BlockingTableBatch:
        try:
            self._handover.exclusively(lambda: run(self._find(self._new_batch)))
        except EndOfScan:
            self._end()
            raise StopIteration from None
        return self._handover.take()

    def _new_batch(self, table: FollowedTable, chunk: BatchChunk) -> BlockingTableBatch:
        return BlockingTableBatch(table.name, chunk, lambda chunk: run(self._commit(table, chunk)))

    def pause(self, seconds: float) -> None:
        """Block for this time, or until `stop()` or `close()`: for handlers that retry."""
        self._pause(seconds).block()

    def close(self) -> None:
        """End at once, without confirming anything. Idempotent."""
        self._end()

    def __enter__(self) -> BlockingDatabaseStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    async def __aenter__(self) -> NoReturn:
        self._end()
        raise TypeError("open_sync() is for `with` and `for`; with asyncio it is `async with builder.open()`")

    async def __aexit__(self, *_: object) -> None:
        """Never called; `async with` requires it."""
