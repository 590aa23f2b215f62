"""`MicroBatchPlanner`: cuts micro-batches from the stream's plans, and plans a logged one again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from pypaimon.spark.options.source_options import Admission
from pypaimon.spark.read.admission import Size, exceeds, remaining
from pypaimon.spark.read.offset import Offset
from pypaimon.spark.read.source_stream import new_lag_meter, new_planner
from pypaimon.streaming.errors import (
    OR_REPLACED,
    PaimonStreamError,
    StoreError,
    TableChangedError,
)
from pypaimon.streaming.metadata.fingerprints import is_same_history
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.model.position import Phase, Position
from pypaimon.streaming.options.stream_options import Limits
from pypaimon.streaming.planning.planned_units import KeptUnits
from pypaimon.streaming.planning.planner_state import Following, PlannerState, Starting, Step
from pypaimon.streaming.scanning.lag import Lag
from pypaimon.streaming.spec.resolve import ResolvedStream

_REMEMBERED = 4


class MicroBatchPlanner:
    """Plans the micro-batches of one query. Its memory only saves requests: any other process makes the same plans.

    The stream's planner takes every step. This class decides only where a batch ends.
    """

    def __init__(self, stream: ResolvedStream) -> None:
        self._stream = stream
        self._planner = new_planner(stream)
        self._meter = new_lag_meter(stream)
        self._clock = stream.clock
        self._poll_seconds = stream.options.poll_interval_ms / 1000
        self._table = stream.identity
        self._states: OrderedDict[Offset, PlannerState] = OrderedDict()
        self._plans: OrderedDict[tuple[Offset, Offset], list[Plan]] = OrderedDict()
        self._kept_units = KeptUnits()
        self._frozen: int | None = None
        self._initial: PlannerState | None = None
        self._polled: tuple[Offset, float] | None = None
        self._took_rows_at = self._clock.monotonic()
        self._lag = Lag(None, None, None, None, None, None, None)

    def freeze(self, saved: Position | None) -> None:
        """Plan nothing beyond the latest snapshot of this moment (`Trigger.AvailableNow`).

        The start of a new query is found now, too, so that its first full plan is not of a later snapshot.
        """
        self._initial = self._begun(self._planner.initial(saved))
        before_the_first = Offset(self._table)
        self._remembered(before_the_first, self._begun(self._state_of(before_the_first)))
        self._frozen = self._stream.directory.snapshots.latest_id() or 0

    def initial(self, saved: Position | None) -> Offset:
        """Where a new query begins.

        Args:
            saved: Where a consumer continues, or None.
        """
        state = self._initial if self._initial is not None else self._begun(self._planner.initial(saved))
        position = self._planner.position(state)
        return self._remembered(Offset(self._table, position, position), state)

    def latest(self, start: Offset, admission: Admission) -> Offset:
        """The end of the batch that begins at `start`; `start` itself if there is nothing new, or too little yet.

        Asks the store at most once per poll interval while it finds nothing.

        Raises:
            PaimonStreamError: Planning failed; asking again is possible.
        """
        now = self._clock.monotonic()
        if self._polled is not None and self._polled[0] == start and now - self._polled[1] < self._poll_seconds:
            return start
        plans, state, origin, caught_up = self._taken(start, admission)
        rows = Size.of(plans).rows
        late = (
            admission.max_delay_millis is not None and (now - self._took_rows_at) * 1000 >= admission.max_delay_millis
        )
        if admission.min_rows is not None and rows < admission.min_rows and not late and self._frozen is None:
            self._polled = start, now
            self._measure(self._state_of(start), caught_up=False)
            return start
        end = self._remembered(Offset(self._table, self._planner.position(state), origin), state)
        if end == start:
            self._polled = end, now
        else:
            self._took_rows_at = now if rows else self._took_rows_at
            self._plans[start, end] = plans
            while len(self._plans) > _REMEMBERED:
                self._plans.popitem(last=False)
        self._measure(state, caught_up)
        return end

    def between(self, start: Offset, end: Offset) -> list[Plan]:
        """The plans of a batch: those that `latest` made, or, in another process, the same again.

        Raises:
            PaimonStreamError: They cannot be made any more.
        """
        known = self._plans.pop((start, end), None)
        if known is not None:
            return known
        begin = start.position if not start.is_initial else end.origin
        if begin is None or end.position is None or begin == end.position:
            return []
        return self._replayed(begin, end.position)

    @property
    def lag(self) -> Lag:
        """How far the last batch that was planned is behind the table; no IO."""
        return self._lag

    def _begun(self, state: PlannerState) -> PlannerState:
        """The state after the start was found, or the same state if it cannot be found."""
        try:
            # Spark asks for the initial offset also when a query resumes at a checkpoint. That must not fail
            # because the start's tag was deleted meanwhile; the next step raises the reason if it matters.
            return self._planner.begun(state)
        except StoreError:
            raise
        except PaimonStreamError:
            return state

    def _taken(self, start: Offset, admission: Admission) -> tuple[list[Plan], PlannerState, Position | None, bool]:
        state, origin = self._state_of(start), start.origin
        plans: list[Plan] = []
        self._check_frozen(state)
        # There was no snapshot when it was frozen; one that has come since is not taken.
        if self._frozen == 0 and self._planner.position(state) is None:
            return plans, state, origin, True
        taken = Size()
        while (limits := remaining(admission, taken)) is not None:
            step = self._step(state, limits)
            if step.plan is not None:
                size = taken.plus(Size.of([step.plan]))
                # One plan is taken however large it is, so that the query advances.
                if plans and exceeds(admission, size):
                    break
                plans.append(step.plan)
                taken = size
            state = replace(step.state, ended=False)
            origin = origin or self._planner.position(state)
            if step.idle or step.state.ended:
                return plans, state, origin, step.idle
        return plans, state, origin, False

    def _check_frozen(self, state: PlannerState) -> None:
        """Check that what an earlier run has read after the frozen snapshot still exists.

        Raises:
            TableChangedError: It does not: the table was rolled back since, or dropped.
            PositionBeyondLatestError: It does not, and the position does not show that it ever did.
        """
        position = self._planner.position(state)
        if self._frozen is None or position is None or position.table != self._table:
            # The first step refuses a position of another table.
            return
        read = position.last_read
        if read <= self._frozen or self._stream.directory.snapshots.refreshed(read) is not None:
            return
        raise self._planner.checks.beyond(position, self._stream.directory.snapshots.latest_id())

    def _step(self, state: PlannerState, limits: Limits) -> Step:
        if not limits and self._frozen is None:
            return self._planner.step(state)
        return new_planner(self._stream, limits, self._frozen, self._kept_units).step(state)

    def _replayed(self, begin: Position, end: Position) -> list[Plan]:
        """The plans from one position to another, regardless of the limits with which they were first made."""
        in_full = end.phase is Phase.FULL
        whole = new_planner(self._stream, last_snapshot=end.snapshot - 1, is_again=True)
        state: PlannerState = self._planner.at(begin)
        plans: list[Plan] = []
        while not in_full:
            if isinstance(state, Starting) and (state.start.snapshot_id or 0) >= end.snapshot:
                break
            step = whole.step(state)
            if step.plan is not None:
                plans.append(step.plan)
            state = replace(step.state, ended=False)
            if step.state.ended or (isinstance(state, Following) and state.next_id >= end.snapshot):
                break
            if step.idle:
                self._planner.checks.check_missing(end)
        if end.unit is not None:
            last = new_planner(self._stream, Limits(until=end.unit), end.snapshot, is_again=True)
            step = last.step(last.begun(state))
            if step.plan is not None:
                plans.append(step.plan)
            state = step.state
        self._check(state, end)
        return plans

    def _check(self, state: PlannerState, end: Position) -> None:
        reached = self._planner.position(state)
        if reached is None or (reached.snapshot, reached.phase) != (end.snapshot, end.phase):
            return
        if not is_same_history(end.fingerprint, reached.fingerprint):
            raise TableChangedError(
                f"The table was rolled back: the checkpoint ends before snapshot {end.snapshot}, and the snapshots "
                f"before it are no longer those that were read. {OR_REPLACED}",
                advice="Decide what to undo, then start with a new checkpoint directory.",
            )

    def _state_of(self, offset: Offset) -> PlannerState:
        known = self._states.get(offset)
        if known is not None:
            return known
        if offset.position is not None:
            return self._planner.at(offset.position)
        if offset.table != self._table:
            raise TableChangedError(
                "The query began on another, empty table: this one was re-created since, or the checkpoint is of "
                "another query.",
                advice="Start with a new checkpoint directory.",
            )
        return replace(self._planner.initial(), was_empty=True)

    def _remembered(self, offset: Offset, state: PlannerState) -> Offset:
        self._states[offset] = state
        self._states.move_to_end(offset)
        while len(self._states) > _REMEMBERED:
            self._states.popitem(last=False)
        return offset

    def _measure(self, state: PlannerState, caught_up: bool) -> None:
        if caught_up and not self._stream.options.delay_ms:
            latest = None if isinstance(state, Starting) else state.next_id - 1
            self._lag = Lag(0, 0, 0, 0.0, None, latest, None)
        else:
            self._lag = self._meter.measure(state, None)
