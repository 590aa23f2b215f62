"""A schema of DuckDB holds what a database holds: exactly once, whatever happens to tables and to programs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import duckdb
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import DuckDBDatabase, StreamConfigError, TablesFailedError, copy_database
from pypaimon.streaming.databases import (
    DatabaseEvent,
    DatabasePosition,
    DatabaseStreamBuilder,
    TableAdded,
    TableFailed,
    copy_database_async,
)
from support.samples import SOAK
from support.tables.databases import Database, alter, rows_of, write

pytestmark = [pytest.mark.slow, pytest.mark.soak]

KILLS = 200 if SOAK else 3


@pytest.fixture
def connection() -> Any:
    return duckdb.connect()


def copied(database: Database, connection: Any, told: list[DatabaseEvent] | None = None, **settings: Any) -> None:
    target = DuckDBDatabase(connection, "copy", **settings)
    events = [] if told is None else told
    copy_database(
        database.catalog,
        "db",
        target,
        configure=lambda stream: stream.with_end(latest=True).with_on_event(events.append),
    )


def held(connection: Any, name: str) -> list[tuple[Any, ...]]:
    return sorted(connection.execute(f'SELECT * FROM "copy"."{name}"').fetchall(), key=str)


def names(connection: Any) -> set[str]:
    query = "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'copy' AND table_name NOT LIKE '_paimon%'"
    return {name for (name,) in connection.execute(query).fetchall()}


def test_a_table_takes_the_name_of_one_that_is_gone(database: Database, connection: Any) -> None:
    database.create("a", 1)
    database.create("b", 2)
    copied(database, connection)
    database.drop("b")
    copied(database, connection)
    for name in ("b", "B"):
        database.rename("a" if name == "b" else "b", name)
        database.write(name, 3)
        copied(database, connection)
        assert names(connection) == {name}
        assert held(connection, name) == rows_of(database, name)


def test_columns_are_followed(database: Database, connection: Any) -> None:
    database.create("t", keyed=True, bucket="1")
    alter(database, "t", *(SchemaChange.add_column(name, AtomicType("INT")) for name in ("a", "b", "c")))
    write(database, "t", k=[1], a=[1], b=[2], c=[3])
    copied(database, connection)
    alter(database, "t", SchemaChange.update_column_type("a", AtomicType("BIGINT")))
    alter(database, "t", SchemaChange.rename_column("b", "e"), SchemaChange.drop_column("c"))
    alter(database, "t", SchemaChange.add_column("d", AtomicType("STRING")))
    write(database, "t", k=[2], a=[1 << 40], e=[5], d=["x"])
    copied(database, connection)
    query = "SELECT k, a, e, d, c FROM copy.t ORDER BY k"
    assert connection.execute(query).fetchall() == [(1, 1, 2, None, None), (2, 1 << 40, 5, "x", None)]
    alter(database, "t", SchemaChange.add_column("c", AtomicType("STRING")))
    write(database, "t", k=[3], a=[1], e=[1], d=["y"], c=["z"])
    copied(database, connection)
    assert connection.execute("SELECT k, c FROM copy.t ORDER BY k").fetchall() == [(1, None), (2, None), (3, "z")]
    alter(database, "t", SchemaChange.drop_column("c"), SchemaChange.drop_column("d"))
    write(database, "t", k=[4], a=[1], e=[1])
    copied(database, connection, drop_columns=True)
    assert held(connection, "t") == rows_of(database, "t")


def test_a_column_that_is_narrowed_parks_its_table(database: Database, connection: Any) -> None:
    for name in ("t", "good"):
        database.create(name)
    alter(database, "t", SchemaChange.add_column("v", AtomicType("DOUBLE")))
    write(database, "t", k=[1], v=[1.5])
    copied(database, connection)
    alter(database, "t", SchemaChange.update_column_type("v", AtomicType("INT")))
    write(database, "t", k=[2], v=[2])
    database.write("good", 1)
    told: list[DatabaseEvent] = []
    with pytest.raises(TablesFailedError, match="column 'v' was DOUBLE and is INT now") as raised:
        copied(database, connection, told)
    assert isinstance(raised.value.errors["t"], StreamConfigError)
    assert [event.table for event in told if isinstance(event, TableFailed)] == ["t"]
    assert (held(connection, "t"), held(connection, "good")) == ([(1, 1.5)], [(1,)])
    connection.execute("DROP TABLE copy.t")
    copied(database, connection)
    assert held(connection, "t") == rows_of(database, "t")


def test_tables_that_do_not_match_any_more_are_left_as_they_are(database: Database, connection: Any) -> None:
    for name in "ab":
        database.create(name, 1)
    copied(database, connection)
    target = DuckDBDatabase(connection, "copy", on_drop="drop")
    database.write("b", 2)
    copy_database(database.catalog, "db", target, include="a", configure=lambda stream: stream.with_end(latest=True))
    assert (held(connection, "a"), held(connection, "b")) == ([(1,)], [(1,)])
    copied(database, connection)
    assert held(connection, "b") == [(1,), (2,)]


def test_a_copy_on_an_event_loop_ends_by_its_end_or_when_it_is_cancelled(database: Database, connection: Any) -> None:
    """It leaves the loop free, and the target too, whether it was cancelled before its stream was open or later."""
    database.create("t", 1)

    async def copy(configure: Callable[[DatabaseStreamBuilder], object] | None = None) -> DatabasePosition:
        target = DuckDBDatabase(connection, "copy")
        return await copy_database_async(database.catalog, "db", target, configure=configure)

    async def cancel(when: str) -> None:
        added, loop = asyncio.Event(), asyncio.get_running_loop()
        task = asyncio.create_task(
            copy(lambda stream: stream.with_on_event(lambda _: loop.call_soon_threadsafe(added.set)))
        )
        await (added.wait() if when == "open" else asyncio.sleep(0))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 60)

    asyncio.run(cancel("open"))
    asyncio.run(cancel("at once"))
    assert list(asyncio.run(copy(lambda stream: stream.with_end(latest=True))).tables) == ["t"]
    assert held(connection, "t") == [(1,)]


def test_a_copy_without_an_end_is_stopped_through_its_stream(database: Database, connection: Any) -> None:
    database.create("t", 1)
    streams: list[Any] = []

    def stop(event: DatabaseEvent) -> None:
        told.append(event)
        streams[-1].stop()

    told: list[DatabaseEvent] = []
    target = DuckDBDatabase(connection, "copy")
    found = copy_database(
        database.catalog, "db", target, configure=lambda stream: stream.with_on_event(stop), on_open=streams.append
    )
    assert (found.tables, told, len(streams)) == ({}, [TableAdded("t")], 1)
