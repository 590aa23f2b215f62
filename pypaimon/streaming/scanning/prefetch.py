"""Steps of a planner made ahead of the caller: in order, bounded, thrown away when the caller goes on elsewhere."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from pypaimon.streaming.concurrency.errand import Errand
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.model.plan import StreamSplit, last_split, put_behind
from pypaimon.streaming.planning.planner_state import PlannerState, Step


@dataclass(slots=True, eq=False)
class PrefetchedStep:
    """A step that was taken, or is being taken.

    Attributes:
        state: The state it is taken from.
        errand: What it is taken for.
        unasked: It was begun before anybody asked for it.
        behind: The last split that was planned on the way to the state, if it is known.
        future: Its outcome.
        begun_at: When it was begun, on the monotonic clock.
    """

    state: PlannerState
    errand: Errand
    unasked: bool
    behind: StreamSplit | None
    future: Future[Step] = field(init=False)
    begun_at: float = 0.0

    @property
    def last_split(self) -> StreamSplit | None:
        """The last split that was planned on the way to the state behind this step."""
        plan = self.future.result().plan
        return (None if plan is None else last_split(plan)) or self.behind

    def tell(self) -> None:
        """Have the plan before know the one that was found, so that who reads that one may prepare for this one."""
        if self.behind is not None and not (self.future.cancelled() or self.future.exception()):
            plan = self.future.result().plan
            if plan is not None and last_split(plan) is not None:
                put_behind(self.behind, plan)


class Prefetcher:
    """Takes steps on a thread of its own, up to `ahead` of them before they are asked for.

    What was made ahead is nothing that happened: it may be thrown away and made again. A poll that found nothing and an
    error end the run. An error reaches only those who wait for it: who asks again gets another try.

    Args:
        step: The planner's step.
        ahead: Steps to make ahead; 0: none.
        monotonic: Seconds of a clock that never goes back.
        known_idle: The step from a state, where the search for the start has answered it; see `Planner.known_idle`.
    """

    def __init__(
        self,
        step: Callable[[PlannerState], Step],
        ahead: int,
        monotonic: Callable[[], float],
        known_idle: Callable[[PlannerState], Step | None] = lambda _: None,
    ) -> None:
        self._step = step
        self._known_idle = known_idle
        self._start_begun_at = float("-inf")
        self._ahead = ahead
        self._monotonic = monotonic
        self._pool = IOPool(1, timeout=float("inf"), name="paimon-plan")
        # Re-entrant: to cancel a future runs its callbacks here and now.
        self._lock = threading.RLock()
        self._queue: deque[PrefetchedStep] = deque()

    def request(self, state: PlannerState, errand: Errand, max_age: float = 0.0) -> PrefetchedStep:
        """The step from this state: made ahead, or begun now. Asking again while it is under way gives the same one.

        Args:
            state: Where the caller stands.
            errand: What the step, and those made ahead after it, are taken for.
            max_age: A poll that found nothing counts for this many seconds; after that it is made again.
        """
        with self._lock:
            head = self._queue[0] if self._queue else None
            if head is None or head.state is not state or self._is_stale(head, max_age):
                self._drop()
                head = self._begin(state, errand, unasked=False, behind=None)
            return head

    def accept(self, taken: PrefetchedStep) -> None:
        """The caller has taken this step, and goes on from the state after it."""
        with self._lock:
            if self._queue and self._queue[0] is taken:
                self._queue.popleft()
            if taken.state.start is not None:
                self._start_begun_at = taken.begun_at
            if self._queue:
                self._go_on()
            elif self._ahead and not _ends_run(taken.future):
                self._begin(taken.future.result().state, taken.errand, unasked=True, behind=taken.last_split)

    def clear(self) -> list[Future[Step]]:
        """Throw away what was made ahead. Who waits for a step that had not begun yet gets `CancelledError`.

        Returns:
            Steps that cannot be stopped any more.
        """
        with self._lock:
            return self._drop()

    def release(self) -> None:
        """Let the thread end; it comes back when it is needed."""
        self._pool.release()

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

    def _begin(self, state: PlannerState, errand: Errand, unasked: bool, behind: StreamSplit | None) -> PrefetchedStep:
        entry = PrefetchedStep(state, errand, unasked, behind)
        idle = self._known_idle(state) if unasked else None
        if idle is not None:
            entry.begun_at = self._start_begun_at
            entry.future = Future()
            entry.future.set_result(idle)
            self._queue.append(entry)
            return entry
        with errand.on():
            entry.future = self._pool.submit(self._take, entry)
        self._queue.append(entry)
        entry.future.add_done_callback(lambda _: self._on_done(entry))
        return entry

    def _take(self, entry: PrefetchedStep) -> Step:
        entry.begun_at = self._monotonic()
        return self._step(entry.state)

    def _on_done(self, entry: PrefetchedStep) -> None:
        entry.tell()
        with self._lock:
            if self._queue and self._queue[-1] is entry:
                self._go_on()

    def _go_on(self) -> None:
        """Begin the next step ahead if there is room and the last one gave a reason to."""
        last = self._queue[-1]
        if len(self._queue) < self._ahead and last.future.done() and not _ends_run(last.future):
            self._begin(last.future.result().state, last.errand, unasked=True, behind=last.last_split)


def _ends_run(future: Future[Step]) -> bool:
    if future.cancelled() or future.exception() is not None:
        return True
    step = future.result()
    return step.idle or step.state.ended
