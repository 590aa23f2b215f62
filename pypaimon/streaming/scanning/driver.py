"""`ScanDriver`: takes a scan from plan to plan, with its worker, prefetched steps, progress, and their threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from pypaimon.streaming.concurrency.background_threads import is_exiting
from pypaimon.streaming.concurrency.clock import Clock, Sleeper, until_done
from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.concurrency.threads_to_asyncio import call_on_thread, on_event_loop
from pypaimon.streaming.concurrency.waits import Wait, Waits
from pypaimon.streaming.consumers.progress import Progress
from pypaimon.streaming.errors import EndOfScan, PositionExpiredError, StreamConfigError
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.model.position import UNKNOWN_TABLE, Position, of_table
from pypaimon.streaming.options.start import Start
from pypaimon.streaming.options.stream_options import CommitMode
from pypaimon.streaming.planning.planner_state import PlannerState
from pypaimon.streaming.scanning.handover import Handover
from pypaimon.streaming.scanning.lag import Lag
from pypaimon.streaming.scanning.metrics import ScanMetrics
from pypaimon.streaming.scanning.parts import ScanOpening, ScanParts
from pypaimon.streaming.scanning.worker import Advance, PendingAdvance, ScanState, Segment, Unopened

_BUSY = "this scan is being driven by another call; use one scan per reader, or wait for the other call first"


class ScanDriver:
    """Takes a scan from plan to plan.

    A call that needs a plan begins with `begin_call`, has a worker take steps (`next_advance`) and moves the scan to
    their results (`accept`), until a plan is in `handover`, from which the call takes it. If a call is interrupted, the
    next one finds its step in `_pending` or its plan in `handover`.

    Args:
        parts: The parts of the scan. If they are not known yet, the first step requests the table on a worker. Calls
            that block request it too, others do not.
        start: The start of the builder, or None for that of the table's options.

    Attributes:
        handover: The state of the scan and the plan to take; lets one call at a time drive.
        commits: Threads for saves in asyncio.
        lags: Threads that measure the lag in asyncio.
    """

    def __init__(self, parts: Lazy[ScanParts], start: Start | None, clock: Clock) -> None:
        self.parts = parts
        self._opening = ScanOpening(parts, start)
        self._clock = clock
        # Two, because a seek may leave one that hangs. Saves and lags have their own threads for the same reason.
        self._pool = IOPool(2, timeout=float("inf"), name="paimon-scan")
        self.commits = IOPool(2, timeout=float("inf"), name="paimon-scan-commit")
        self.lags = IOPool(2, timeout=float("inf"), name="paimon-scan-lag")
        self._sleeper = Sleeper(clock)
        self._current: object | None = None
        self._segment = Segment()
        state = self._opening.initial()
        begun = ScanState(state, self._opening.position(state), ScanMetrics())
        self.handover: Handover[Plan, ScanState] = Handover(begun, _BUSY)
        self._unreported_plan: tuple[Position, Position | None] | None = None
        self._pending: PendingAdvance | None = None
        # The step of an interrupted call, which may still save progress; `wait_for_writes` waits for it.
        self._abandoned: PendingAdvance | None = None
        self._saves: list[Future[None]] = []
        self._resumes_interrupted = False
        self._next_poll = 0.0
        self._stopping = False
        self._closed = False

    # ---- one step ----

    def look(self, max_age: float = 0.0, *, in_background: bool = False) -> Waits[None]:
        """Put a plan into `handover`, if there is one without waiting for new snapshots.

        Args:
            max_age: A prefetched poll that found nothing counts for this many seconds.
            in_background: No signal handler can interrupt the thread of the caller. Where a step saves no progress, so
                that closing the scan ends the wait for it at once, the thread then takes the step itself.
        """
        self.begin_call()
        while not self.handover.has_item:
            if self.accept((yield self.next_advance(max_age, in_background=in_background))):
                return

    def begin_call(self, loop: object | None = None) -> None:
        """Begin a call. Raises EndOfScan if the scan is closed. A new loop ends the loop before."""
        if loop is not None:
            self._current = loop
        if self._closed:
            raise EndOfScan("the scan is closed")
        if self.handover.has_item:
            self._report_plan()

    def is_current(self, loop: object) -> bool:
        """Whether this loop was the last to drive the scan."""
        return self._current is loop

    def leave(self) -> None:
        """End the current loop, and drop prefetched steps.

        The step of an interrupted call is given up if it may write, and taken again later.
        """
        self._current = None
        self._sleeper.wake()
        if not self.handover.is_here:
            return
        pending, parts = self._pending, self.parts.known
        if pending is not None and not pending.found.done() and parts is not None and parts.progress is not None:
            former, self._segment = self._segment, self._segment.again()
            self._abandoned, self._pending = pending, None
            former.leave()
        self._release()
        if not on_event_loop():
            self.wait_for_writes()

    @property
    def idle_age(self) -> float | None:
        """See `Prefetcher.idle_age`."""
        parts = self.parts.known
        return None if parts is None else parts.prefetcher.idle_age

    @property
    def poll_seconds(self) -> float:
        """Seconds between two polls; 0 before the first."""
        parts = self.parts.known
        return 0.0 if parts is None else parts.options.poll_interval_ms / 1000

    def next_poll(self, is_cancelled: Callable[[], bool]) -> Wait[None]:
        """Wait until the next poll is due, the scan is stopped, or the loop is over."""
        return self._sleeper.until_due(self._next_poll, lambda: self._stopping or is_cancelled())

    def next_advance(
        self, max_age: float, is_cancelled: Callable[[], bool] = lambda: False, *, in_background: bool = False
    ) -> Wait[Advance | None]:
        """Wait for the next result of a worker; None if the scan is closed or the loop is over before.

        After an interrupted wait the next call waits for the same result.
        """
        advance = self._begin_advance(max_age, in_background)
        return self._sleeper.until_done(advance, lambda: self._closed or is_cancelled())

    def _begin_advance(self, max_age: float, in_background: bool) -> Future[Advance]:
        """Let a worker take the next step, or return the one that an interrupted call has begun."""
        if self._closed:
            raise EndOfScan("the scan is closed")
        pending, state = self._pending, self.handover.state.state
        self._resumes_interrupted = pending is not None and pending.state is state and not pending.has_failed
        parts = self.parts.known
        if pending is None or not self._resumes_interrupted:
            if parts is not None and parts.progress is not None:
                parts.progress.confirm_handed_out()
            advancing = self._opening.advancing(state, max_age)
            pending = self._pending = PendingAdvance(self._segment, state, advancing)
        if in_background and parts is not None and parts.progress is None:
            pending.make(lambda: self._stopping)
        elif not pending.is_submitted:
            self._pool.submit(pending.make, lambda: self._stopping)
            if parts is not None and parts.keep_alive is not None:
                parts.keep_alive.begin()
                if self._closed:  # Another thread may have closed the scan since the check above.
                    parts.keep_alive.end()
            pending.is_submitted = True
        return pending.found

    def accept(self, advance: Advance | None) -> bool:
        """Move the scan to the result of a worker, or raise EndOfScan. False: no answer yet, ask again."""
        if advance is None or advance.ended or self._closed:
            self._pending = None
            self._release()
            raise EndOfScan("the stream was stopped" if self._stopping else "the stream has reached its end")
        answers = not self._stopping and self._has_accepted(advance)
        self._pending = None
        return answers

    def _has_accepted(self, advance: Advance) -> bool:
        taken, step, position = advance.taken, advance.step, advance.position
        if taken is None or step is None:
            self._go_to(advance.state, position)
            return False
        parts = self.parts.get()
        parts.prefetcher.accept(taken)
        if step.plan is not None and advance.size is not None:
            self._unreported_plan = None if position is None else (position, step.begins)
            metrics = self.handover.state.metrics.with_plan(advance.size)
            self.handover.offer(step.plan, ScanState(step.state, position, metrics))
            self._report_plan()
            return True
        if parts.progress is not None and position is not None:
            parts.progress.on_passed_over(position)
        # The poll of an interrupted call began before this call, so it may have missed later commits: poll again.
        answers = step.idle and not self._resumes_interrupted
        if answers:
            self._next_poll = taken.begun_at + self.poll_seconds
        self._go_to(step.state, position, polled=answers)
        return answers

    def _report_plan(self) -> None:
        """Report the plan in `handover` as handed out; after an interrupted call perhaps twice."""
        progress = self.parts.get().progress
        if progress is not None and self._unreported_plan is not None:
            progress.on_plan(*self._unreported_plan)
            self._unreported_plan = None

    def _go_to(self, state: PlannerState | Unopened, position: Position | None, polled: bool = False) -> None:
        metrics = self.handover.state.metrics
        self.handover.move(ScanState(state, position, metrics.with_poll() if polled else metrics))

    # ---- seeks ----

    @property
    def position(self) -> Position | None:
        """The position after the last plan that was handed out; None before the start is found."""
        return self.handover.state.position

    def seek(self, position: Position | int | None) -> None:
        """Move to a saved position, a snapshot id, or (None) the configured start. Sends no requests.

        Raises:
            StreamConfigError: Another call is driving the scan.
        """
        self.handover.exclusively(lambda: self._seek(position))

    def _seek(self, position: Position | int | None) -> None:
        state = self._opening.initial() if position is None else self._opening.at(position)
        self._leave_for(state, Segment(self._segment.opened and position is not None))

    def start_again(self, plan: Plan, expired: PositionExpiredError) -> None:
        """Start again by `with_on_expired`, because files of the last plan expired before they were read.

        Raises:
            PositionExpiredError: The policy is to fail.
            StreamConfigError: Another call is driving the scan.
        """
        self.handover.exclusively(lambda: self._start_again(plan, expired))

    def _start_again(self, plan: Plan, expired: PositionExpiredError) -> None:
        planner = self.parts.get().planner
        state = self._opening.opened(self.handover.state.state, planner)
        self._leave_for(
            planner.expired_while_read(state, plan, expired), Segment(self._segment.opened, instead_of=plan.position)
        )

    def _leave_for(self, state: PlannerState | Unopened, segment: Segment) -> None:
        former, self._segment = self._segment, segment
        parts = self.parts.known
        if parts is not None:
            parts.prefetcher.clear()
        former.leave()
        self._pending = None
        self._next_poll = 0.0
        if parts is not None:
            parts.planner.forget()
        self._go_to(state, self._opening.position(state))

    # ---- progress, lag, metrics ----

    @property
    def commit_mode(self) -> CommitMode | None:
        """The commit mode of the builder or the table; None without a consumer id. Known with the first plan."""
        consumer = self.parts.get().options.consumer
        return None if consumer is None else consumer.commit

    def progress(self) -> Progress:
        """Saved progress.

        Raises:
            StreamConfigError: The scan has no consumer id, or this process was forked.
        """
        self.handover.refuse_elsewhere()
        progress = self.parts.get().progress
        if progress is None:
            raise StreamConfigError("this scan has no consumer id: build it with with_consumer_id(...)")
        return progress

    def confirm(self, confirmed: Plan | Position | int) -> None:
        """Confirm a plan, or everything before a position or snapshot id. `save` saves the progress."""
        if isinstance(confirmed, bool) or not isinstance(confirmed, (Plan, Position, int)):
            raise StreamConfigError(
                f"commit: expected Plan, Position or int, got {confirmed!r} ({type(confirmed).__name__})"
            )
        if isinstance(confirmed, Plan):
            confirmed = confirmed.position
        elif isinstance(confirmed, int):
            confirmed = Position(UNKNOWN_TABLE, confirmed)
        self.progress().confirm(of_table(confirmed, self.parts.get().directory.identity))

    def save(self) -> None:
        """Save the confirmed progress. Blocks."""
        self.progress().flush(self._clock.monotonic())

    def begin_save(self) -> Future[None]:
        """As `save`, on a thread."""
        saved = self.commits.submit(self.save)
        self._saves = [each for each in self._saves if not each.done()] + [saved]
        return saved

    def lag(self, position: Position | None = None) -> Lag:
        """See `AsyncStreamingTableScan.lag`."""
        self.handover.refuse_elsewhere()
        parts = self.parts.get()
        progress = parts.progress
        saved = None if progress is None else progress.saved
        if position is not None:
            return parts.lag_meter.measure_at(position, saved)
        state = self._opening.opened(self.handover.state.state, parts.planner)
        if progress is not None and not self._segment.opened:
            found = progress.stored()
            saved = None if found is None else found.next_snapshot
            state = parts.worker.start_at(state, found)
        return parts.lag_meter.measure(state, saved)

    @property
    def metrics(self) -> ScanMetrics:
        """Counters of this scan, and the requests of its table handle once it knows its table. Sends no requests."""
        metrics, parts = self.handover.state.metrics, self.parts.known
        return metrics if parts is None else metrics.with_requests(parts.directory.store.requests)

    # ---- ending ----

    def stop(self) -> None:
        """End gracefully, from any thread or a signal handler: see `AsyncStreamingTableScan.stop`."""
        self._stopping = True
        self._sleeper.wake()

    def close(self) -> None:
        """End at once, also a waiting call. Confirms nothing. Idempotent.

        With a consumer id no write begins from then on. A write that is under way is waited for, except on an event
        loop, where `closed` waits for it, and at the interpreter's exit, which does not wait for a store that hangs.
        """
        self._closed = True
        self.stop()
        if not self.handover.is_here:
            return
        self._abandoned = self._pending or self._abandoned
        self._segment.leave()
        parts = self.parts.known
        if parts is not None and parts.progress is not None:
            parts.progress.close()
        self._release()
        if not (on_event_loop() or is_exiting()):
            self.wait_for_writes()

    async def closed(self) -> None:
        """Wait for a write that is under way after `close` or `leave`."""
        parts = self.parts.known
        progress = None if parts is None else parts.progress
        if progress is not None and (self._writes_under_way() or progress.is_rewriting):
            await call_on_thread(self.wait_for_writes, "paimon-scan-close")

    def wait_for_writes(self) -> None:
        """Wait for the writes of progress that are under way, at most as long as a request may take.

        The store gives up a write that hangs longer. If the store compares, it has no effect after the next reader has
        written.
        """
        parts = self.parts.known
        if parts is not None and parts.progress is not None and self.handover.is_here:
            end = time.monotonic() + parts.directory.store.pool.timeout
            for write in self._writes_under_way():
                until_done(write, lambda: time.monotonic() > end)
            parts.progress.wait_for_keep_alive(end - time.monotonic())

    def _writes_under_way(self) -> list[Future[Any]]:
        parts, pending = self.parts.known, self._abandoned
        if parts is None or parts.progress is None:
            return []
        writes: list[Future[Any]] = [*self._saves]
        if pending is not None:
            writes.append(pending.found)
        return [each for each in writes if not each.done()]

    def _release(self) -> None:
        parts = self.parts.known
        if parts is None or not self.handover.is_here:
            return
        if parts.keep_alive is not None:
            parts.keep_alive.end()
        parts.prefetcher.clear()
