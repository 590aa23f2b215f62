"""`DatabaseEngine`: reads all tables of a database ahead, on a few threads, however many tables there are."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import suppress

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.concurrency.clock import Clock, until_done
from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.databases.discovering import Discovering
from pypaimon.streaming.databases.engine_state import OPENERS, WORKERS, EngineState, Item
from pypaimon.streaming.databases.events import (
    DatabaseEvent,
    TableRecovered,
)
from pypaimon.streaming.databases.followed_table import FollowedTable
from pypaimon.streaming.databases.jobs import (
    Beginning,
    EngineSettings,
    Job,
    KeepingAlive,
    Opening,
)
from pypaimon.streaming.databases.lag_meter import Standing
from pypaimon.streaming.databases.position import TablePlace
from pypaimon.streaming.databases.schedule import Schedule
from pypaimon.streaming.databases.table_looks import KEEPING_ALIVE, TableLooks
from pypaimon.streaming.databases.tables_of_database import TablesOfDatabase
from pypaimon.streaming.errors import (
    EndOfScan,
    StreamConfigError,
    TablesFailedError,
)
from pypaimon.streaming.io.io_pool import IOPool


class DatabaseEngine:
    """Looks at all tables in turn, and reads ahead what they have, on workers that are daemon threads. Thread-safe.

    Who takes (`ready`, `peek`, `drop`) gets the chunks of a plan one after the other, then those of the next table that
    has any; only where a table fails in the midst of its plan, others come between. Events come before the chunks that
    they concern. What a table has delivered (`delivered`) is what a renamed one goes on behind.

    A signal handler may raise in any line of who takes, so that its calls change one thing each, and what follows from
    that is done on threads of the engine.

    Args:
        tables: Which tables there are.
        settings: How it runs.
        clock: Where time comes from.
    """

    def __init__(self, tables: TablesOfDatabase, settings: EngineSettings, clock: Clock) -> None:
        self._state = EngineState(settings, clock)
        self._looks = TableLooks(self._state)
        self._discovering = Discovering(self._state, tables)
        self._clock = clock
        self._threads = 0
        self._closed_tables: list[FollowedTable] = []
        self._origin = Origin()
        self._notes = IOPool(1, timeout=float("inf"), name="paimon-database-notes")
        self._state.schedule.put(self._state.discovery, clock.monotonic())
        self._state.schedule.put(KeepingAlive(), clock.monotonic() + KEEPING_ALIVE)

    # ---- who takes ----

    def ready(self) -> Future[None]:
        """Done as soon as `peek` has an answer."""
        with self._state.lock:
            self._start_workers()
            if self._state.taken is not None and not self._state.closed:
                self._notes.submit(self._note)
            if self._state.has_answer():
                done: Future[None] = Future()
                done.set_result(None)
                return done
            if self._state.waiting is None:
                self._state.waiting = Future()
            return self._state.waiting

    def peek(self) -> Item | None:
        """What comes next, if it is there by now; it stays here until `drop`.

        Raises:
            EndOfScan: All streams have ended, or the engine is closed.
            TablesFailedError: The same, but some tables were parked.
            PaimonStreamError: Which tables there are could not be found out, or a table failed (`"raise"`).
        """
        with self._state.lock:
            if self._state.closed:
                raise EndOfScan("the stream is closed")
            fatal, self._state.fatal = self._state.fatal, None
            if fatal is not None:
                raise fatal
            if self._state.taken is not None:
                return None
            if self._state.tellings:
                return self._state.tellings[0].event
            head = self._state.rows.head()
            if head is not None:
                return self._state.in_hand(*head)
            if self._state.is_over():
                if self._state.known.errors:
                    raise TablesFailedError(self._state.known.errors)
                raise EndOfScan("the streams of all tables have reached their ends")
            return None

    def drop(self, item: Item) -> None:
        """What was seen is the caller's now. Idempotent."""
        self._state.taken = item
        # Where it is not noted for an interrupt, or since the engine is closed, `ready` sees to it.
        with suppress(RuntimeError):
            self._notes.submit(self._note)

    def delivered(self, table: FollowedTable, chunk: BatchChunk) -> None:
        """A chunk has reached the caller: its table goes on behind it, whatever happens. Idempotent."""
        with self._state.lock:
            if self._state.known.followed.get(table.name) is table:
                position = chunk.plan.position if chunk.last else chunk.before
                if position is not None:
                    self._state.known.places[table.name] = TablePlace(table.identity, position)
                table.was_handed_out(chunk)

    @property
    def places(self) -> dict[str, TablePlace]:
        """Where the stream stands in each table, behind all that the caller has got."""
        if self._state.taken is not None:
            # Where the engine is closed meanwhile, that has noted it.
            with suppress(RuntimeError):
                until_done(self._notes.submit(self._note), lambda: self._state.closed)
        with self._state.lock:
            return dict(self._state.known.places)

    @property
    def names(self) -> tuple[str, ...]:
        """The tables that are followed."""
        with self._state.lock:
            return tuple(sorted(self._state.known.followed))

    @property
    def failed(self) -> dict[str, Exception]:
        """The tables that are parked, with their errors."""
        with self._state.lock:
            return self._state.known.errors

    @property
    def is_listed(self) -> bool:
        """Whether it is known which tables there are."""
        with self._state.lock:
            return self._state.known.rounds > 0 and self._state.known.lost is None

    def standings(self) -> dict[str, Standing]:
        """Where the stream stands in each table, and in those that are about to be opened."""
        with self._state.lock:
            return self._state.known.standings()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of rows that were read and not yet taken."""
        with self._state.lock:
            return self._state.rows.bytes

    def retry(self, name: str) -> None:
        """Read a table again that is parked.

        Raises:
            StreamConfigError: It is not.
        """
        with self._state.lock:
            table = self._state.known.followed.get(name)
            if self._state.known.failed.pop(name, None) is not None:
                self._state.known.opening.add(name)
                self._state.soon(Opening(name, is_new=True))
            elif table is not None and table.error is not None:
                table.error = None
                self._state.tell(TableRecovered(name))
                self._state.see_to(table)
            else:
                raise StreamConfigError(f"retry: {name!r} is not parked.")
            self._state.wake()

    def could_not_save(self, table: FollowedTable, error: Exception) -> None:
        """Progress of a table cannot be saved, for good: it has been dropped or made anew, or it is parked."""
        with self._state.lock:
            if self._state.known.is_followed(table) and table.error is None:
                self._state.suspect(table, error)

    def park(self, name: str, error: Exception) -> None:
        """What a table gives cannot be used: as `could_not_save`."""
        with self._state.lock:
            table = self._state.known.followed.get(name)
            if table is not None:
                self.could_not_save(table, error)
                self._state.wake()

    def close(self) -> None:
        """End at once; what was read is thrown away. Idempotent; does nothing in a process that was forked."""
        if not self._origin.is_here:
            return
        with self._state.lock:
            self._state.closed = True
            self._note()
            tables = list(self._state.known.followed.values())
            self._state.changed.notify_all()
        self._notes.close()
        for table in tables:
            table.close()
        self._closed_tables = tables

    def wait_for_writes(self) -> None:
        """After `close`: wait for writes of progress that are under way."""
        for table in self._closed_tables:
            table.driver.wait_for_writes()

    # ---- threads ----

    def _note(self) -> None:
        """Go on behind what the caller has got."""
        with self._state.lock:
            item = self._state.taken
            if isinstance(item, DatabaseEvent):
                if self._state.tellings and self._state.tellings[0].event is item:
                    self._state.tellings.popleft().apply()
            elif item is not None and self._state.rows.take(*item):
                table, chunk = item
                table.schema = chunk.plan.schema
            # Only now, for who closes may be interrupted, and close again.
            self._state.taken = None
            self._state.wake()

    def _start_workers(self) -> None:
        while self._threads < WORKERS + OPENERS and not self._state.closed:
            self._threads += 1
            opens = self._threads > WORKERS
            schedule = self._state.openings if opens else self._state.schedule
            name = f"paimon-database-{self._threads}"
            threading.Thread(target=self._work, args=(schedule,), name=name, daemon=True).start()

    def _work(self, schedule: Schedule[Job]) -> None:
        while (taken := self._next_job(schedule)) is not None:
            job, busy = taken
            try:
                self._do(job)
            except Exception as error:  # noqa: BLE001 - the caller gets it
                with self._state.lock:
                    self._state.fatal = error
            finally:
                with self._state.lock:
                    schedule.done(busy=busy)
                    self._state.wake()

    def _next_job(self, schedule: Schedule[Job]) -> tuple[Job, bool] | None:
        with self._state.lock:
            while not self._state.closed:
                now = self._clock.monotonic()
                taken = schedule.take(now)
                if taken is not None:
                    return taken
                due = schedule.next_due()
                self._state.changed.wait(None if due is None else max(0.0, due - now))
            return None

    def _do(self, job: Job) -> None:
        if isinstance(job, FollowedTable):
            self._looks.look(job)
        elif isinstance(job, Opening):
            self._discovering.open(job)
        elif isinstance(job, Beginning):
            self._discovering.begin_reading(job)
        elif isinstance(job, KeepingAlive):
            self._looks.keep_alive(job)
        else:
            self._discovering.discover()
