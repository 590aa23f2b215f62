"""`Prefetcher`: takes steps of a planner before the caller asks: in order, bounded, dropped after a seek."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field

from pypaimon.streaming.concurrency.cancel_scope import CancelScope
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.model.plan import StreamSplit, file_count, last_split, set_next_plan
from pypaimon.streaming.planning.planner_state import PlannerState, Starting, Step

_MOST_FILES = 1 << 16
"""Once the prefetched plans have this many files, no more are made: each file takes memory."""


@dataclass(slots=True, eq=False)
class PrefetchedStep:
    """A step that was taken or is being taken.

    Attributes:
        scope: What it is taken for.
        unasked: Whether it was begun before the caller asked.
        previous: The last split of the plans before the step, if known.
        begun_at: When it was begun, on the monotonic clock.
        files: Number of files of its plan, once it was taken.
    """

    state: PlannerState
    scope: CancelScope
    unasked: bool
    previous: StreamSplit | None
    future: Future[Step] = field(init=False)
    begun_at: float = 0.0
    files: int = 0

    @property
    def last_split(self) -> StreamSplit | None:
        """The last split of the plans up to and with this step."""
        plan = self.future.result().plan
        return (None if plan is None else last_split(plan)) or self.previous

    def link(self) -> None:
        """Link the plan before to this step's plan, so that reading that one can prefetch the files of this one."""
        if self.previous is not None and not (self.future.cancelled() or self.future.exception()):
            plan = self.future.result().plan
            if plan is not None and last_split(plan) is not None:
                set_next_plan(self.previous, plan)


class Prefetcher:
    """Takes steps on its own thread, up to `ahead` of them before the caller asks.

    A prefetched step has no effect, so it may be dropped and taken again. A poll that found nothing and an error end
    the run. An error is raised for calls that wait for it; a later call tries again.

    Args:
        ahead: Steps to prefetch, fewer if their plans have many files; 0: none.
        monotonic: Seconds of a clock that never goes back.
        known_idle: The step from a state, if the search for the start has answered it; see `Planner.known_idle`.
        latest_at: When the latest snapshot was requested that the first state begins with, if it names one.
    """

    def __init__(
        self,
        step: Callable[[PlannerState], Step],
        ahead: int,
        monotonic: Callable[[], float],
        known_idle: Callable[[PlannerState], Step | None] = lambda _: None,
        latest_at: float = float("-inf"),
    ) -> None:
        self._step = step
        self._known_idle = known_idle
        self._start_begun_at = latest_at
        self._ahead = ahead
        self._monotonic = monotonic
        self._pool = IOPool(1, timeout=float("inf"), name="paimon-plan")
        # Re-entrant, because cancelling a future runs its callbacks at once.
        self._lock = threading.RLock()
        self._queue: deque[PrefetchedStep] = deque()

    def request(self, state: PlannerState, scope: CancelScope, max_age: float = 0.0) -> PrefetchedStep:
        """The step from this state: prefetched, or begun now. Asking again while it is under way returns the same one.

        Args:
            scope: Cancels the step, and those that are prefetched after it.
            max_age: A poll that found nothing counts for this many seconds. After that it is made again.
        """
        with self._lock:
            head = self._queue[0] if self._queue else None
            if head is None or head.state is not state or self._is_stale(head, max_age):
                self._drop()
                head = self._begin(state, scope, unasked=False, previous=None)
            return head

    def accept(self, taken: PrefetchedStep) -> None:
        """Record that the caller has taken this step and continues from the state after it."""
        with self._lock:
            if self._queue and self._queue[0] is taken:
                self._queue.popleft()
            if isinstance(taken.state, Starting) and taken.state.latest is None:
                self._start_begun_at = taken.begun_at
            if self._queue:
                # Several steps in a row wake the thread once.
                if len(self._queue) <= self._ahead // 2:
                    self._continue()
            elif self._ahead and not _ends_run(taken.future):
                self._begin_after(taken)

    @property
    def idle_age(self) -> float | None:
        """Seconds since the start of a poll that found nothing, if that is the next step; else None."""
        with self._lock:
            head = self._queue[0] if self._queue else None
            if head is None or not head.future.done() or head.future.cancelled() or head.future.exception() is not None:
                return None
            return self._monotonic() - head.begun_at if head.future.result().idle else None

    def clear(self) -> list[Future[Step]]:
        """Drop the prefetched steps. A call that waits for a step which has not begun gets `CancelledError`.

        Returns:
            Steps that can no longer be stopped.
        """
        with self._lock:
            return self._drop()

    def _is_stale(self, head: PrefetchedStep, max_age: float) -> bool:
        if not head.future.done():
            return False
        if head.future.cancelled() or head.future.exception() is not None:
            return True
        return head.future.result().idle and self._monotonic() - head.begun_at >= max_age

    def _drop(self) -> list[Future[Step]]:
        dropped = [each.future for each in self._queue]
        self._queue.clear()
        return [future for future in dropped if not future.cancel() and not future.done()]

    def _begin(
        self, state: PlannerState, scope: CancelScope, unasked: bool, previous: StreamSplit | None
    ) -> PrefetchedStep:
        entry = PrefetchedStep(state, scope, unasked, previous)
        idle = self._known_idle(state) if unasked else None
        if idle is not None:
            entry.begun_at = self._start_begun_at
            entry.future = Future()
            entry.future.set_result(idle)
            self._queue.append(entry)
            return entry
        with scope.entered():
            entry.future = self._pool.submit(self._take, entry)
        self._queue.append(entry)
        entry.future.add_done_callback(lambda _: self._on_done(entry))
        return entry

    def _take(self, entry: PrefetchedStep) -> Step:
        entry.begun_at = self._monotonic()
        step = self._step(entry.state)
        entry.files = 0 if step.plan is None else file_count(step.plan)
        return step

    def _on_done(self, entry: PrefetchedStep) -> None:
        entry.link()
        with self._lock:
            if self._queue and self._queue[-1] is entry:
                self._continue()

    def _continue(self) -> None:
        last = self._queue[-1]
        has_room = len(self._queue) < self._ahead and sum(each.files for each in self._queue) < _MOST_FILES
        if has_room and last.future.done() and not _ends_run(last.future):
            self._begin_after(last)

    def _begin_after(self, entry: PrefetchedStep) -> None:
        # If its scope is cancelled at this moment, nobody waits for the next step.
        with suppress(CancelledError):
            self._begin(entry.future.result().state, entry.scope, unasked=True, previous=entry.last_split)


def _ends_run(future: Future[Step]) -> bool:
    if future.cancelled() or future.exception() is not None:
        return True
    step = future.result()
    return step.idle or step.state.ended
