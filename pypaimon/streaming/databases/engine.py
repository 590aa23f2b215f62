"""`DatabaseEngine`: reads all tables of a database ahead, on a few threads, however many tables there are."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from itertools import islice

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
from pypaimon.streaming.databases.followed_table import FollowedTable
from pypaimon.streaming.databases.lag_meter import Standing, next_up
from pypaimon.streaming.databases.position import TablePlace
from pypaimon.streaming.databases.schedule import Schedule
from pypaimon.streaming.databases.tables_of_database import TablesOfDatabase
from pypaimon.streaming.errors import (
    EndOfScan,
    PaimonStreamError,
    StreamConfigError,
    TableChangedError,
    TablesFailedError,
    UnsupportedTableError,
)
from pypaimon.streaming.logs import StreamLog

_LOG = StreamLog(__name__)
_WORKERS = 4
_MOST_CHUNKS = 64
_TURN_SECONDS = 0.5
"""A table that has much to read leaves its worker to others after this time."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_KEEPING_ALIVE = 30.0
"""Seconds between two looks after saved progress."""
_NEW_LOOK = 1.0
"""Seconds between two discoveries, where a table asks for one."""


class OnTableError(Enum):
    """What becomes of a table that meets an error which does not pass."""

    PARK = "park"
    RAISE = "raise"


@dataclass(frozen=True)
class EngineSettings:
    """How an engine runs.

    Attributes:
        discovery_seconds: Between two looks at which tables there are.
        read_ahead_bytes: Reading pauses while so many bytes of rows wait, of all tables together.
        batch_bytes: A plan with more bytes of rows comes as several chunks.
        on_table_error: What becomes of a table that meets an error which does not pass.
        is_bounded: Whether the streams end: which tables there are is asked once then.
        places: Where an earlier stream stood, by name; None: there was none.
    """

    discovery_seconds: float
    read_ahead_bytes: int
    batch_bytes: int
    on_table_error: OnTableError
    is_bounded: bool
    places: dict[str, TablePlace] | None


@dataclass(frozen=True, slots=True, eq=False)
class _Opening:
    """A table that is to be opened: a new one, or one that may not be what it was."""

    name: str
    is_new: bool
    attempt: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Discovery:
    """The look at which tables there are."""


@dataclass(frozen=True, slots=True, eq=False)
class _KeepingAlive:
    """The look after saved progress of tables that nobody reads for now."""


@dataclass(frozen=True, slots=True, eq=False)
class _Beginning:
    """A table whose stream is to be made."""

    name: str
    identity: str
    builder: StreamReadBuilder
    is_new: bool
    place: TablePlace | None = None


Job = FollowedTable | _Opening | _Beginning | _Discovery | _KeepingAlive


@dataclass(frozen=True, slots=True)
class _Telling:
    """An event, and what it changes in the moment in which it is told."""

    event: DatabaseEvent
    apply: Callable[[], object] = lambda: None


Item = tuple[FollowedTable, BatchChunk] | DatabaseEvent


class DatabaseEngine:
    """Looks at all tables in turn, and reads ahead what they have, on workers that are daemon threads. Thread-safe.

    Who takes (`ready`, `peek`, `drop`) gets the chunks of a plan one after the other, then those of the next table that
    has any; only where a table fails in the midst of its plan, others come between. Events come before the chunks that
    they concern. What a table has delivered (`delivered`) is what a renamed one goes on behind.

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
        self._discovery = _Discovery()
        self._threads = 0
        self._closed = False
        self._fatal: Exception | None = None
        self._waiting: Future[None] | None = None
        self._origin = Origin()
        self._rounds = 0
        self._tables: dict[str, FollowedTable] = {}
        self._skipped: dict[str, str] = {}
        self._failed: dict[str, Exception] = {}
        self._opening: set[str] = set()
        # Identities of tables that are not where they were, by name: they are found under another name, or dropped.
        self._missing: dict[str, str] = {}
        # Those that are dropped, which is not told yet.
        self._leaving: set[str] = set()
        self._places: dict[str, TablePlace] = dict(settings.places or {})
        self._ready: deque[FollowedTable] = deque()
        self._hand: FollowedTable | None = None
        self._held: list[FollowedTable] = []
        self._tellings: deque[_Telling] = deque()
        self._bytes = 0
        self._schedule.put(self._discovery, self._clock.monotonic())
        self._schedule.put(_KeepingAlive(), self._clock.monotonic() + _KEEPING_ALIVE)

    # ---- who takes ----

    def ready(self) -> Future[None]:
        """Done as soon as `peek` has an answer."""
        with self._lock:
            self._start_workers()
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
            if self._tellings:
                return self._tellings[0].event
            if self._hand is None and self._ready:
                self._hand = self._ready.popleft()
            if self._hand is not None and self._hand.chunks:
                return self._in_hand(self._hand, self._hand.chunks[0])
            if self._is_over():
                if self.failed:
                    raise TablesFailedError(self.failed)
                raise EndOfScan("the streams of all tables have reached their ends")
            return None

    def drop(self, item: Item) -> None:
        """What was seen is the caller's now. Idempotent."""
        with self._lock:
            if isinstance(item, DatabaseEvent):
                if self._tellings and self._tellings[0].event is item:
                    self._tellings.popleft().apply()
                return
            table, chunk = item
            if not table.chunks or table.chunks[0] is not chunk:
                return
            table.chunks.popleft()
            table.schema = chunk.plan.schema
            self._bytes -= size_of(chunk)
            if self._hand is table and (chunk.last or (not table.chunks and table.is_stalled)):
                self._leave(table)
            self._make_room()

    def delivered(self, table: FollowedTable, chunk: BatchChunk) -> None:
        """A chunk has reached the caller: its table goes on behind it, whatever happens. Idempotent."""
        with self._lock:
            if self._tables.get(table.name) is table:
                position = chunk.plan.position if chunk.last else chunk.before
                self._places[table.name] = TablePlace(table.identity, position)

    @property
    def places(self) -> dict[str, TablePlace]:
        """Where the stream stands in each table."""
        with self._lock:
            return dict(self._places)

    @property
    def names(self) -> tuple[str, ...]:
        """The tables that are followed."""
        with self._lock:
            return tuple(sorted(self._tables))

    @property
    def failed(self) -> dict[str, Exception]:
        """The tables that are parked, with their errors."""
        with self._lock:
            parked = {name: table.error for name, table in self._tables.items() if table.error is not None}
            return {**self._failed, **parked}

    @property
    def is_listed(self) -> bool:
        """Whether it was found out by now which tables there are."""
        with self._lock:
            return self._rounds > 0

    def standings(self) -> dict[str, Standing]:
        """Where the stream stands in each table, and in those that are about to be opened."""
        with self._lock:
            found = {name: Standing(None) for name in self._opening}
            found |= {name: Standing(None, error=error) for name, error in self._failed.items()}
            for name, table in self._tables.items():
                place = self._places.get(name)
                position, is_empty = (None, False) if place is None else (place.position, place.was_empty)
                found[name] = Standing(table, next_up(table, position), is_empty, table.error)
            return found

    @property
    def waiting_bytes(self) -> int:
        """Bytes of rows that were read and not yet taken."""
        with self._lock:
            return self._bytes

    def retry(self, name: str) -> None:
        """Read a table again that is parked.

        Raises:
            StreamConfigError: It is not.
        """
        with self._lock:
            table = self._tables.get(name)
            if self._failed.pop(name, None) is not None:
                self._open_soon(_Opening(name, is_new=True))
            elif table is not None and table.error is not None:
                table.error = None
                self._tell(TableRecovered(name))
                self._schedule.put(table, self._clock.monotonic(), busy=True)
            else:
                raise StreamConfigError(f"retry: {name!r} is not parked.")
            self._changed.notify()

    def close(self) -> None:
        """End at once; what was read is thrown away. Idempotent; does nothing in a process that was forked."""
        if not self._origin.is_here:
            return
        with self._lock:
            self._closed = True
            tables = list(self._tables.values())
            self._changed.notify_all()
            self._wake()
        for table in tables:
            table.close()

    # ---- with the lock held ----

    def _has_answer(self) -> bool:
        if self._closed or self._fatal is not None or self._tellings:
            return True
        if self._hand is not None:
            return bool(self._hand.chunks)
        return bool(self._ready) or self._is_over()

    def _is_over(self) -> bool:
        """Whether nothing more can come: all streams have ended, or are parked."""
        if not (self._settings.is_bounded and self._rounds) or self._opening or self._missing or self._ready:
            return False
        return all(each.is_ended or each.error is not None for each in self._tables.values())

    def _in_hand(self, table: FollowedTable, chunk: BatchChunk) -> Item:
        """A chunk, or before it that its schema is another one."""
        old, new = table.schema, chunk.plan.schema
        if old is None or old.id == new.id:
            return table, chunk
        event = SchemaChanged(table.name, old, new)
        self._tellings.appendleft(_Telling(event, lambda: setattr(table, "schema", new)))
        return event

    def _wake(self) -> None:
        """Wake who waits for an answer, if there is one."""
        if self._waiting is not None and self._has_answer():
            waiting, self._waiting = self._waiting, None
            waiting.set_result(None)

    def _tell(self, event: DatabaseEvent, apply: Callable[[], object] = lambda: None) -> None:
        self._tellings.append(_Telling(event, apply))

    def _tell_dropped(self, name: str) -> None:
        self._leaving.add(name)
        self._tell(TableDropped(name), partial(self._forget, name))

    def _leave(self, table: FollowedTable) -> None:
        """Its plan is not in hand any more; it comes again after the others."""
        self._hand = None
        if table.chunks:
            self._ready.append(table)

    def _make_room(self) -> None:
        """Have some tables go on that were held, if there is room; others follow when those were seen to."""
        hand = self._hand
        if self._has_room():
            going_on = list(islice((each for each in self._held if self._has_room_for(each)), _WORKERS))
        else:
            going_on = [hand] if hand is not None and hand in self._held and self._has_room_for(hand) else []
        for table in going_on:
            self._held.remove(table)
            self._schedule.put(table, self._clock.monotonic(), busy=True)
            self._changed.notify()

    def _has_room(self) -> bool:
        return not self._bytes or self._bytes < self._settings.read_ahead_bytes

    def _has_room_for(self, table: FollowedTable) -> bool:
        """Whether a chunk of a table may be read; of that in hand always one."""
        if table is self._hand and not table.chunks:
            return True
        return self._has_room() and len(table.chunks) < _MOST_CHUNKS

    def _open_soon(self, opening: _Opening, pause: float = 0.0) -> None:
        self._opening.add(opening.name)
        self._schedule.put(opening, self._clock.monotonic() + pause)
        self._changed.notify()

    def _discover_soon(self, pause: float) -> None:
        self._schedule.put(self._discovery, self._clock.monotonic() + pause)
        self._changed.notify()

    def _forget(self, name: str) -> TablePlace | None:
        """Have nothing to do with a table any more; where the stream stood in it, None if nowhere."""
        self._leaving.discard(name)
        table = self._tables.pop(name, None)
        if table is not None:
            self._schedule.remove(table)
            self._bytes -= sum(map(size_of, table.chunks))
            table.chunks.clear()
            self._held = [each for each in self._held if each is not table]
            self._ready = deque(each for each in self._ready if each is not table)
            if self._hand is table:
                self._hand = None
            table.close()
            self._make_room()
        return self._places.pop(name, None)

    # ---- workers ----

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
                    self._make_room()
                    self._wake()
                    self._changed.notify()

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
        elif isinstance(job, _Opening):
            self._open(job)
        elif isinstance(job, _Beginning):
            self._begin_reading(job)
        elif isinstance(job, _KeepingAlive):
            self._keep_alive(job)
        else:
            self._discover()

    # ---- a table ----

    def _look(self, table: FollowedTable) -> None:
        """Read on in a table, until nothing new is there, no room is left, or others are to have their turn."""
        until = self._clock.monotonic() + _TURN_SECONDS
        while self._may_go_on(table):
            if not self._has_found(table):
                return
            if self._clock.monotonic() >= until:
                break
        table.look_for_latest(self._clock.monotonic)
        # Before anybody else may have it.
        table.rest()
        self._put_back(table)

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
            if not self._is_followed(table):
                return False
            if chunk is None:
                self._stand_where_it_is(table)
                now = self._clock.monotonic()
                self._schedule.put(table, now + table.idle_seconds(now, random.random()))
                return False
            table.chunks.append(chunk)
            self._bytes += size_of(chunk)
            if table is not self._hand and table not in self._ready:
                self._ready.append(table)
            self._wake()
            return True

    def _may_go_on(self, table: FollowedTable) -> bool:
        with self._lock:
            return self._is_followed(table) and self._has_room_for(table)

    def _put_back(self, table: FollowedTable) -> None:
        with self._lock:
            if self._is_followed(table):
                self._held.append(table)
                self._make_room()

    def _stand_where_it_is(self, table: FollowedTable) -> None:
        """With the lock held: nothing is left to hand out, and the stream has perhaps passed over what had no rows."""
        if self._is_followed(table) and not table.chunks:
            position = table.driver.position
            self._places[table.name] = TablePlace(table.identity, position, was_empty=position is None)

    def _is_followed(self, table: FollowedTable) -> bool:
        return not self._closed and self._tables.get(table.name) is table and table.suspicion is None

    def _on_error(self, table: FollowedTable, error: Exception) -> None:
        with self._lock:
            if not self._is_followed(table):
                return
            if self._hand is table and not table.chunks:
                # Others need not wait for it.
                self._hand = None
            if isinstance(error, PaimonStreamError) and error.retriable:
                table.failures += 1
                pause = min(_FIRST_PAUSE * 2 ** (table.failures - 1), _LONGEST_PAUSE) * (0.5 + random.random() / 2)
                text = "reading it failed (attempt %(attempt)d) and is tried again after a pause: %(error)s"
                _LOG.warning("waits_out", text, table=table.name, attempt=table.failures, error=str(error))
                self._schedule.put(table, self._clock.monotonic() + pause)
                return
            # It may have been dropped, renamed or made anew: what there is now decides.
            table.suspicion = error
            self._discover_soon(_NEW_LOOK if table.failures else 0.0)

    def _park(self, name: str, error: Exception, table: FollowedTable | None) -> None:
        """With the lock held: leave a table alone until `retry`."""
        if table is None:
            self._failed[name] = error
        else:
            table.error = error
        _LOG.warning("table_parked", "it is not read any more: %(error)s", table=name, error=str(error))
        self._tell(TableFailed(name, error))
        if self._settings.on_table_error is OnTableError.RAISE:
            self._fatal = error

    def _keep_alive(self, job: _KeepingAlive) -> None:
        """Of all tables: one that waits for room, or for its turn, may do so for long. Its next look tells errors."""
        with self._lock:
            tables = list(self._tables.values())
            self._schedule.put(job, self._clock.monotonic() + _KEEPING_ALIVE)
        for table in tables:
            with suppress(PaimonStreamError):
                table.keep_alive(self._clock.monotonic())

    # ---- which tables there are ----

    def _open(self, opening: _Opening) -> None:
        name = opening.name
        try:
            builder = self._of_database.builder(name)
            identity = None if builder is None else self._of_database.identity(builder)
        except UnsupportedTableError as error:
            with self._lock:
                self._opening.discard(name)
                self._skipped[name] = str(error)
                self._tell(TableSkipped(name, str(error)))
        except Exception as error:  # noqa: BLE001 - it stays with its table
            self._on_open_error(opening, error)
        else:
            self._on_opened(opening, builder, identity)

    def _on_open_error(self, opening: _Opening, error: Exception) -> None:
        with self._lock:
            if isinstance(error, PaimonStreamError) and error.retriable:
                pause = min(_FIRST_PAUSE * 2**opening.attempt, _LONGEST_PAUSE) * (0.5 + random.random() / 2)
                self._open_soon(replace(opening, attempt=opening.attempt + 1), pause)
                return
            self._opening.discard(opening.name)
            table = self._tables.get(opening.name)
            if not isinstance(error, TableChangedError):  # dropped in this moment: the next discovery tells
                self._park(opening.name, error, table)

    def _on_opened(self, opening: _Opening, builder: StreamReadBuilder | None, identity: str | None) -> None:
        """Go on to what a name stands for now: a new table, a renamed one, the same one, or another one."""
        name = opening.name
        with self._lock:
            known, place = self._tables.get(name), self._places.get(name)
            if builder is None or identity is None:
                self._opening.discard(name)
                return
            if known is not None and known.identity == identity:
                self._opening.discard(name)
                self._go_on_with(known)
                return
            former = self._former_name(identity) if place is None else None
            is_another = place is not None and place.identity != identity
            if is_another:
                self._tell_dropped(name)
            event: DatabaseEvent = TableAdded(name) if former is None else TableRenamed(name, former)
            beginning = _Beginning(name, identity, builder, opening.is_new or is_another)
            self._tell(event, partial(self._begin, beginning, former or name))

    def _former_name(self, identity: str) -> str | None:
        """The name under which a table was followed that is new under another one; None: it is new, for all we know.

        Tables that were made in the same millisecond have one identity: which of them it is nobody can tell.
        """
        same = [name for name, missing in self._missing.items() if missing == identity]
        if len(same) != 1:
            return None
        del self._missing[same[0]]
        return same[0]

    def _begin(self, beginning: _Beginning, former: str) -> None:
        """In the moment in which it is told that a table is followed, and so known what was delivered of it."""
        place = self._forget(former)
        if place is not None and place.identity == beginning.identity:
            beginning = replace(beginning, place=place, is_new=beginning.is_new or place.was_empty)
        self._schedule.put(beginning, self._clock.monotonic())
        self._changed.notify()

    def _begin_reading(self, beginning: _Beginning) -> None:
        name = beginning.name
        try:
            self._of_database.begin(beginning.builder, beginning.place, is_new=beginning.is_new)
            now = self._clock.monotonic()
            size = self._settings.batch_bytes
            table = FollowedTable(name, beginning.identity, beginning.builder, size, now)
        except Exception as error:  # noqa: BLE001 - it stays with its table
            self._on_open_error(_Opening(name, beginning.is_new), error)
            return
        with self._lock:
            self._opening.discard(name)
            self._tables[name] = table
            self._places[name] = beginning.place or TablePlace(beginning.identity)
            self._schedule.put(table, now, busy=True)
            self._changed.notify()
            if self._closed:
                table.close()

    def _go_on_with(self, table: FollowedTable) -> None:
        """It is the table that it was: it goes on, or what made it suspect stands."""
        suspicion, table.suspicion = table.suspicion, None
        if isinstance(suspicion, _MissingError):
            self._schedule.put(table, self._clock.monotonic(), busy=True)
        elif suspicion is not None:
            self._park(table.name, suspicion, table)

    def _discover(self) -> None:
        try:
            names = self._of_database.names()
        except Exception as error:  # noqa: BLE001 - told to the caller, or waited out
            self._on_discovery_error(error)
            return
        with self._lock:
            self._rounds += 1
            self._drop_missing(names)
            self._find_missing(names)
            followed = {name for name, table in self._tables.items() if table.suspicion is None}
            for name in sorted(names - followed - self._skipped.keys() - self._failed.keys() - self._opening):
                is_new = self._rounds > 1 or (self._settings.places is not None and name not in self._settings.places)
                self._open_soon(_Opening(name, is_new))
            for name in self._skipped.keys() - names:
                del self._skipped[name]
            if self._missing:
                self._discover_soon(_NEW_LOOK)
            elif not self._settings.is_bounded:
                self._discover_soon(self._settings.discovery_seconds)

    def _find_missing(self, names: set[str]) -> None:
        """Note the tables that are not where they were."""
        for name, place in self._places.items():
            table = self._tables.get(name)
            if name in names or name in self._opening | self._leaving or name in self._missing:
                continue
            if table is not None:
                table.suspicion = table.suspicion or _MissingError(name)
                self._schedule.remove(table)
            self._missing[name] = place.identity

    def _drop_missing(self, names: set[str]) -> None:
        """Tables that were missing before this look, too: unless what came meanwhile may be one of them."""
        for name in list(self._missing):
            if name in names or not self._opening:
                del self._missing[name]
            if name not in names and not self._opening:
                self._tell_dropped(name)

    def _on_discovery_error(self, error: Exception) -> None:
        with self._lock:
            passes = isinstance(error, PaimonStreamError) and error.retriable
            if not passes and not self._rounds:
                self._fatal = error
            else:
                text = "the tables of the database could not be listed, which is tried again: %(error)s"
                _LOG.warning("discovery_failed", text, error=str(error))
            self._discover_soon(min(_LONGEST_PAUSE, self._settings.discovery_seconds))


class _MissingError(Exception):
    """A table is not where it was."""


def size_of(chunk: BatchChunk) -> int:
    """Bytes of its rows."""
    return 0 if chunk.data is None else int(chunk.data.nbytes)
