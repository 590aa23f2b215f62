"""`GroupReader`: reads the slots of a member ahead, on a thread of its own, and hands them out chunk by chunk.

Unlike other sources of a stream it has no single position, since each slot has its own, and a chunk can disappear until
it is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.batches.read_ahead import ReadingThread
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.errors import EndOfScan
from pypaimon.streaming.groups.membership import Membership
from pypaimon.streaming.groups.slot_cursor import CursorProgress, SlotCursor
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.scanning.lag import Lag
from pypaimon.streaming.scanning.metrics import ScanMetrics, total_of


@dataclass(frozen=True, slots=True, eq=False)
class SlotChunk:
    chunk: BatchChunk
    slots: Mapping[int, int]
    cursor: SlotCursor
    read_bytes: int


class UnconfirmedEnd(EndOfScan):
    """The member has nothing more to hand out, but its caller has not confirmed everything."""


class GroupReader(ReadingThread):
    """Reads the slots of a member with cursors: one for all slots that are at the same position.

    The slowest cursor reads next, one plan at a time, and two that have reached the same snapshot become one. So the
    rows of each slot come as a stream of that slot alone would return them. Before each plan is handed out the member's
    slots are checked again: chunks of slots that moved to another member are thrown away. Before the end is given each
    cursor checks that the last snapshot that it has read was not rolled back since.

    An error is raised by `peek`, after all chunks that were read before it; the next `peek` tries again. Thread-safe.

    Args:
        join: Joins the group. Its argument is to be called when something changes.
        max_bytes: Reading pauses while this many bytes of rows wait; one chunk is always read.

    Attributes:
        has_unconfirmed: Whether the caller has to confirm something. If so, the end does not wait for the other
            members, because they may wait for that. Called by any thread.
    """

    def __init__(self, join: Callable[[Callable[[], None]], Membership], max_bytes: int, clock: Clock) -> None:
        super().__init__("paimon-group-read")
        self._join: Callable[[Callable[[], None]], Membership] | None = join
        self._max_bytes = max_bytes
        self._clock = clock
        self._membership: Membership | None = None
        self._cursors: list[SlotCursor] = []
        # The cursors as they were when the last snapshot of each was checked at the end.
        self._checked: list[SlotCursor] = []
        self._reading: SlotCursor | None = None
        self._queue: deque[SlotChunk] = deque()
        self._read_bytes = self._taken_bytes = 0
        self._of_removed = ScanMetrics()
        self.has_unconfirmed: Callable[[], bool] = lambda: False

    @property
    def membership(self) -> Membership | None:
        """The membership; None before the group was joined."""
        return self._membership

    # ---- for the stream ----

    def wake(self) -> None:
        """Something has changed: have both sides look again. From any thread."""
        with self._lock:
            self._wake()

    def peek(self) -> SlotChunk | None:
        """The next chunk, which counts as handed out and stays here until `drop`; None if there is none yet.

        Raises:
            UnconfirmedEnd: Nothing more comes; the end does not wait for the other members.
            EndOfScan: The stream is closed, or the group has reached its end.
        """
        with self._lock:
            if self._closed:
                raise EndOfScan("the stream is closed")
            if (member := self._membership) is not None:
                member.check()
                while self._queue and not self._may_be_handed_out(self._queue[0], member):
                    if not member.assigned.is_leased(member.now()):
                        # The next heartbeat may renew the lease; or the member was fenced, and all of this goes.
                        break
                    self._discard(self._queue[0].cursor, member)
                    self._changed.notify_all()
                else:
                    if self._queue:
                        return self._queue[0]
            self._raise_error()
            if (end := self._end()) is not None:
                raise end
            return None

    def drop(self, item: SlotChunk) -> None:
        with self._lock:
            if self._queue and self._queue[0] is item:
                self._taken_bytes = self._queue.popleft().read_bytes
                self._changed.notify_all()

    @property
    def waiting_bytes(self) -> int:
        with self._lock:
            return sum(each.chunk.size for each in self._queue)

    @property
    def metrics(self) -> ScanMetrics:
        """Counters of all scans so far, also of slots that have moved to other members."""
        with self._lock:
            of_scans = [self._of_removed, *(cursor.metrics for cursor in self._cursors)]
        return total_of(of_scans, of_one_table=True)

    def position(self, offered: BatchChunk | None) -> Position | None:
        """Where the slot continues that the caller has received least of; None without slots, and once it is closed."""
        with self._lock:
            member = self._membership
            if member is None or self._closed:
                return None
            _, slots = member.assigned.current()
            positions = {slot: each.handed_out for slot, each in slots.items()}
            waiting = [offered, *(each.chunk for each in self._queue)]
            for cursor in self._cursors:
                progress = cursor.progress
                if progress.is_in_plan or (progress.chunk and any(progress.chunk is each for each in waiting)):
                    held = (
                        slot for slot, since in cursor.slots.items() if slot in slots and slots[slot].since == since
                    )
                    positions.update((slot, progress.before) for slot in held)
            return min(positions.values(), default=None)

    def lag(self) -> Lag | None:
        member = self._membership
        return None if member is None else member.lag()

    def close(self) -> None:
        """End at once; what was read ahead is thrown away. Idempotent; does nothing in a forked process."""
        if not self._origin.is_here:
            return
        with self._lock:
            self._closed = True
            self._queue.clear()
            self.wake()
        # They stay in the list for `metrics`, and for the call that repeats an interrupted one.
        for cursor in tuple(self._cursors):
            cursor.close()

    def leave(self) -> None:
        """Leave the group, after `close`. Blocks for a session at most. Idempotent."""
        if self._origin.is_here and (member := self._membership) is not None:
            member.leave()

    def _has_answer(self) -> bool:
        if self._closed or self._error is not None:
            return True
        member = self._membership
        if member is None:
            return False
        if member.has_ended or member.pending_change() is not None:
            return True
        if self._queue and member.assigned.is_leased(member.now()):
            return True
        return self._end() is not None

    def _end(self) -> EndOfScan | None:
        end = self._reached_end()
        if end is not None and self._checked != self._cursors:
            # The thread checks them, and then wakes the stream.
            self._changed.notify_all()
            return None
        return end

    def _reached_end(self) -> EndOfScan | None:
        member = self._membership
        if member is None or self._queue or not all(cursor.has_ended for cursor in self._cursors):
            return None
        covered = {slot: since for cursor in self._cursors for slot, since in cursor.slots.items()}
        if any(covered.get(slot) != since for slot, (since, _) in member.assigned.readable().items()):
            return None
        if covered and self.has_unconfirmed():
            return UnconfirmedEnd("the stream has reached its end")
        return EndOfScan("the stream has reached its end") if member.is_over() else None

    def _may_be_handed_out(self, item: SlotChunk, member: Membership) -> bool:
        """Whether a chunk may be handed out; if so, it counts as handed out. Repeating the call changes nothing."""
        cursor, chunk = item.cursor, item.chunk
        progress = cursor.progress
        if progress.chunk is chunk:
            return True
        assigned, now = member.assigned, member.now()
        if chunk.first:
            if not assigned.hand_out(cursor.slots, progress.position, chunk.plan.position, now):
                return False
            # A signal handler may raise before this line. Then `_fits` finds that the cursor and its slots differ, and
            # the slots are taken back to where the cursor is.
            cursor.progress = CursorProgress(chunk.plan.position, progress.position, chunk)
            return True
        # The rest of a plan is handed out even if its slots were revoked, because plans are confirmed as a whole.
        if not (assigned.is_leased(now) and assigned.has(cursor.slots)):
            return False
        cursor.progress = CursorProgress(progress.position, progress.before, chunk)
        return True

    # ---- the thread ----

    def _read(self) -> None:
        while (step := self._next()) is not None:
            step()

    def _next(self) -> Callable[[], None] | None:
        member = self._membership
        if member is None:
            assert self._join is not None
            member = self._join(self.wake)
        with self._lock:
            self._membership = member
            # It refers to the callbacks, which may refer to the stream. A dropped stream must be collectable.
            self._join = None
            while not self._closed:
                self._update_cursors(member)
                self._wake()
                if (cursor := self._chosen()) is not None:
                    return partial(self._look, cursor)
                if self._error is None and self._checked != self._cursors and self._reached_end() is not None:
                    return partial(self._check, list(self._cursors))
                self._changed.wait(self._pause())
        member.leave()
        return None

    def _look(self, cursor: SlotCursor) -> None:
        error = None
        chunk = None
        try:
            chunk = cursor.look()
        except BaseException as raised:  # noqa: BLE001 (`peek` raises it)
            error = raised
        if chunk is None:
            cursor.rest()
            if self._membership is not None and self.has_unconfirmed():
                self._membership.warn_of_barrier()
        with self._lock:
            if self._closed or cursor not in self._cursors:
                return
            if chunk is None:
                cursor.due = self._clock.monotonic() + cursor.poll_seconds
                if error is None:
                    return
                self._error = error
            else:
                self._reading = None if chunk.last else cursor
                self._read_bytes += chunk.size
                self._queue.append(SlotChunk(chunk, cursor.slots, cursor, self._read_bytes))
            self._wake()

    def _check(self, cursors: list[SlotCursor]) -> None:
        error = None
        try:
            for cursor in cursors:
                cursor.check_end()
        except BaseException as raised:  # noqa: BLE001 (`peek` raises it)
            error = raised
        with self._lock:
            if self._closed or cursors != self._cursors:
                return
            if error is None:
                self._checked = cursors
            self._error = error
            self._wake()

    # ---- with the lock held ----

    def _update_cursors(self, member: Membership) -> None:
        for cursor in self._cursors:
            self._pass_over(cursor, member)
        for cursor in list(self._cursors):
            if not self._fits(cursor, member):
                self._discard(cursor, member)
        covered = {slot for cursor in self._cursors for slot in cursor.slots}
        loose: dict[Any, tuple[Position, dict[int, int]]] = {}
        for slot, (since, position) in member.assigned.readable().items():
            if slot not in covered:
                loose.setdefault(_place(position), (position, {}))[1][slot] = since
        for position, slots in self._merged(loose).values():
            self._cursors.append(member.open_cursor(slots, position))

    def _merged(
        self, loose: Mapping[Any, tuple[Position, dict[int, int]]]
    ) -> dict[Any, tuple[Position, dict[int, int]]]:
        wanted = {place: (position, dict(slots)) for place, (position, slots) in loose.items()}
        waiting: dict[Any, list[SlotCursor]] = {}
        for cursor in self._cursors:
            if cursor.is_between_snapshots and not self._has_read_ahead(cursor):
                waiting.setdefault(_place(cursor.progress.position), []).append(cursor)
        for place, cursors in waiting.items():
            if len(cursors) + (place in loose) < 2:
                continue
            _, slots = wanted.setdefault(place, (cursors[0].progress.position, {}))
            for cursor in cursors:
                slots.update(cursor.slots)
                self._remove(cursor)
        return wanted

    def _has_read_ahead(self, cursor: SlotCursor) -> bool:
        return cursor is self._reading or any(each.cursor is cursor for each in self._queue)

    def _pass_over(self, cursor: SlotCursor, member: Membership) -> None:
        """Move slots over what the cursor has read without finding rows, unless something before is not confirmed."""
        progress = cursor.progress
        if progress.is_in_plan or self._has_read_ahead(cursor):
            return
        if cursor.read_to.order() == progress.position.order():
            return
        if member.assigned.pass_over(cursor.slots, progress.position, cursor.read_to):
            cursor.progress = CursorProgress(cursor.read_to, cursor.read_to)

    def _fits(self, cursor: SlotCursor, member: Membership) -> bool:
        if cursor.progress.is_in_plan:
            # The rest of a plan is handed out even if its slots were revoked.
            return member.assigned.has(cursor.slots)
        readable = member.assigned.readable()
        at = cursor.progress.position.order()
        found = (readable.get(slot) for slot in cursor.slots)
        pairs = zip(found, cursor.slots.values(), strict=True)
        return all(each is not None and each[0] == since and each[1].order() == at for each, since in pairs)

    def _discard(self, cursor: SlotCursor, member: Membership) -> None:
        progress = cursor.progress
        # A plan of which the caller has only a part will be read again.
        member.assigned.take_back(cursor.slots, progress.before if progress.is_in_plan else progress.position)
        self._remove(cursor)

    def _remove(self, cursor: SlotCursor) -> None:
        self._of_removed = total_of((self._of_removed, cursor.metrics), of_one_table=True)
        self._cursors = [each for each in self._cursors if each is not cursor]
        self._queue = deque(each for each in self._queue if each.cursor is not cursor)
        if self._reading is cursor:
            self._reading = None
        self._checked = []
        cursor.close()

    def _chosen(self) -> SlotCursor | None:
        if self._error is not None or not self._has_room():
            return None
        if self._reading is not None:
            return self._reading
        now = self._clock.monotonic()
        waits = self._about_to_merge()
        due = [each for each in self._cursors if not each.has_ended and each.due <= now and each not in waits]
        return min(due, key=lambda cursor: cursor.read_to.order(), default=None)

    def _about_to_merge(self) -> list[SlotCursor]:
        """Cursors that become one as soon as the caller has taken what was read ahead."""
        places: dict[Any, list[SlotCursor]] = {}
        for cursor in self._cursors:
            if cursor.read_to.unit is None:
                places.setdefault(_place(cursor.read_to), []).append(cursor)
        return [
            cursor
            for cursors in places.values()
            if len(cursors) > 1 and any(self._has_read_ahead(each) for each in cursors)
            for cursor in cursors
        ]

    def _has_room(self) -> bool:
        return not self._queue or self._read_bytes - self._taken_bytes < self._max_bytes

    def _pause(self) -> float | None:
        if self._error is not None or not self._has_room():
            return None
        waits = self._about_to_merge()
        coming = (each.due for each in self._cursors if not each.has_ended and each not in waits)
        due = min(coming, default=None)
        return None if due is None else max(0.0, due - self._clock.monotonic())


def _place(position: Position) -> Any:
    """What positions that one cursor can continue from have in common. After a rollback slots can be at one snapshot of
    two histories: the cursor of the former one has to find that.
    """
    return position.order(), position.fingerprint, position.phase, position.since, position.base
