"""`AssignedSlots`: the slots of a member, with what was handed out, confirmed and saved of each; `Assignment`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from pypaimon.streaming.groups.group_files import GroupState, SlotProgress
from pypaimon.streaming.model.position import Position


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member of a group reads of the table, until its next assignment.

    Attributes:
        number: Generation of the group; it grows with every change.
        slots: The slots of the member, ascending.
        of: Number of slots into which the table is divided.
        members: Number of members in the group.
        token: The generation that gave the member the last of its slots. Of two members that ever had the same slot,
            the later one has the greater number for it: a target that keeps it can refuse late writes of the former
            owner.
    """

    number: int
    slots: tuple[int, ...]
    of: int
    members: int
    token: int
    _slot_of: Callable[[tuple[str | None, ...], int], int | None] = field(repr=False, compare=False)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(number={self.number}, slots={len(self.slots)} of {self.of}, "
            f"members={self.members}, token={self.token})"
        )

    def covers(self, partition: tuple[str | None, ...], bucket: int) -> bool:
        """Whether the member reads a bucket of a partition.

        In a table whose files are divided by their names, every member with a slot reads some files of each bucket.

        Args:
            partition: The values of the partition columns as text, None for null; empty without partitions.
            bucket: Number of the bucket.
        """
        slot = self._slot_of(partition, bucket)
        return bool(self.slots) if slot is None else slot in self.slots


@dataclass(slots=True)
class SlotState:
    """One slot while the member owns it. All positions mean: everything before them.

    Attributes:
        since: Generation in which the member got the slot.
        handed_out: What the reader has handed out.
        confirmed: What its caller has confirmed.
        saved: What a version of the member's record says is confirmed.
        revoked_since: When a state revoked the slot, in seconds; None if none did.
        released: The member has given the slot back.
        revoke_handled: `on_revoked` has returned.
    """

    since: int
    handed_out: Position
    confirmed: Position
    saved: Position
    revoked_since: float | None = None
    released: bool = False
    revoke_handled: bool = False


class AssignedSlots:
    """The slots of a member. The reader hands out and confirms, the member's steps adopt states and save. Thread-safe.

    Calls name slots together with the generation since which the member has them. So a late call about a slot that
    the member has lost, and perhaps got again, changes nothing.

    Args:
        max_hold: Seconds for which a revoked slot waits until all that was handed out is confirmed. Later the slot is
            released without, and its next owner reads the rest again. None: it waits forever.
        waits_for_reader: Whether a revoked slot also waits until `on_revoked` has returned.
        on_change: Called by the member's thread after the steps that change what may be handed out.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        max_hold: float | None = None,
        *,
        waits_for_reader: bool = False,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._max_hold = max_hold
        self._waits_for_reader = waits_for_reader
        self._on_change = on_change
        self._lock = threading.Lock()
        self._state: GroupState | None = None
        self._slots: dict[int, SlotState] = {}
        self._lease_until = float("-inf")
        self._passed = 0
        self._barrier: int | None = None
        self._unsaved = False
        self._closed = False

    # ---- for the reader ----

    def readable(self) -> dict[int, tuple[int, Position]]:
        """Slots of which more may be handed out: since which generation, and from which position."""
        with self._lock:
            return {slot: (each.since, each.handed_out) for slot, each in self._slots.items() if self._is_open(each)}

    def hand_out(self, slots: Mapping[int, int], before: Position, after: Position, now: float) -> bool:
        """Whether a plan from `before` to `after` may be handed out of slots; if so, it counts as handed out."""
        with self._lock:
            # Without a recent heartbeat in the store, the others may have fenced this member already.
            if now > self._lease_until:
                return False
            found = [(self._slots.get(slot), since) for slot, since in slots.items()]
            if not all(each and each.since == since and self._fits(each, before) for each, since in found):
                return False
            for each, _ in found:
                assert each is not None
                each.handed_out = after
            return True

    def pass_over(self, slots: Mapping[int, int], before: Position, after: Position) -> bool:
        """Move slots from `before` to `after`, with no rows in between. False if something before is unconfirmed."""
        with self._lock:
            found = [self._slots.get(slot) for slot in slots]
            for each, since in zip(found, slots.values(), strict=True):
                if each is None or each.since != since or each.released:
                    return False
                if not each.confirmed.order() == each.handed_out.order() == before.order():
                    return False
            for each in found:
                assert each is not None
                each.handed_out = each.confirmed = after
            # At a barrier the others may wait for this. Otherwise the next heartbeat is soon enough.
            self._unsaved = self._unsaved or self._barrier is not None
            return True

    def take_back(self, slots: Mapping[int, int], before: Position) -> None:
        """Undo `hand_out` of a plan that its caller did not get completely: it will be read again."""
        with self._lock:
            for slot, since in slots.items():
                each = self._slots.get(slot)
                if each is not None and each.since == since and each.handed_out > before:
                    each.handed_out = max(before, each.confirmed)

    def has(self, slots: Mapping[int, int]) -> bool:
        with self._lock:
            return all(self._is_held(slot, since) for slot, since in slots.items())

    def is_leased(self, now: float) -> bool:
        """Whether the last heartbeat is recent enough to hand out plans."""
        with self._lock:
            return now <= self._lease_until

    def handle_revoke(self, slots: Collection[int]) -> None:
        """`on_revoked` has returned for slots: they may be released."""
        with self._lock:
            for slot in slots:
                if (each := self._slots.get(slot)) is not None:
                    each.revoke_handled = True

    def current(self) -> tuple[GroupState | None, dict[int, SlotState]]:
        """The state that the member acts on, and copies of its slots without the released ones."""
        with self._lock:
            return self._state, {slot: replace(each) for slot, each in self._slots.items() if not each.released}

    def saved_or_lost(self, slots: Mapping[int, int], after: Position) -> tuple[set[int], set[int]]:
        """The slots that are saved up to a position, and those that the member has lost.

        Asked after each step of the member, every slot ends up in one of the sets: a save is visible before the slot
        goes away.
        """
        saved, lost = set(), set()
        with self._lock:
            for slot, since in slots.items():
                each = self._slots.get(slot)
                if each is None or each.since != since:
                    lost.add(slot)
                elif each.saved >= after:
                    saved.add(slot)
        return saved, lost

    def confirm(self, slots: Mapping[int, int], after: Position) -> Collection[int]:
        """Everything handed out of slots before a position is confirmed. Returns the slots that were lost meanwhile."""
        lost = []
        with self._lock:
            for slot, since in slots.items():
                each = self._slots.get(slot)
                if each is None or each.since != since or each.released:
                    lost.append(slot)
                elif each.confirmed < after:
                    # Less if a part of it was taken back since.
                    each.confirmed = min(after, each.handed_out)
                    self._unsaved = True
        return lost

    def may_pass(self, barrier: int) -> bool:
        """Whether all slots of the group have reached a snapshot. If not, the next heartbeat says that this one waits.

        A snapshot that may move rows between slots (an overwrite) is such a barrier: a slot that read it early would
        get rows whose former versions another slot has not handed out yet.
        """
        with self._lock:
            if barrier <= self._passed:
                return True
            if barrier != self._barrier:
                self._barrier, self._unsaved = barrier, True
            return False

    def close(self) -> None:
        with self._lock:
            self._closed = True

    # ---- for the steps of the member ----

    @property
    def wants_save(self) -> bool:
        """Whether something changed that the record does not say yet."""
        with self._lock:
            return self._unsaved or any(self._may_release(each) for each in self._slots.values())

    def adopt(self, state: GroupState, own: str) -> None:
        """Take over the assignment of a state. Slots that are owned since the same generation keep their progress."""
        with self._lock:
            self._state = state
            slots = {}
            for slot, ownership in enumerate(state.owned):
                if ownership.owner != own:
                    continue
                each = self._slots.get(slot)
                if each is None or each.since != ownership.since:
                    each = SlotState(ownership.since, ownership.start, ownership.start, ownership.start)
                if ownership.moves_to is None:
                    each.revoked_since, each.revoke_handled = None, False
                elif each.revoked_since is None:
                    each.revoked_since = self._clock()
                slots[slot] = each
            self._slots = slots
            self._passed = max(self._passed, state.passed)
            if self._barrier is not None and self._barrier <= self._passed:
                self._barrier = None
        self._on_change()

    def compose(self) -> tuple[dict[int, SlotProgress], dict[int, SlotProgress], int | None]:
        """What the next record says: slots that are held, slots that are released, and the barrier.

        Slots that it releases are released from now on, even if the version is never written: it may have been, with
        its answer lost, and then their next owner reads them.
        """
        with self._lock:
            held: dict[int, SlotProgress] = {}
            released: dict[int, SlotProgress] = {}
            for slot, each in self._slots.items():
                each.released = each.released or self._may_release(each)
                (released if each.released else held)[slot] = SlotProgress(each.since, each.confirmed)
            self._unsaved = False
            return held, released, self._barrier

    def saved(self, entries: Mapping[int, SlotProgress], lease_until: float) -> None:
        """A version of the record with this progress exists; plans may be handed out until a time."""
        with self._lock:
            self._lease_until = lease_until
            for slot, entry in entries.items():
                each = self._slots.get(slot)
                if each is not None and each.since == entry.since:
                    each.saved = entry.position
        self._on_change()

    def lose_all(self) -> None:
        with self._lock:
            self._slots = {}
            self._lease_until = float("-inf")
            self._unsaved = False
            self._state = None
        self._on_change()

    # ---- with the lock held ----

    def _is_held(self, slot: int, since: int) -> bool:
        each = self._slots.get(slot)
        return each is not None and each.since == since and not each.released

    def _is_open(self, each: SlotState) -> bool:
        return each.revoked_since is None and not (each.released or self._closed)

    def _fits(self, each: SlotState, before: Position) -> bool:
        return self._is_open(each) and each.handed_out.order() == before.order()

    def _may_release(self, each: SlotState) -> bool:
        if each.revoked_since is None or each.released:
            return False
        if each.confirmed.order() == each.handed_out.order() and (each.revoke_handled or not self._waits_for_reader):
            return True
        return self._max_hold is not None and self._clock() - each.revoked_since >= self._max_hold
