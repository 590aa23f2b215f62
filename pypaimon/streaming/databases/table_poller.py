"""`TablePoller`: polls the tables of a database and reads their rows ahead, each table for a bounded turn."""

from __future__ import annotations

import random
from contextlib import suppress

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.databases.engine_state import EngineState
from pypaimon.streaming.databases.followed_table import FollowedTable, begin_of
from pypaimon.streaming.databases.jobs import BACKOFF, KeepAliveJob
from pypaimon.streaming.databases.position import TablePosition
from pypaimon.streaming.errors import EndOfScan, PaimonStreamError, what_fails
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.model.plan import PlanKind

_LOG = StreamLog(__name__)
_TURN_SECONDS = 0.5
"""After this time, a table with more to read leaves its worker to other tables."""
_OPENING_SECONDS = 0.03
"""Approximate seconds that it takes to open a table."""
_MOST_PUT_OFF_SECONDS = 5.0
KEEPING_ALIVE = 30.0
"""Seconds between two renewals of saved progress."""


class TablePoller:
    """Polls tables, for the workers of an engine.

    Args:
        state: What the workers share.
    """

    def __init__(self, state: EngineState) -> None:
        self._state = state
        # Tables that a worker polls now, and those of them that must be polled again afterwards.
        self._at_work: set[FollowedTable] = set()
        self._again: set[FollowedTable] = set()

    def poll(self, table: FollowedTable) -> None:
        """Read a table until it has nothing new, the buffer is full, or its turn is over."""
        with self._state.lock:
            if table in self._at_work:
                self._again.add(table)
                return
            self._at_work.add(table)
        has_more = False
        try:
            has_more = self._has_more_after_turn(table)
        finally:
            with self._state.lock:
                self._at_work.discard(table)
                self._state.was_polled(table.name)
                if table in self._again:
                    self._again.discard(table)
                    has_more = True
                if has_more and self._state.registry.is_followed(table) and table.error is None:
                    self._state.rows.hold(table)

    def _has_more_after_turn(self, table: FollowedTable) -> bool:
        """Read for one turn; returns whether there may be more rows."""
        until = self._state.clock.monotonic() + _TURN_SECONDS
        while self._may_read(table):
            if not self._has_read_chunk(table):
                return False
            # A next look that needs no request still belongs to this turn: after a break it would need one.
            if self._state.clock.monotonic() >= until and not table.is_known_idle(self._put_off()):
                break
        table.refresh_latest(self._state.clock.monotonic)
        # Before another worker may take the table.
        table.rest()
        return True

    def _put_off(self) -> float:
        with self._state.lock:
            # While many tables wait for their first poll, second ones would make it late.
            return min(_MOST_PUT_OFF_SECONDS, _OPENING_SECONDS * self._state.first_polls)

    def _may_read(self, table: FollowedTable) -> bool:
        with self._state.lock:
            return (
                not self._state.closed
                and self._state.registry.is_followed(table)
                and self._state.rows.has_room_for(table)
            )

    def _has_read_chunk(self, table: FollowedTable) -> bool:
        """Read one chunk; without one, schedule the next poll."""
        try:
            chunk = table.look(self._state.clock.monotonic, self._put_off())
        except EndOfScan:
            with self._state.lock:
                table.is_ended = True
                self._update_position(table)
            return False
        except Exception as error:  # noqa: BLE001 - an error of this table alone
            self._on_error(table, error)
            return False
        with self._state.lock:
            table.failures = 0
            if self._state.closed or self._state.registry.followed.get(table.name) is not table:
                return False
            if chunk is not None:
                # Also if the table is suspected by now: if it turns out to be the same, it was read up to here.
                self._state.rows.add(table, chunk)
                self._save_start(table, chunk)
                self._state.wake()
                return True
            if self._state.registry.is_followed(table):
                self._update_position(table)
                now = self._state.clock.monotonic()
                pause = max(table.idle_seconds(now, random.random()), self._put_off())
                self._state.schedule_poll(table, pause, busy=False)
            return False

    def _update_position(self, table: FollowedTable) -> None:
        """With the lock held and nothing buffered: move the position past snapshots without rows."""
        if not self._state.closed and self._state.registry.is_followed(table) and not table.chunks:
            position = table.driver.position
            self._state.registry.places[table.name] = TablePosition(
                table.identity, position, was_empty=position is None
            )

    def _save_start(self, table: FollowedTable, chunk: BatchChunk) -> None:
        """With the lock held: save the start that was found."""
        place = self._state.registry.places.get(table.name)
        begin = begin_of(chunk)
        # A later search would find another start. A full state is not saved, so that a restart begins with a
        # newer one.
        if place is not None and place.position is None and begin is not None and chunk.plan.kind is not PlanKind.FULL:
            self._state.registry.places[table.name] = TablePosition(table.identity, begin)

    def _on_error(self, table: FollowedTable, error: Exception) -> None:
        with self._state.lock:
            if self._state.closed or not self._state.registry.is_followed(table):
                return
            if isinstance(error, PaimonStreamError) and error.retriable:
                table.failures += 1
                pause = BACKOFF.pause(table.failures)
                # Other tables need not wait for this one.
                self._state.rows.pass_over(table)
                text = "reading the table failed (attempt %(attempt)d) and is retried after a pause: %(error)s"
                what, attempt = what_fails(error), table.failures
                _LOG.outage("waits_out", text, what, table=table.name, attempt=attempt, error=str(error))
                self._state.schedule_poll(table, pause, busy=False)
                return
            self._state.suspect(table, error)

    def keep_alive(self, job: KeepAliveJob) -> None:
        """Renew the saved progress of all tables, because a table may wait long for room.

        An error is raised by the next poll of its table.
        """
        with self._state.lock:
            tables = list(self._state.registry.followed.values())
            self._state.schedule.put(job, self._state.clock.monotonic() + KEEPING_ALIVE)
        for table in tables:
            with suppress(PaimonStreamError):
                table.keep_alive(self._state.clock.monotonic())
