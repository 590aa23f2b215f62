"""`Holdings`: the slots that a member has, what it has handed out of them, and what is confirmed and saved."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from pypaimon.streaming.consumers.groups.group_state import GroupState
from pypaimon.streaming.consumers.groups.register import Held
from pypaimon.streaming.model.position import Position


@dataclass(slots=True)
class Holding:
    """One slot in one tenure.

    Attributes:
        since: Number of the state that began the tenure.
        handed: Before which all was handed out.
        confirmed: Before which all is confirmed.
        saved: Before which all is confirmed in a register that exists.
        moving_since: When a state said that another member is to get the slot, in seconds; None: none is.
        released: It was given back.
        let_go: The reader has done what it does before a slot goes to another member.
    """

    since: int
    handed: Position
    confirmed: Position
    saved: Position
    moving_since: float | None = None
    released: bool = False
    let_go: bool = False


class Holdings:
    """What a member has. The reader hands out and confirms, the member's steps adopt states and save. Thread-safe.

    Args:
        clock: The member's, in seconds.
        max_hold: So long a slot that is to move waits for what was handed out of it to be confirmed; then that comes
            again elsewhere. None: as long as it takes.
        waits_for_reader: Whether a slot that is to move waits for `let_go` too.
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
        self._slots: dict[int, Holding] = {}
        self._lease_until = float("-inf")
        self._passed = 0
        self._barrier: int | None = None
        self._unsaved = False
        self._closed = False

    # ---- for the reader ----

    def assigned(self) -> dict[int, tuple[int, Position]]:
        """Slots of which more may be handed out: the numbers of their tenures, and from where on."""
        with self._lock:
            return {slot: (each.since, each.handed) for slot, each in self._slots.items() if self._is_open(each)}

    def hand_out(self, slots: Mapping[int, int], before: Position, after: Position, now: float) -> bool:
        """A plan is to be handed out: whether it may be; if so, it counts as handed out.

        Args:
            slots: That it covers, with the numbers of their tenures.
            before: Where it begins, for each of them.
            after: Where it ends.
            now: Seconds.
        """
        with self._lock:
            if now > self._lease_until:
                return False
            found = [(self._slots.get(slot), since) for slot, since in slots.items()]
            if not all(each and each.since == since and self._fits(each, before) for each, since in found):
                return False
            for each, _ in found:
                assert each is not None
                each.handed = after
            return True

    def pass_over(self, slots: Mapping[int, int], before: Position, after: Position) -> bool:
        """What lies between two positions has no rows for slots of which nothing is on its way: whether they are there.

        Args:
            slots: With the numbers of their tenures.
            before: Where all of them stand, else nothing is done.
            after: Where they stand then.
        """
        with self._lock:
            found = [self._slots.get(slot) for slot in slots]
            for each, since in zip(found, slots.values(), strict=True):
                if each is None or each.since != since or each.released:
                    return False
                if not each.confirmed.order() == each.handed.order() == before.order():
                    return False
            for each in found:
                assert each is not None
                each.handed = each.confirmed = after
            # Others may wait for that; else it can wait for the next beat.
            self._unsaved = self._unsaved or self._barrier is not None
            return True

    def take_back(self, slots: Mapping[int, int], before: Position) -> None:
        """What was handed out of slots after a position did not arrive whole, and comes again.

        Args:
            slots: With the numbers of their tenures.
            before: The position.
        """
        with self._lock:
            for slot, since in slots.items():
                each = self._slots.get(slot)
                if each is not None and each.since == since and each.handed > before:
                    each.handed = max(before, each.confirmed)

    def has(self, slots: Mapping[int, int]) -> bool:
        """Whether all slots are still held, in these tenures.

        Args:
            slots: With the numbers of their tenures.
        """
        with self._lock:
            return all(self._is_held(slot, since) for slot, since in slots.items())

    def is_leased(self, now: float) -> bool:
        """Whether anything may be handed out: the last version is young enough."""
        with self._lock:
            return now <= self._lease_until

    def let_go(self, slots: Collection[int]) -> None:
        """The reader has done what it does before slots go to other members."""
        with self._lock:
            for slot in slots:
                if (each := self._slots.get(slot)) is not None:
                    each.let_go = True

    def standing(self) -> tuple[GroupState | None, dict[int, Holding]]:
        """The state that is acted upon, and copies of what there is of each slot that was not given back."""
        with self._lock:
            return self._state, {slot: replace(each) for slot, each in self._slots.items() if not each.released}

    def saved_or_lost(self, slots: Mapping[int, int], after: Position) -> tuple[set[int], set[int]]:
        """Slots of which a register that exists says that all before a position is confirmed; and those that are gone.

        Seen after each step of the member, a slot is in one of them in the end: what was saved is seen before the slot
        goes.

        Args:
            slots: With the numbers of their tenures.
            after: The position.
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
        """All that was handed out of slots before a position is confirmed; those that were lost meanwhile."""
        lost = []
        with self._lock:
            for slot, since in slots.items():
                each = self._slots.get(slot)
                if each is None or each.since != since or each.released:
                    lost.append(slot)
                elif each.confirmed < after:
                    each.confirmed = min(after, each.handed)
                    self._unsaved = True
        return lost

    def may_pass(self, barrier: int) -> bool:
        """Whether all slots of the group have reached a snapshot; if not, the others are told that this one waits."""
        with self._lock:
            if barrier <= self._passed:
                return True
            if barrier != self._barrier:
                self._barrier, self._unsaved = barrier, True
            return False

    def close(self) -> None:
        """Hand out nothing more."""
        with self._lock:
            self._closed = True

    # ---- for the steps of the member ----

    @property
    def wants_save(self) -> bool:
        """Whether there is something that the register does not say."""
        with self._lock:
            return self._unsaved or any(self._may_release(each) for each in self._slots.values())

    def adopt(self, state: GroupState, own: str) -> None:
        """Take over what a state says of the member."""
        with self._lock:
            self._state = state
            slots = {}
            for slot, tenure in enumerate(state.owned):
                if tenure.owner != own:
                    continue
                each = self._slots.get(slot)
                if each is None or each.since != tenure.since:
                    each = Holding(tenure.since, tenure.start, tenure.start, tenure.start)
                if tenure.to is None:
                    each.moving_since, each.let_go = None, False
                elif each.moving_since is None:
                    each.moving_since = self._clock()
                slots[slot] = each
            self._slots = slots
            self._passed = max(self._passed, state.passed)
            if self._barrier is not None and self._barrier <= self._passed:
                self._barrier = None
        self._on_change()

    def compose(self) -> tuple[dict[int, Held], dict[int, Held], int | None]:
        """What the next version of the register says: slots that are held, and released, and the barrier.

        What it releases is released from now on, whether that version comes to exist or not.
        """
        with self._lock:
            held: dict[int, Held] = {}
            released: dict[int, Held] = {}
            for slot, each in self._slots.items():
                each.released = each.released or self._may_release(each)
                (released if each.released else held)[slot] = Held(each.since, each.confirmed)
            self._unsaved = False
            return held, released, self._barrier

    def saved(self, entries: Mapping[int, Held], lease_until: float) -> None:
        """A version exists that says this; plans may be handed out until a time."""
        with self._lock:
            self._lease_until = lease_until
            for slot, entry in entries.items():
                each = self._slots.get(slot)
                if each is not None and each.since == entry.since:
                    each.saved = entry.position
        self._on_change()

    def lose(self) -> None:
        """Others have ended the member: it has nothing."""
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

    def _is_open(self, each: Holding) -> bool:
        return each.moving_since is None and not (each.released or self._closed)

    def _fits(self, each: Holding, before: Position) -> bool:
        return self._is_open(each) and each.handed.order() == before.order()

    def _may_release(self, each: Holding) -> bool:
        """A slot that is to move is given back when nothing of it is on its way, or that takes too long."""
        if each.moving_since is None or each.released:
            return False
        if each.confirmed.order() == each.handed.order() and (each.let_go or not self._waits_for_reader):
            return True
        return self._max_hold is not None and self._clock() - each.moving_since >= self._max_hold
