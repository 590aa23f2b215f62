"""`Membership`: this process as a member of a group: what it may read, what it has confirmed, and what has changed."""

from __future__ import annotations

import queue
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any

from pypaimon.streaming.concurrency.background_threads import BackgroundThread
from pypaimon.streaming.concurrency.clock import Clock, SuspendAwareClock
from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.consumers.consumer_manager import consumers_of
from pypaimon.streaming.errors import EndOfScan, StoreError, StreamConfigError
from pypaimon.streaming.groups.assigned_slots import AssignedSlots, Assignment
from pypaimon.streaming.groups.group_bounds import GroupEnd, GroupStart
from pypaimon.streaming.groups.group_directory import GroupDirectory
from pypaimon.streaming.groups.group_files import GroupTerms, slots_to_text
from pypaimon.streaming.groups.group_requests import Pause, Request
from pypaimon.streaming.groups.group_settings import GroupSettings, check_first_plan, settings_text, times_and_rule
from pypaimon.streaming.groups.member import GroupMember
from pypaimon.streaming.groups.slot_cursor import SlotCursor
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.slot_rule import SlotSet
from pypaimon.streaming.scanning.lag import Lag
from pypaimon.streaming.spec.resolve import ResolvedStream


class MemberThread:
    """Runs the steps of one member. A caller that is slow with its rows keeps its slots, since heartbeats do not wait.

    Args:
        on_end: Called by the thread when it ends, after an error too.
    """

    def __init__(
        self,
        member: GroupMember,
        answer: Callable[[Request], Any],
        clock: Callable[[], float],
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._member = member
        self._answer = answer
        self._clock = clock
        self._on_end = on_end
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._origin = Origin()
        self._error: BaseException | None = None
        self._is_abandoned = False
        self._thread = BackgroundThread(self._run, "pypaimon-streaming-group", self._abandon)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Have the member look what is due, because something was confirmed or it has to leave."""
        if self._woken.empty():
            self._woken.put(None)

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def check(self) -> None:
        if not self._origin.is_here:
            raise StreamConfigError("a group stream cannot be used in a forked process; open one after the fork.")
        if self._error is not None:
            raise self._error

    def stop(self, seconds: float) -> bool:
        """Leave the group. Returns whether it was left in time; otherwise the others find out after a session."""
        if self._origin.is_here:
            self._member.leave()
            self.wake()
            self._thread.join(seconds)
            # The thread may hang in a request.
            self._abandon()
        return self._member.ended

    def _abandon(self) -> None:
        # The thread ends after the request that it waits for, without leaving the group.
        self._is_abandoned = True
        self.wake()

    def _run(self) -> None:
        try:
            self._run_steps()
        except BaseException as error:  # noqa: BLE001 (the reader raises it)
            self._error = error
        finally:
            self._on_end()

    def _run_steps(self) -> None:
        steps = self._member.run()
        failure: BaseException | None = None
        answer: Any = None
        with closing(steps), suppress(StopIteration):
            while True:
                request = steps.send(answer) if failure is None else steps.throw(failure)
                answer, failure = None, None
                if self._is_abandoned:
                    return
                try:
                    if isinstance(request, Pause):
                        self._wait(request)
                    else:
                        answer = self._answer(request)
                except StoreError as error:
                    failure = error

    def _wait(self, pause: Pause) -> None:
        with suppress(queue.Empty):
            self._woken.get(timeout=max(0.0, pause.until - self._clock()))


class AssignmentChangeKind(Enum):
    """What happened to slots; which callback is due."""

    ASSIGNED = "assigned"
    """The member has them now."""
    REVOKED = "revoked"
    """Another member gets them once `on_revoked` has returned and their rows are confirmed, or `max_hold` is over."""
    LOST = "lost"
    """Another member may have them already."""


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    kind: AssignmentChangeKind
    slots: Mapping[int, int]


@dataclass(slots=True, eq=False)
class _PendingSave:
    slots: dict[int, int]
    after: Position
    lost: set[int] = field(default_factory=set)
    future: Future[tuple[int, ...]] = field(default_factory=Future)

    def update(self, assigned: AssignedSlots) -> None:
        saved, lost = assigned.saved_or_lost(self.slots, self.after)
        self.lost |= lost
        self.slots = {slot: since for slot, since in self.slots.items() if slot not in saved | lost}


class Membership:
    """This process as a member of a group, from the moment it wants to join until it has left. Thread-safe.

    Args:
        batch_bytes: A plan with more bytes of rows comes in several chunks.
        on_change: Called by another thread when there may be something new.

    Raises:
        EndOfScan: The stream ends at the latest snapshot or at a time, and the table has no snapshot.
    """

    def __init__(
        self,
        stream: ResolvedStream,
        settings: GroupSettings,
        batch_bytes: int,
        clock: Clock,
        on_change: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._batch_bytes = batch_bytes
        parts = stream.scan_parts()
        times, self._rule = times_and_rule(parts, stream.schema, settings)
        # The member has a store of its own, with short timeouts: a request that hung for a session would end it.
        own = stream.with_spec(replace(stream.spec, io_timeout=max(times.session / 4, 1.0))).scan_parts()
        start = GroupStart(own, settings.group_id)
        directory = GroupDirectory(
            consumers_of(own.directory),
            own.directory.store,
            settings.group_id,
            start.find,
            start.before_snapshot,
            start.can_start,
            start.diagnosed,
        )
        state = directory.open()
        if state is not None:
            start.check_history(state)
            # The table may have got other buckets since the group began. They are divided into the same slots.
            self._rule = replace(self._rule, count=len(state.owned))
        try:
            self._end = GroupEnd.of(own, clock)
        except EndOfScan:
            start.check_empty(directory.has_begun)
            raise
        # Does not stop while the machine sleeps: a member that wakes up must know that its session is over.
        self.now = SuspendAwareClock()
        self._on_change = on_change
        self._lock = threading.Lock()
        self._pending_saves: list[_PendingSave] = []
        self.assigned = AssignedSlots(
            self.now, settings.max_hold, waits_for_reader=settings.has_callbacks, on_change=self._changed
        )
        self._member = GroupMember(
            settings.member or "",
            GroupTerms(
                self._rule.count,
                self._rule.text,
                settings_text(stream),
                partial(check_first_plan, own=parts.options),
            ),
            times,
            self.now,
            partial(secrets.token_hex, 4),
            self.assigned,
            directory.owner,
        )
        self._lag_meter = own.lag_meter
        self._session = times.session
        self._has_callbacks = settings.has_callbacks
        self._reported: dict[int, int] = {}
        self._barrier: int | None = None
        self._warned: int | None = None
        self._group_id = settings.group_id
        self._log = StreamLog.of(__name__, own.directory.table)
        self._logged: tuple[int, ...] = ()
        self._leaves = False
        self._thread = MemberThread(self._member, directory.answer, self.now, self._changed)
        self._thread.start()

    # ---- what it may read ----

    @property
    def has_ended(self) -> bool:
        return self._thread.has_failed

    def check(self) -> None:
        self._thread.check()

    @property
    def assignment(self) -> Assignment | None:
        state, slots = self.assigned.current()
        if state is None or not slots:
            return None
        token = max(each.since for each in slots.values())
        return Assignment(
            state.generation, tuple(sorted(slots)), len(state.owned), len(state.members), token, self._rule.of_bucket
        )

    def lag(self) -> Lag | None:
        """The lag of the slot that was handed out least; None if the member has no slots. Blocks."""
        _, slots = self.assigned.current()
        if not slots:
            return None
        saved = min(each.saved.snapshot for each in slots.values())
        return self._lag_meter.measure_at(min(each.handed_out for each in slots.values()), saved)

    def open_cursor(self, slots: Mapping[int, int], position: Position) -> SlotCursor:
        state, _ = self.assigned.current()
        end = None if self._end is None or state is None else self._end.of_cursor(state.start)
        slot_set = SlotSet(self._rule, frozenset(slots), self._may_pass)
        stream = self._stream.with_spec(replace(self._stream.spec, slots=slot_set, end=end))
        return SlotCursor(slots, position, stream, self._batch_bytes)

    def is_over(self) -> bool:
        """Whether the whole group is confirmed up to this member's end, whichever members have read it. No IO.

        Called once the member has nothing more to hand out, and its reader nothing to confirm. The next heartbeat says
        that it waits.
        """
        state, slots = self.assigned.current()
        if self._end is None or state is None or not state.begun or self._member.id not in state.members:
            return False
        end = self._end.position_after(state.start)
        if any(each.confirmed < end for each in slots.values()):
            return False
        has_all = len(slots) == len(state.owned) and all(each.saved >= end for each in slots.values())
        return has_all or self._may_pass(end.snapshot)

    def _may_pass(self, snapshot_id: int) -> bool:
        """Whether all slots have reached a snapshot. If not, a heartbeat says that this member waits for the others."""
        passed = self.assigned.may_pass(snapshot_id)
        self._barrier = None if passed else snapshot_id
        if not passed:
            self._thread.wake()
        return passed

    def warn_of_barrier(self) -> None:
        """If the group waits before an overwrite for what this member's reader has not confirmed, log that once."""
        barrier = self._barrier
        if barrier is None or barrier == self._warned:
            return
        self._warned = barrier
        text = (
            "group %(group)s waits before the overwrite in snapshot %(snapshot)d until all members have committed "
            "everything before it. This member was asked for its next batch, and has not committed the last ones"
        )
        self._log.warning("group_waits_for_commit", text, group=self._group_id, snapshot=barrier)

    # ---- what is confirmed ----

    def confirm(self, slots: Mapping[int, int], after: Position) -> tuple[int, ...]:
        lost = self.assigned.confirm(slots, after)
        self._thread.wake()
        return tuple(sorted(lost))

    def saved(self, slots: Mapping[int, int], after: Position) -> Future[tuple[int, ...]]:
        """A future that is done once slots are saved up to a position, or the member has ended.

        Its result is the slots that were lost before.
        """
        pending = _PendingSave(dict(slots), after)
        with self._lock:
            self._pending_saves.append(pending)
        self._complete_saves()
        return pending.future

    def _changed(self) -> None:
        self._complete_saves()
        self._log_slots()
        self._on_change()

    def _complete_saves(self) -> None:
        with self._lock:
            for each in self._pending_saves:
                each.update(self.assigned)
            done = [each for each in self._pending_saves if not each.slots or self.has_ended]
            self._pending_saves = [each for each in self._pending_saves if each not in done]
        # Outside the lock: callbacks of a future may call this object.
        for each in done:
            each.future.set_result(tuple(sorted({*each.lost, *each.slots})))

    def _log_slots(self) -> None:
        state, current = self.assigned.current()
        slots = tuple(sorted(current))
        if slots == self._logged or self._leaves:
            return
        former, self._logged = self._logged, slots
        if state is None:
            text = "group %(group)s: this member has lost slots %(slots)s: it was silent for too long, or was ended"
            self._log.warning("group_lost", text, group=self._group_id, slots=slots_to_text(former))
            return
        text = "group %(group)s: this one of %(members)d members has %(slots)s of %(of)d slots"
        listed, of, members = slots_to_text(slots) or "none", len(state.owned), len(state.members)
        self._log.info("group_assigned", text, group=self._group_id, slots=listed, of=of, members=members)

    # ---- what has changed ----

    def pending_change(self) -> AssignmentChange | None:
        """The next callback that is due; None if there is none. Lost and revoked slots come before new ones."""
        if not self._has_callbacks:
            return None
        _, slots = self.assigned.current()
        lost, revoked = {}, {}
        for slot, since in self._reported.items():
            each = slots.get(slot)
            if each is None or each.since != since:
                lost[slot] = since
            elif each.revoked_since is not None:
                revoked[slot] = since
        for kind, found in ((AssignmentChangeKind.LOST, lost), (AssignmentChangeKind.REVOKED, revoked)):
            if found:
                return AssignmentChange(kind, found)
        new = {
            slot: each.since
            for slot, each in slots.items()
            if slot not in self._reported and each.revoked_since is None
        }
        return AssignmentChange(AssignmentChangeKind.ASSIGNED, new) if new else None

    def change_handled(self, change: AssignmentChange) -> None:
        if change.kind is AssignmentChangeKind.ASSIGNED:
            self._reported = {**self._reported, **change.slots}
            return
        self._reported = {slot: since for slot, since in self._reported.items() if slot not in change.slots}
        if change.kind is AssignmentChangeKind.REVOKED:
            self.assigned.handle_revoke(change.slots)
            self._thread.wake()

    # ---- ending ----

    def leave(self) -> None:
        """Leave the group. Blocks until the others know; if the store fails, they find out after a session."""
        self._leaves = True
        self._thread.stop(self._session)
