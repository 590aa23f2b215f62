"""Steps of a planner made ahead of the caller: in order, bounded, thrown away when the caller goes on elsewhere."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from pypaimon.streaming.io_pool import IOPool
from pypaimon.streaming.planner_state import PlannerState, Step


@dataclass(slots=True)
class Ahead:
    """A step that was taken, or is being taken.

    Attributes:
        state: The state it is taken from.
        future: Its outcome.
        asked_for: Somebody waits for it.
        done_at: When it was done, on the monotonic clock.
    """

    state: PlannerState
    future: Future[Step]
    asked_for: bool
    done_at: float = 0.0


class Prefetcher:
    """Takes steps on a thread of its own, up to `ahead` plans before they are asked for.

    What was made ahead is nothing that happened: it may be thrown away and made again. A poll that found nothing and an
    error end the run; if they were not asked for they are not kept either, so that the caller never gets stale ones.

    Args:
        step: The planner's step.
        ahead: Plans to make ahead; 0: none.
        monotonic: Seconds of a clock that never goes back.
    """

    def __init__(self, step: Callable[[PlannerState], Step], ahead: int, monotonic: Callable[[], float]) -> None:
        self._step = step
        self._ahead = ahead
        self._monotonic = monotonic
        self.pool = IOPool(1, timeout=float("inf"), name="paimon-plan")
        self._lock = threading.RLock()
        self._queue: deque[Ahead] = deque()

    def request(self, state: PlannerState, max_age: float = 0.0) -> Ahead:
        """The step from this state: made ahead, or begun now. Asking again for the same state gives the same step.

        Args:
            state: Where the caller stands.
            max_age: A poll ahead that found nothing counts for this many seconds; after that it is made again.
        """
        with self._lock:
            if self._queue and (self._queue[0].state is not state or self._is_stale(self._queue[0], max_age)):
                self._drop()
            if not self._queue:
                self._begin(state, asked_for=True)
            head = self._queue[0]
            head.asked_for = True
            return head

    def accept(self, taken: Ahead) -> None:
        """The caller has taken this step, and goes on from the state after it."""
        with self._lock:
            if self._queue and self._queue[0] is taken:
                self._queue.popleft()
            if self._queue:
                self._go_on()
            elif self._ahead and not _ends_run(taken.future):
                self._begin(taken.future.result().state, asked_for=False)

    def _is_stale(self, head: Ahead, max_age: float) -> bool:
        if head.asked_for or not head.future.done() or not _ends_run(head.future):
            return False
        failed = head.future.cancelled() or head.future.exception() is not None
        return failed or self._monotonic() - head.done_at >= max_age

    def clear(self) -> None:
        """Throw away what was made ahead."""
        with self._lock:
            self._drop()

    def close(self) -> None:
        """Throw everything away and end the thread; idempotent."""
        self.clear()
        self.pool.close()

    def _drop(self) -> None:
        for each in self._queue:
            each.future.cancel()
        self._queue.clear()

    def _begin(self, state: PlannerState, asked_for: bool) -> None:
        entry = Ahead(state, self.pool.submit(self._step, state), asked_for)
        self._queue.append(entry)
        entry.future.add_done_callback(lambda _: self._on_done(entry))

    def _on_done(self, entry: Ahead) -> None:
        with self._lock:
            entry.done_at = self._monotonic()
            if self._queue and self._queue[-1] is entry:
                self._go_on()

    def _go_on(self) -> None:
        """Begin the next step ahead if there is room and the last one gave a reason to."""
        if not self._queue:
            return
        last = self._queue[-1]
        if len(self._queue) > self._ahead or not last.future.done() or _ends_run(last.future):
            return
        self._begin(last.future.result().state, asked_for=False)


def _ends_run(future: Future[Step]) -> bool:
    if future.cancelled() or future.exception() is not None:
        return True
    step = future.result()
    return step.idle or step.state.ended
