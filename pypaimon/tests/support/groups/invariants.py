"""Invariants of a group, which hold at every step whatever its store and its members suffer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from pypaimon.streaming.groups.group_files import GroupState, MemberRecord, MemberStatus, SlotProgress, name_of
from pypaimon.streaming.groups.group_requests import RetentionPin


class BrokenLawError(AssertionError):
    """An invariant was violated. The message begins with its name."""


class GroupLaws:
    """Observes everything that happens. Snapshots stand for positions.

    Args:
        barriers: Snapshots that all slots have to reach before any of them continues.
        one_reader: No process is interrupted between the check whether a plan may be handed out and handing it out.

    Attributes:
        seen: How often something rare happened, by name.
    """

    def __init__(self, slots: int, barriers: frozenset[int], one_reader: bool) -> None:
        self.slots = slots
        self.seen: Counter[str] = Counter()
        self.confirmed = [0] * slots
        self._start = 0
        self._barriers = barriers
        self._one_reader = one_reader
        self._owners: dict[tuple[int, int], str] = {}
        self._starts: list[dict[int, int]] = [{} for _ in range(slots)]
        self._ends: dict[tuple[int, int], int] = {}
        self._saved: list[dict[int, int]] = [{} for _ in range(slots)]
        self._late: Counter[tuple[str, int, int]] = Counter()
        self._sink: list[tuple[int, int]] = [(-1, 0)] * slots
        self._replaced: set[str] = set()
        self._fenced: dict[str, int] = {}
        self._last: dict[str, int] = defaultdict(int)
        self._durable: dict[tuple[int, int], int] = {}

    def begins(self, start: int) -> None:
        self._start = start
        self.confirmed = [start] * self.slots
        self._sink = [(-1, start)] * self.slots

    # ---- what readers do ----

    def may_hand_out(self, life: str, before: int, pin: RetentionPin | None, earliest: int) -> None:
        """A reader was allowed to hand out a plan. The pin keeps its snapshots, unless a newer member has its name."""
        if life in self._replaced:
            return
        if pin is None or pin.floor > before or before < earliest:
            raise BrokenLawError(f"I5: {before} is handed out, but kept are {pin} and snapshots from {earliest}")

    def handed_out(self, life: str, slots: Mapping[int, int], before: int, after: int) -> None:
        self.seen["handed out"] += len(slots)
        for barrier in self._barriers:
            if before >= barrier and min(self.confirmed) < barrier:
                raise BrokenLawError(f"I12: {before} is handed out before all have reached {barrier}")
        for slot, since in slots.items():
            self._in_ownership(life, slot, since, before, after)
            self._at_sink(slot, since, before, after)

    def _in_ownership(self, life: str, slot: int, since: int, before: int, after: int) -> None:
        if self._owners.setdefault((slot, since), life) != life:
            raise BrokenLawError(f"I8: slot {slot} has two ownerships of number {since}")
        newest = max(self._starts[slot], default=since)
        if since < newest and life in self._replaced:
            # A newer member of its name does not wait for its lease. The older one ends with its next heartbeat.
            self.seen["replaced"] += 1
        elif since < newest:
            self.seen["zombies"] += 1
            self._late[life, slot, newest] += 1
            if self._one_reader:
                raise BrokenLawError(f"I6: slot {slot} is handed out by {life}, which has lost it")
            if sum(self._late[life, slot, each] for each in self._starts[slot]) > 1:
                raise BrokenLawError(f"I7: {life} hands out slot {slot} again, which it has lost")
        if since not in self._starts[slot]:
            self._begins(slot, since, before)
        elif before != self._ends[slot, since]:
            raise BrokenLawError(f"I1: slot {slot} continues at {before} instead of {self._ends[slot, since]}")
        self._ends[slot, since] = after

    def _begins(self, slot: int, since: int, start: int) -> None:
        self._starts[slot][since] = start
        if start > self.confirmed[slot]:
            raise BrokenLawError(f"I1: slot {slot} begins at {start}, confirmed is {self.confirmed[slot]}")
        for former, saved in self._saved[slot].items():
            if former < since and saved > start:
                raise BrokenLawError(f"I2: slot {slot} begins at {start}, saved was {saved}")

    def _at_sink(self, slot: int, since: int, before: int, after: int) -> None:
        """What a target gets that refuses smaller tokens."""
        token, end = self._sink[slot]
        if since >= token:
            if before > end:
                raise BrokenLawError(f"I9: slot {slot} arrives from {before}, the target ends at {end}")
            self._sink[slot] = since, after

    def confirms(self, slots: Mapping[int, int], after: int) -> None:
        for slot in slots:
            self.confirmed[slot] = max(self.confirmed[slot], after)

    def saves(self, entries: Mapping[int, SlotProgress]) -> None:
        """A member learns that this is saved."""
        for slot, held in entries.items():
            saved, since = held.position.snapshot, held.since
            self._saved[slot][since] = max(saved, self._saved[slot].get(since, 0))
            for later, start in self._starts[slot].items():
                if later > since and start < saved:
                    raise BrokenLawError(f"I2: slot {slot} has begun at {start}, and {saved} is said to be saved")

    # ---- what is stored ----

    def record_made(self, record: MemberRecord) -> None:
        if record.id in self._fenced and record.version > self._fenced[record.id]:
            raise BrokenLawError(f"I4: {record.id} writes after its final version {self._fenced[record.id]}")
        if record.version <= self._last[record.id]:
            self.seen["versions made twice"] += 1
            return
        self._last[record.id] = record.version
        if record.status is MemberStatus.FENCED:
            self.seen["fencings"] += 1
            if name_of(record.written_by) == name_of(record.id) != "":
                self._replaced.add(record.id)
        if record.is_final:
            self._fenced[record.id] = record.version
        for entries in (record.held, record.released):
            for slot, held in entries.items():
                self._stored(slot, held)
        for slot, held in record.released.items():
            end = self._ends.get((slot, held.since), held.position.snapshot)
            if held.position.snapshot != end:
                raise BrokenLawError(f"I2: slot {slot} is released at {held.position.snapshot}, handed out until {end}")

    def _stored(self, slot: int, held: SlotProgress) -> None:
        position, key = held.position.snapshot, (slot, held.since)
        if position > self.confirmed[slot]:
            raise BrokenLawError(f"I3: {position} is saved of slot {slot}, confirmed is {self.confirmed[slot]}")
        if position < self._durable.get(key, 0):
            raise BrokenLawError(f"I3: slot {slot} goes back to {position}")
        self._durable[key] = position

    def pin_written(self, floor: int) -> None:
        for slot in range(self.slots):
            newest = max(self._starts[slot], default=None)
            needed = self._start if newest is None else self._starts[slot][newest]
            needed = max(needed, self._durable.get((slot, newest), 0)) if newest is not None else needed
            if floor > needed:
                raise BrokenLawError(f"I5: the pin goes to {floor}, slot {slot} needs {needed}")

    # ---- at the end ----

    def settled(self, state: GroupState, living: list[str], reached: int) -> None:
        counts = Counter(ownership.owner for ownership in state.owned)
        if set(state.members) != set(living):
            raise BrokenLawError(f"I10: members are {state.members}, living {living}")
        numbers = [counts[member] for member in state.members]
        if sum(numbers) != self.slots or max(numbers) - min(numbers) > 1:
            raise BrokenLawError(f"I10: slots are divided unevenly: {counts}")
        if any(ownership.moves_to for ownership in state.owned):
            raise BrokenLawError("I10: slots still move")
        if min(self.confirmed) < reached:
            raise BrokenLawError(f"I10: {self.confirmed} is confirmed of {reached}")
