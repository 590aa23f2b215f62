"""How far a stream of a database is behind: what is known without asking, what is asked for, and what nobody knows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pypaimon.streaming.databases import DatabaseLag, DatabaseStreamBuilder, TableLag
from support.tables.databases import Database, keys

pytestmark = pytest.mark.slow


def until(stream: Any, holds: Callable[[DatabaseLag], bool]) -> DatabaseLag:
    """The first lag for which something holds. Asked for so often that the stream is not held up by it."""
    never = threading.Event()
    while not holds(lag := stream.lag()):
        never.wait(0.002)
    return lag


def behind(lag: DatabaseLag) -> dict[str, tuple[int | None, int | None]]:
    return {name: (each.snapshots, each.rows) for name, each in lag.tables.items()}


def slowly(builder: DatabaseStreamBuilder) -> DatabaseStreamBuilder:
    """Looked at once, and then not in the time of a test."""
    return builder.with_poll_interval_ms(10**9).with_discovery_interval(10**9)


def test_before_anything_was_found_out_nothing_is_known(database: Database) -> None:
    with database.stream().open_sync() as stream:
        lag = stream.lag()
    assert (lag.snapshots, lag.rows, lag.seconds, lag.age, lag.tables) == (None, None, None, None, {})


def test_what_the_last_look_saw_is_reported_without_asking(database: Database) -> None:
    database.create("a")
    for value in range(3):
        database.write("a", value)
    database.create("b", 1, 2)
    database.create("empty")
    builder = slowly(database.stream().with_start("earliest"))
    with builder.open_sync() as stream:
        # Caught up with by the workers, and nothing handed out of what waits: two plans of a, or three, and one of b.
        seen = {}
        for _ in range(4):
            batch = next(stream)
            seen[batch.table] = batch.snapshot_id
            until(stream, lambda lag: not lag.unknown)
            expected = {
                "a": (3 - seen.get("a", 0), 3 - seen.get("a", 0)),
                "b": (1 - seen.get("b", 0), 2 - 2 * seen.get("b", 0)),
                "empty": (0, 0),
            }
            lag = stream.lag()
            assert behind(lag) == expected
            assert lag.snapshots == sum(snapshots for snapshots, _ in expected.values())
            assert lag.rows == sum(rows for _, rows in expected.values())
            assert lag.seconds is not None and (lag.seconds > 0) == bool(lag.snapshots)
            assert lag.age is not None and lag.age >= 0
        # What comes later is seen by who asks.
        database.write("b", 3)
        database.write("empty", 1)
        assert behind(stream.lag()) == {"a": (0, 0), "b": (0, 0), "empty": (0, 0)}
        fresh = stream.lag(fresh=True)
        assert behind(fresh) == {"a": (0, 0), "b": (1, 1), "empty": (None, None)}
        assert (fresh.snapshots, fresh.unknown, fresh.age) == (None, ("empty",), 0.0)
        assert behind(stream.lag())["b"] == (1, 1)


def test_a_state_that_is_still_to_come_is_behind_by_its_rows(database: Database) -> None:
    for name in "ab":
        database.create(name, 1, 2, 3)
    with slowly(database.stream()).open_sync() as stream:
        batch = next(stream)
        assert keys(batch) == [1, 2, 3]
        other = "b" if batch.table == "a" else "a"
        lag = until(stream, lambda lag: len(lag.tables) == 2 and not lag.unknown)
        assert behind(lag) == {batch.table: (0, 0), other: (1, 3)}
        assert behind(stream.lag(fresh=True)) == behind(lag)


def test_a_table_that_is_far_behind_is_asked_for_its_latest_snapshot(database: Database) -> None:
    database.create("a")
    for value in range(5):
        database.write("a", value)
    builder = slowly(database.stream().with_start("earliest")).with_each_table(
        lambda each: each.with_limits(max_splits=1)
    )
    with builder.open_sync(read_ahead_bytes=0) as stream:
        next(stream)
        lag = until(stream, lambda lag: not lag.unknown)
        assert behind(lag)["a"][0] == 4


def test_a_parked_table_is_unknown(database: Database) -> None:
    database.create("bad", 1)
    database.create("good", 1)
    (database.home / "bad" / "snapshot" / "snapshot-1").write_bytes(b"{}")
    with slowly(database.stream()).open_sync() as stream:
        next(stream)
        # Before it is parked it is suspected, and its lag is unknown for that.
        lag = until(
            stream,
            lambda lag: (
                "bad" in stream.failed and lag.tables["bad"].error is stream.failed["bad"] and lag.unknown == ("bad",)
            ),
        )
        for found in (lag, stream.lag(fresh=True)):
            assert (found.snapshots, found.rows, found.seconds) == (None, None, None)
            assert found.tables["bad"] == TableLag(error=stream.failed["bad"])
            assert found.tables["good"].snapshots == 0


def test_what_cannot_be_asked_for_is_reported_for_its_table_alone(database: Database) -> None:
    for name in "ab":
        database.create(name, 1)
    with slowly(database.stream()).open_sync() as stream:
        for _ in range(2):
            next(stream)
        until(stream, lambda lag: lag.unknown == ())
        database.write("a", 2)
        (database.home / "a" / "snapshot" / "snapshot-2").write_bytes(b"{}")
        lag = stream.lag(fresh=True)
        assert lag.unknown == ("a",) and "snapshot-2" in str(lag.tables["a"].error)
        assert lag.tables["b"].snapshots == 0


def test_asyncio(database: Database) -> None:
    database.create("a", 1)

    async def program() -> list[Any]:
        async with slowly(database.stream()).open() as stream:
            await anext(stream)
            database.write("a", 2)
            return [behind(await stream.lag(fresh=True))]

    assert asyncio.run(program()) == [{"a": (1, 1)}]
