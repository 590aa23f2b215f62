"""`AsyncStreamingTableScan`: a stream of plans for asyncio, scripts, threads and notebooks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

from pypaimon.streaming.bridge import awaited
from pypaimon.streaming.clock import Clock
from pypaimon.streaming.errors import EndOfScan, StreamConfigError
from pypaimon.streaming.io_pool import IOPool
from pypaimon.streaming.lag import Lag, LagMeter
from pypaimon.streaming.metrics import ScanMetrics
from pypaimon.streaming.options import StreamOptions
from pypaimon.streaming.plan import Plan
from pypaimon.streaming.plan_stream import BlockingPlanStream, PlanStream
from pypaimon.streaming.planner import Planner
from pypaimon.streaming.planner_state import PlannerState, Step
from pypaimon.streaming.position import Position
from pypaimon.streaming.prefetch import Ahead, Prefetcher
from pypaimon.streaming.progress import Progress
from pypaimon.streaming.table_directory import TableDirectory


@dataclass(frozen=True, slots=True)
class Advance:
    """What a worker found.

    Attributes:
        state: Where the stream goes on.
        position: Of that state.
        taken: The step that led there; None if the consumer's position did, or the stream ends.
        ended: The stream ends here.
    """

    state: PlannerState
    position: Position | None
    taken: Ahead | None = None
    ended: bool = False


class AsyncStreamingTableScan:
    """Plans of a table, one after the other, for as long as the caller wants.

    Made by `StreamReadBuilder.new_streaming_scan()`. Each plan is delivered at least once over restarts by consumer, and
    exactly once over restarts by `Position`; within one scan nothing is repeated or left out, whatever errors,
    cancellations or seeks happen between plans. One driver at a time (`stream`, `stream_sync`, `plan`); `stop`, `commit`,
    `checkpoint`, `lag` and `metrics` may be called from any thread.

    Requests: one per poll that finds nothing; for a new snapshot itself, its manifest list and its manifests, once each.

    Args:
        directory: The table.
        planner: Decides what comes next.
        options: The stream's settings.
        progress: Saved progress, or None without a consumer id.
        clock: Where time comes from.
    """

    def __init__(
        self,
        directory: TableDirectory,
        planner: Planner,
        options: StreamOptions,
        progress: Progress | None,
        clock: Clock,
    ) -> None:
        self.table = directory.table
        self._directory = directory
        self._planner = planner
        self._options = options
        self._progress = progress
        self._clock = clock
        self._prefetcher = Prefetcher(planner.step, self._plans_ahead(), clock.monotonic)
        self._pool = IOPool(2, timeout=float("inf"), name="paimon-scan")
        self._lag_meter = LagMeter(directory, planner, clock)
        self._lock = threading.Lock()
        self._state = planner.initial()
        self._position: Position | None = planner.position(self._state)
        self._opened = False
        self._began = False
        self._pending: tuple[PlannerState, Future[Advance]] | None = None
        self._driven = False
        self._current: object | None = None
        self._stopping = threading.Event()
        self._wakers: tuple[Callable[[], None], ...] = ()
        self._polled_at = 0.0
        self._closed = False
        self._metrics = ScanMetrics()

    # ---- driving ----

    def stream(self) -> PlanStream:
        """Plans for `async for`, or `async with` to close for sure. Asks again every poll interval; ends at a bound."""
        return PlanStream(self)

    def stream_sync(self) -> BlockingPlanStream:
        """Plans for a plain `for` or `with`; blocks. Works in threads, and inside a running event loop too."""
        return BlockingPlanStream(self)

    def plan(self) -> Plan | None:
        """One step without waiting for new snapshots: a plan, or None if nothing new is there. Blocks for its requests.

        Asking confirms the plan before (with a consumer id and `commit="auto"`).

        Raises:
            EndOfScan: The stream has reached its bound, or was stopped.
            PaimonStreamError: See the class; the scan stays usable.
        """
        with self.driven_by(None):
            while True:
                advance = self.begin_advance(0.0)
                found = self.accept(advance, advance.result())
                if found is not None:
                    return found.plan

    async def plan_async(self) -> Plan | None:
        """As `plan`, without blocking the event loop. A cancelled call loses nothing."""
        with self.driven_by(None):
            while True:
                advance = self.begin_advance(0.0)
                found = self.accept(advance, await awaited(advance))
                if found is not None:
                    return found.plan

    # ---- position ----

    def checkpoint(self) -> Position | None:
        """The position after the last plan that was handed out; None before the start is found. No IO."""
        return self._position

    def restore(self, position: Position | int | None) -> None:
        """Go on at a saved position, at a snapshot id, or (None) at the configured start. No IO.

        What was made ahead is thrown away. The position is checked by the next plan.

        Raises:
            StreamConfigError: Another call is driving the scan, or this is no position.
        """
        if position is not None and (isinstance(position, bool) or not isinstance(position, (int, Position))):
            raise StreamConfigError(f"cannot restore {position!r}: give a Position, a snapshot id, or None")
        with self.driven_by(None):
            if position is None:
                state = self._planner.initial()
                self._opened = False
            elif isinstance(position, Position):
                state = self._planner.at(position)
            else:
                state = self._planner.at_snapshot(position)
            self._prefetcher.clear()
            self._pending = None
            self._began = False
            self._directory.snapshots.forget()
            self._go_to(state)

    @property
    def next_snapshot_id(self) -> int | None:
        """Snapshot of the position, None before the start is found; setting it is `restore`."""
        return None if self._position is None else self._position.snapshot

    @next_snapshot_id.setter
    def next_snapshot_id(self, snapshot_id: int | None) -> None:
        self.restore(snapshot_id)

    @property
    def watermark(self) -> int | None:
        """Watermark of the last snapshot that was planned, epoch milliseconds; None if it has none. No IO."""
        return self._state.watermark

    # ---- progress ----

    def commit(self, confirmed: Plan | Position | int) -> None:
        """Confirm a plan, or everything before a position or snapshot id, and save progress. Blocks.

        Raises:
            StreamConfigError: The scan has no consumer id.
            ConsumerConflictError: Another reader has taken over; nothing was written.
        """
        progress = self._confirm(confirmed)
        progress.flush(self._clock.monotonic())

    async def commit_async(self, confirmed: Plan | Position | int) -> None:
        """As `commit`, without blocking the event loop."""
        progress = self._confirm(confirmed)
        await awaited(self._pool.submit(progress.flush, self._clock.monotonic()))

    def notify_checkpoint_complete(self, next_snapshot: Position | int) -> None:
        """`commit` under its Java name."""
        self.commit(next_snapshot)

    def committed(self) -> int | None:
        """The next snapshot that the consumer file names; None if there is none. One request.

        Raises:
            StreamConfigError: The scan has no consumer id.
        """
        return self._need_progress().committed()

    # ---- what is known ----

    def lag(self) -> Lag:
        """How far the position is behind the latest snapshot. Blocks: one probe, and snapshots not yet known."""
        return self._lag_meter.measure(self._state, self._progress)

    async def lag_async(self) -> Lag:
        """As `lag`, without blocking the event loop."""
        return await awaited(self._pool.submit(self._lag_meter.measure, self._state, self._progress))

    @property
    def metrics(self) -> ScanMetrics:
        """Counters of this scan, and the requests of its table handle. No IO."""
        store = self._directory.store
        return self._metrics.with_requests(store.requests, store.pool.abandoned)

    # ---- ending ----

    def stop(self) -> None:
        """End gracefully, from any thread or a signal handler: the plan in hand is the last one.

        Asking for the next plan then confirms it (`commit="auto"`), saves progress and ends.
        """
        self._stopping.set()
        for wake in self._wakers:
            wake()

    def close(self) -> None:
        """End at once and free the threads; confirms nothing. Idempotent."""
        self._closed = True
        self.stop()
        self._prefetcher.close()
        self._pool.close()

    async def aclose(self) -> None:
        """`close`, awaited as everywhere in Python; it waits for nothing."""
        self.close()

    def __enter__(self) -> AsyncStreamingTableScan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> AsyncStreamingTableScan:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    # ---- for the loops in plan_stream ----

    def _plans_ahead(self) -> int:
        bound = self._options.max_unconfirmed
        return self._options.prefetch if bound is None else min(self._options.prefetch, bound)

    def _need_progress(self) -> Progress:
        if self._progress is None:
            raise StreamConfigError("this scan has no consumer id: build it with with_consumer_id(...)")
        return self._progress

    def _confirm(self, confirmed: Plan | Position | int) -> Progress:
        progress = self._need_progress()
        if isinstance(confirmed, Plan):
            confirmed = confirmed.position
        elif not isinstance(confirmed, Position):
            confirmed = Position(self._directory.identity, confirmed)
        progress.confirm(confirmed)
        return progress

    def begin_advance(self, max_age: float) -> Future[Advance]:
        """Let a worker take the next step, or go on waiting for the one that a cancelled caller left."""
        if self._closed:
            raise EndOfScan("the scan is closed")
        if self._pending is None or self._pending[0] is not self._state:
            if self._progress is not None:
                self._progress.confirm_handed_out()
            self._pending = self._state, self._pool.submit(self._advance, self._state, max_age)
        return self._pending[1]

    def _advance(self, state: PlannerState, max_age: float) -> Advance:
        """On a worker: save progress, take the next step, fence what it hands out. Changes nothing of the scan."""
        now = self._clock.monotonic
        if self._progress is not None:
            if not self._opened:
                return self._open(state, self._progress)
            self._progress.flush(now(), force=self._stopping.is_set() or state.ended)
            self._progress.keep_alive(now())
        if self._stopping.is_set() or state.ended:
            return Advance(state, self._planner.position(state), ended=True)
        taken = self._prefetcher.request(state, max_age)
        step = taken.future.result()
        position = self._planner.position(step.state)
        if position is None:
            self._began = False
        if self._progress is not None and not self._began and position is not None:
            self._progress.begin(self._first_position(state, step, position), now())
            self._began = True
        return Advance(step.state, position, taken)

    def _open(self, state: PlannerState, progress: Progress) -> Advance:
        """Take over the consumer's file; its position beats a configured start."""
        saved = progress.open(self._clock.monotonic())
        self._opened = True
        consumer = self._options.consumer
        configured = state.next_id is None and state.start is self._options.start
        if saved is not None and configured and not (consumer is not None and consumer.ignore_progress):
            state = self._planner.initial(saved)
        return Advance(state, self._planner.position(state))

    def _first_position(self, state: PlannerState, step: Step, position: Position) -> Position:
        """Where a stream begins that has just found its start: before the plan of this step, if it has one."""
        before = self._planner.position(state)
        return position if before is None or step.plan is None else before

    def accept(self, advance: Future[Advance], outcome: Advance) -> Step | None:
        """On the caller's side: go on to what a worker found. None: nothing to hand out yet, step again."""
        if self._pending is None or self._pending[1] is not advance:
            return None
        self._pending = None
        if outcome.ended or self._stopping.is_set():
            raise EndOfScan("the stream was stopped" if self._stopping.is_set() else "the stream has reached its end")
        taken = outcome.taken
        if taken is None:
            self._go_to(outcome.state, outcome.position)
            return None
        step = taken.future.result()
        self._prefetcher.accept(taken)
        if self._progress is not None and outcome.position is not None:
            if step.plan is not None:
                self._progress.on_plan(outcome.position, step.first_snapshot)
            else:
                self._progress.on_passed_over(outcome.position)
        self._go_to(step.state, outcome.position)
        if step.plan is not None:
            self._metrics = self._metrics.with_plan(step.plan)
            return step
        if not step.idle:
            return None
        self._polled_at = taken.done_at
        self._metrics = self._metrics.with_poll()
        return step

    def _go_to(self, state: PlannerState, position: Position | None = None) -> None:
        self._state = state
        self._position = position if position is not None else self._planner.position(state)

    @property
    def poll_seconds(self) -> float:
        """Seconds between two polls."""
        return self._options.poll_interval_ms / 1000

    def pause(self) -> None:
        """Block until the next poll is due, or the scan is stopped."""
        self._clock.wait(self._stopping, self._until_next_poll())

    async def pause_async(self) -> None:
        """Wait until the next poll is due, or the scan is stopped."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(woken.set)

        self._wakers = (*self._wakers, wake)
        try:
            if not self._stopping.is_set():
                await self._clock.wait_async(woken, self._until_next_poll())
        finally:
            self._wakers = tuple(each for each in self._wakers if each is not wake)

    def _until_next_poll(self) -> float:
        return max(0.0, self._polled_at + self.poll_seconds - self._clock.monotonic())

    @contextmanager
    def driven_by(self, driver: object | None) -> Iterator[None]:
        """Hold the scan for one call; a second one at the same time is an error."""
        with self._lock:
            if self._driven:
                raise StreamConfigError(
                    "this scan is being driven by another call; use one scan per reader, or wait for the other call first"
                )
            self._driven = True
            self._current = driver
        try:
            yield
        finally:
            self._driven = False

    def is_current(self, driver: object) -> bool:
        """Whether this loop was the last to drive the scan."""
        return self._current is driver

    def release(self) -> None:
        """Throw away what was made ahead and let the threads go; they come back when they are needed."""
        self._prefetcher.clear()
        for pool in (self._prefetcher.pool, self._pool, self._directory.store.pool):
            pool.release()
