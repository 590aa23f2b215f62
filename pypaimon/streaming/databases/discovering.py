"""`Discovering`: finds out which tables a database has, and what became of those that were there."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pypaimon.streaming.databases.engine_state import NEW_LOOK, EngineState
from pypaimon.streaming.databases.events import DatabaseEvent, TableAdded, TableRenamed, TableSkipped
from pypaimon.streaming.databases.followed_table import FollowedTable
from pypaimon.streaming.databases.jobs import LONGEST_PAUSE, Beginning, Opening, pause_before
from pypaimon.streaming.databases.known_tables import MissingError
from pypaimon.streaming.databases.position import TablePlace
from pypaimon.streaming.databases.tables_of_database import NoDatabaseError, OpenedTable, TablesOfDatabase
from pypaimon.streaming.errors import PaimonStreamError, TableChangedError, UnsupportedTableError, what_fails
from pypaimon.streaming.logs import StreamLog

_LOG = StreamLog(__name__)


class Discovering:
    """Lists tables, opens them and begins their streams, for the workers of an engine.

    Args:
        state: What they share.
        tables: Which tables there are.
    """

    def __init__(self, state: EngineState, tables: TablesOfDatabase) -> None:
        self._state = state
        self._tables = tables

    def discover(self) -> None:
        """Look which tables there are."""
        try:
            names = self._tables.names()
        except Exception as error:  # noqa: BLE001 - told to the caller, or waited out
            self._on_discovery_error(error)
            return
        with self._state.lock:
            listed = self._state.known.listed(names)
            for name in listed.dropped:
                self._state.tell_dropped(name)
            for table in listed.suspects:
                self._state.schedule.remove(table)
                self._state.rows.unhold(table)
                self._state.rows.pass_over(table)
            for opening in listed.openings:
                self._state.soon(opening)
            if self._state.known.has_missing:
                self._state.soon(self._state.discovery, NEW_LOOK)
            elif not self._state.settings.is_bounded:
                self._state.soon(self._state.discovery, self._state.settings.discovery_seconds)

    def _on_discovery_error(self, error: Exception) -> None:
        with self._state.lock:
            pause = min(LONGEST_PAUSE, self._state.settings.discovery_seconds)
            passes = isinstance(error, PaimonStreamError) and error.retriable
            if isinstance(error, NoDatabaseError):
                self._on_no_database(error)
                pause = min(NEW_LOOK, pause)
            elif not passes and (self._state.settings.is_bounded or not self._state.known.rounds):
                # No later look would be another one.
                self._state.fatal = error
            else:
                text = "the tables of the database could not be listed, which is tried again: %(error)s"
                _LOG.outage("discovery_failed", text, what_fails(error), error=str(error))
            self._state.soon(self._state.discovery, pause)

    def _on_no_database(self, error: NoDatabaseError) -> None:
        """With the lock held: two looks in a row decide, as of a table that is not where it was."""
        known = self._state.known
        if not known.rounds:
            self._state.fatal = error
        elif known.lost is not None:
            self._state.fatal = known.lost
        known.lost = TableChangedError(
            f"The database '{self._tables.database}' was dropped.",
            "Close this stream; open another one if the database comes back.",
        )

    def open(self, opening: Opening) -> None:
        """Find out what a name stands for."""
        name = opening.name
        with self._state.lock:
            reads_state = self._state.known.place_of(name) is None
        try:
            size, monotonic = self._state.settings.batch_bytes, self._state.clock.monotonic
            opened = self._tables.open(name, size, monotonic, reads_state=reads_state)
        except UnsupportedTableError as error:
            with self._state.lock:
                self._skip(name, error)
        except Exception as error:  # noqa: BLE001 - it stays with its table
            with self._state.lock:
                if isinstance(error, PaimonStreamError) and error.retriable:
                    self._state.soon(replace(opening, attempt=opening.attempt + 1), pause_before(opening.attempt))
                elif isinstance(error, TableChangedError):
                    self._on_gone(name)
                else:
                    self._state.known.opening.discard(name)
                    self._state.park(name, error, self._state.known.followed.get(name))
        else:
            with self._state.lock:
                if opened is None:
                    self._on_gone(name)
                else:
                    self._state.known.is_there(name, opened.identity)
                    self._on_opened(opening, opened)

    def _skip(self, name: str, error: UnsupportedTableError) -> None:
        """With the lock held: it cannot be followed, for all that is seen of it now."""
        known, why = self._state.known, str(error)
        known.opening.discard(name)
        table = known.followed.get(name)
        if table is not None:
            table.suspicion = None
            self._state.park(name, error, table)
        elif known.skipped.get(name) != why:
            known.skipped[name] = why
            self._state.tell(TableSkipped(name, why))

    def _on_gone(self, name: str) -> None:
        """With the lock held: it is listed, but there is none. One that was followed may have another name by now."""
        if self._state.known.is_gone(name):
            self._state.soon(self._state.discovery)

    def _on_opened(self, opening: Opening, opened: OpenedTable) -> None:
        """With the lock held: what a name stands for now: a new table, a renamed one, the same one, or another one."""
        name, known, identity = opening.name, self._state.known, opened.identity
        table, place = known.followed.get(name), known.place_of(name)
        if table is not None and table.identity == identity:
            known.opening.discard(name)
            opened.close()
            self._go_on_with(table)
            return
        is_another = place is not None and place.identity != identity
        former = known.former_name(identity) if place is None else None
        may_be_renamed = place is None and former is None and opening.is_new and known.is_elsewhere(name, identity)
        if (is_another or may_be_renamed) and not known.is_settled_elsewhere(opening, identity):
            # A listing in the midst of renamings shows names from before and after; the next ones tell.
            if is_another:
                known.is_replaced(name)
            opened.close()
            since = known.rounds if opening.since is None else opening.since
            self._state.soon(replace(opening, since=since), 1.5 * NEW_LOOK)
            self._state.soon(self._state.discovery)
            return
        if is_another:
            self._state.tell_dropped(name)
            former = known.former_name(identity)
        event: DatabaseEvent = TableAdded(name) if former is None else TableRenamed(name, former)
        is_new = opening.is_new or opening.since is not None
        self._state.tell(event, partial(self._begin, Beginning(name, opened, is_new), former or name))

    def _begin(self, beginning: Beginning, former: str) -> None:
        """Once it is told that a table is followed, and so known what was delivered of it."""
        table, place = self._state.forget(former)
        if place is not None and place.identity == beginning.opened.identity:
            # Under whatever name: where nothing was handed out yet, it begins as it would have begun.
            beginning = replace(beginning, place=place, is_new=place.was_empty)
            if table is not None:
                beginning = replace(beginning, schema=table.schema, cut=table.cut)
        # From here on a restart would know it as one that is read from its first row, or goes on.
        place = beginning.place or TablePlace(beginning.opened.identity, was_empty=beginning.is_new)
        self._state.known.places[beginning.name] = place
        self._state.soon(beginning)

    def begin_reading(self, beginning: Beginning) -> None:
        """Make the stream of a table."""
        name = beginning.name
        try:
            table = self._begun(beginning)
        except Exception as error:  # noqa: BLE001 - it stays with its table
            with self._state.lock:
                if isinstance(error, PaimonStreamError) and error.retriable:
                    self._state.soon(replace(beginning, attempt=beginning.attempt + 1), pause_before(beginning.attempt))
                else:
                    self._state.known.opening.discard(name)
                    self._state.park(name, error, None)
            return
        with self._state.lock:
            self._state.known.opening.discard(name)
            self._state.known.followed[name] = table
            self._state.see_to(table)
            if self._state.closed:
                table.close()

    def _begun(self, beginning: Beginning) -> FollowedTable:
        place, cut, opened = beginning.place, beginning.cut, beginning.opened
        if cut is not None:
            place = TablePlace(opened.identity, cut.begin)
        now = self._state.clock.monotonic()
        chunks = self._tables.begin(opened, place, now, is_new=beginning.is_new)
        table = FollowedTable(beginning.name, opened.identity, chunks, now)
        table.schema = beginning.schema
        if cut is not None:
            table.resume_in(cut)
        return table

    def _go_on_with(self, table: FollowedTable) -> None:
        """With the lock held: it is the table that it was: it goes on, or what made it suspect stands."""
        suspicion, table.suspicion = table.suspicion, None
        if isinstance(suspicion, MissingError):
            self._state.see_to(table)
        elif suspicion is not None:
            self._state.park(table.name, suspicion, table)
