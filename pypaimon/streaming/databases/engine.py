"""`DatabaseEngine`: reads all tables of a database ahead, on a few threads, however many tables there are."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.builder.builder import StreamReadBuilder
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.databases.events import (
    DatabaseEvent,
    SchemaChanged,
    TableAdded,
    TableDropped,
    TableFailed,
    TableRecovered,
    TableRenamed,
    TableSkipped,
)
from pypaimon.streaming.databases.followed_table import FollowedTable, begin_of
from pypaimon.streaming.databases.jobs import (
    Beginning,
    Discovery,
    EngineSettings,
    Job,
    KeepingAlive,
    OnTableError,
    Opening,
    Telling,
)
from pypaimon.streaming.databases.known_tables import KnownTables, MissingError
from pypaimon.streaming.databases.lag_meter import Standing
from pypaimon.streaming.databases.position import TablePlace
from pypaimon.streaming.databases.schedule import Schedule
from pypaimon.streaming.databases.tables_of_database import TablesOfDatabase
from pypaimon.streaming.databases.waiting_rows import WaitingRows
from pypaimon.streaming.errors import (
    EndOfScan,
    PaimonStreamError,
    StreamConfigError,
    TableChangedError,
    TablesFailedError,
    UnsupportedTableError,
)
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.model.plan import PlanKind

_LOG = StreamLog(__name__)
_WORKERS = 4
_TURN_SECONDS = 0.5
"""A table that has much to read leaves its worker to others after this time."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_KEEPING_ALIVE = 30.0
"""Seconds between two looks after saved progress."""
_NEW_LOOK = 1.0
"""Seconds between two discoveries, where a table asks for one."""

Item = tuple[FollowedTable, BatchChunk] | DatabaseEvent


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
        self._of_database = tables
        self._settings = settings
        self._clock = clock
        # Re-entrant: to settle a future runs its callbacks here and now.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._schedule: Schedule[Job] = Schedule(_WORKERS)
        self._discovery = Discovery()
        self._threads = 0
        self._closed = False
        self._fatal: Exception | None = None
        self._waiting: Future[None] | None = None
        self._origin = Origin()
        self._known = KnownTables(settings.places)
        self._rows = WaitingRows(settings.read_ahead_bytes)
        self._tellings: deque[Telling] = deque()
        # What the caller has got, and the engine has not noted yet.
        self._taken: Item | None = None
        self._notes = IOPool(1, timeout=float("inf"), name="paimon-database-notes")
        # Tables that a worker is at, and those of them that are to be looked at again then.
        self._at_work: set[FollowedTable] = set()
        self._again: set[FollowedTable] = set()
        self._schedule.put(self._discovery, self._clock.monotonic())
        self._schedule.put(KeepingAlive(), self._clock.monotonic() + _KEEPING_ALIVE)

    # ---- who takes ----

    def ready(self) -> Future[None]:
        """Done as soon as `peek` has an answer."""
        with self._lock:
            self._start_workers()
            if self._taken is not None and not self._closed:
                self._notes.submit(self._note)
            if self._has_answer():
                done: Future[None] = Future()
                done.set_result(None)
                return done
            if self._waiting is None:
                self._waiting = Future()
            return self._waiting

    def peek(self) -> Item | None:
        """What comes next, if it is there by now; it stays here until `drop`.

        Raises:
            EndOfScan: All streams have ended, or the engine is closed.
            TablesFailedError: The same, but some tables were parked.
            PaimonStreamError: Which tables there are could not be found out, or a table failed (`"raise"`).
        """
        with self._lock:
            if self._closed:
                raise EndOfScan("the stream is closed")
            fatal, self._fatal = self._fatal, None
            if fatal is not None:
                raise fatal
            if self._taken is not None:
                return None
            if self._tellings:
                return self._tellings[0].event
            head = self._rows.head()
            if head is not None:
                return self._in_hand(*head)
            if self._is_over():
                if self._known.errors:
                    raise TablesFailedError(self._known.errors)
                raise EndOfScan("the streams of all tables have reached their ends")
            return None

    def drop(self, item: Item) -> None:
        """What was seen is the caller's now. Idempotent."""
        self._taken = item
        # Where it is not noted for an interrupt, or since the engine is closed, `ready` sees to it.
        with suppress(RuntimeError):
            self._notes.submit(self._note)

    def delivered(self, table: FollowedTable, chunk: BatchChunk) -> None:
        """A chunk has reached the caller: its table goes on behind it, whatever happens. Idempotent."""
        with self._lock:
            if self._known.followed.get(table.name) is table:
                position = chunk.plan.position if chunk.last else chunk.before
                if position is not None:
                    self._known.places[table.name] = TablePlace(table.identity, position)
                table.was_handed_out(chunk)

    @property
    def places(self) -> dict[str, TablePlace]:
        """Where the stream stands in each table."""
        with self._lock:
            return dict(self._known.places)

    @property
    def names(self) -> tuple[str, ...]:
        """The tables that are followed."""
        with self._lock:
            return tuple(sorted(self._known.followed))

    @property
    def failed(self) -> dict[str, Exception]:
        """The tables that are parked, with their errors."""
        with self._lock:
            return self._known.errors

    @property
    def is_listed(self) -> bool:
        """Whether it was found out by now which tables there are."""
        with self._lock:
            return self._known.rounds > 0

    def standings(self) -> dict[str, Standing]:
        """Where the stream stands in each table, and in those that are about to be opened."""
        with self._lock:
            return self._known.standings()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of rows that were read and not yet taken."""
        with self._lock:
            return self._rows.bytes

    def retry(self, name: str) -> None:
        """Read a table again that is parked.

        Raises:
            StreamConfigError: It is not.
        """
        with self._lock:
            table = self._known.followed.get(name)
            if self._known.failed.pop(name, None) is not None:
                self._known.opening.add(name)
                self._soon(Opening(name, is_new=True))
            elif table is not None and table.error is not None:
                table.error = None
                self._tell(TableRecovered(name))
                self._see_to(table)
            else:
                raise StreamConfigError(f"retry: {name!r} is not parked.")
            self._wake()

    def could_not_save(self, table: FollowedTable, error: Exception) -> None:
        """Progress of a table cannot be saved, for good: it has been dropped or made anew, or it is parked."""
        with self._lock:
            if self._known.is_followed(table) and table.error is None:
                self._suspect(table, error)

    def park(self, name: str, error: Exception) -> None:
        """What a table gives cannot be used: as `could_not_save`."""
        with self._lock:
            table = self._known.followed.get(name)
            if table is not None:
                self.could_not_save(table, error)
                self._wake()

    def close(self) -> None:
        """End at once; what was read is thrown away. Idempotent; does nothing in a process that was forked."""
        if not self._origin.is_here:
            return
        with self._lock:
            self._closed = True
            tables = list(self._known.followed.values())
            self._changed.notify_all()
            self._wake()
        self._notes.close()
        for table in tables:
            table.close()

    # ---- with the lock held ----

    def _has_answer(self) -> bool:
        if self._closed or self._fatal is not None:
            return True
        if self._taken is not None:
            return False
        return bool(self._tellings) or self._rows.head() is not None or self._is_over()

    def _is_over(self) -> bool:
        """Whether nothing more can come: all streams have ended, or are parked."""
        if not self._settings.is_bounded or not self._known.is_settled or self._rows.has_ready or self._tellings:
            return False
        return all(each.is_over for each in self._known.followed.values())

    def _in_hand(self, table: FollowedTable, chunk: BatchChunk) -> Item:
        """A chunk, or before it that its schema is another one."""
        old, new = table.schema, chunk.plan.schema
        if old is None or old.id == new.id:
            return table, chunk
        event = SchemaChanged(table.name, old, new)
        self._tellings.appendleft(Telling(event, lambda: setattr(table, "schema", new)))
        return event

    def _wake(self) -> None:
        """See to what follows from a change: tables that have room now, and who waits for an answer or for work."""
        self._rows.pick()
        for table in self._rows.going_on(_WORKERS):
            self._schedule.put(table, self._clock.monotonic(), busy=True)
        self._changed.notify_all()
        if self._waiting is not None and self._has_answer():
            waiting, self._waiting = self._waiting, None
            waiting.set_result(None)

    def _tell(self, event: DatabaseEvent, apply: Callable[[], object] = lambda: None) -> None:
        self._tellings.append(Telling(event, apply))

    def _tell_dropped(self, name: str) -> None:
        self._known.is_leaving(name)
        self._tell(TableDropped(name), partial(self._forget, name))

    def _see_to(self, table: FollowedTable, pause: float = 0.0, *, busy: bool = True) -> None:
        """Have a table looked at."""
        self._rows.unhold(table)
        self._schedule.put(table, self._clock.monotonic() + pause, busy=busy)

    def _soon(self, job: Opening | Beginning | Discovery, pause: float = 0.0) -> None:
        self._schedule.put(job, self._clock.monotonic() + pause)
        self._changed.notify()

    def _suspect(self, table: FollowedTable, why: Exception) -> None:
        """It may have been dropped, renamed or made anew: what there is now decides."""
        table.suspicion = why
        self._schedule.remove(table)
        self._rows.unhold(table)
        self._rows.pass_over(table)
        self._soon(self._discovery, _NEW_LOOK if table.failures else 0.0)

    def _forget(self, name: str) -> tuple[FollowedTable | None, TablePlace | None]:
        """Have nothing to do with a table any more; what it was, and where the stream stood in it."""
        table, place = self._known.forget(name)
        if table is not None:
            self._schedule.remove(table)
            self._rows.forget(table)
            table.close()
        return table, place

    # ---- threads ----

    def _note(self) -> None:
        """Go on behind what the caller has got."""
        with self._lock:
            item, self._taken = self._taken, None
            if isinstance(item, DatabaseEvent):
                if self._tellings and self._tellings[0].event is item:
                    self._tellings.popleft().apply()
            elif item is not None and self._rows.take(*item):
                table, chunk = item
                table.schema = chunk.plan.schema
            self._wake()

    def _start_workers(self) -> None:
        while self._threads < _WORKERS and not self._closed:
            self._threads += 1
            name = f"paimon-database-{self._threads}"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while (taken := self._next_job()) is not None:
            job, busy = taken
            try:
                self._do(job)
            except Exception as error:  # noqa: BLE001 - the caller gets it
                with self._lock:
                    self._fatal = error
            finally:
                with self._lock:
                    self._schedule.done(busy=busy)
                    self._wake()

    def _next_job(self) -> tuple[Job, bool] | None:
        with self._lock:
            while not self._closed:
                now = self._clock.monotonic()
                taken = self._schedule.take(now)
                if taken is not None:
                    return taken
                due = self._schedule.next_due()
                self._changed.wait(None if due is None else max(0.0, due - now))
            return None

    def _do(self, job: Job) -> None:
        if isinstance(job, FollowedTable):
            self._look(job)
        elif isinstance(job, Opening):
            self._open(job)
        elif isinstance(job, Beginning):
            self._begin_reading(job)
        elif isinstance(job, KeepingAlive):
            self._keep_alive(job)
        else:
            self._discover()

    # ---- a table ----

    def _look(self, table: FollowedTable) -> None:
        """Read on in a table, until nothing new is there, no room is left, or others are to have their turn."""
        with self._lock:
            if table in self._at_work:
                self._again.add(table)
                return
            self._at_work.add(table)
        has_more = False
        try:
            has_more = self._reads_on(table)
        finally:
            with self._lock:
                self._at_work.discard(table)
                if table in self._again:
                    self._again.discard(table)
                    has_more = True
                if has_more and self._known.is_followed(table) and table.error is None:
                    self._rows.hold(table)

    def _reads_on(self, table: FollowedTable) -> bool:
        """Whether there may be more, at once."""
        until = self._clock.monotonic() + _TURN_SECONDS
        while self._may_go_on(table):
            if not self._has_found(table):
                return False
            if self._clock.monotonic() >= until:
                break
        table.look_for_latest(self._clock.monotonic)
        # Before anybody else may have it.
        table.rest()
        return True

    def _may_go_on(self, table: FollowedTable) -> bool:
        with self._lock:
            return not self._closed and self._known.is_followed(table) and self._rows.has_room_for(table)

    def _has_found(self, table: FollowedTable) -> bool:
        """Take one look; without a chunk it is seen to when the next one is taken."""
        try:
            chunk = table.look(self._clock.monotonic)
        except EndOfScan:
            with self._lock:
                table.is_ended = True
                self._stand_where_it_is(table)
            return False
        except Exception as error:  # noqa: BLE001 - it stays with its table
            self._on_error(table, error)
            return False
        with self._lock:
            table.failures = 0
            if self._closed or self._known.followed.get(table.name) is not table:
                return False
            if chunk is not None:
                # Also of one that is suspect by now: if it is what it was, it has been read up to here.
                self._rows.add(table, chunk)
                self._stand_at_begin(table, chunk)
                self._wake()
                return True
            if self._known.is_followed(table):
                self._stand_where_it_is(table)
                now = self._clock.monotonic()
                self._see_to(table, table.idle_seconds(now, random.random()), busy=False)
            return False

    def _stand_where_it_is(self, table: FollowedTable) -> None:
        """With the lock held: nothing is left to hand out, and the stream has perhaps passed over what had no rows."""
        if not self._closed and self._known.is_followed(table) and not table.chunks:
            position = table.driver.position
            self._known.places[table.name] = TablePlace(table.identity, position, was_empty=position is None)

    def _stand_at_begin(self, table: FollowedTable, chunk: BatchChunk) -> None:
        """With the lock held: the start was found, and would be another one for who comes later. A state would not."""
        place = self._known.places.get(table.name)
        begin = begin_of(chunk)
        if place is not None and place.position is None and begin is not None and chunk.plan.kind is not PlanKind.FULL:
            self._known.places[table.name] = TablePlace(table.identity, begin)

    def _on_error(self, table: FollowedTable, error: Exception) -> None:
        with self._lock:
            if self._closed or not self._known.is_followed(table):
                return
            if isinstance(error, PaimonStreamError) and error.retriable:
                pause = _pause(table.failures)
                table.failures += 1
                # Others need not wait for it.
                self._rows.pass_over(table)
                text = "reading it failed (attempt %(attempt)d) and is tried again after a pause: %(error)s"
                _LOG.warning("waits_out", text, table=table.name, attempt=table.failures, error=str(error))
                self._see_to(table, pause, busy=False)
                return
            self._suspect(table, error)

    def _park(self, name: str, error: Exception, table: FollowedTable | None) -> None:
        """With the lock held: leave a table alone until `retry`."""
        if table is None:
            self._known.failed[name] = error
        else:
            table.error = error
            self._rows.pass_over(table)
        _LOG.warning("table_parked", "it is not read any more: %(error)s", table=name, error=str(error))
        self._tell(TableFailed(name, error))
        if self._settings.on_table_error is OnTableError.RAISE:
            self._fatal = error

    def _keep_alive(self, job: KeepingAlive) -> None:
        """Of all tables: one that waits for room, or for its turn, may do so for long. Its next look tells errors."""
        with self._lock:
            tables = list(self._known.followed.values())
            self._schedule.put(job, self._clock.monotonic() + _KEEPING_ALIVE)
        for table in tables:
            with suppress(PaimonStreamError):
                table.keep_alive(self._clock.monotonic())

    # ---- which tables there are ----

    def _discover(self) -> None:
        try:
            names = self._of_database.names()
        except Exception as error:  # noqa: BLE001 - told to the caller, or waited out
            self._on_discovery_error(error)
            return
        with self._lock:
            listed = self._known.listed(names)
            for name in listed.dropped:
                self._tell_dropped(name)
            for table in listed.suspects:
                self._schedule.remove(table)
                self._rows.unhold(table)
                self._rows.pass_over(table)
            for opening in listed.openings:
                self._soon(opening)
            if self._known.has_missing:
                self._soon(self._discovery, _NEW_LOOK)
            elif not self._settings.is_bounded:
                self._soon(self._discovery, self._settings.discovery_seconds)

    def _on_discovery_error(self, error: Exception) -> None:
        with self._lock:
            passes = isinstance(error, PaimonStreamError) and error.retriable
            if not passes and not self._known.rounds:
                self._fatal = error
            else:
                text = "the tables of the database could not be listed, which is tried again: %(error)s"
                _LOG.warning("discovery_failed", text, error=str(error))
            self._soon(self._discovery, min(_LONGEST_PAUSE, self._settings.discovery_seconds))

    def _open(self, opening: Opening) -> None:
        name = opening.name
        try:
            builder = self._of_database.builder(name)
            identity = None if builder is None else self._of_database.identity(builder)
        except UnsupportedTableError as error:
            with self._lock:
                self._skip(name, error)
        except Exception as error:  # noqa: BLE001 - it stays with its table
            with self._lock:
                if isinstance(error, PaimonStreamError) and error.retriable:
                    self._soon(replace(opening, attempt=opening.attempt + 1), _pause(opening.attempt))
                elif isinstance(error, TableChangedError):
                    self._on_gone(name)
                else:
                    self._known.opening.discard(name)
                    self._park(name, error, self._known.followed.get(name))
        else:
            with self._lock:
                if builder is None or identity is None:
                    self._on_gone(name)
                else:
                    self._known.is_there(name, identity)
                    self._on_opened(opening, builder, identity)

    def _skip(self, name: str, error: UnsupportedTableError) -> None:
        """With the lock held: it cannot be followed, for all that is seen of it now."""
        known, why = self._known, str(error)
        known.opening.discard(name)
        table = known.followed.get(name)
        if table is not None:
            table.suspicion = None
            self._park(name, error, table)
        elif known.skipped.get(name) != why:
            known.skipped[name] = why
            self._tell(TableSkipped(name, why))

    def _on_gone(self, name: str) -> None:
        """With the lock held: it is listed, but there is none. One that was followed may have another name by now."""
        if self._known.is_gone(name):
            self._soon(self._discovery)

    def _on_opened(self, opening: Opening, builder: StreamReadBuilder, identity: str) -> None:
        """With the lock held: what a name stands for now: a new table, a renamed one, the same one, or another one."""
        name, known = opening.name, self._known
        table, place = known.followed.get(name), known.place_of(name)
        if table is not None and table.identity == identity:
            known.opening.discard(name)
            self._go_on_with(table)
            return
        is_another = place is not None and place.identity != identity
        former = known.former_name(identity) if place is None else None
        may_be_renamed = place is None and former is None and opening.is_new and known.is_elsewhere(name, identity)
        if (is_another or may_be_renamed) and not known.is_settled_elsewhere(opening, identity):
            # A listing in the midst of renamings shows names from before and after; the next ones tell.
            if is_another:
                known.is_replaced(name)
            since = known.rounds if opening.since is None else opening.since
            self._soon(replace(opening, since=since), 1.5 * _NEW_LOOK)
            self._soon(self._discovery)
            return
        if is_another:
            self._tell_dropped(name)
            former = known.former_name(identity)
        event: DatabaseEvent = TableAdded(name) if former is None else TableRenamed(name, former)
        is_new = opening.is_new or opening.since is not None
        self._tell(event, partial(self._begin, Beginning(name, identity, builder, is_new), former or name))

    def _begin(self, beginning: Beginning, former: str) -> None:
        """Once it is told that a table is followed, and so known what was delivered of it."""
        table, place = self._forget(former)
        if place is not None and place.identity == beginning.identity:
            # Under whatever name: where nothing was handed out yet, it begins as it would have begun.
            beginning = replace(beginning, place=place, is_new=place.was_empty)
            if table is not None:
                beginning = replace(beginning, schema=table.schema, cut=table.cut)
        # From here on a restart would know it as one that is read from its first row, or goes on.
        place = beginning.place or TablePlace(beginning.identity, was_empty=beginning.is_new)
        self._known.places[beginning.name] = place
        self._soon(beginning)

    def _begin_reading(self, beginning: Beginning) -> None:
        name = beginning.name
        try:
            table = self._begun(beginning)
        except Exception as error:  # noqa: BLE001 - it stays with its table
            with self._lock:
                if isinstance(error, PaimonStreamError) and error.retriable:
                    self._soon(replace(beginning, attempt=beginning.attempt + 1), _pause(beginning.attempt))
                else:
                    self._known.opening.discard(name)
                    self._park(name, error, None)
            return
        with self._lock:
            self._known.opening.discard(name)
            self._known.followed[name] = table
            self._see_to(table)
            if self._closed:
                table.close()

    def _begun(self, beginning: Beginning) -> FollowedTable:
        place, cut = beginning.place, beginning.cut
        if cut is not None:
            place = TablePlace(beginning.identity, cut.begin)
        self._of_database.begin(beginning.builder, place, is_new=beginning.is_new)
        now, size = self._clock.monotonic(), self._settings.batch_bytes
        table = FollowedTable(beginning.name, beginning.identity, beginning.builder, size, now)
        table.schema = beginning.schema
        if cut is not None:
            table.resume_in(cut)
        return table

    def _go_on_with(self, table: FollowedTable) -> None:
        """With the lock held: it is the table that it was: it goes on, or what made it suspect stands."""
        suspicion, table.suspicion = table.suspicion, None
        if isinstance(suspicion, MissingError):
            self._see_to(table)
        elif suspicion is not None:
            self._park(table.name, suspicion, table)


def _pause(attempt: int) -> float:
    """Seconds until what may pass is tried again; half of it is chance."""
    return min(_FIRST_PAUSE * (1 << min(attempt, 10)), _LONGEST_PAUSE) * (0.5 + random.random() / 2)
