"""`DatabaseEngine`: reads all tables of a database ahead, on a few threads, however many tables there are."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.concurrency.background_threads import BackgroundThread
from pypaimon.streaming.concurrency.clock import Clock, until_done
from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.databases.engine_state import OPENERS, WORKERS, EngineState, Item, Schedule
from pypaimon.streaming.databases.events import DatabaseEvent, TableRecovered
from pypaimon.streaming.databases.followed_table import FollowedTable
from pypaimon.streaming.databases.jobs import EngineSettings, Job, KeepAliveJob, OpenJob, StartJob
from pypaimon.streaming.databases.lag import DatabaseLag
from pypaimon.streaming.databases.position import TablePosition
from pypaimon.streaming.databases.table_discovery import TableDiscovery
from pypaimon.streaming.databases.table_poller import KEEPING_ALIVE, TablePoller
from pypaimon.streaming.databases.tables_of_database import TablesOfDatabase
from pypaimon.streaming.errors import EndOfScan, StreamConfigError, TablesFailedError
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.scanning.metrics import ScanMetrics, total_of

_LAGS_AT_ONCE = 8
"""Tables that are asked for their lag at the same time."""


class DatabaseEngine:
    """Polls all tables in turn and reads their rows ahead, on daemon threads. Thread-safe.

    The consumer (`ready`, `peek`, `drop`) gets the chunks of one plan in order, then those of the next table that has
    rows. Only if a table fails in the middle of its plan do chunks of other tables come in between. Events come before
    the chunks that they concern. A renamed table continues after the last chunk that was `delivered`.

    Args:
        tables: The tables of the database.
        settings: How the engine runs.
        clock: Where time comes from.
    """

    # A signal handler may raise at any line of the consumer's thread. So each call of the consumer changes one thing
    # only, and what follows from the change is done on the engine's own threads.

    def __init__(self, tables: TablesOfDatabase, settings: EngineSettings, clock: Clock) -> None:
        self._state = EngineState(settings, clock)
        self._poller = TablePoller(self._state)
        self._discovery = TableDiscovery(self._state, tables)
        self._clock = clock
        self._threads = 0
        self._closed_tables: list[FollowedTable] = []
        self._origin = Origin()
        self._apply_pool = IOPool(1, timeout=float("inf"), name="paimon-database-notes")
        # The item that a thread of the pool will apply.
        self._applying: Item | None = None
        with self._state.lock:
            self._state.schedule.put(self._state.discovery, clock.monotonic())
            self._state.schedule.put(KeepAliveJob(), clock.monotonic() + KEEPING_ALIVE)

    # ---- the consumer ----

    def ready(self) -> Future[None]:
        """A future that is done as soon as `peek` has an answer."""
        with self._state.lock:
            self._start_workers()
            taken = self._state.taken
            if taken is not None and taken is not self._applying and not self._state.closed:
                self._begin_apply()
            if self._state.has_answer():
                done: Future[None] = Future()
                done.set_result(None)
                return done
            if self._state.waiting is None:
                self._state.waiting = Future()
            return self._state.waiting

    def peek(self) -> Item | None:
        """The next item if there is one; it stays the next one until `drop`.

        Raises:
            EndOfScan: All streams have ended, or the engine is closed.
            TablesFailedError: All streams have ended, and some tables are parked.
            PaimonStreamError: The tables could not be listed, or a table failed and the policy is `"raise"`.
        """
        with self._state.lock:
            if self._state.closed:
                raise EndOfScan("the stream is closed")
            # Raised once: the workers continue, and so may the caller.
            fatal, self._state.fatal = self._state.fatal, None
            if fatal is not None:
                raise fatal
            if self._state.taken is not None:
                return None
            if self._state.pending_events:
                return self._state.pending_events[0].event
            head = self._state.rows.head()
            if head is not None:
                return self._state.next_item(*head)
            if self._state.is_over():
                if self._state.registry.errors:
                    raise TablesFailedError(self._state.registry.errors)
                raise EndOfScan("the streams of all tables have reached their ends")
            return None

    def drop(self, item: Item) -> None:
        """Hand an item over to the caller. Idempotent."""
        self._applying = None
        self._state.taken = item
        # If an interrupt comes here, or the engine is closed, the next `ready` applies it.
        with suppress(RuntimeError):
            self._begin_apply()

    def _begin_apply(self) -> None:
        item = self._state.taken
        self._apply_pool.submit(self._apply_taken)
        self._applying = item

    def delivered(self, table: FollowedTable, chunk: BatchChunk) -> None:
        """Note that a chunk has reached the caller: from now on its table continues after it. Idempotent."""
        with self._state.lock:
            if self._state.registry.followed.get(table.name) is table:
                if chunk.position is not None:
                    self._state.registry.places[table.name] = TablePosition(table.identity, chunk.position)
                table.was_handed_out(chunk)

    @property
    def places(self) -> dict[str, TablePosition]:
        """The position in each table, after everything that the caller has received."""
        if self._state.taken is not None:
            # If the engine is closed in the meantime, `close` has applied it.
            with suppress(RuntimeError):
                until_done(self._apply_pool.submit(self._apply_taken), lambda: self._state.closed)
        with self._state.lock:
            return dict(self._state.registry.places)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tables that are followed."""
        with self._state.lock:
            return tuple(sorted(self._state.registry.followed))

    @property
    def failed(self) -> dict[str, Exception]:
        """The tables that are parked, with their errors."""
        with self._state.lock:
            return self._state.registry.errors

    def lag(self, *, fresh: bool) -> DatabaseLag:
        """The lag of each table.

        Args:
            fresh: Ask each table for its latest snapshot: a few requests each, several tables at the same time.
                Otherwise the answer is what is already known, without a request.
        """
        with self._state.lock:
            progress = self._state.registry.progress()
            is_listed = self._state.registry.rounds > 0 and self._state.registry.lost is None
        if not fresh:
            now = self._clock.monotonic()
            return DatabaseLag({name: each.known_lag(now) for name, each in progress.items()}, is_listed)
        pool = IOPool(_LAGS_AT_ONCE, timeout=float("inf"), name="paimon-database-lag")
        try:
            monotonic = self._clock.monotonic
            asked = {name: pool.submit(each.measured_lag, monotonic) for name, each in progress.items()}
            return DatabaseLag({name: pool.result(each) for name, each in asked.items()}, is_listed)
        finally:
            pool.close()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of rows that were read ahead."""
        with self._state.lock:
            return self._state.rows.bytes

    @property
    def metrics(self) -> ScanMetrics:
        """Counters of the scans of all tables so far, also of those that are not followed any more."""
        with self._state.lock:
            of_tables = [each.driver.metrics for each in self._state.registry.followed.values()]
            return total_of((self._state.of_forgotten, *of_tables), of_one_table=False)

    def retry(self, name: str) -> None:
        """Resume a table that is parked.

        Raises:
            StreamConfigError: The table is not parked.
        """
        with self._state.lock:
            registry = self._state.registry
            table = registry.followed.get(name)
            if name in registry.failed:
                opening = registry.retried(name)
                if opening is not None:
                    self._state.schedule_soon(opening)
            elif table is not None and table.error is not None:
                table.error = None
                self._state.emit(TableRecovered(name))
                self._state.schedule_poll(table)
            else:
                raise StreamConfigError(f"retry: {name!r} is not parked.")
            self._state.wake()

    def could_not_save(self, table: FollowedTable, error: Exception) -> None:
        """Handle a permanent error in saving progress: the table was dropped or re-created, or it is parked."""
        with self._state.lock:
            if self._state.registry.is_followed(table) and table.error is None:
                self._state.suspect(table, error)

    def park(self, name: str, error: Exception) -> None:
        """Park a table whose rows the caller cannot use, unless it was dropped or re-created."""
        with self._state.lock:
            table = self._state.registry.followed.get(name)
            if table is not None:
                self.could_not_save(table, error)
                self._state.wake()

    def close(self) -> None:
        """End at once and discard what was read ahead. Idempotent; does nothing in a forked process."""
        if not self._origin.is_here:
            return
        with self._state.lock:
            self._state.closed = True
            self._apply_taken()
            tables = list(self._state.registry.followed.values())
            self._state.schedule.wake_all()
            self._state.openings.wake_all()
        self._apply_pool.close()
        for table in tables:
            table.close()
        self._closed_tables = tables

    def wait_for_writes(self) -> None:
        """After `close`: wait for running writes of progress."""
        for table in self._closed_tables:
            table.driver.wait_for_writes()

    # ---- threads ----

    def _apply_taken(self) -> None:
        with self._state.lock:
            item = self._state.taken
            if item is None:
                # Another call has applied it. `drop` may be setting the next one now.
                self._state.wake()
                return
            if isinstance(item, DatabaseEvent):
                if self._state.pending_events and self._state.pending_events[0].event is item:
                    self._state.pending_events.popleft().apply()
            elif self._state.rows.take(*item):
                table, chunk = item
                table.schema = chunk.plan.schema
            # Last, because an interrupted `close` runs again and must find it.
            self._state.taken = None
            self._state.wake()

    def _start_workers(self) -> None:
        while self._threads < WORKERS + OPENERS and not self._state.closed:
            number = self._threads + 1
            schedule = self._state.openings if number > WORKERS else self._state.schedule
            BackgroundThread(self._work, f"paimon-database-{number}", self.close, schedule).start()
            # Last, because a signal handler may have raised before the thread started.
            self._threads = number

    def _work(self, schedule: Schedule[Job]) -> None:
        while (taken := self._next_job(schedule)) is not None:
            job, busy = taken
            try:
                self._do(job)
            except Exception as error:  # noqa: BLE001 - raised to the caller
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
                schedule.wait(now)
            return None

    def _do(self, job: Job) -> None:
        if isinstance(job, FollowedTable):
            self._poller.poll(job)
        elif isinstance(job, OpenJob):
            self._discovery.open(job)
        elif isinstance(job, StartJob):
            self._discovery.start_stream(job)
        elif isinstance(job, KeepAliveJob):
            self._poller.keep_alive(job)
        else:
            self._discovery.discover()
