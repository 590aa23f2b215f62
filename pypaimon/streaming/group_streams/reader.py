"""`GroupReader`: reads ahead what a member of a group has, on a thread of its own, and passes it on slot by slot."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.errors import EndOfScan
from pypaimon.streaming.group_streams.cursor import Cursor, HandedOut
from pypaimon.streaming.group_streams.membership import Membership
from pypaimon.streaming.model.position import Position


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A chunk that was read.

    Attributes:
        cursor: Whose it is.
        chunk: It.
        read_bytes: Bytes of rows that were read up to its end.
    """

    cursor: Cursor
    chunk: BatchChunk
    read_bytes: int


class UnconfirmedEnd(EndOfScan):
    """The member has nothing more to hand out; its caller has what it has not confirmed."""


class GroupReader:
    """Reads the slots of a member, each class of slots that stand at one position by a cursor.

    Of several cursors the one that is furthest behind reads next, a plan at a time; two that have come to one snapshot
    become one. So each slot's rows come as a stream of that slot alone has them. What is handed out is asked of the
    member's holdings each time: what was read ahead for slots that went elsewhere is thrown away.

    An error reaches the one who takes next, after all that was read before it; the one who then takes again gets
    another try. Thread-safe.

    Args:
        join: Makes the membership; gets what is to be called when something changes.
        most_bytes: Reading pauses while so many bytes wait to be taken; one chunk always may.
        clock: For the pauses between two looks.
    """

    def __init__(self, join: Callable[[Callable[[], None]], Membership], most_bytes: int, clock: Clock) -> None:
        self._join = join
        self._most_bytes = most_bytes
        self._clock = clock
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._membership: Membership | None = None
        self._cursors: list[Cursor] = []
        self._reading: Cursor | None = None
        self._queue: deque[Waiting] = deque()
        self._read_bytes = self._taken_bytes = 0
        self._error: BaseException | None = None
        self._is_running = False
        self._closed = False
        self._waiting: Future[None] | None = None
        self._has_unconfirmed: Callable[[], bool] = lambda: False
        self._origin = Origin()

    @property
    def membership(self) -> Membership | None:
        """The membership, once it is made."""
        return self._membership

    # ---- for the caller's side ----

    def ready(self, has_unconfirmed: Callable[[], bool]) -> Future[None]:
        """Done as soon as it is worth to look what there is; begins to read if nothing does.

        Args:
            has_unconfirmed: Whether the caller has what it has yet to confirm. Such a one does not wait for the others
                at the end, who may wait for that. Asked by any thread.
        """
        with self._lock:
            self._has_unconfirmed = has_unconfirmed
            if self._waiting is None:
                self._waiting = Future()
            waiting = self._waiting
            if self._has_answer():
                self._tell()
            elif not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="paimon-group-read", daemon=True).start()
            return waiting

    def wake(self) -> None:
        """Something has changed: have both sides look again. From any thread."""
        with self._lock:
            self._tell()
            self._changed.notify_all()

    def peek(self) -> Waiting | None:
        """What is to be handed out next, if there is something by now; it stays here until `drop`.

        Raises:
            UnconfirmedEnd: Nothing more comes; what the others have is not waited for.
            EndOfScan: The stream is closed, or the group has come to its end.
            PaimonStreamError: Reading failed, or the member has ended.
        """
        with self._lock:
            if self._closed:
                raise EndOfScan("the stream is closed")
            if (member := self._membership) is not None:
                member.check()
                while self._queue and not self._may_be_handed_out(self._queue[0], member):
                    if not member.holdings.is_leased(member.now()):
                        break
                    self._discard(self._queue[0].cursor, member)
                    self._changed.notify_all()
                else:
                    if self._queue:
                        return self._queue[0]
            error, self._error = self._error, None
            if error is not None:
                self._changed.notify_all()
                raise error
            if (end := self._end()) is not None:
                raise end
            return None

    def drop(self, waiting: Waiting) -> None:
        """What was seen is the caller's now. Idempotent."""
        with self._lock:
            if self._queue and self._queue[0] is waiting:
                self._taken_bytes = waiting.read_bytes
                self._queue.popleft()
                self._changed.notify_all()

    def close(self) -> None:
        """End at once; what was read is thrown away. Idempotent; does nothing in a process that was forked."""
        if not self._origin.is_here:
            return
        with self._lock:
            self._closed = True
            self._queue.clear()
            cursors, self._cursors = self._cursors, []
            self.wake()
        for cursor in cursors:
            cursor.close()

    def leave(self) -> None:
        """Leave the group, once nothing is handed out any more; blocks for a session at the most. Idempotent."""
        if self._origin.is_here and (member := self._membership) is not None:
            member.leave()

    def _has_answer(self) -> bool:
        if self._closed or self._error is not None:
            return True
        member = self._membership
        if member is None:
            return False
        if member.has_ended or member.has_news() or (self._queue and member.holdings.is_leased(member.now())):
            return True
        return self._end() is not None

    def _end(self) -> EndOfScan | None:
        """The end, if the stream has one and has come to it."""
        member = self._membership
        if member is None or self._queue or not all(cursor.has_ended for cursor in self._cursors):
            return None
        covered = {slot: since for cursor in self._cursors for slot, since in cursor.slots.items()}
        if any(covered.get(slot) != since for slot, (since, _) in member.holdings.assigned().items()):
            return None
        if covered and self._has_unconfirmed():
            return UnconfirmedEnd("the stream has reached its end")
        return EndOfScan("the stream has reached its end") if member.is_over() else None

    def _tell(self) -> None:
        if self._waiting is not None and self._has_answer():
            waiting, self._waiting = self._waiting, None
            waiting.set_result(None)

    def _may_be_handed_out(self, waiting: Waiting, member: Membership) -> bool:
        """Whether a chunk may be; if so, it counts as handed out. To ask again changes nothing."""
        cursor, chunk = waiting.cursor, waiting.chunk
        handed = cursor.handed
        if handed.chunk is chunk:
            return True
        holdings, now = member.holdings, member.now()
        if chunk.first:
            if not holdings.hand_out(cursor.slots, handed.position, chunk.plan.position, now):
                return False
            # If this line is not reached, the slots are taken back to where the cursor stands.
            cursor.handed = HandedOut(chunk.plan.position, handed.position, chunk)
            return True
        if not (holdings.is_leased(now) and holdings.has(cursor.slots)):
            return False
        cursor.handed = HandedOut(handed.position, handed.before, chunk)
        return True

    # ---- the thread ----

    def _run(self) -> None:
        while (cursor := self._next()) is not None:
            self._look(cursor)

    def _next(self) -> Cursor | None:
        """Wait for a cursor that is to read on; None: the stream is closed, or could not be joined."""
        try:
            member = self._membership or self._join(self.wake)
            with self._lock:
                self._membership = member
                while not self._closed:
                    self._fit(member)
                    self._tell()
                    cursor = self._chosen()
                    if cursor is not None:
                        return cursor
                    self._changed.wait(self._pause())
            member.leave()
        except BaseException as error:  # noqa: BLE001 - it belongs to the one who takes next
            with self._lock:
                self._error = error
                self._is_running = False
                self._tell()
        return None

    def _look(self, cursor: Cursor) -> None:
        error = None
        chunk = None
        try:
            chunk = cursor.look()
        except BaseException as raised:  # noqa: BLE001 - it belongs to the one who takes next
            error = raised
        if chunk is None:
            cursor.rest()
            if self._membership is not None and self._has_unconfirmed():
                self._membership.warn_of_barrier()
        with self._lock:
            if self._closed or cursor not in self._cursors:
                return
            if error is not None:
                cursor.due = self._clock.monotonic() + cursor.poll_seconds
                self._error = error
                self._tell()
            elif chunk is None:
                cursor.due = self._clock.monotonic() + cursor.poll_seconds
            else:
                self._reading = None if chunk.last else cursor
                self._read_bytes += 0 if chunk.data is None else chunk.data.nbytes
                self._queue.append(Waiting(cursor, chunk, self._read_bytes))
                self._tell()

    # ---- with the lock held ----

    def _fit(self, member: Membership) -> None:
        """Have a cursor for each class of slots that stand at one position, and none for what is not there any more."""
        for cursor in self._cursors:
            self._pass_over(cursor, member)
        for cursor in list(self._cursors):
            if not self._fits(cursor, member):
                self._discard(cursor, member)
        assigned = member.holdings.assigned()
        covered = {slot for cursor in self._cursors for slot in cursor.slots}
        loose: dict[Any, tuple[Position, dict[int, int]]] = {}
        for slot, (since, position) in assigned.items():
            if slot not in covered:
                loose.setdefault(_class_of(position), (position, {}))[1][slot] = since
        for position, slots in self._united(loose).values():
            self._cursors.append(member.open_cursor(slots, position))

    def _united(
        self, loose: Mapping[Any, tuple[Position, dict[int, int]]]
    ) -> dict[Any, tuple[Position, dict[int, int]]]:
        """Cursors that are to be opened: of loose slots, and in the place of those that have come to one snapshot."""
        wanted = {place: (position, dict(slots)) for place, (position, slots) in loose.items()}
        standing: dict[Any, list[Cursor]] = {}
        for cursor in self._cursors:
            if cursor.is_between_snapshots and not self._has_read_ahead(cursor):
                standing.setdefault(_class_of(cursor.handed.position), []).append(cursor)
        for place, cursors in standing.items():
            if len(cursors) + (place in loose) < 2:
                continue
            _, slots = wanted.setdefault(place, (cursors[0].handed.position, {}))
            for cursor in cursors:
                slots.update(cursor.slots)
                self._remove(cursor)
        return wanted

    def _has_read_ahead(self, cursor: Cursor) -> bool:
        return cursor is self._reading or any(each.cursor is cursor for each in self._queue)

    def _pass_over(self, cursor: Cursor, member: Membership) -> None:
        """What the cursor has read without finding rows is behind its slots, unless something before is on its way."""
        handed = cursor.handed
        if handed.is_in_plan or self._has_read_ahead(cursor) or cursor.read_to.order() == handed.position.order():
            return
        if member.holdings.pass_over(cursor.slots, handed.position, cursor.read_to):
            cursor.handed = HandedOut(cursor.read_to, cursor.read_to)

    def _fits(self, cursor: Cursor, member: Membership) -> bool:
        """Whether a cursor stands where the slots stand that the member has."""
        if cursor.handed.is_in_plan:
            # The rest of a plan is handed out, also of slots that are to move.
            return member.holdings.has(cursor.slots)
        assigned = member.holdings.assigned()
        at = cursor.handed.position.order()
        found = (assigned.get(slot) for slot in cursor.slots)
        pairs = zip(found, cursor.slots.values(), strict=True)
        return all(each is not None and each[0] == since and each[1].order() == at for each, since in pairs)

    def _discard(self, cursor: Cursor, member: Membership) -> None:
        """Throw away what a cursor has read; what of it did not arrive whole comes again."""
        handed = cursor.handed
        member.holdings.take_back(cursor.slots, handed.before if handed.is_in_plan else handed.position)
        self._remove(cursor)

    def _remove(self, cursor: Cursor) -> None:
        self._cursors = [each for each in self._cursors if each is not cursor]
        self._queue = deque(each for each in self._queue if each.cursor is not cursor)
        if self._reading is cursor:
            self._reading = None
        cursor.close()

    def _chosen(self) -> Cursor | None:
        """The cursor that reads next; None: none may now."""
        if self._error is not None or not self._has_room():
            return None
        if self._reading is not None:
            return self._reading
        now = self._clock.monotonic()
        waits = self._waiting_for_others()
        due = [each for each in self._cursors if not each.has_ended and each.due <= now and each not in waits]
        return min(due, key=lambda cursor: cursor.read_to.order(), default=None)

    def _waiting_for_others(self) -> list[Cursor]:
        """Cursors that become one as soon as what was read ahead is taken."""
        places: dict[Any, list[Cursor]] = {}
        for cursor in self._cursors:
            if cursor.read_to.unit is None:
                places.setdefault(_class_of(cursor.read_to), []).append(cursor)
        return [
            cursor
            for cursors in places.values()
            if len(cursors) > 1 and any(self._has_read_ahead(each) for each in cursors)
            for cursor in cursors
        ]

    def _has_room(self) -> bool:
        return not self._queue or self._read_bytes - self._taken_bytes < self._most_bytes

    def _pause(self) -> float | None:
        """Seconds until a cursor is due; None: until something changes."""
        if self._error is not None or not self._has_room():
            return None
        waits = self._waiting_for_others()
        coming = (each.due for each in self._cursors if not each.has_ended and each not in waits)
        due = min(coming, default=None)
        return None if due is None else max(0.0, due - self._clock.monotonic())


def _class_of(position: Position) -> Any:
    """Equal for positions from which one cursor can read."""
    return position.order(), position.phase, position.since, position.base
