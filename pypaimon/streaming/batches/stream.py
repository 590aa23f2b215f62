"""`StreamLoop`: the one loop of batches over a `Source`; `AsyncStream` and `BlockingStream` are its faces.

`StreamStatus` counts what such a stream has given, as one plain value.
"""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.concurrency.background_threads import spawn_detached
from pypaimon.streaming.concurrency.clock import Clock, Sleeper
from pypaimon.streaming.concurrency.waits import Wait, Waits, run, run_async
from pypaimon.streaming.errors import EndOfScan
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.options.arguments import finite_seconds
from pypaimon.streaming.scanning.handover import AsyncIteration, BlockingIteration, Handover, Iteration
from pypaimon.streaming.scanning.lag import Lag
from pypaimon.streaming.scanning.metrics import ScanMetrics


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """Counters since the stream was opened, and current gauges. Of a group, they count what this member reads.

    Attributes:
        batches: Batches given to the caller.
        rows: Rows in them.
        bytes: Bytes of them in memory.
        rows_by_kind: Rows by kind (`+I`, `-U`, `+U`, `-D`).
        snapshot_id: Snapshot of the last batch, None before the first.
        commit_time: When that was committed (aware, UTC).
        watermark: Its watermark, epoch milliseconds.
        position: `position` of the last batch: where a stream of its table, or of its slots, continues after it.
        read_ahead_bytes: Bytes of prefetched rows; of a database with those of the last batch, which is held until the
            next one is requested.
        lag: The lag that `stream.lag()` measured last; None before. Of a database, that of all tables together, without
            the snapshots of any one table.
        scan: Counters of the scans below: plans, polls, requests. Of a group or a database, of all scans so far.
    """

    batches: int = 0
    rows: int = 0
    bytes: int = 0
    rows_by_kind: Mapping[str, int] = field(default_factory=dict)
    snapshot_id: int | None = None
    commit_time: datetime | None = None
    watermark: int | None = None
    position: Position | None = None
    read_ahead_bytes: int = 0
    lag: Lag | None = None
    scan: ScanMetrics = field(default_factory=ScanMetrics)

    def __repr__(self) -> str:
        if not self.batches:
            return f"StreamStatus(no batch yet, {self.read_ahead_bytes} bytes read ahead)"
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.rows_by_kind.items())) or "of no kind"
        lag = "not measured" if self.lag is None else f"{self.lag.snapshots} snapshots"
        return (
            f"StreamStatus({self.rows} rows ({kinds}) in {self.batches} batches, {self.bytes} bytes, "
            f"up to snapshot {self.snapshot_id} of {self.commit_time}, lag {lag}, "
            f"{self.read_ahead_bytes} bytes read ahead)"
        )

    def with_chunk(self, chunk: BatchChunk) -> StreamStatus:
        """The status after one more batch."""
        data, plan = chunk.data, chunk.plan
        assert data is not None
        rows_by_kind = dict(self.rows_by_kind)
        for kind, count in _counted(data):
            rows_by_kind[kind] = rows_by_kind.get(kind, 0) + count
        # Not `replace`: it is slow, and this runs for each batch.
        return StreamStatus(
            batches=self.batches + 1,
            rows=self.rows + data.num_rows,
            bytes=self.bytes + chunk.size,
            rows_by_kind=rows_by_kind,
            snapshot_id=plan.snapshot_id,
            commit_time=plan.commit_time,
            watermark=plan.watermark,
            position=chunk.position,
        )

    def with_scan(self, metrics: ScanMetrics, read_ahead_bytes: int, lag: Lag | None) -> StreamStatus:
        """The status with the current counters of the scan and the measured lag."""
        return replace(self, scan=metrics, read_ahead_bytes=read_ahead_bytes, lag=lag)


def _counted(data: pa.Table) -> Iterable[tuple[str, int]]:
    if not data.num_rows:
        return []
    if ROW_KIND not in data.schema.names:
        return [("+I", data.num_rows)]
    return [(each["values"], each["counts"]) for each in pc.value_counts(data.column(ROW_KIND)).to_pylist()]


I = TypeVar("I")  # noqa: E741 - an item
B = TypeVar("B")
_BUSY = "this stream is being read by another call; open one stream per reader"


class Source(Protocol[I]):
    """Reads the rows of a stream ahead, on threads of its own. Thread-safe.

    There are three: `ReadAhead` for a table, `GroupReader` for the slots of a member, `DatabaseEngine` for all tables
    of a database. An item is a chunk of rows and what the source knows about it, or something else to report.
    """

    def ready(self) -> Future[None]:
        """A future that is done as soon as `peek` has an answer. Starts reading if necessary."""

    def peek(self) -> I | None:
        """The next item if there is one; it stays the next one until `drop`.

        Raises:
            EndOfScan: The stream has ended, or is closed.
            PaimonStreamError: Reading failed. Everything that was read before has been taken, and each error is raised
                once: the next call retries.
        """

    def drop(self, item: I) -> None:
        """The caller has an item, or will get it even if the current call is interrupted. Idempotent."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the rows that were not dropped yet."""

    @property
    def metrics(self) -> ScanMetrics:
        """Counters of the scans that the rows come from. No IO."""

    def close(self) -> None:
        """End at once and discard what was read ahead. Idempotent; does nothing in a forked process."""


@dataclass(frozen=True, slots=True)
class Delivered(Generic[I]):
    """What the caller has received.

    Attributes:
        item: The item of the last batch; None before the first.
        chunk: The rows of that batch.
        passed: Position after later plans without rows, where a stream counts them; else None.
        status: Counters up to that batch.
    """

    item: I | None = None
    chunk: BatchChunk | None = None
    passed: Position | None = None
    status: StreamStatus = field(default_factory=StreamStatus)

    @property
    def ends_plan(self) -> bool:
        """Whether all rows of the current plan were given."""
        return self.chunk is None or self.chunk.last or self.passed is not None


class StreamLoop(Iteration[B], Generic[I, B]):
    """The batches of a source, in order, each given to the caller exactly once.

    Any line may be the last one: a signal handler may raise there, and a wait may be cancelled. So each step changes
    one thing, the next call repeats the steps that are not known to be done, and all of them may be repeated.

    Args:
        source: Where the rows come from: items of type `I`, and others that only `_pass_over` handles.
        on_progress: Called with the status after each batch, before it is given.
        abandon: Called on a thread of its own once the stream is garbage; by default the source is closed.
    """

    def __init__(
        self,
        source: Source[Any],
        clock: Clock,
        on_progress: Callable[[StreamStatus], None] | None = None,
        abandon: Callable[[], object] | None = None,
    ) -> None:
        self._source = source
        self._on_progress = on_progress
        self._handover: Handover[B, Delivered[I]] = Handover(Delivered(), _BUSY)
        self._clock = clock
        self._sleeper = Sleeper(clock)
        self._stopping = False
        self._over = False
        self._lag: Lag | None = None
        # The threads must not outlive a stream that is garbage.
        weakref.finalize(self, spawn_detached, abandon or source.close)

    # ---- for every thread ----

    @property
    def status(self) -> StreamStatus:
        """Counters since the stream was opened, and current gauges, as one plain value. No IO, from any thread.

        Raises:
            StreamConfigError: This process was forked after the stream was opened.
        """
        self._handover.refuse_elsewhere()
        return self._handover.state.status.with_scan(self._source.metrics, self._source.waiting_bytes, self._lag)

    def stop(self) -> None:
        """End gracefully, from any thread or a signal handler: the rest of the current plan still comes.

        Later plans are not waited for, even if a data file hangs.
        """
        self._stopping = True
        self._sleeper.wake()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop()` was called."""
        return self._stopping

    def _end(self) -> None:
        self._over = True
        self._source.close()
        self._sleeper.wake()

    def _pause(self, seconds: float) -> Wait[None]:
        return self._sleeper.until_due(self._clock.monotonic() + seconds, lambda: self._stopping or self._over)

    # ---- one batch ----

    def _find(self, is_late: Callable[[], bool] = lambda: False) -> Waits[None]:
        item = self._handover.state.item
        if item is not None and not self._handover.has_item:
            self._note_received(item)
            yield from self._confirm_received(item)
        while not (self._over or self._handover.has_item):
            yield self._sleeper.until_done(self._source.ready(), lambda: self._is_stopped() or is_late())
            yield from self._notify()
            if self._is_stopped():
                raise EndOfScan("the stream was stopped")
            item = self._source.peek()
            if item is None:
                if is_late():
                    return
                continue
            if (chunk := self._chunk_of(item)) is None or chunk.data is None:
                yield from self._pass_over(item)
            else:
                self._offer(item, chunk)
        if self._over:
            raise EndOfScan("the stream is closed")

    def _is_stopped(self) -> bool:
        """Whether to end now, after a complete plan."""
        return self._stopping and self._handover.state.ends_plan

    def _offer(self, item: I, chunk: BatchChunk) -> None:
        """Put a batch into the handover. If this is interrupted, the same batch comes again."""
        status = self._handover.state.status.with_chunk(chunk)
        if self._on_progress is not None:
            waiting = self._source.waiting_bytes - status.bytes + self._handover.state.status.bytes
            self._on_progress(status.with_scan(self._source.metrics, waiting, self._lag))
        self._handover.offer(self._new_batch(item), Delivered(item, chunk, None, status))

    # ---- what is special about a source ----

    @abstractmethod
    def _chunk_of(self, item: I) -> BatchChunk | None:
        """The chunk of an item; None for something else to report."""

    @abstractmethod
    def _new_batch(self, item: I) -> B:
        """The batch of an item."""

    def _note_received(self, item: I) -> None:
        self._source.drop(item)

    @abstractmethod
    def _confirm_received(self, item: I) -> Waits[None]:
        """Confirm what requesting the next batch confirms: with `commit="auto"` the one before."""

    def _notify(self) -> Waits[None]:
        """Report what has happened to the source, before the next item."""
        yield from ()

    @abstractmethod
    def _pass_over(self, item: I) -> Waits[None]:
        """Handle an item without rows: a plan without any, the end of one whose rows were given, or an event."""


class AsyncStream(StreamLoop[I, B], AsyncIteration[B]):
    """A stream of batches for asyncio."""

    async def poll(self, timeout: float | timedelta = 0.0) -> B | None:
        """The next batch, or None if none comes in time. Like a step of the loop it confirms the batch before.

        Args:
            timeout: Seconds to wait.

        Raises:
            EndOfScan: The stream has ended, or was stopped.
        """
        import asyncio

        late: list[bool] = []

        def expire() -> None:
            late.append(True)
            self._sleeper.wake()

        timer = asyncio.get_running_loop().call_later(finite_seconds("poll: timeout", timeout), expire)
        try:
            await self._handover.exclusively_async(lambda: run_async(self._find(lambda: bool(late))))
        except EndOfScan as end:
            await run_async(self._on_end(end))
            raise
        finally:
            timer.cancel()
        return self._handover.take() if self._handover.has_item else None

    async def pause(self, duration: float | timedelta) -> None:
        """Wait for this time, or until `stop()` or `aclose()`: a pause of a handler that retries."""
        await self._pause(finite_seconds("pause", duration)).awaitable()


class BlockingStream(StreamLoop[I, B], BlockingIteration[B]):
    """A stream of batches for plain loops."""

    def poll(self, timeout: float | timedelta = 0.0) -> B | None:
        """The next batch, or None if none comes in time. Like a step of the loop it confirms the batch before.

        Args:
            timeout: Seconds to wait; up to a quarter of a second more.

        Raises:
            EndOfScan: The stream has ended, or was stopped.
        """
        due = self._clock.monotonic() + finite_seconds("poll: timeout", timeout)
        try:
            self._handover.exclusively(lambda: run(self._find(lambda: self._clock.monotonic() >= due)))
        except EndOfScan as end:
            run(self._on_end(end))
            raise
        return self._handover.take() if self._handover.has_item else None

    def pause(self, duration: float | timedelta) -> None:
        """Block for this time, or until `stop()` or `close()`: a pause of a handler that retries."""
        self._pause(finite_seconds("pause", duration)).block()
