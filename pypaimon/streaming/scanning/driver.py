"""`ScanDriver`: takes a scan from plan to plan, with its worker, its steps ahead, its progress, and their threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from pypaimon.streaming.concurrency.clock import Clock, Sleeper
from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.concurrency.threads_to_asyncio import on_event_loop, wait_for_future
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
from pypaimon.streaming.scanning.parts import Opening, ScanParts
from pypaimon.streaming.scanning.worker import Advance, PendingAdvance, ScanState, Segment

_BUSY = "this scan is being driven by another call; use one scan per reader, or wait for the other call first"


class ScanDriver:
    """Takes a scan from plan to plan.

    A call that wants a plan begins (`begin_call`), has a worker take steps (`next_advance`) and goes on to what they
    found (`accept`), until a plan waits in `handover`; the call then takes it from there. What an interrupted call
    leaves, the next one finds: a step under way in `_pending`, a plan in `handover`.

    Args:
        parts: What the scan works with. Where that is not known yet, the first step asks for the table, on a worker;
            calls that block ask too, no other does.
        start: The start that the builder was told, None where the table's options say.
        clock: Where time comes from.

    Attributes:
        handover: Where the scan stands, and the plan that waits to be taken; lets one call at a time drive.
        parts: As above.
        commits: Threads for saves that are asked for in asyncio.
        lags: Threads that measure the lag there.
    """

    def __init__(self, parts: Lazy[ScanParts], start: Start | None, clock: Clock) -> None:
        self.parts = parts
        self._opening = Opening(parts, start)
        self._clock = clock
        # One may be left by a seek. Others have threads of their own, so that none waits for a step that hangs.
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
        self._left: PendingAdvance | None = None
        self._saves: list[Future[None]] = []
        self._resumes_interrupted = False
        self._next_poll = 0.0
        self._stopping = False
        self._closed = False

    # ---- one step ----

    def look(self, max_age: float = 0.0) -> Waits[None]:
        """Have a plan wait, if one can be had without waiting for new snapshots.

        Args:
            max_age: A poll that was made ahead and found nothing counts for this many seconds.
        """
        self.begin_call()
        while not self.handover.has_item:
            if self.accept((yield self.next_advance(max_age))):
                return

    def begin_call(self, loop: object | None = None) -> None:
        """A call begins, or ends with EndOfScan where the scan is closed. A loop ends the loop before."""
        if loop is not None:
            self._current = loop
        if self._closed:
            raise EndOfScan("the scan is closed")
        if self.handover.has_item:
            self._tell_progress()

    def is_current(self, loop: object) -> bool:
        """Whether this loop was the last to drive the scan."""
        return self._current is loop

    def leave(self) -> None:
        """The loop of now ends: throw away what was made ahead, and let the threads go; they come back when needed.

        A step that an interrupted call has left is given up where it may write: it is taken again.
        """
        self._current = None
        self._sleeper.wake()
        if not self.handover.is_here:
            return
        pending, parts = self._pending, self.parts.known
        if pending is not None and not pending.found.done() and parts is not None and parts.progress is not None:
            left, self._segment = self._segment, self._segment.again()
            self._left, self._pending = pending, None
            left.leave()
        self._release()
        if not on_event_loop():
            self.wait_for_writes()

    @property
    def poll_seconds(self) -> float:
        """Seconds between two polls; 0 before the first."""
        parts = self.parts.known
        return 0.0 if parts is None else parts.options.poll_interval_ms / 1000

    def next_poll(self, is_cancelled: Callable[[], bool]) -> Wait[None]:
        """Until the next poll is due, at once if that is now; or until the scan is stopped, or the loop over."""
        return self._sleeper.until_due(self._next_poll, lambda: self._stopping or is_cancelled())

    def next_advance(self, max_age: float, is_cancelled: Callable[[], bool] = lambda: False) -> Wait[Advance | None]:
        """What a worker finds next; None if the scan is closed, or the loop over, before that is there.

        What an interrupted wait has left, the next call waits for.
        """
        return self._sleeper.until_done(self._begin_advance(max_age), lambda: self._closed or is_cancelled())

    def _begin_advance(self, max_age: float) -> Future[Advance]:
        """Let a worker take the next step, or go on waiting for the one that an interrupted call has left."""
        if self._closed:
            raise EndOfScan("the scan is closed")
        pending, state = self._pending, self.handover.state.state
        self._resumes_interrupted = pending is not None and pending.state is state and not pending.has_failed
        parts = self.parts.known
        if pending is None or not self._resumes_interrupted:
            if parts is not None and parts.progress is not None:
                parts.progress.confirm_handed_out()
            advancing = self._opening.advancing(state, parts)
            pending = self._pending = PendingAdvance(self._segment, state, max_age, advancing)
        if not pending.is_submitted:
            self._pool.submit(pending.make, lambda: self._stopping)
            if parts is not None and parts.keep_alive is not None:
                parts.keep_alive.begin()
                if self._closed:  # By another thread, since it was looked at last.
                    parts.keep_alive.end()
            pending.is_submitted = True
        return pending.found

    def accept(self, advance: Advance | None) -> bool:
        """On the caller's side: go on to what a worker found, or EndOfScan. False: nothing to tell yet, ask again."""
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
            self._tell_progress()
            return True
        if parts.progress is not None and position is not None:
            parts.progress.on_passed_over(position)
        # A poll that an interrupted call left began before this one: what came in between is asked for.
        answers = step.idle and not self._resumes_interrupted
        if answers:
            self._next_poll = taken.begun_at + self.poll_seconds
        self._go_to(step.state, position, polled=answers)
        return answers

    def _tell_progress(self) -> None:
        """That the plan which waits is handed out; after an interrupted call perhaps once more."""
        progress = self.parts.get().progress
        if progress is not None and self._unreported_plan is not None:
            progress.on_plan(*self._unreported_plan)
            self._unreported_plan = None

    def _go_to(self, state: PlannerState, position: Position | None, polled: bool = False) -> None:
        metrics = self.handover.state.metrics
        self.handover.move(ScanState(state, position, metrics.with_poll() if polled else metrics))

    # ---- elsewhere ----

    @property
    def position(self) -> Position | None:
        """Behind the last plan that was handed out; None before the start is found."""
        return self.handover.state.position

    def seek(self, position: Position | int | None) -> None:
        """Go on at a saved position, at a snapshot id, or (None) at the configured start. No IO.

        Raises:
            StreamConfigError: Another call is driving the scan.
        """
        self.handover.exclusively(lambda: self._seek(position))

    def _seek(self, position: Position | int | None) -> None:
        state = self._opening.initial() if position is None else self._opening.at(position)
        self._leave_for(state, Segment(self._segment.opened and position is not None))

    def begin_anew(self, plan: Plan, expired: PositionExpiredError) -> None:
        """Go on where `with_on_expired` says: files of the plan that was handed out last expired before they were read.

        Raises:
            PositionExpiredError: That one: the policy is to fail.
            StreamConfigError: Another call is driving the scan.
        """
        self.handover.exclusively(lambda: self._begin_anew(plan, expired))

    def _begin_anew(self, plan: Plan, expired: PositionExpiredError) -> None:
        state = self.parts.get().planner.expired_while_read(self.handover.state.state, plan, expired)
        self._leave_for(state, Segment(self._segment.opened, instead_of=plan.position))

    def _leave_for(self, state: PlannerState, segment: Segment) -> None:
        left, self._segment = self._segment, segment
        parts = self.parts.known
        if parts is not None:
            parts.prefetcher.clear()
        left.leave()
        self._pending = None
        self._next_poll = 0.0
        if parts is not None:
            parts.planner.forget()
        self._go_to(state, self._opening.position(state))

    # ---- progress, and what is known ----

    @property
    def commit_mode(self) -> CommitMode | None:
        """Who confirms, as the builder or the table says; None without a consumer id. Known with the first plan."""
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
        """Confirm a plan, or everything before a position or snapshot id; `save` saves it."""
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
        """Save what is confirmed. Blocks."""
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
        state = self._opening.resolved(self.handover.state.state, parts.planner)
        if progress is not None and not self._segment.opened:
            found = progress.stored()
            saved = None if found is None else found.next_snapshot
            state = parts.worker.start_at(state, found)
        return parts.lag_meter.measure(state, saved)

    @property
    def metrics(self) -> ScanMetrics:
        """Counters of this scan, and the requests of its table handle once it knows its table. No IO."""
        metrics, parts = self.handover.state.metrics, self.parts.known
        return metrics if parts is None else metrics.with_requests(parts.directory.store.requests)

    # ---- ending ----

    def stop(self) -> None:
        """End gracefully, from any thread or a signal handler: see `AsyncStreamingTableScan.stop`."""
        self._stopping = True
        self._sleeper.wake()

    def close(self) -> None:
        """End at once, also a call that is waiting, and let the threads go; confirms nothing. Idempotent.

        Nothing that reads under a consumer id begins a write from then on; one that is under way is waited for, but on
        an event loop, where `closed` does that.
        """
        self._closed = True
        self.stop()
        if not self.handover.is_here:
            return
        self._left = self._pending or self._left
        self._segment.leave()
        parts = self.parts.known
        if parts is not None and parts.progress is not None:
            parts.progress.close()
        self._release()
        if not on_event_loop():
            self.wait_for_writes()

    async def closed(self) -> None:
        """After `close` or `leave`: wait for a write that is under way."""
        parts = self.parts.known
        progress = None if parts is None else parts.progress
        if progress is not None and (self._writes_under_way() or progress.is_rewriting):
            waiting = IOPool(1, timeout=float("inf"), name="paimon-scan-close")
            try:
                await wait_for_future(waiting.submit(self.wait_for_writes))
            finally:
                waiting.close()

    def wait_for_writes(self) -> None:
        """Wait for the writes of progress that are under way, at most as long as a request may take.

        One that hangs longer is given up by the store, and takes no effect once the next reader has written, where the
        store compares.
        """
        parts = self.parts.known
        if parts is not None and parts.progress is not None and self.handover.is_here:
            end = time.monotonic() + parts.directory.store.pool.timeout
            wait(self._writes_under_way(), timeout=parts.directory.store.pool.timeout)
            parts.progress.wait_for_keep_alive(end - time.monotonic())

    def _writes_under_way(self) -> list[Future[Any]]:
        parts, pending = self.parts.known, self._left
        if parts is None or parts.progress is None:
            return []
        writes: list[Future[Any]] = [*self._saves]
        if pending is not None:
            writes.append(pending.found)
        return [each for each in writes if not each.done()]

    def _release(self) -> None:
        """Throw away what was made ahead, and let the threads go, those that are at work once they are done."""
        if not self.handover.is_here:
            return
        busy: list[Future[Any]] = []
        parts = self.parts.known
        if parts is not None:
            if parts.keep_alive is not None:
                parts.keep_alive.end()
            busy += parts.prefetcher.clear()
        busy += [each.found for each in (self._pending, self._left) if each is not None]
        self._let_threads_go()
        for future in busy:
            future.add_done_callback(lambda _: self._let_threads_go())

    def _let_threads_go(self) -> None:
        for each in (self._opening, self._pool, self.commits, self.lags):
            each.release()
        parts = self.parts.known
        if parts is not None:
            parts.release()
