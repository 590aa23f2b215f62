"""`new_snapshots`: what an orchestrator asks at each tick, with a cursor that it keeps itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.model.plan import Plan, PlanKind
from pypaimon.streaming.model.position import Phase, Position
from pypaimon.streaming.options.arguments import at_least
from pypaimon.streaming.options.table_traits import ChainBranches, TableTraits
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.read_builder import stream_read_builder
from pypaimon.streaming.spec.streamed_table import without_consumer

DEFAULT_LIMIT = 100


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A snapshot with changes, or at first the state of the table at one.

    Attributes:
        position: Where its rows begin, as JSON.
        snapshot_id: Its id, with which its rows end.
        cursor: The position after it, as JSON: what to save, and a key that no other snapshot has, also none of the
            same id after a rollback.
    """

    position: str
    snapshot_id: int
    cursor: str

    def to_dict(self) -> dict[str, Any]:
        """The attributes, as JSON takes them."""
        return {"position": self.position, "snapshot_id": self.snapshot_id, "cursor": self.cursor}


def new_snapshots(
    table: ReadableTable, cursor: str | None = None, *, limit: int = DEFAULT_LIMIT
) -> Iterator[NewSnapshot]:
    """The snapshots that were committed since a cursor, in order; never waits for a new one.

    Snapshots without changes, such as compactions of an append table, are left out. The same cursor gives the same
    snapshots again, and keeps nothing from expiring. `stream_read_builder(table).with_start(position=new.position)
    .with_end(snapshot_id=new.snapshot_id)` reads one; the rows of an overwrite only with `with_on_overwrite("read")`.
    With the changelog producers `lookup` and `full-compaction` overwrites are left out too.

    Args:
        table: pypaimon's table.
        cursor: `NewSnapshot.cursor` of the last one that was handled; None: begin with the state of the table.
        limit: The most snapshots that one call returns.

    Raises:
        UnsupportedTableError: The table cannot be streamed, or is a chain table and `cursor` is None.
        PositionExpiredError: Snapshots after the cursor have expired.
        TableChangedError: The table was rolled back to before the cursor, or created again.
        StoreError: The store failed; the same call may succeed later.
    """
    at_least(1, "new_snapshots: limit", limit)
    with _scan(table, cursor) as scan:
        for _ in range(limit):
            plan = scan.plan()
            if plan is None:
                return
            yield (found := _found(plan, cursor))
            cursor = found.cursor


async def wait_for_snapshots(
    table: ReadableTable, cursor: str | None, seconds: float, limit: int = DEFAULT_LIMIT
) -> list[NewSnapshot]:
    """As `new_snapshots`, but waits for the first one, and looks again after `seconds`; the event loop is free."""
    return [found async for found in _awaited(table, cursor, seconds, limit)]


async def _awaited(table: ReadableTable, cursor: str | None, seconds: float, limit: int) -> AsyncIterator[NewSnapshot]:
    import asyncio

    count = 0
    async with _scan(table, cursor) as scan:
        while count < limit:
            plan = await scan.plan_async()
            if plan is not None:
                yield (found := _found(plan, cursor))
                cursor, count = found.cursor, count + 1
            elif count:
                return
            else:
                await asyncio.sleep(seconds)


def refuse_chain(table: ReadableTable) -> None:
    """Refuse a table of which `state_at` is not a position.

    Raises:
        UnsupportedTableError: It is a chain table.
    """
    if ChainBranches.of(table.table_schema.options, str(table.current_branch())) is not None:
        raise UnsupportedTableError(
            f"{table.identifier.get_full_name()} is a chain table, whose state no position names: follow it with a "
            "stream and save batch.plan_after"
        )


def state_at(after: Position, snapshot_id: int) -> Position:
    """The position at which the state of a table at a snapshot begins, by the position after it."""
    return Position(after.table, snapshot_id, after.fingerprint, Phase.FULL)


def _scan(table: ReadableTable, cursor: str | None) -> Any:
    if cursor is None:
        refuse_chain(table)
    # One plan per snapshot: a key for each, whatever else is new.
    builder = stream_read_builder(without_consumer(table)).with_catch_up("replay").with_on_schema_change("follow")
    builder = builder.with_start("latest-full") if cursor is None else builder.with_start(position=cursor)
    if not TableTraits.of(table.table_schema).producer.complete:
        # Streams pass over overwrites, and a table that is overwritten every day would never have news.
        builder.with_on_overwrite("read")
    return builder.new_streaming_scan()


def _found(plan: Plan, before: str | None) -> NewSnapshot:
    after = plan.position
    if before is None:
        # A table whose first plan has no rows begins with its first changes.
        is_state = plan.kind is PlanKind.FULL
        before = (state_at(after, plan.snapshot_id) if is_state else Position(after.table, plan.snapshot_id)).to_json()
    return NewSnapshot(before, plan.snapshot_id, after.to_json())
