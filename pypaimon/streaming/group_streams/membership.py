"""`Membership`: this process in a group of a table: what it may read, what it has confirmed, and what has changed."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from pypaimon.streaming.builder.assembly import StreamAssembly, group_parts, of_slots
from pypaimon.streaming.concurrency.clock import Clock, SuspendAwareClock
from pypaimon.streaming.consumers.consumer_manager import consumers_of
from pypaimon.streaming.consumers.groups.group_directory import GroupDirectory
from pypaimon.streaming.consumers.groups.group_member import GroupMember
from pypaimon.streaming.consumers.groups.holdings import Holding, Holdings
from pypaimon.streaming.consumers.groups.member_thread import MemberThread
from pypaimon.streaming.consumers.groups.slot_ranges import slots_to_text
from pypaimon.streaming.group_streams.assignment import Assignment
from pypaimon.streaming.group_streams.cursor import Cursor
from pypaimon.streaming.group_streams.group_end import GroupEnd
from pypaimon.streaming.group_streams.group_settings import GroupSettings, check_former, checked, settings_text
from pypaimon.streaming.group_streams.group_start import GroupStart
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.slot_rule import SlotSet
from pypaimon.streaming.scanning.lag import Lag


class ChangeKind(Enum):
    """What became of slots."""

    ASSIGNED = "assigned"
    """The member has them now."""
    REVOKED = "revoked"
    """Another member is to get them, as soon as this has been told."""
    LOST = "lost"
    """Another member may have them already."""


@dataclass(frozen=True, slots=True)
class Change:
    """What became of slots.

    Attributes:
        kind: It.
        slots: With the numbers of their tenures.
    """

    kind: ChangeKind
    slots: Mapping[int, int]


@dataclass(slots=True, eq=False)
class _Waiting:
    """Somebody waits for what was confirmed to be in the store.

    Attributes:
        slots: Of which that is not known yet, with the numbers of their tenures.
        after: Before which all is confirmed.
        lost: Slots that were lost before it was.
        future: Done once `slots` is empty.
    """

    slots: dict[int, int]
    after: Position
    lost: set[int] = field(default_factory=set)
    future: Future[tuple[int, ...]] = field(default_factory=Future)

    def look(self, holdings: Holdings) -> None:
        """See what has become of them."""
        saved, lost = holdings.saved_or_lost(self.slots, self.after)
        self.lost |= lost
        self.slots = {slot: since for slot, since in self.slots.items() if slot not in saved | lost}


class Membership:
    """This process in a group of a table, from when it wants to join until it has left. Thread-safe.

    Args:
        builder: The stream that the members share.
        settings: Of the group.
        batch_bytes: A plan with more bytes of rows comes in several chunks.
        clock: For an end that is a time.
        on_change: Called by another thread when there may be something new.

    Raises:
        EndOfScan: The stream ends at the latest snapshot, or at a time, and the table has no snapshot.
        StreamConfigError: The group cannot be, with such a stream or on such a table.
        UnsupportedTableError: The table cannot be streamed.
        StoreError: The store failed.
    """

    def __init__(
        self,
        builder: StreamAssembly,
        settings: GroupSettings,
        batch_bytes: int,
        clock: Clock,
        on_change: Callable[[], None],
    ) -> None:
        self._builder = builder
        self._batch_bytes = batch_bytes
        parts, schema = group_parts(builder)
        times, self._rule = checked(parts, schema, settings)
        # Requests of its own, none of which may hang for as long as others wait for this member.
        own, _ = group_parts(builder.copy().with_io_timeout(max(times.session / 4, 1.0)))
        start = GroupStart(own, settings.group_id)
        self._end = GroupEnd.of(own, clock)
        directory = GroupDirectory(
            consumers_of(own.directory),
            own.directory.store,
            settings.group_id,
            start.find,
            start.before_snapshot,
            start.stands,
            start.check_table,
        )
        state = directory.open()
        if state is not None:
            start.check_history(state)
            # The table may have got other buckets since; they fall into the slots that there are.
            self._rule = replace(self._rule, count=len(state.owned))
        self.now = SuspendAwareClock()
        self._on_change = on_change
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self.holdings = Holdings(
            self.now, settings.max_hold, waits_for_reader=settings.has_callbacks, on_change=self._changed
        )
        self._member = GroupMember(
            settings.member or "",
            self._rule.count,
            times,
            self.now,
            partial(secrets.token_hex, 4),
            self.holdings,
            settings=settings_text(parts.options),
            rule=self._rule.text,
            fence_owner=directory.owner,
            check_former=partial(check_former, own=parts.options),
        )
        self._lag_meter = own.lag_meter
        self._session = times.session
        self._has_callbacks = settings.has_callbacks
        self._told: dict[int, int] = {}
        self._barrier: int | None = None
        self._warned: int | None = None
        self._group_id = settings.group_id
        self._log = StreamLog.of(__name__, own.directory.table)
        self._logged: tuple[int, ...] = ()
        self._leaves = False
        self._thread = MemberThread(self._member, directory.answer, self.now, self._changed)
        self._thread.start()

    # ---- what there is ----

    @property
    def has_ended(self) -> bool:
        """Whether an error has ended it, or another one of its name."""
        return self._thread.has_failed

    def check(self) -> None:
        """See whether the member is well; errors as `MemberThread.check`."""
        self._thread.check()

    @property
    def assignment(self) -> Assignment | None:
        """What the member has; None: nothing now."""
        state, slots = self.holdings.standing()
        if state is None or not slots:
            return None
        token = max(each.since for each in slots.values())
        return Assignment(
            state.number, tuple(sorted(slots)), len(state.owned), len(state.members), token, self._rule.of_bucket
        )

    def lag(self) -> Lag | None:
        """How far what was handed out of the slot that is furthest behind is; None: the member has none. Blocks.

        Raises:
            StoreError: The store failed.
        """
        _, slots = self.holdings.standing()
        if not slots:
            return None
        saved = min(each.saved.snapshot for each in slots.values())
        return self._lag_meter.measure_at(min(each.handed for each in slots.values()), saved)

    def open_cursor(self, slots: Mapping[int, int], position: Position) -> Cursor:
        """A cursor of slots which all stand at a position."""
        state, _ = self.holdings.standing()
        last = None if self._end is None or state is None else self._end.of_cursor(state.start)
        slot_set = SlotSet(self._rule, frozenset(slots), self._may_pass)
        return Cursor(slots, position, of_slots(self._builder, slot_set, last), self._batch_bytes)

    def is_over(self) -> bool:
        """Whether all that the group reads up to this member's end is confirmed, whoever has read it; no IO.

        Asked once the member has nothing more to hand out, and its reader nothing to confirm. The others are told that
        it waits.
        """
        state, slots = self.holdings.standing()
        if self._end is None or state is None or not state.begun or self._member.id not in state.members:
            return False
        behind = self._end.behind(state.start)
        if any(each.confirmed < behind for each in slots.values()):
            return False
        has_all = len(slots) == len(state.owned) and all(each.saved >= behind for each in slots.values())
        return has_all or self._may_pass(behind.snapshot)

    def _may_pass(self, snapshot_id: int) -> bool:
        """Whether all slots have come to a snapshot; if not, the others are told that this member waits before it."""
        passed = self.holdings.may_pass(snapshot_id)
        self._barrier = None if passed else snapshot_id
        if not passed:
            self._thread.wake()
        return passed

    def warn_of_barrier(self) -> None:
        """Where the group waits before an overwrite, its reader has to confirm what it has: tell that once."""
        barrier = self._barrier
        if barrier is None or barrier == self._warned:
            return
        self._warned = barrier
        text = (
            "group %(group)s: all before the overwrite of snapshot %(snapshot)d has to be committed by all members "
            "before any of them goes on. This one waits for more, and has not committed what it was given"
        )
        self._log.warning("group_waits_for_commit", text, group=self._group_id, snapshot=barrier)

    # ---- what is confirmed ----

    def confirm(self, slots: Mapping[int, int], after: Position) -> tuple[int, ...]:
        """All that was handed out of slots before a position is confirmed; those that were lost meanwhile."""
        lost = self.holdings.confirm(slots, after)
        self._thread.wake()
        return tuple(sorted(lost))

    def saved(self, slots: Mapping[int, int], after: Position) -> Future[tuple[int, ...]]:
        """Done once that is in the store, or the member has ended; the slots that were lost before.

        Args:
            slots: With the numbers of their tenures.
            after: Before which all is confirmed.
        """
        waiting = _Waiting(dict(slots), after)
        with self._lock:
            self._waiting.append(waiting)
        self._tell_saved()
        return waiting.future

    def _changed(self) -> None:
        self._tell_saved()
        self._log_slots()
        self._on_change()

    def _tell_saved(self) -> None:
        with self._lock:
            for each in self._waiting:
                each.look(self.holdings)
            done = [each for each in self._waiting if not each.slots or self.has_ended]
            self._waiting = [each for each in self._waiting if each not in done]
        for each in done:
            each.future.set_result(tuple(sorted({*each.lost, *each.slots})))

    def _log_slots(self) -> None:
        """By the member's thread alone."""
        state, held = self.holdings.standing()
        slots = tuple(sorted(held))
        if slots == self._logged or self._leaves:
            return
        former, self._logged = self._logged, slots
        if state is None:
            text = "group %(group)s: this member has lost slots %(slots)s: it was silent for too long, or was ended"
            self._log.warning("group_lost", text, group=self._group_id, slots=slots_to_text(former))
            return
        text = "group %(group)s: of %(of)d slots this one of %(members)d members has %(slots)s"
        its, of, members = slots_to_text(slots) or "none", len(state.owned), len(state.members)
        self._log.info("group_assigned", text, group=self._group_id, slots=its, of=of, members=members)

    # ---- what has changed ----

    def has_news(self) -> bool:
        """Whether `news` has something."""
        return self.news() is not None

    def news(self) -> Change | None:
        """What became of slots and was not told yet; None: nothing."""
        if not self._has_callbacks:
            return None
        _, slots = self.holdings.standing()
        lost, revoked = {}, {}
        for slot, since in self._told.items():
            each = slots.get(slot)
            if each is None or each.since != since:
                lost[slot] = since
            elif each.moving_since is not None:
                revoked[slot] = since
        for kind, found in ((ChangeKind.LOST, lost), (ChangeKind.REVOKED, revoked)):
            if found:
                return Change(kind, found)
        new = {slot: each.since for slot, each in slots.items() if slot not in self._told and _is_settled(each)}
        return Change(ChangeKind.ASSIGNED, new) if new else None

    def told(self, change: Change) -> None:
        """The reader was told, and has done what it does."""
        if change.kind is ChangeKind.ASSIGNED:
            self._told = {**self._told, **change.slots}
            return
        self._told = {slot: since for slot, since in self._told.items() if slot not in change.slots}
        if change.kind is ChangeKind.REVOKED:
            self.holdings.let_go(change.slots)
            self._thread.wake()

    # ---- ending ----

    def leave(self) -> None:
        """Leave the group, and wait until that is known to all; if the store fails, they find out after a session."""
        self._leaves = True
        self._thread.stop(self._session)


def _is_settled(each: Holding) -> bool:
    return each.moving_since is None
