"""`BatchStream` and `BlockingBatchStream`: rows as they come, prefetched and confirmed, in one object."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Generic, NoReturn, TypeVar

import pyarrow as pa

from pypaimon.streaming.batches.batch import Batch, BlockingBatch
from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.batches.read_ahead import ReadAhead
from pypaimon.streaming.batches.stream_status import StreamStatus
from pypaimon.streaming.concurrency.background_threads import spawn_detached
from pypaimon.streaming.concurrency.clock import Clock, Sleeper
from pypaimon.streaming.concurrency.waits import Wait, Waits, run, run_async
from pypaimon.streaming.errors import EndOfScan, SchemaChangedError, StreamConfigError
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.model.position import Phase, Position
from pypaimon.streaming.options.stream_options import CommitMode
from pypaimon.streaming.scanning.driver import ScanDriver
from pypaimon.streaming.scanning.handover import Handover
from pypaimon.streaming.scanning.lag import Lag
from pypaimon.streaming.scanning.scan import StreamScan

B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class _Delivered:
    """What the caller has received.

    Attributes:
        chunk: The last batch; None before the first.
        passed: Position after later plans without rows; None without such plans.
        status: Counters up to the last batch.
    """

    chunk: BatchChunk | None = None
    passed: Position | None = None
    status: StreamStatus = field(default_factory=StreamStatus)

    @property
    def ends_plan(self) -> bool:
        """Whether all rows of the current plan were given."""
        return self.chunk is None or self.chunk.last or self.passed is not None


class _BatchLoop(Generic[B]):
    """The common part of both streams: the batches that were given, and the positions that they confirm.

    Args:
        scan: The scan, with manual commits.
        driver: Driver of the scan, from which `ahead` requests plans.
        ahead: Prefetches the rows of plans.
        on_progress: Called with the status after each batch, before it is given; or None.
    """

    def __init__(
        self,
        scan: StreamScan,
        driver: ScanDriver,
        ahead: ReadAhead,
        on_progress: Callable[[StreamStatus], None] | None,
    ) -> None:
        self.scan = scan
        self._ahead = ahead
        self._driver = driver
        self._on_progress = on_progress
        busy = "this stream is being read by another call; open one stream per reader"
        self._handover: Handover[B, _Delivered] = Handover(_Delivered(), busy)
        self._confirmed: BatchChunk | None = None
        self._clock = Clock()
        self._sleeper = Sleeper(self._clock)
        self._stopping = False
        self._over = False
        self._lag: Lag | None = None
        # The prefetching thread must not outlive a stream that is garbage.
        weakref.finalize(self, spawn_detached, ahead.close)

    @property
    def status(self) -> StreamStatus:
        """Counters and gauges of the stream. No IO. Raises StreamConfigError in a forked process."""
        self._handover.refuse_elsewhere()
        return self._handover.state.status.with_scan(self.scan.metrics, self._ahead.waiting_bytes(), self._lag)

    @property
    def position(self) -> Position | None:
        """Where a restart continues after the last batch; None: at the configured start. No IO."""
        return self._handover.state.status.position

    @property
    def delivered(self) -> Position | None:
        """Position after the last complete plan; None before the first batch. No IO.

        As `position`, but also known in the first plan of a stream.
        """
        hand = self._handover.state
        chunk = hand.chunk
        if chunk is None or hand.status.position is not None:
            return hand.status.position
        phase = Phase.FULL if chunk.plan.kind is PlanKind.FULL else Phase.FOLLOW
        return Position(chunk.plan.position.table, chunk.plan.snapshot_id, phase=phase)

    @property
    def _has_next(self) -> bool:
        """Whether the next batch is prefetched already."""
        return not self._is_stopped() and self._ahead.has_rows()

    def stop(self) -> None:
        """End gracefully, from any thread or a signal handler: the rest of the current plan still comes.

        Later plans are not waited for, even if a data file hangs.
        """
        self._stopping = True
        self.scan.stop()
        self._sleeper.wake()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop()` was called."""
        return self._stopping

    def __repr__(self) -> str:
        status = self._handover.state.status
        after = "before the first batch" if status.snapshot_id is None else f"after snapshot {status.snapshot_id}"
        name = self.scan.table.identifier.get_full_name()
        return f"{type(self).__name__}({name}, {after}, {status.rows} rows)"

    def _end(self) -> None:
        self._over = True
        self._ahead.close()
        self._sleeper.wake()

    def _pause(self, seconds: float) -> Wait[None]:
        """Wait for this time, or until the stream is stopped or closed."""
        return self._sleeper.until_due(self._clock.monotonic() + seconds, lambda: self._stopping or self._over)

    def _is_stopped(self) -> bool:
        """Whether to end now, after a complete plan."""
        return self._stopping and self._handover.state.ends_plan

    def _confirmed_by_asking(self) -> Position | None:
        """The position that requesting more confirms in the automatic mode; None: nothing."""
        chunk = self._handover.state.chunk
        if chunk is None or self._handover.has_item or self._driver.commit_mode is not CommitMode.AUTO:
            return None
        return self._confirmed_by(chunk) if self._is_outstanding() else None

    def _confirmed_by(self, chunk: BatchChunk) -> Position | None:
        """The position that a batch confirms, including later plans without rows; None: nothing."""
        if not self._has_consumer:
            raise StreamConfigError("there is no progress to save: build the stream with with_consumer_id(...)")
        hand = self._handover.state
        if chunk is hand.chunk and hand.passed is not None:
            return hand.passed
        return chunk.plan.position if chunk.last else chunk.before

    @property
    def _has_consumer(self) -> bool:
        """Whether progress is saved; known with the first plan."""
        return self._driver.commit_mode is not None

    def _is_outstanding(self) -> bool:
        """Whether the last batch, with all of its plan, is not confirmed yet."""
        return self._handover.state.chunk is not self._confirmed

    def _on_confirmed(self, chunk: BatchChunk | None) -> None:
        hand = self._handover.state
        if chunk is hand.chunk and hand.ends_plan:
            self._confirmed = chunk

    def _find(self, new_batch: Callable[[BatchChunk], B]) -> Waits[None]:
        """Put the next batch, made by `new_batch`, into the handover; EndOfScan at the end."""
        asked = self._confirmed_by_asking()
        if asked is not None:
            yield from self._confirm(asked, self._handover.state.chunk)
        while not (self._over or self._handover.has_item):
            yield self._sleeper.until_done(self._ahead.ready(), self._is_stopped)
            chunk = self._next_chunk()
            if chunk is None:
                continue
            if chunk.data is not None:
                self._offer(chunk, new_batch(chunk))
            else:
                self._pass_over(chunk)
                if self._has_consumer and not self._is_outstanding():
                    yield from self._confirm(chunk.plan.position, None)
                self._ahead.drop(chunk)
        if self._over:
            raise EndOfScan("the stream is closed")

    def _commit(self, chunk: BatchChunk) -> Waits[None]:
        position = self._confirmed_by(chunk)
        if position is not None:
            yield from self._confirm(position, chunk)

    def _confirm(self, position: Position, chunk: BatchChunk | None) -> Waits[None]:
        yield Wait(lambda: self.scan.commit(position), lambda: self.scan.commit_async(position))
        self._on_confirmed(chunk)

    def _next_chunk(self) -> BatchChunk | None:
        """The next chunk if it is prefetched; it is not removed."""
        self._ahead.drop(self._handover.state.chunk)
        if self._is_stopped():
            raise EndOfScan("the stream was stopped")
        return self._ahead.peek()

    def _pass_over(self, chunk: BatchChunk) -> None:
        """Skip a plan without rows."""
        self._handover.move(replace(self._handover.state, passed=chunk.plan.position))

    def _offer(self, chunk: BatchChunk, batch: B) -> None:
        """Put a batch into the handover. If this is interrupted, the same batch comes again."""
        status = self._handover.state.status.with_chunk(chunk)
        if self._on_progress is not None:
            self._on_progress(status.with_scan(self.scan.metrics, self._ahead.waiting_bytes(chunk), self._lag))
        self._handover.offer(batch, _Delivered(chunk, None, status))
        self._ahead.drop(chunk)


class BatchStream(_BatchLoop[Batch]):
    """Batches for `async for`; made by `StreamReadBuilder.open()`.

    Use it within `async with`, which frees its threads at once; leaving it confirms nothing. A cancelled wait loses
    nothing. After an error the next step retries and repeats no row.

    With a consumer id and `commit="auto"`, requesting the next batch confirms the one before; with `commit="manual"`
    only `batch.commit()` does. Prefetched rows are never confirmed.
    """

    def __aiter__(self) -> BatchStream:
        return self

    async def __anext__(self) -> Batch:
        try:
            await self._handover.exclusively_async(lambda: run_async(self._find(self._new_batch)))
        except EndOfScan:
            self._end()
            raise StopAsyncIteration from None
        return self._handover.take()

    def _new_batch(self, chunk: BatchChunk) -> Batch:
        return Batch(chunk, lambda chunk: run_async(self._commit(chunk)))

    async def lag(self) -> Lag:
        """The lag of the last batch; before the first one, of the prefetched rows.

        `status.lag` holds it afterwards. May be called from any task of the loop; costs as much as `scan.lag()`.
        """
        self._lag = await self.scan.lag_async(self.delivered)
        return self._lag

    async def pause(self, seconds: float) -> None:
        """Wait for this time, or until `stop()` or `aclose()`: a pause of a handler that retries."""
        await self._pause(seconds).awaitable()

    async def aclose(self) -> None:
        """End at once and confirm nothing. Idempotent."""
        self._end()
        await self._driver.closed()

    async def __aenter__(self) -> BatchStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> NoReturn:
        self._end()
        raise TypeError("open() is for `async with` and `async for`; without asyncio it is `with builder.open_sync()`")

    def __exit__(self, *_: object) -> None:
        """Never called; `with` looks it up before it enters."""


class BlockingBatchStream(_BatchLoop[BlockingBatch]):
    """Batches for a plain `for`; made by `StreamReadBuilder.open_sync()`. As `BatchStream`; Ctrl-C interrupts it."""

    def __iter__(self) -> BlockingBatchStream:
        return self

    def __next__(self) -> BlockingBatch:
        try:
            self._handover.exclusively(lambda: run(self._find(self._new_batch)))
        except EndOfScan:
            self._end()
            raise StopIteration from None
        return self._handover.take()

    def _new_batch(self, chunk: BatchChunk) -> BlockingBatch:
        return BlockingBatch(chunk, lambda chunk: run(self._commit(chunk)))

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """The rest of a stream with an end as an Arrow reader, which pulls batches as a plain `for` does.

        The schema is that of the table when the stream was built. The stream ends with its last row, or when the reader
        is deleted.

        Raises:
            StreamConfigError: The stream has no end.
            SchemaChangedError: Raised by the reader if the table's schema changes and the stream follows it.
        """
        if not self._driver.parts.get().options.is_bounded:
            raise StreamConfigError(
                "a reader of record batches needs a stream that ends: give it a with_end(...) or a between(...)"
            )
        return pa.RecordBatchReader.from_batches(schema := self._ahead.schema, self._record_batches(schema))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """`to_arrow_batch_reader()` for consumers of Arrow's PyCapsules: `polars.DataFrame(stream)`."""
        return self.to_arrow_batch_reader().__arrow_c_stream__(requested_schema)

    def _record_batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with self:
            for batch in self:
                if batch.data.schema != schema:
                    text = "the schema of the table has changed, and a reader of record batches has one for all"
                    raise SchemaChangedError(self.scan.table.table_schema.id, batch.schema.id, text)
                yield from batch.data.to_batches()

    def lag(self) -> Lag:
        """The lag of the last batch; before the first one, of the prefetched rows.

        `status.lag` holds it afterwards. May be called from any thread; costs as much as `scan.lag()`.
        """
        self._lag = self.scan.lag(self.delivered)
        return self._lag

    def pause(self, seconds: float) -> None:
        """Block for this time, or until `stop()` or `close()`: a pause of a handler that retries."""
        self._pause(seconds).block()

    def close(self) -> None:
        """End at once and confirm nothing. Idempotent."""
        self._end()

    def __enter__(self) -> BlockingBatchStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    async def __aenter__(self) -> NoReturn:
        self._end()
        raise TypeError("open_sync() is for `with` and `for`; with asyncio it is `async with builder.open()`")

    async def __aexit__(self, *_: object) -> None:
        """Never called; `async with` looks it up before it enters."""
