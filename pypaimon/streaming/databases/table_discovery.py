"""`TableDiscovery`: lists and opens tables, and detects dropped, renamed and re-created ones."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pypaimon.streaming.databases.engine_state import DISCOVERY_PAUSE, EngineState
from pypaimon.streaming.databases.events import DatabaseEvent, TableAdded, TableRenamed, TableSkipped
from pypaimon.streaming.databases.followed_table import FollowedTable
from pypaimon.streaming.databases.jobs import BACKOFF, OpenJob, StartJob
from pypaimon.streaming.databases.position import TablePosition
from pypaimon.streaming.databases.tables_of_database import OpenedTable, TablesOfDatabase
from pypaimon.streaming.errors import (
    NoDatabaseError,
    PaimonStreamError,
    TableChangedError,
    TableMissingError,
    UnsupportedTableError,
    what_fails,
)
from pypaimon.streaming.logs import StreamLog

_LOG = StreamLog(__name__)


class TableDiscovery:
    """Lists tables, opens them and starts their streams, for the workers of an engine.

    Args:
        state: What the workers share.
        tables: The tables of the database.
    """

    def __init__(self, state: EngineState, tables: TablesOfDatabase) -> None:
        self._state = state
        self._tables = tables

    def discover(self) -> None:
        """List the tables."""
        try:
            names = self._tables.names()
        except Exception as error:  # noqa: BLE001 - raised to the caller, or retried
            self._on_discovery_error(error)
            return
        with self._state.lock:
            listed = self._state.registry.listed(names, self._state.clock.monotonic())
            for name in listed.dropped:
                self._state.emit_dropped(name)
            for table in listed.suspects:
                self._state.was_polled(table.name)
                self._state.schedule.remove(table)
                self._state.rows.unhold(table)
                self._state.rows.pass_over(table)
            for opening in listed.openings:
                self._state.schedule_soon(opening)
            if self._state.registry.has_missing:
                self._state.schedule_soon(self._state.discovery, DISCOVERY_PAUSE)
            elif not self._state.settings.is_bounded:
                self._state.schedule_soon(self._state.discovery, self._state.settings.discovery_seconds)

    def _on_discovery_error(self, error: Exception) -> None:
        with self._state.lock:
            pause = min(BACKOFF.longest_pause, self._state.settings.discovery_seconds)
            passes = isinstance(error, PaimonStreamError) and error.retriable
            if isinstance(error, NoDatabaseError):
                self._on_no_database(error)
                pause = min(DISCOVERY_PAUSE, pause)
            elif not passes and (self._state.settings.is_bounded or not self._state.registry.rounds):
                # A bounded stream lists the tables once, and the first listing must succeed.
                self._state.fatal = error
            else:
                text = "listing the tables of the database failed and is retried: %(error)s"
                _LOG.outage("discovery_failed", text, what_fails(error), error=str(error))
            self._state.schedule_soon(self._state.discovery, pause)

    def _on_no_database(self, error: NoDatabaseError) -> None:
        """With the lock held: the database counts as dropped after two listings in a row without it."""
        registry = self._state.registry
        if not registry.rounds:
            self._state.fatal = error
        elif registry.lost is not None:
            self._state.fatal = registry.lost
        registry.lost = TableChangedError(
            f"The database '{self._tables.database}' was dropped.",
            advice="Close this stream; open another one if the database comes back.",
        )

    def open(self, opening: OpenJob) -> None:
        """Find out which table has a name now."""
        name = opening.name
        with self._state.lock:
            place, is_followed = self._state.registry.place_of(name), name in self._state.registry.followed
        try:
            size, monotonic = self._state.settings.batch_bytes, self._state.clock.monotonic
            opened = self._tables.open(name, size, monotonic, place, is_followed=is_followed)
        except UnsupportedTableError as error:
            with self._state.lock:
                self._skip(name, error)
        except Exception as error:  # noqa: BLE001 - an error of this table alone
            with self._state.lock:
                if isinstance(error, PaimonStreamError) and error.retriable:
                    self._open_again(opening)
                elif isinstance(error, TableChangedError):
                    self._on_gone(name)
                else:
                    self._state.registry.was_opened(name)
                    self._state.park(name, error, self._state.registry.followed.get(name))
        else:
            with self._state.lock:
                if opened is None:
                    self._on_gone(name)
                else:
                    self._state.registry.is_there(name, opened.identity)
                    self._on_opened(opening, opened)

    def _open_again(self, opening: OpenJob) -> None:
        """With the lock held: opening failed, and may succeed later. While a table is being opened, others have to wait
        with what its name decides; a parked one has been looked at, and a later listing opens it again.
        """
        if self._state.registry.is_parked(opening.name):
            self._state.registry.was_opened(opening.name)
            return
        again = replace(opening, attempt=opening.attempt + 1)
        self._state.schedule_soon(again, BACKOFF.pause(again.attempt))

    def _skip(self, name: str, error: UnsupportedTableError) -> None:
        """With the lock held: the table cannot be followed as it is now."""
        registry, why = self._state.registry, str(error)
        registry.was_opened(name)
        table = registry.followed.get(name)
        if table is not None:
            table.suspicion = None
            self._state.park(name, error, table)
        elif registry.place_of(name) is not None:
            # An earlier stream has read it, so that its rows are missed.
            self._state.park(name, error, None)
        elif registry.failed.pop(name, None) is not None or registry.skipped.get(name) != why:
            registry.skipped[name] = why
            self._state.emit(TableSkipped(name, why))

    def _on_gone(self, name: str) -> None:
        """With the lock held: the table is listed but does not exist. If it was followed, it may have a new name."""
        if self._state.registry.is_gone(name):
            self._state.schedule_soon(self._state.discovery)

    def _on_opened(self, opening: OpenJob, opened: OpenedTable) -> None:
        """With the lock held: the name has a table that is new, renamed, the same as before, or a different one."""
        name, registry, identity = opening.name, self._state.registry, opened.identity
        table, place = registry.followed.get(name), registry.place_of(name)
        if table is not None and table.identity == identity:
            registry.was_opened(name)
            opened.close()
            self._continue_with(table)
            return
        failed = registry.failed.get(name)
        if failed is not None and failed.identity == identity:
            registry.was_opened(name)
            opened.close()
            return
        is_another = place is not None and place.identity != identity
        former = registry.former_name(identity) if place is None else None
        may_be_renamed = place is None and former is None and opening.is_new and registry.is_elsewhere(name, identity)
        if (is_another or may_be_renamed) and not registry.is_settled_elsewhere(opening, identity):
            # A listing during renames mixes old and new names: later listings decide.
            if is_another:
                registry.is_replaced(name)
            opened.close()
            since = registry.rounds if opening.since is None else opening.since
            # By then two more listings have begun: one now, and one a pause later while a table is missing.
            self._state.schedule_soon(replace(opening, since=since), 1.5 * DISCOVERY_PAUSE)
            self._state.schedule_soon(self._state.discovery)
            return
        if is_another:
            self._state.emit_dropped(name)
            former = registry.former_name(identity)
        event: DatabaseEvent = TableAdded(name) if former is None else TableRenamed(name, former)
        is_new = opening.is_new or opening.since is not None
        self._state.waits_for_poll(name)
        self._state.emit(event, partial(self._begin, StartJob(name, opened, is_new), former or name))

    def _begin(self, beginning: StartJob, former: str) -> None:
        """Apply `TableAdded` or `TableRenamed`, once the caller has received everything of the former name."""
        table, place = self._state.forget(former)
        if place is not None and place.identity == beginning.opened.identity:
            # The same table, perhaps renamed: without a delivered row it starts as it would have started.
            beginning = replace(beginning, place=place, is_new=place.was_empty)
            if table is not None:
                beginning = replace(beginning, schema=table.schema, cut=table.cut)
        # From here on a saved position contains the table.
        place = beginning.place or TablePosition(beginning.opened.identity, was_empty=beginning.is_new)
        self._state.registry.places[beginning.name] = place
        self._state.registry.failed.pop(beginning.name, None)
        self._state.waits_for_poll(beginning.name)
        self._state.schedule_soon(beginning)

    def start_stream(self, beginning: StartJob) -> None:
        """Start the stream of a table."""
        name = beginning.name
        try:
            table = self._started(beginning)
        except Exception as error:  # noqa: BLE001 - an error of this table alone
            with self._state.lock:
                self._state.was_polled(name)
                if isinstance(error, PaimonStreamError) and error.retriable:
                    again = replace(beginning, attempt=beginning.attempt + 1)
                    self._state.schedule_soon(again, BACKOFF.pause(again.attempt))
                else:
                    self._state.registry.was_opened(name)
                    self._state.park(name, error, None, beginning.opened.identity)
            return
        with self._state.lock:
            self._state.registry.was_opened(name)
            self._state.registry.followed[name] = table
            self._state.schedule_poll(table)
            # `close` may have run before the table was among those that it closes.
            if self._state.closed:
                table.close()

    def _started(self, beginning: StartJob) -> FollowedTable:
        place, cut, opened = beginning.place, beginning.cut, beginning.opened
        if cut is not None:
            place = TablePosition(opened.identity, cut.begin)
        now = self._state.clock.monotonic()
        chunks = self._tables.begin(opened, place, is_new=beginning.is_new)
        table = FollowedTable(beginning.name, opened.identity, chunks, now, opened.latest, opened.at)
        table.schema = beginning.schema
        if cut is not None:
            table.resume_in(cut)
        return table

    def _continue_with(self, table: FollowedTable) -> None:
        """With the lock held: the table is the same as before, so it continues, or is parked for its error."""
        suspicion, table.suspicion = table.suspicion, None
        if isinstance(suspicion, TableMissingError):
            self._state.schedule_poll(table)
        elif suspicion is not None:
            self._state.park(table.name, suspicion, table)
