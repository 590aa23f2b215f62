"""`TableLooks`: reads tables of a database ahead, a turn each."""

from __future__ import annotations

import random
from contextlib import suppress

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.databases.engine_state import EngineState
from pypaimon.streaming.databases.followed_table import FollowedTable, begin_of
from pypaimon.streaming.databases.jobs import KeepingAlive, pause_before
from pypaimon.streaming.databases.position import TablePlace
from pypaimon.streaming.errors import EndOfScan, PaimonStreamError, what_fails
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.model.plan import PlanKind

_LOG = StreamLog(__name__)
_TURN_SECONDS = 0.5
"""A table that has much to read leaves its worker to others after this time."""
_OPENING_SECONDS = 0.03
"""About the time between two tables that are opened."""
_MOST_PUT_OFF_SECONDS = 5.0
KEEPING_ALIVE = 30.0
"""Seconds between two looks after saved progress."""


class TableLooks:
    """Looks at tables, for the workers of an engine.

    Args:
        state: What they share.
    """

    def __init__(self, state: EngineState) -> None:
        self._state = state
        # Tables that a worker is at, and those of them that are to be looked at again then.
        self._at_work: set[FollowedTable] = set()
        self._again: set[FollowedTable] = set()

    def look(self, table: FollowedTable) -> None:
        """Read on in a table, until nothing new is there, no room is left, or others are to have their turn."""
        with self._state.lock:
            if table in self._at_work:
                self._again.add(table)
                return
            self._at_work.add(table)
        has_more = False
        try:
            has_more = self._reads_on(table)
        finally:
            with self._state.lock:
                self._at_work.discard(table)
                if table in self._again:
                    self._again.discard(table)
                    has_more = True
                if has_more and self._state.known.is_followed(table) and table.error is None:
                    self._state.rows.hold(table)

    def _reads_on(self, table: FollowedTable) -> bool:
        """Whether there may be more, at once."""
        until = self._state.clock.monotonic() + _TURN_SECONDS
        while self._may_go_on(table):
            if not self._has_found(table):
                return False
            if self._state.clock.monotonic() >= until:
                break
        table.look_for_latest(self._state.clock.monotonic)
        # Before anybody else may have it.
        table.rest()
        return True

    def _may_go_on(self, table: FollowedTable) -> bool:
        with self._state.lock:
            return (
                not self._state.closed and self._state.known.is_followed(table) and self._state.rows.has_room_for(table)
            )

    def _has_found(self, table: FollowedTable) -> bool:
        """Take one look; without a chunk it is seen to when the next one is taken."""
        try:
            chunk = table.look(self._state.clock.monotonic)
        except EndOfScan:
            with self._state.lock:
                table.is_ended = True
                self._stand_where_it_is(table)
            return False
        except Exception as error:  # noqa: BLE001 - it stays with its table
            self._on_error(table, error)
            return False
        with self._state.lock:
            table.failures = 0
            if self._state.closed or self._state.known.followed.get(table.name) is not table:
                return False
            if chunk is not None:
                # Also of one that is suspect by now: if it is what it was, it has been read up to here.
                self._state.rows.add(table, chunk)
                self._stand_at_begin(table, chunk)
                self._state.wake()
                return True
            if self._state.known.is_followed(table):
                self._stand_where_it_is(table)
                now = self._state.clock.monotonic()
                # While many tables still wait for their first look, a second look at this one would hold them up.
                first_looks = min(_MOST_PUT_OFF_SECONDS, _OPENING_SECONDS * len(self._state.known.opening))
                pause = max(table.idle_seconds(now, random.random()), first_looks)
                self._state.see_to(table, pause, busy=False)
            return False

    def _stand_where_it_is(self, table: FollowedTable) -> None:
        """With the lock held: nothing is left to hand out, and the stream has perhaps passed over what had no rows."""
        if not self._state.closed and self._state.known.is_followed(table) and not table.chunks:
            position = table.driver.position
            self._state.known.places[table.name] = TablePlace(table.identity, position, was_empty=position is None)

    def _stand_at_begin(self, table: FollowedTable, chunk: BatchChunk) -> None:
        """With the lock held: the start was found, and would be another one for who comes later. A state would not."""
        place = self._state.known.places.get(table.name)
        begin = begin_of(chunk)
        if place is not None and place.position is None and begin is not None and chunk.plan.kind is not PlanKind.FULL:
            self._state.known.places[table.name] = TablePlace(table.identity, begin)

    def _on_error(self, table: FollowedTable, error: Exception) -> None:
        with self._state.lock:
            if self._state.closed or not self._state.known.is_followed(table):
                return
            if isinstance(error, PaimonStreamError) and error.retriable:
                pause = pause_before(table.failures)
                table.failures += 1
                # Others need not wait for it.
                self._state.rows.pass_over(table)
                text = "reading it failed (attempt %(attempt)d) and is tried again after a pause: %(error)s"
                what, attempt = what_fails(error), table.failures
                _LOG.outage("waits_out", text, what, table=table.name, attempt=attempt, error=str(error))
                self._state.see_to(table, pause, busy=False)
                return
            self._state.suspect(table, error)

    def keep_alive(self, job: KeepingAlive) -> None:
        """Of all tables: one that waits for room, or for its turn, may do so for long. Its next look tells errors."""
        with self._state.lock:
            tables = list(self._state.known.followed.values())
            self._state.schedule.put(job, self._state.clock.monotonic() + KEEPING_ALIVE)
        for table in tables:
            with suppress(PaimonStreamError):
                table.keep_alive(self._state.clock.monotonic())
