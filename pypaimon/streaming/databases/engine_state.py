"""`EngineState`: what the threads of a `DatabaseEngine` share."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.databases.events import DatabaseEvent, SchemaChanged, TableDropped, TableFailed
from pypaimon.streaming.databases.followed_table import FollowedTable
from pypaimon.streaming.databases.jobs import (
    Beginning,
    Discovery,
    EngineSettings,
    Job,
    OnTableError,
    Opening,
    Telling,
)
from pypaimon.streaming.databases.known_tables import KnownTables
from pypaimon.streaming.databases.position import TablePlace
from pypaimon.streaming.databases.schedule import Schedule
from pypaimon.streaming.databases.waiting_rows import WaitingRows
from pypaimon.streaming.logs import StreamLog

_LOG = StreamLog(__name__)
WORKERS = 8
OPENERS = 8
"""Threads that open tables and do nothing else, so that those which are open are read meanwhile."""
NEW_LOOK = 1.0
"""Seconds between two discoveries, where a table asks for one."""

Item = tuple[FollowedTable, BatchChunk] | DatabaseEvent


class EngineState:
    """Which tables there are, what waits of them, what is to be told, and what is to be done. All calls are made, and
    all attributes that change are used, with the lock held.

    Args:
        settings: How the engine runs.
        clock: Where time comes from.

    Attributes:
        lock: See above.
        changed: Told when there may be something to be done.
        schedule: What is to be done, and when, but for the tables that are to be opened.
        openings: Those.
        discovery: The look at which tables there are.
        known: The tables.
        rows: What was read of them and waits.
        tellings: Events that wait.
        taken: What the caller has got, and is not noted yet.
        waiting: Who waits for an answer; None: nobody.
        closed: Whether the engine is.
        fatal: What the caller is to get; None: nothing.
    """

    def __init__(self, settings: EngineSettings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        # Re-entrant: to settle a future runs its callbacks here and now.
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.schedule: Schedule[Job] = Schedule(WORKERS)
        self.openings: Schedule[Job] = Schedule(OPENERS)
        self.discovery = Discovery()
        self.known = KnownTables(settings.places)
        self.rows = WaitingRows(settings.read_ahead_bytes)
        self.tellings: deque[Telling] = deque()
        self.taken: Item | None = None
        self.waiting: Future[None] | None = None
        self.closed = False
        self.fatal: Exception | None = None

    def has_answer(self) -> bool:
        """Whether `peek` has one."""
        if self.closed or self.fatal is not None:
            return True
        if self.taken is not None:
            return False
        return bool(self.tellings) or self.rows.head() is not None or self.is_over()

    def is_over(self) -> bool:
        """Whether nothing more can come: all streams have ended, or are parked."""
        if not self.settings.is_bounded or not self.known.is_settled or self.rows.has_ready or self.tellings:
            return False
        return all(each.is_over for each in self.known.followed.values())

    def in_hand(self, table: FollowedTable, chunk: BatchChunk) -> Item:
        """A chunk, or before it that its schema is another one."""
        old, new = table.schema, chunk.plan.schema
        if old is None or old.id == new.id:
            return table, chunk
        event = SchemaChanged(table.name, old, new)
        self.tellings.appendleft(Telling(event, lambda: setattr(table, "schema", new)))
        return event

    def wake(self) -> None:
        """See to what follows from a change: tables that have room now, and who waits for an answer or for work."""
        self.rows.pick()
        for table in self.rows.going_on(WORKERS):
            self.schedule.put(table, self.clock.monotonic(), busy=True)
        self.changed.notify_all()
        if self.waiting is not None and self.has_answer():
            waiting, self.waiting = self.waiting, None
            waiting.set_result(None)

    def tell(self, event: DatabaseEvent, apply: Callable[[], object] = lambda: None) -> None:
        """Have an event told, and something called then."""
        self.tellings.append(Telling(event, apply))

    def tell_dropped(self, name: str) -> None:
        """Have it told that a table is gone, and forget it then."""
        self.known.is_leaving(name)
        self.tell(TableDropped(name), partial(self.forget, name))

    def see_to(self, table: FollowedTable, pause: float = 0.0, *, busy: bool = True) -> None:
        """Have a table looked at."""
        self.rows.unhold(table)
        self.schedule.put(table, self.clock.monotonic() + pause, busy=busy)

    def soon(self, job: Opening | Beginning | Discovery, pause: float = 0.0) -> None:
        """Have something done that is no look at a table."""
        schedule = self.openings if isinstance(job, Opening) else self.schedule
        schedule.put(job, self.clock.monotonic() + pause)
        self.changed.notify_all()

    def suspect(self, table: FollowedTable, why: Exception) -> None:
        """It may have been dropped, renamed or made anew: what there is now decides."""
        table.suspicion = why
        self.schedule.remove(table)
        self.rows.unhold(table)
        self.rows.pass_over(table)
        self.soon(self.discovery, NEW_LOOK if table.failures else 0.0)

    def forget(self, name: str) -> tuple[FollowedTable | None, TablePlace | None]:
        """Have nothing to do with a table any more; what it was, and where the stream stood in it."""
        table, place = self.known.forget(name)
        if table is not None:
            self.schedule.remove(table)
            self.rows.forget(table)
            table.close()
        return table, place

    def park(self, name: str, error: Exception, table: FollowedTable | None) -> None:
        """Leave a table alone until `retry`."""
        if table is None:
            self.known.failed[name] = error
        else:
            table.error = error
            self.rows.pass_over(table)
        _LOG.warning("table_parked", "it is not read any more: %(error)s", table=name, error=str(error))
        self.tell(TableFailed(name, error))
        if self.settings.on_table_error is OnTableError.RAISE:
            self.fatal = error
