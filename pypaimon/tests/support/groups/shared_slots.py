"""Members of a group whose slots a test moves, and what each has handed out slot by slot."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pypaimon.streaming import StreamReadBuilder
from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.groups.assigned_slots import AssignedSlots
from pypaimon.streaming.groups.group_bounds import GroupStart
from pypaimon.streaming.groups.group_files import GroupState, SlotOwnership
from pypaimon.streaming.groups.group_reader import GroupReader
from pypaimon.streaming.groups.group_stream import DeliveredPlans
from pypaimon.streaming.groups.slot_cursor import SlotCursor
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.slot_rule import SlotRule, SlotSet
from pypaimon.streaming.spec.spec_builder import resolved

Row = tuple[Any, ...]
"""A row: its key `k`, then the other columns."""
BATCH_BYTES = 1
"""So small that each record batch is a chunk, and plans are often cut."""
_READ_AHEAD_BYTES = 400
_FOR_EVER = 120.0
_MAX_HOLD = 1.0


@dataclass
class Taken:
    """The part of a plan that was handed out.

    Attributes:
        rows: Rows of all these slots that were handed out.
        is_whole: Whether these are all rows of the plan.
        is_confirmed: Whether the caller has confirmed it.
    """

    plan: Plan
    slots: frozenset[int]
    rows: list[Row] = field(default_factory=list)
    is_whole: bool = False
    is_confirmed: bool = False


class Seat:
    """The membership of a reader, whose slots a test decides."""

    has_ended = False

    def __init__(self, name: str, shared: SharedSlots) -> None:
        self.name = name
        self.seconds = 0.0
        self._shared = shared
        self.assigned = AssignedSlots(self.now, _MAX_HOLD)
        self._plans = DeliveredPlans()
        self._hand: BatchChunk | None = None
        self._unconfirmed: list[Taken] = []
        self.reader = GroupReader(lambda _: self, _READ_AHEAD_BYTES, Clock())  # type: ignore[arg-type,return-value]
        self.lease(True)

    def now(self) -> float:
        return self.seconds

    def check(self) -> None:
        """It has no error."""

    def pending_change(self) -> None:
        """There are no callbacks."""

    def is_over(self) -> bool:
        return False

    def leave(self) -> None:
        """The test does that."""

    def open_cursor(self, slots: Mapping[int, int], position: Position) -> SlotCursor:
        return self._shared.cursor(slots, position, self.assigned)

    def lease(self, is_on: bool) -> None:
        """Allow or forbid to hand out plans."""
        self.assigned.saved({}, float("inf") if is_on else float("-inf"))
        self.reader.wake()

    # ---- as a stream does ----

    def take(self, seconds: float) -> bool:
        """Take a chunk, if there is one within some seconds. Returns whether there was."""
        ready = self.reader.ready()
        waiting = self.reader.peek()
        end = time.monotonic() + seconds
        while waiting is None and (left := end - time.monotonic()) > 0:
            try:
                ready.result(left)
            except TimeoutError:
                return False
            waiting = self.reader.peek()
            ready = self.reader.ready()
        if waiting is None:
            return False
        chunk, slots = waiting.chunk, waiting.slots
        self.reader.drop(waiting)
        self._plans.add(chunk, slots)
        self._unconfirmed += self._shared.took(chunk, slots)
        if chunk.data is None:
            self._confirm(None)
        else:
            self._hand = chunk
        return True

    def confirm(self) -> None:
        for taken in self._unconfirmed:
            taken.is_confirmed = taken.is_whole
        self._unconfirmed = [taken for taken in self._unconfirmed if not taken.is_whole]
        if self._hand is not None:
            self._confirm(self._hand)

    def _confirm(self, chunk: BatchChunk | None) -> None:
        plans = self._plans.up_to(chunk)
        for each in plans:
            if each.is_complete:
                self.assigned.confirm(each.slots, each.plan.position)
        self._plans.forget(plans)
        self.reader.wake()


class SharedSlots:
    """A table that members share, and what was handed out of each slot.

    Args:
        slots: Number of slots if files are divided by name or partition; otherwise there is one for each bucket.
    """

    def __init__(self, builder: StreamReadBuilder, slots: int, members: int) -> None:
        self._stream = stream = resolved(builder)
        rule = SlotRule.of(stream.traits, stream.schema)
        self.rule = replace(rule, count=min(slots, rule.count))
        self._start = GroupStart(stream.scan_parts(), "etl").find()
        self._taken: list[list[Taken]] = [[] for _ in range(self.rule.count)]
        self._number = self._passed = 0
        self._started = members
        self.seats = [Seat(f"m{index}", self) for index in range(members)]
        owners = [self.seats[slot % members].name for slot in range(self.rule.count)]
        self._owned = [SlotOwnership(owner, 1, self._start) for owner in owners]
        self._adopted()

    def cursor(self, slots: Mapping[int, int], position: Position, assigned: AssignedSlots | None = None) -> SlotCursor:
        """A stream of some slots. Without `assigned` it does not wait at overwrites."""
        chosen = SlotSet(self.rule, frozenset(slots))
        if assigned is not None:
            chosen = replace(chosen, may_pass=assigned.may_pass)
        stream = self._stream.with_spec(replace(self._stream.spec, slots=chosen, end=None))
        return SlotCursor(slots, position, stream, BATCH_BYTES)

    def took(self, chunk: BatchChunk, slots: Mapping[int, int]) -> list[Taken]:
        """A member has handed out a chunk. Returns the plans that begin with it."""
        rows = [] if chunk.data is None else _rows_of(chunk)
        begun = []
        for slot in slots:
            taken = self._taken[slot]
            if not chunk.first:
                assert taken and taken[-1].plan is chunk.plan and not taken[-1].is_whole, "the middle of another plan"
            else:
                if taken and not taken[-1].is_whole:
                    # It was incomplete, and is read again.
                    taken.pop()
                assert not taken or taken[-1].plan.position < chunk.plan.position, (slot, chunk.plan.position)
                taken.append(Taken(chunk.plan, frozenset(slots)))
                begun.append(taken[-1])
            taken[-1].rows += rows
            taken[-1].is_whole = chunk.last
        return begun

    # ---- what moves ----

    def move(self, slot: int, seat: Seat) -> None:
        """Revoke a slot: another member gets it once its owner has released it."""
        ownership = self._owned[slot]
        self._owned[slot] = replace(ownership, moves_to=None if ownership.owner == seat.name else seat.name)
        self._adopted()

    def save(self, seat: Seat, too_late: bool = False) -> None:
        """A member writes its record, and the group acts on it.

        Args:
            too_late: What it holds is held for too long by now.
        """
        seat.seconds += 2 * _MAX_HOLD * too_late
        held, released, barrier = seat.assigned.compose()
        for slot, entry in {**held, **released}.items():
            ownership = self._owned[slot]
            if ownership.owner == seat.name and ownership.since == entry.since and slot in released:
                self._given(slot, ownership.moves_to or seat.name, entry.position)
        seat.assigned.saved(held, float("inf"))
        if barrier is not None and all(self._reached(slot) >= barrier for slot in range(self.rule.count)):
            self._passed = max(self._passed, barrier)
        self._adopted()

    def crash(self, seat: Seat) -> None:
        """End a member: others continue where it has saved, and a new member takes its place."""
        saved = {slot: each.saved for slot, each in seat.assigned.current()[1].items()}
        self.seats.remove(seat)
        seat.reader.close()
        newer = Seat(f"m{self._started}", self)
        self._started += 1
        self.seats.append(newer)
        for slot, ownership in enumerate(self._owned):
            if ownership.owner == seat.name:
                self._given(slot, self.seats[slot % len(self.seats)].name, saved.get(slot, ownership.start))
            elif ownership.moves_to == seat.name:
                self._owned[slot] = replace(ownership, moves_to=newer.name)
        self._adopted()

    def _given(self, slot: int, owner: str, start: Position) -> None:
        self._owned[slot] = SlotOwnership(owner, self._number + 1, start)
        # Everything that was not confirmed is read again.
        kept = [each for each in self._taken[slot] if each.plan.position <= start]
        lost = [each for each in kept if each.rows and not (each.is_whole and each.is_confirmed)]
        assert not lost, f"slot {slot} continues at {start}, after plans that were not confirmed: {lost}"
        self._taken[slot] = kept

    def _adopted(self) -> None:
        self._number += 1
        names = tuple(seat.name for seat in self.seats)
        owned = tuple(self._owned)
        state = GroupState(self._number, self._start.table, self._start, True, "", "", names, owned, self._passed)
        for seat in self.seats:
            seat.assigned.adopt(state, seat.name)
            seat.reader.wake()

    def _reached(self, slot: int) -> int:
        """The snapshot before which all of a slot is confirmed."""
        for seat in self.seats:
            each = seat.assigned.current()[1].get(slot)
            if each is not None:
                inside = each.confirmed.order() > Position(each.confirmed.table, each.confirmed.snapshot).order()
                return each.confirmed.snapshot - inside
        return 0

    # ---- results ----

    def finish(self, latest: int) -> None:
        """Read until all slots have reached the end of the table, whose last snapshot is this."""
        end = time.monotonic() + _FOR_EVER
        for seat in self.seats:
            seat.lease(True)
        while min(self._reached(slot) for slot in range(self.rule.count)) <= latest:
            assert time.monotonic() < end, [self._reached(slot) for slot in range(self.rule.count)]
            for seat in self.seats:
                while seat.take(0.01):
                    pass
                seat.confirm()
                self.save(seat)

    def close(self) -> None:
        for seat in self.seats:
            seat.reader.close()

    def alone(self) -> list[list[Row]]:
        """The rows of a stream of each slot alone, from the start of the group to the end of the table."""
        found: list[list[Row]] = []
        for slot in range(self.rule.count):
            cursor = self.cursor({slot: 1}, self._start)
            found.append([])
            while (chunk := cursor.look()) is not None:
                found[slot] += [] if chunk.data is None else _rows_of(chunk)
            cursor.close()
        return found

    def shared(self, slot_of: Mapping[Any, int]) -> list[list[Row]]:
        """The rows of each slot that the members have handed out; rows that were read again count once."""
        found: list[list[Row]] = []
        for slot, taken in enumerate(self._taken):
            others = [row for each in taken for row in each.rows if slot_of[row[0]] not in each.slots]
            assert not others, (slot, others)
            found.append([row for each in taken for row in each.rows if slot_of[row[0]] == slot])
        return found


def _rows_of(chunk: BatchChunk) -> list[Row]:
    assert chunk.data is not None
    return [(row.pop("k"), *row.values()) for row in chunk.data.to_pylist()]
