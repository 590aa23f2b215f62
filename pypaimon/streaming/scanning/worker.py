"""`Worker`: saves progress, takes the next step, and protects the snapshots of a plan before it is handed out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace

from pypaimon.streaming.concurrency.cancel_scope import CancelScope
from pypaimon.streaming.concurrency.clock import until_done
from pypaimon.streaming.consumers.consumer_manager import Consumer
from pypaimon.streaming.consumers.consumer_names import SharedStart
from pypaimon.streaming.consumers.progress import Progress
from pypaimon.streaming.errors import PositionExpiredError, TableChangedError
from pypaimon.streaming.model.position import Phase, Position
from pypaimon.streaming.options.start import Start
from pypaimon.streaming.options.stream_options import StreamOptions
from pypaimon.streaming.planning.planner import Planner
from pypaimon.streaming.planning.planner_state import PlannerState, ReadingFull, Starting, Step
from pypaimon.streaming.scanning.metrics import PlanSize, ScanMetrics
from pypaimon.streaming.scanning.prefetch import PrefetchedStep, Prefetcher


@dataclass(frozen=True, slots=True)
class Unopened:
    """The state of a scan that does not know its table yet.

    Attributes:
        sought: The position that the caller has moved to; None: the configured start.
    """

    sought: Position | None = None


@dataclass(frozen=True, slots=True)
class ScanState:
    """The state of a scan.

    Attributes:
        position: The position of that state; None before the start is found.
    """

    state: PlannerState | Unopened
    position: Position | None
    metrics: ScanMetrics


@dataclass(frozen=True, slots=True)
class Advance:
    """The result of a worker.

    Attributes:
        state: The next state.
        position: The position of that state.
        taken: The step to that state; None without a step: ask again, or the stream ends.
        ended: Whether the stream ends here.
    """

    state: PlannerState | Unopened
    position: Position | None
    taken: PrefetchedStep | None = None
    size: PlanSize | None = None
    ended: bool = False

    @property
    def step(self) -> Step | None:
        """The step to the state."""
        return None if self.taken is None else self.taken.future.result()


@dataclass(slots=True, eq=False)
class Segment:
    """The part of a scan from a start or a seek to the next seek.

    Attributes:
        opened: Whether the consumer's file was taken over and its position was used.
        saved: The start from its file, if it is not the start of the group; else None.
        begun: Whether progress knows where this segment begins.
        instead_of: Position after the plan that this segment replaces, because its files have expired; else None.
        scope: Cancels the calls that are made for it.
        left: Whether the reader has left the segment. A worker that is still on it must not save anything.
    """

    opened: bool = False
    saved: Start | None = None
    begun: bool = False
    instead_of: Position | None = None
    scope: CancelScope = field(default_factory=CancelScope)
    left: bool = False

    def again(self) -> Segment:
        """The same segment for the next call, after this one is left."""
        return Segment(self.opened, self.saved, self.begun, self.instead_of)

    def leave(self) -> None:
        """Leave the segment. Its requests for next steps are given up; a save that is under way is not."""
        self.left = True
        self.scope.cancel()


Advancing = Callable[[Segment, Callable[[], bool]], Advance]


class PendingAdvance:
    """A requested advance, which is made once even if a worker is called more often.

    Args:
        advance: Makes the advance from that state, given the segment and whether the stream is to end here.
    """

    def __init__(self, segment: Segment, state: PlannerState | Unopened, advance: Advancing) -> None:
        self.state = state
        self.is_submitted = False
        self.found: Future[Advance] = Future()
        self._segment = segment
        self._advance = advance
        self._claim = threading.Lock()

    @property
    def has_failed(self) -> bool:
        """Whether it ended in an error."""
        return self.found.done() and self.found.exception() is not None

    def make(self, stopping: Callable[[], bool]) -> None:
        """Make the advance, unless that was begun before."""
        if not self._claim.acquire(blocking=False):
            return
        try:
            with self._segment.scope.entered():
                found = self._advance(self._segment, stopping)
        except BaseException as error:  # noqa: BLE001 - raised by the call that waits for it
            self.found.set_exception(error)
        else:
            self.found.set_result(found)


class Worker:
    """Takes steps on a worker thread. Does not change the scan: the caller's side does, once it gets the result."""

    def __init__(
        self,
        planner: Planner,
        prefetcher: Prefetcher,
        options: StreamOptions,
        progress: Progress | None,
        monotonic: Callable[[], float],
    ) -> None:
        self._planner = planner
        self._prefetcher = prefetcher
        self._options = options
        self._progress = progress
        self._now = monotonic
        self._saving = threading.Lock()

    def advance(self, state: PlannerState, max_age: float, segment: Segment, stopping: Callable[[], bool]) -> Advance:
        """The next step from a state.

        Args:
            max_age: See `Prefetcher.request`.
            stopping: Whether the stream is to end here. A step that is under way is then not waited for.
        """
        progress = self._progress
        if progress is not None:
            with self._saving:
                if segment.left:
                    return self._nothing(state)
                if segment.opened:
                    progress.flush(self._now(), force=stopping() or state.ended)
                    progress.keep_alive(self._now())
                elif not stopping():
                    return self._open(segment, state, progress)
        if stopping() or state.ended:
            return Advance(state, self._planner.position(state), ended=True)
        try:
            taken = self._take(segment, state, max_age, lambda: stopping() or segment.left)
            step = None if taken is None else taken.future.result()
        except CancelledError:
            # Dropped by a seek or by closing. Either no call waits for it, or the caller asks again.
            step = None
        if step is None:
            return self._nothing(state)
        position = self._planner.position(step.state)
        if progress is not None:
            with self._saving:
                if not segment.left:
                    elsewhere = self._begin(segment, progress, state, step, position)
                    if elsewhere is not None:
                        self._prefetcher.clear()
                        return self._nothing(elsewhere)
        return Advance(step.state, position, taken, None if step.plan is None else PlanSize.of(step.plan))

    def start_at(self, state: PlannerState, saved: Consumer | None) -> PlannerState:
        """The state at which a stream begins: a consumer's position takes precedence over the configured start."""
        consumer = self._options.consumer
        if saved is None or not self._is_configured(state) or consumer is None or consumer.ignore_progress:
            return state
        return self._planner.initial(saved.position)

    def _is_configured(self, state: PlannerState) -> bool:
        """Whether this is the configured start, before it is found."""
        return isinstance(state, Starting) and state.start is self._options.start

    def _take(
        self, segment: Segment, state: PlannerState, max_age: float, is_cancelled: Callable[[], bool]
    ) -> PrefetchedStep | None:
        """The next step; None if it is cancelled before it is done, because a request may hang."""
        taken = self._prefetcher.request(state, segment.scope, max_age)
        if not until_done(taken.future, is_cancelled):
            return None
        if taken.future.result().idle and taken.unasked and not max_age:
            # The poll began before the call: it may have missed what was committed in between.
            taken = self._prefetcher.request(state, segment.scope, max_age)
            if not until_done(taken.future, is_cancelled):
                return None
        return taken

    def _nothing(self, state: PlannerState) -> Advance:
        return Advance(state, self._planner.position(state))

    def _open(self, segment: Segment, state: PlannerState, progress: Progress) -> Advance:
        opened = progress.open(self._now())
        if opened.start is not None and self._is_configured(state):
            start = self._joined(opened.start, state, progress)
        else:
            start = self.start_at(state, opened.saved)
            segment.saved = start.start if isinstance(start, Starting) and start is not state else None
        segment.opened = True
        used = start is not state and opened.start is None
        self._planner.log.consumer_opened(progress.name.text, opened.next_snapshot, used=used)
        return self._nothing(start)

    def _joined(self, start: SharedStart, configured: PlannerState, progress: Progress) -> PlannerState:
        """The state at a start that another reader or another run has found."""
        end = self._options.end
        shared_end = start.end if end is not None and end.latest and not progress.is_plain else None
        try:
            state = replace(self._planner.position_resolver.resumed(start.position), end_id=shared_end)
        except (PositionExpiredError, TableChangedError) as error:
            # Only as long as no reader has saved progress may the start be searched again.
            if progress.has_saved():
                return replace(self._planner.at(start.position), end_id=shared_end)
            self._planner.log.start_lost(start.position, error)
            return configured
        self._planner.log.resumed(start.position)
        return state

    def _begin(
        self, segment: Segment, progress: Progress, state: PlannerState, step: Step, position: Position | None
    ) -> PlannerState | None:
        """Report where the segment begins. Returns the state to continue from instead; None: from here."""
        if position is None:
            segment.begun = False
        elif not segment.begun:
            before = self._planner.position(state)
            begun = position if before is None or step.plan is None else before
            found = False
            if isinstance(state, Starting) and state.start.position is None and state.start is not segment.saved:
                # A reader that continues with changes after it expired gives up its own part only: not the group's
                # start.
                found = not (state.restarted and begun.phase is Phase.FOLLOW)
            other = progress.begin(begun, self._now(), found, step.state.end_id, segment.instead_of)
            if other is not None:
                return self._joined(other, self._planner.initial(), progress)
            # It expired before it was protected, so the start has to be found again.
            if not self._stands(step.state):
                if isinstance(state, Starting):
                    # The latest snapshot that was read before the start is the one that is gone.
                    return replace(state, latest=None)
                return replace(self._planner.at(begun), end_id=step.state.end_id)
            segment.begun = True
        return None

    def _stands(self, state: PlannerState) -> bool:
        """Whether the snapshot of the first full plan still exists."""
        # A tag keeps the files of its snapshot, which itself may expire.
        if not isinstance(state, ReadingFull) or self._options.start.tag is not None:
            return True
        return self._planner.checks.stands(state.snapshot)
