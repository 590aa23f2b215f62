"""`EngineState`: what the threads of a `DatabaseEngine` share."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from functools import partial
from itertools import count, islice
from typing import Generic, NamedTuple, TypeVar

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.concurrency.background_threads import spawn_detached
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.databases.events import DatabaseEvent, SchemaChanged, TableDropped, TableFailed
from pypaimon.streaming.databases.followed_table import FollowedTable
from pypaimon.streaming.databases.jobs import (
    DiscoveryJob,
    EngineSettings,
    Job,
    OnTableError,
    OpenJob,
    PendingEvent,
    StartJob,
)
from pypaimon.streaming.databases.position import TablePosition
from pypaimon.streaming.databases.table_registry import FailedTable, TableRegistry
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.scanning.metrics import ScanMetrics, total_of

_LOG = StreamLog(__name__)
WORKERS = 8
_MOST_CHUNKS = 64
OPENERS = 8
"""Threads that only open tables, so that open tables are read in the meantime."""
_MOST_UNPOLLED = 2 * WORKERS
"""No more tables are opened while this many wait for their first poll, because what was read to open them gets old."""
DISCOVERY_PAUSE = 1.0
"""Seconds between two discoveries, if a table needs one before the next is due."""


class TableChunk(NamedTuple):
    """Rows of one table."""

    table: FollowedTable
    chunk: BatchChunk


Item = TableChunk | DatabaseEvent
T = TypeVar("T", bound=Hashable)


class Schedule(Generic[T]):
    """Jobs ordered by the time at which they are due, and the workers that wait for them. Callers pass the time.

    Jobs of tables that have rows to read are busy. One worker never takes busy jobs, so that tables with a large
    backlog do not delay polls of the others.

    At most one worker is woken for each job, and only one waits for the next time, because with many tables the threads
    that wake for nothing would cost more than the jobs.

    Args:
        workers: The number of workers.
        lock: Must be held for every call.
    """

    def __init__(self, workers: int, lock: threading.RLock) -> None:
        self._changed = threading.Condition(lock)
        # When the first worker that waits for a time wakes up.
        self._wakes_at = float("inf")
        self._is_paused = False
        self._most_busy = max(1, workers - 1)
        self._busy_at_work = 0
        self._number = count()
        self._idle: list[tuple[float, int, T]] = []
        self._busy: list[tuple[float, int, T]] = []
        self._due: dict[T, tuple[float, int]] = {}

    def put(self, job: T, due: float, *, busy: bool = False) -> None:
        """Schedule a job; replaces an earlier time of the same job."""
        number = next(self._number)
        self._due[job] = due, number
        heapq.heappush(self._busy if busy else self._idle, (due, number, job))
        if due < self._wakes_at:
            self._changed.notify()

    def remove(self, job: T) -> None:
        """Remove a job if it is scheduled."""
        self._due.pop(job, None)

    def take(self, now: float) -> tuple[T, bool] | None:
        """A job that is due and whether it is busy, None if no job may be taken."""
        due = [heap for heap in self._open_heaps() if heap[0][0] <= now]
        if not due:
            return None
        heap = min(due, key=lambda heap: heap[0][:2])
        _, _, job = heapq.heappop(heap)
        del self._due[job]
        busy = heap is self._busy
        self._busy_at_work += busy
        following = self.next_due()
        if following is not None and following < self._wakes_at:
            self._changed.notify()
        return job, busy

    def done(self, *, busy: bool) -> None:
        """Note that a job that was taken is done."""
        self._busy_at_work -= busy

    def wait(self, now: float) -> None:
        """Wait, without the lock, until another job may be due."""
        due = self.next_due()
        if due is None or due >= self._wakes_at:
            self._changed.wait()
            return
        self._wakes_at = due
        try:
            self._changed.wait(max(0.0, due - now))
        finally:
            # Otherwise another worker waits for an earlier time by now.
            if self._wakes_at == due:
                self._wakes_at = float("inf")

    def pause(self, is_paused: bool) -> None:
        """Give out no jobs, or give them out again."""
        if self._is_paused and not is_paused:
            self._changed.notify()
        self._is_paused = is_paused

    def wake_all(self) -> None:
        """End all waits."""
        self._changed.notify_all()

    def next_due(self) -> float | None:
        """When the next job that may be taken is due, None without one."""
        return min((heap[0][0] for heap in self._open_heaps()), default=None)

    def _open_heaps(self) -> list[list[tuple[float, int, T]]]:
        """The heaps from which a job may be taken, each with a job."""
        if self._is_paused:
            return []
        heaps = [self._idle] if self._busy_at_work >= self._most_busy else [self._idle, self._busy]
        for heap in heaps:
            # Entries of jobs that were removed or scheduled again stay in the heap until they come first.
            while heap and self._due.get(heap[0][2]) != heap[0][:2]:
                heapq.heappop(heap)
        return [heap for heap in heaps if heap]


class BufferedRows:
    """Gives the chunks of one plan in order, then those of the next table that has any. Not thread-safe.

    Args:
        most_bytes: There is room while fewer bytes are buffered, or nothing is.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._ready: deque[FollowedTable] = deque()
        self._current: FollowedTable | None = None
        self._held: list[FollowedTable] = []

    @property
    def bytes(self) -> int:
        """Bytes of the buffered rows."""
        return self._bytes

    @property
    def has_ready(self) -> bool:
        """Whether chunks are buffered of a table that is not the current one."""
        return bool(self._ready)

    def head(self) -> tuple[FollowedTable, BatchChunk] | None:
        """The next chunk and its table, None if it is not there yet."""
        current = self._current
        return None if current is None or not current.chunks else (current, current.chunks[0])

    def pick(self) -> None:
        """Make the next table the current one, if there is no current one."""
        if self._current is None and self._ready:
            self._current = self._ready.popleft()

    def add(self, table: FollowedTable, chunk: BatchChunk) -> None:
        """Buffer a chunk."""
        table.chunks.append(chunk)
        self._bytes += chunk.size
        if table is not self._current and table not in self._ready:
            self._ready.append(table)

    def take(self, table: FollowedTable, chunk: BatchChunk) -> bool:
        """Remove a chunk that was handed out; False if it was already removed."""
        if not table.chunks or table.chunks[0] is not chunk:
            return False
        table.chunks.popleft()
        self._bytes -= chunk.size
        if self._current is table and chunk.last:
            self._current = None
            if table.chunks:
                self._ready.append(table)
        self.pass_over(table)
        return True

    def pass_over(self, table: FollowedTable) -> None:
        """Let other tables go first if the current one is stalled in the middle of a plan and has nothing buffered."""
        if self._current is table and not table.chunks and table.is_stalled:
            self._current = None

    def forget(self, table: FollowedTable) -> None:
        """Discard the chunks of a table."""
        self._bytes -= sum(chunk.size for chunk in table.chunks)
        table.chunks.clear()
        self.unhold(table)
        self._ready = deque(each for each in self._ready if each is not table)
        if self._current is table:
            self._current = None

    def has_room_for(self, table: FollowedTable) -> bool:
        """Whether a chunk of a table may be read; one of the current table always may."""
        # The caller gets no other table before this plan is complete, so the buffer would never have room.
        if table is self._current and not table.chunks:
            return True
        return self._has_room() and len(table.chunks) < _MOST_CHUNKS

    def hold(self, table: FollowedTable) -> None:
        """Let a table wait until there is room for it, after those that already wait."""
        if table not in self._held:
            self._held.append(table)

    def unhold(self, table: FollowedTable) -> None:
        """Let a table no longer wait for room."""
        if table in self._held:
            self._held.remove(table)

    def take_runnable(self, most: int) -> list[FollowedTable]:
        """Remove and return waiting tables for which there is room now."""
        # Without room only the current table may run. There may be thousands of others.
        waiting = self._held if self._has_room() else [each for each in self._held if each is self._current]
        found = list(islice(filter(self.has_room_for, waiting), most))
        for table in found:
            self._held.remove(table)
        return found

    def _has_room(self) -> bool:
        # With `read_ahead_bytes=0` there is still one chunk.
        return not self._bytes or self._bytes < self._most_bytes


class EngineState:
    """The state that the threads of an engine share: tables, buffered rows, pending events and scheduled jobs.

    The lock must be held for every call and for every use of an attribute that changes.

    Args:
        settings: How the engine runs.
        clock: Where time comes from.

    Attributes:
        lock: Guards everything here.
        schedule: Jobs of the workers.
        openings: Jobs of the threads that open tables.
        discovery: The job that lists the tables.
        registry: The tables.
        rows: Rows that were read ahead.
        pending_events: Events that the caller has not received yet.
        taken: The item that the caller has taken, until its consequences are applied.
        waiting: The future that a caller waits for, if any.
        closed: Whether the engine is closed.
        fatal: The error to raise to the caller, if any.
        of_forgotten: Counters of the streams of tables that are not followed any more.
    """

    def __init__(self, settings: EngineSettings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        # Re-entrant, because setting the result of a future runs its callbacks on this thread.
        self.lock = threading.RLock()
        self.schedule: Schedule[Job] = Schedule(WORKERS, self.lock)
        self.openings: Schedule[Job] = Schedule(OPENERS, self.lock)
        self.discovery = DiscoveryJob()
        self.registry = TableRegistry(settings.places)
        self.rows = BufferedRows(settings.read_ahead_bytes)
        self._unpolled: set[str] = set()
        self.pending_events: deque[PendingEvent] = deque()
        self.taken: Item | None = None
        self.waiting: Future[None] | None = None
        self.closed = False
        self.fatal: Exception | None = None
        self.of_forgotten = ScanMetrics()

    def has_answer(self) -> bool:
        """Whether `peek` has an answer."""
        if self.closed or self.fatal is not None:
            return True
        if self.taken is not None:
            return False
        return bool(self.pending_events) or self.rows.head() is not None or self.is_over()

    def is_over(self) -> bool:
        """Whether nothing more can come: each stream has ended or is parked."""
        if not self.settings.is_bounded or not self.registry.is_settled or self.rows.has_ready or self.pending_events:
            return False
        return all(each.is_over for each in self.registry.followed.values())

    def next_item(self, table: FollowedTable, chunk: BatchChunk) -> Item:
        """A chunk, or first the event that its schema is different from that of the chunk before."""
        old, new = table.schema, chunk.plan.schema
        if old is None or old.id == new.id:
            return TableChunk(table, chunk)
        event = SchemaChanged(table.name, old, new)
        self.pending_events.appendleft(PendingEvent(event, lambda: setattr(table, "schema", new)))
        return event

    def wake(self) -> None:
        """After a change: schedule the tables for which there is room now, and wake a caller that has an answer."""
        self.rows.pick()
        for table in self.rows.take_runnable(WORKERS):
            self.schedule.put(table, self.clock.monotonic(), busy=True)
        if self.waiting is not None and self.has_answer():
            waiting, self.waiting = self.waiting, None
            waiting.set_result(None)

    def emit(self, event: DatabaseEvent, apply: Callable[[], object] = lambda: None) -> None:
        """Queue an event, and a call for when the caller has received it."""
        self.pending_events.append(PendingEvent(event, apply))

    def emit_dropped(self, name: str) -> None:
        """Queue the event that a table was dropped; the table is forgotten when the caller has received it."""
        self.registry.is_leaving(name)
        self.emit(TableDropped(name), partial(self.forget, name))

    def waits_for_poll(self, name: str) -> None:
        """Note that a table was opened and was not polled yet."""
        self._unpolled.add(name)
        self._pause_openings()

    def was_polled(self, name: str) -> None:
        """Note that a table was polled, or that its first poll may come late."""
        self._unpolled.discard(name)
        self._pause_openings()

    def _pause_openings(self) -> None:
        self.openings.pause(len(self._unpolled) >= _MOST_UNPOLLED)

    @property
    def first_polls(self) -> int:
        """How many tables wait for their first poll, including those that are not open yet."""
        known = self.registry.followed.keys() | self.registry.failed.keys()
        return len(self.registry.opening.keys() - known | self._unpolled)

    def schedule_poll(self, table: FollowedTable, pause: float = 0.0, *, busy: bool = True) -> None:
        """Schedule a poll of a table."""
        self.rows.unhold(table)
        self.schedule.put(table, self.clock.monotonic() + pause, busy=busy)

    def schedule_soon(self, job: OpenJob | StartJob | DiscoveryJob, pause: float = 0.0) -> None:
        """Schedule any other job."""
        schedule = self.openings if isinstance(job, OpenJob) else self.schedule
        schedule.put(job, self.clock.monotonic() + pause)

    def suspect(self, table: FollowedTable, why: Exception) -> None:
        """A table may have been dropped, renamed or re-created: the next discovery decides."""
        table.suspicion = why
        # Whether it was dropped is known only when all openings are done, so it must not hold them up.
        self.was_polled(table.name)
        self.schedule.remove(table)
        self.rows.unhold(table)
        self.rows.pass_over(table)
        self.schedule_soon(self.discovery, DISCOVERY_PAUSE if table.failures else 0.0)

    def forget(self, name: str) -> tuple[FollowedTable | None, TablePosition | None]:
        """Stop following a table; returns its stream and the position in it."""
        table, place = self.registry.forget(name)
        if table is not None:
            self.was_polled(table.name)
            self.schedule.remove(table)
            self.rows.forget(table)
            self.of_forgotten = total_of((self.of_forgotten, table.driver.metrics), of_one_table=False)
            # Closing may wait for a write, and the lock is held, which callers on an event loop need.
            spawn_detached(table.close)
        return table, place

    def park(self, name: str, error: Exception, table: FollowedTable | None, identity: str | None = None) -> None:
        """Stop reading a table until `retry`, or until another table has its name.

        An error of the same kind as before is not reported again.

        Args:
            table: Its stream, if it has one.
            identity: Of a table without a stream, if it could be opened.
        """
        known = self.registry.errors.get(name)
        if table is None:
            former = self.registry.failed.get(name)
            if identity is None and former is not None:
                identity = former.identity
            self.registry.failed[name] = FailedTable(error, identity)
        else:
            table.error = error
            self.rows.pass_over(table)
        # Parked tables are opened again and again. Messages of the same error differ, for example by a request id.
        if type(known) is type(error):
            return
        _LOG.warning(
            "table_parked",
            "stopped reading the table because of an error that will not pass: %(error)s",
            table=name,
            error=str(error),
        )
        self.emit(TableFailed(name, error))
        if self.settings.on_table_error is OnTableError.RAISE:
            self.fatal = error
