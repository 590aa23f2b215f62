"""Measures how far a stream of a database is behind."""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.databases.followed_table import FollowedTable, begin_of
from pypaimon.streaming.databases.lag import DatabaseLag, TableLag
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.model.position import Position

_AT_ONCE = 8
"""Tables that are asked at the same time."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a stream stands in one table, in one moment.

    Attributes:
        table: Its stream; None: it is not open.
        position: Behind what was handed out; None: nobody knows, or it is empty.
        is_empty: Whether it had no snapshot when it was looked at last, so that all of it is still to come.
        error: What it is parked for, or None.
    """

    table: FollowedTable | None
    position: Position | None = None
    is_empty: bool = False
    error: Exception | None = None


def next_up(table: FollowedTable, position: Position | None) -> Position | None:
    """Where a table goes on: the position, else that of the first plan that waits; None: nobody knows.

    Args:
        table: It; nothing of it is taken or added meanwhile.
        position: Behind what was handed out, or None.
    """
    if position is not None or not table.chunks:
        return position
    return begin_of(table.chunks[0])


def database_lag(standings: dict[str, Standing], clock: Clock, *, is_listed: bool, fresh: bool) -> DatabaseLag:
    """The lag of a stream of a database.

    Args:
        standings: Where it stands, by name of the table.
        clock: Where time comes from.
        is_listed: Whether it was found out which tables there are.
        fresh: Whether each table is asked what its latest snapshot is: some requests each, eight tables at the same
            time; else what is known by now, without a request.
    """
    if not fresh:
        now = clock.monotonic()
        return DatabaseLag({name: _known(each, now) for name, each in standings.items()}, is_listed)
    pool = IOPool(_AT_ONCE, timeout=float("inf"), name="paimon-database-lag")
    try:
        asked = {name: pool.submit(_measured, each, clock) for name, each in standings.items()}
        return DatabaseLag({name: pool.result(each) for name, each in asked.items()}, is_listed)
    finally:
        pool.close()


def _known(standing: Standing, now: float) -> TableLag:
    table = standing.table
    if table is None or standing.error is not None:
        return TableLag(error=standing.error)
    return table.seen_lag(standing.position, now, is_empty=standing.is_empty)


def _measured(standing: Standing, clock: Clock) -> TableLag:
    table = standing.table
    if table is None or standing.error is not None:
        return TableLag(error=standing.error)
    try:
        return table.measured_lag(standing.position, clock.monotonic, is_empty=standing.is_empty)
    except Exception as error:  # noqa: BLE001 - it is the answer for this table, and no other's
        return TableLag(error=error)
