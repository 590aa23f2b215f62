"""`UnconfirmedPlans`: what one reader has handed out, and how far that is confirmed; without any IO."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace
from itertools import islice, zip_longest

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.position import Phase, Position

MAX_UNCONFIRMED = 4096
"""Limit for unconfirmed plans, so that memory is bounded. Beyond it, two neighbours count as one plan."""


@dataclass(frozen=True, slots=True)
class _UnconfirmedPlan:
    """A plan, or several consecutive ones that count as one.

    Attributes:
        before: Where it begins.
        after: Where it ends.
        whole: The last position between two snapshots before it, which a consumer file can hold; None in the first
            full plan.
    """

    before: Position
    after: Position
    whole: Position | None

    def until(self, position: Position) -> _UnconfirmedPlan:
        return self if self.after.order() <= position.order() else replace(self, after=position)


class UnconfirmedPlans:
    """Plans that were handed out and are not confirmed. Never waits. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: deque[_UnconfirmedPlan] = deque()
        self._frontier: Position | None = None
        self._whole: Position | None = None
        self._wanted: int | None = None

    @property
    def frontier(self) -> Position | None:
        """The position after all that was handed out or passed over; None before `begin`."""
        return self._frontier

    @property
    def confirmed(self) -> Position | None:
        with self._lock:
            return self._confirmed()

    def to_save(self) -> tuple[Position | None, int | None]:
        """The position between snapshots that is confirmed, and the snapshot that the last confirmation reached.

        Snapshots between the two were passed over since, without a plan; saving them is not urgent. Each is None if
        nothing can be saved: before `begin`, and inside a first full plan.
        """
        with self._lock:
            return self._confirmed_whole(), self._wanted

    def begin(self, position: Position, instead_of: Position | None = None) -> None:
        """Start at a position, or seek to it: later plans are forgotten, earlier ones still have to be confirmed."""
        with self._lock:
            order = position.order()
            kept = (plan for plan in self._plans if plan.before.order() < order and plan.after != instead_of)
            self._plans = deque(plan.until(position) for plan in kept)
            self._reach(position)
            self._wanted = None if self._whole is None else self._whole.snapshot

    def add(self, position: Position, begins: Position | None = None) -> None:
        """A plan is handed out; see `Progress.on_plan`.

        Raises:
            ValueError: The plan is not after the one before it.
        """
        with self._lock:
            last = self._plans[-1].after if self._plans else None
            if last is None or last != position:
                before = self._checked(position, strictly=True)
                if begins is not None and before.phase is Phase.FOLLOW and begins.snapshot > before.snapshot:
                    before = begins
                    self._reach(begins)
                self._plans.append(_UnconfirmedPlan(before, position, self._whole))
                if len(self._plans) > MAX_UNCONFIRMED:
                    self._plans = _in_pairs(self._plans)
            if self._frontier is None or self._frontier < position:
                self._reach(position)

    def pass_over(self, position: Position) -> None:
        """Snapshots before the position contain nothing for the reader.

        Raises:
            ValueError: The position is before the one that was reached.
        """
        with self._lock:
            self._checked(position, strictly=False)
            self._reach(position)

    def confirm(self, position: Position) -> None:
        """Everything before the position is confirmed."""
        with self._lock:
            self._confirm(position)

    def confirm_all(self) -> None:
        with self._lock:
            if self._frontier is not None:
                self._confirm(self._frontier)

    # ---- with the lock held ----

    def _confirmed(self) -> Position | None:
        return self._plans[0].before if self._plans else self._frontier

    def _confirmed_whole(self) -> Position | None:
        return self._plans[0].whole if self._plans else self._whole

    def _reach(self, position: Position) -> None:
        self._frontier = position
        if position.phase is Phase.FULL:
            self._whole = None
        elif position.unit is None:
            self._whole = position
        elif self._whole is None or self._whole.snapshot != position.snapshot:
            # Its fingerprint is that of the snapshot it is inside of, not of the one before: it is left out here.
            self._whole = Position(position.table, position.snapshot)

    def _checked(self, position: Position, strictly: bool) -> Position:
        before = self._frontier
        if before is None:
            raise ValueError(f"{position} before begin()")
        if position < before or (strictly and position.order() == before.order()):
            raise ValueError(f"{position} is not after {before}")
        return before

    def _confirm(self, position: Position) -> None:
        frontier = self._frontier
        if frontier is not None and frontier.table != position.table:
            raise StreamConfigError(
                f"the position belongs to table {position.table!r}, but this stream reads {frontier.table!r}."
            )
        order = position.order()
        if frontier is None or order > frontier.order():
            reached = "has not started" if frontier is None else f"has only reached snapshot {frontier.snapshot}"
            raise StreamConfigError(
                f"Snapshot {position.snapshot} cannot be confirmed: the stream {reached} since its start or the last "
                "seek. Confirm positions that this stream has handed out."
            )
        while self._plans and self._plans[0].after.order() <= order:
            self._plans.popleft()
        if (whole := self._confirmed_whole()) is not None:
            self._wanted = whole.snapshot if self._wanted is None else max(whole.snapshot, self._wanted)


def _in_pairs(plans: deque[_UnconfirmedPlan]) -> deque[_UnconfirmedPlan]:
    """Each two neighbours as one plan, which is confirmed when the later one is: later, never earlier."""
    both = zip_longest(islice(plans, 0, None, 2), islice(plans, 1, None, 2))
    return deque(first if second is None else replace(first, after=second.after) for first, second in both)
