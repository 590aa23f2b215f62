"""A database that is followed: rows of all tables, each once, and what happens to tables, told before it shows."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    BlockingDatabaseStream,
    StreamConfigError,
    TablesFailedError,
    database_stream_builder,
    stream_read_builder,
)
from pypaimon.streaming.databases import (
    DatabaseEvent,
    DatabasePosition,
    SchemaChanged,
    TableAdded,
    TableDropped,
    TableFailed,
    TablePosition,
    TableRecovered,
    TableRenamed,
    TableSkipped,
)
from pypaimon.streaming.databases.engine_state import WORKERS
from support.tables.databases import Database, keys

pytestmark = pytest.mark.slow

Found = list[tuple[str, list[int]]]


def read(builder: Any) -> Found:
    with builder.with_end(latest=True).open_sync() as stream:
        return [(batch.table, keys(batch)) for batch in stream]


def test_rows_of_all_tables_that_match(database: Database) -> None:
    for name in ("orders_eu", "orders_us", "orders_old", "people"):
        database.create(name, 1, 2)
    found = read(database.stream(include="orders_.*", exclude=".*_old"))
    assert sorted(found) == [("orders_eu", [1, 2]), ("orders_us", [1, 2])]
    filtered = database.stream(exclude="orders.*").with_table("people", lambda builder: builder.with_filter("k > 1"))
    assert read(filtered) == [("people", [2])]


def test_tables_that_come_and_go_while_it_runs(database: Database) -> None:
    database.create("a", 1)
    told: list[DatabaseEvent] = []
    with database.stream().with_on_event(told.append).open_sync() as stream:
        assert (batch := next(stream)).table == "a" and keys(batch) == [1]
        assert told == [TableAdded("a")]
        database.create("b", 10)
        assert (batch := next(stream)).table == "b" and keys(batch) == [10]
        database.rename("a", "c")
        database.write("c", 2)
        assert (batch := next(stream)).table == "c" and keys(batch) == [2]
        assert told[1:] == [TableAdded("b"), TableRenamed("c", "a")]
        database.drop("b")
        database.create("b", 11)
        assert (batch := next(stream)).table == "b" and keys(batch) == [11]
        assert told[3:] == [TableDropped("b"), TableAdded("b")]
        database.drop("b")
        database.create("d", 20)
        assert keys(next(stream)) == [20]
        assert stream.tables in (("b", "c", "d"), ("c", "d"))
        database.write("c", 3)
        assert keys(next(stream)) == [3]


def test_a_position_knows_which_tables_there_were(database: Database) -> None:
    for name in ("a", "b", "c", "empty"):
        database.create(name)
    for name in ("a", "b", "c"):
        database.write(name, 1)
    builder = database.stream().with_start("latest")
    with builder.copy().with_end(latest=True).open_sync() as stream:
        assert list(stream) == []
        saved = stream.position.to_json()
    assert DatabasePosition.from_json(saved).to_json() == saved
    database.write("a", 2)
    database.rename("b", "renamed")
    database.write("renamed", 3)
    database.drop("c")
    database.create("c", 4)
    database.create("new", 5)
    told: list[DatabaseEvent] = []
    found = read(builder.with_start(position=saved).with_on_event(told.append))
    assert sorted(found) == [("a", [2]), ("c", [4]), ("new", [5]), ("renamed", [3])]
    assert set(told) == {
        *(TableAdded(name) for name in ("a", "c", "empty", "new")),
        TableRenamed("renamed", "b"),
        TableDropped("c"),
    }
    assert told.index(TableDropped("c")) < told.index(TableAdded("c"))


@pytest.mark.parametrize("time", range(8))
def test_a_position_after_a_stop_knows_what_was_reported(database: Database, time: int) -> None:
    """Though the engine notes it on a thread of its own."""
    for number in range(4):
        database.create(f"t{number}")
    told: list[str] = []

    def stop(event: DatabaseEvent) -> None:
        told.append(event.table)
        stream.stop()

    with database.stream().with_on_event(stop).open_sync() as stream:
        assert list(stream) == []
        assert list(stream.position.tables) == told and len(told) == 1


def test_what_cannot_be_streamed_is_passed_over(database: Database) -> None:
    database.create("good", 1)
    database.create("bad", keyed=True, bucket="1", merge_engine="partial-update")
    told: list[DatabaseEvent] = []
    assert read(database.stream().with_on_event(told.append)) == [("good", [1])]
    (skipped,) = [event for event in told if isinstance(event, TableSkipped)]
    assert skipped.table == "bad" and "partial-update" in skipped.reason


def test_a_table_that_was_read_before_and_cannot_be_any_more_is_an_error(database: Database) -> None:
    """Not only an event: the rows that it has got since are missed."""
    database.create("t", 1)
    with database.stream().with_end(latest=True).open_sync() as stream:
        assert len(list(stream)) == 1
        position = stream.position
    database.catalog.alter_table("db.t", [SchemaChange.set_option("scan.fallback-branch", "b")], False)
    database.write("t", 2)
    with pytest.raises(TablesFailedError, match="cannot be streamed"):
        read(database.stream().with_start(position=position))
    database.catalog.alter_table("db.t", [SchemaChange.remove_option("scan.fallback-branch")], False)
    assert read(database.stream().with_start(position=position)) == [("t", [2])]


def test_what_was_passed_over_is_looked_at_again(database: Database) -> None:
    database.create("good", 1)
    database.create("t", keyed=True, bucket="1", merge_engine="partial-update")
    told: list[DatabaseEvent] = []
    with database.stream().with_on_event(told.append).open_sync() as stream:
        next(stream)
        while stream._engine._state.registry.rounds < 5 or not [event for event in told if event.table == "t"]:
            # Each row comes behind what was to be told.
            database.write("good", 2)
            next(stream)
        database.drop("t")
        database.create("t", 7)
        while (batch := next(stream)).table != "t":
            pass
        assert keys(batch) == [7]
    assert [type(event) for event in told if event.table == "t"] == [TableSkipped, TableAdded]


def test_a_table_that_was_renamed_before_it_was_read_begins_where_it_was_to_begin(database: Database) -> None:
    for name in ("known", "seen_empty"):
        database.create(name)
    with database.stream().with_end(latest=True).open_sync() as stream:
        list(stream)
        places = stream.position.tables
    known = TablePosition(places["known"].identity)
    position = DatabasePosition("db", {"known": known, "seen_empty": places["seen_empty"]})
    for name in ("known", "seen_empty"):
        database.write(name, 1)
        database.rename(name, f"{name}_now")
    builder = database.stream().with_start(position=position).with_start("latest")
    assert read(builder) == [("seen_empty_now", [1])]


def test_a_forked_process_has_nothing_of_a_stream(database: Database) -> None:
    database.create("t", 1)
    with database.stream().open_sync() as stream:
        assert keys(next(stream)) == [1]
        found = in_child_while_locked(stream)
        database.write("t", 2)
        assert keys(next(stream)) == [2]
    is_of_another = "BlockingDatabaseStream(db, opened before this process was forked)"
    assert found.splitlines() == [*["refused"] * 6, "None", is_of_another]


def in_child_while_locked(stream: BlockingDatabaseStream) -> str:
    """What `in_child` gives, in a process that is forked while another thread has the lock of the engine."""
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with stream._engine._state.lock:
            held.set()
            go_on.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    told, free = os.pipe()
    child = os.fork()
    if not child:
        # Ends it if it hangs.
        signal.alarm(60)
        os.write(free, in_child(stream).encode())
        os._exit(0)
    go_on.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    found = os.read(told, 1 << 16).decode()
    for each in (told, free):
        os.close(each)
    return found


def in_child(stream: BlockingDatabaseStream) -> str:
    """What calls come to in a process that was forked."""
    calls: list[Callable[[], object]] = [
        lambda: stream.tables,
        lambda: stream.failed,
        lambda: stream.position,
        lambda: stream.lag(),
        lambda: stream.retry("t"),
        lambda: stream.park("t", ValueError()),
        lambda: stream.close(),
    ]
    return "\n".join([*(outcome(call) for call in calls), repr(stream)])


def outcome(call: Callable[[], object]) -> str:
    """What a call comes to."""
    try:
        return str(call())
    except StreamConfigError:
        return "refused"


def test_an_error_of_one_table_stops_that_table_alone(database: Database) -> None:
    for name in ("bad", "good"):
        database.create(name, 1)
    snapshot = database.home / "bad" / "snapshot" / "snapshot-1"
    text = snapshot.read_bytes()
    snapshot.write_bytes(b"{}")
    with pytest.raises(TablesFailedError, match="snapshot-1") as raised:
        read(database.stream())
    assert set(raised.value.errors) == {"bad"}
    told: list[DatabaseEvent] = []
    with database.stream().with_on_event(told.append).open_sync() as stream:
        assert keys(next(stream)) == [1]
        database.write("good", 2)
        while not stream.failed:
            database.write("good", 2)
            next(stream)
        assert set(stream.failed) == {"bad"}
        snapshot.write_bytes(text)
        stream.retry("bad")
        database.write("bad", 7)
        found: set[int] = set()
        while not found >= {1, 7}:
            batch = next(stream)
            found.update(keys(batch) if batch.table == "bad" else [])
        assert not stream.failed
        with pytest.raises(StreamConfigError, match="not parked"):
            stream.retry("good")
    of_bad = [type(event) for event in told if event.table == "bad"]
    assert of_bad == [TableAdded, TableFailed, TableRecovered]


def test_an_error_of_one_table_ends_the_stream_where_that_is_asked_for(database: Database) -> None:
    database.create("bad", 1)
    (database.home / "bad" / "snapshot" / "snapshot-1").write_bytes(b"{}")
    with (
        database.stream().with_on_table_error("raise").open_sync() as stream,
        pytest.raises(Exception, match="snapshot-1"),
    ):
        next(stream)


def test_the_batches_of_a_plan_follow_each_other(database: Database) -> None:
    for name in "abc":
        database.create(name)
        for commit in range(4):
            database.write(name, *range(commit, 200 + commit))
    builder = database.stream().with_start("earliest").with_end(latest=True)
    sizes: dict[str, int] = defaultdict(int)
    with builder.with_each_table(lambda each: each.with_limits(max_splits=1)).open_sync(batch_bytes=1) as stream:
        before = None
        for batch in stream:
            if before is not None and not before.is_last:
                assert (batch.table, batch.snapshot_id) == (before.table, before.snapshot_id)
            sizes[batch.table] += batch.num_rows
            before = batch
    assert sizes == {"a": 800, "b": 800, "c": 800}


def test_a_new_schema_is_reported_before_its_rows(database: Database) -> None:
    from pypaimon.schema.data_types import AtomicType
    from pypaimon.schema.schema_change import SchemaChange

    database.create("a", 1)
    told: list[DatabaseEvent] = []
    with database.stream().with_on_event(told.append).open_sync() as stream:
        next(stream)
        database.catalog.alter_table("db.a", [SchemaChange.add_column("v", AtomicType("STRING"))])
        database.write("a", 2)
        batch = next(stream)
        assert batch.rows.column_names == ["k", "v"]
    (changed,) = [event for event in told if isinstance(event, SchemaChanged)]
    assert (changed.old.id, changed.new.id) == (0, 1)


def test_progress_is_saved_in_each_table(database: Database) -> None:
    for name in "ab":
        database.create(name, 1)
    builder = database.stream().with_consumer_id("etl")
    assert sorted(read(builder.copy())) == [("a", [1]), ("b", [1])]
    database.write("a", 2)
    database.create("c", 3)
    with builder.with_end(latest=True).open_sync() as stream:
        batch = next(stream)
        assert (batch.table, keys(batch)) in (("a", [2]), ("c", [3]))
        if batch.table != "a":
            batch = next(stream)
        assert keys(batch) == [2]
        batch.commit()
    manual = database.stream(include="a").with_consumer_id("etl", commit="manual")
    assert read(manual) == []
    database.write("a", 4)
    assert read(manual.copy()) == [("a", [4])] == read(manual.copy())


def test_asyncio_and_waits_that_are_cancelled(database: Database) -> None:
    for name in "abc":
        database.create(name, *range(5))
    told: list[DatabaseEvent] = []

    async def tell(event: DatabaseEvent) -> None:
        await asyncio.sleep(0)
        told.append(event)

    async def program() -> list[tuple[str, list[int]]]:
        found = []
        async with database.stream().with_on_event(tell).open(batch_bytes=1) as stream:
            while len(found) < 3:
                step = asyncio.ensure_future(anext(stream))
                await asyncio.sleep(0)
                step.cancel()
                try:
                    batch = await step
                except asyncio.CancelledError:
                    batch = await anext(stream)
                if batch.num_rows:
                    found.append((batch.table, keys(batch)))
        return found

    assert sorted(asyncio.run(program())) == [(name, list(range(5))) for name in "abc"]
    assert sorted(told, key=lambda event: event.table) == [TableAdded(name) for name in "abc"]


def test_an_event_whose_handler_fails_comes_again(database: Database) -> None:
    database.create("a", 1)
    told: list[DatabaseEvent] = []

    def fail_once(event: DatabaseEvent) -> None:
        told.append(event)
        if len(told) == 1:
            raise RuntimeError("once")

    with database.stream().with_on_event(fail_once).open_sync() as stream:
        with pytest.raises(RuntimeError, match="once"):
            next(stream)
        assert keys(next(stream)) == [1]
    assert told == [TableAdded("a")] * 2


def test_stopping_hands_out_what_is_left_of_a_plan(database: Database) -> None:
    database.create("a")
    database.write("a", 1)
    database.write("a", 2)
    with database.stream().open_sync() as stream:
        next(stream)
        stream.stop()
        rest = list(stream)
    assert all(batch.snapshot_id == 2 for batch in rest)


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda catalog: database_stream_builder(catalog, "db", include="("), "include"),
        (lambda catalog: database_stream_builder(catalog, "db", include=r"t\$branch_b"), "not their branches"),
        (
            lambda catalog: database_stream_builder(catalog, "db").with_start(),
            "give a mode or a timestamp, or a position",
        ),
        (lambda catalog: database_stream_builder(catalog, "db").with_start("soon"), "latest-full"),
        (lambda catalog: database_stream_builder(catalog, "db").with_discovery_interval(0), "seconds"),
        (lambda catalog: database_stream_builder(catalog, "db").with_on_table_error("skip"), "park"),
        (lambda catalog: database_stream_builder(catalog, "db").with_start(position="{}"), "Invalid position"),
        (
            lambda catalog: database_stream_builder(catalog, "db").with_start(position=DatabasePosition("other")),
            "other",
        ),
        (
            lambda catalog: database_stream_builder(catalog, "db").with_start("latest").with_consumer_id("x").open(),
            r"with_start\(position=",
        ),
        (lambda catalog: next(database_stream_builder(catalog, "none").open_sync()), "no database 'none'"),
    ],
)
def test_what_cannot_be_is_refused(database: Database, build: Any, told: str) -> None:
    with pytest.raises(StreamConfigError, match=told):
        build(database.catalog)


def test_nothing_is_read_ahead_where_there_is_no_room(database: Database) -> None:
    for number in range(12):
        database.create(f"t{number}")
        for commit in range(2):
            database.write(f"t{number}", *range(1000 * commit, 1000 * commit + 1000))
    rows: dict[str, int] = defaultdict(int)
    most, never = 0, threading.Event()
    builder = database.stream().with_start("earliest").with_end(latest=True)
    with builder.open_sync(read_ahead_bytes=0) as stream:
        for batch in stream:
            rows[batch.table] += batch.num_rows
            # Whatever the workers read of others, they have read by then.
            never.wait(0.01)
            most = max(most, stream._engine.waiting_bytes)
    assert rows == {f"t{number}": 2000 for number in range(12)}
    # A chunk of each worker.
    assert 0 < most <= WORKERS * 8000


@pytest.mark.parametrize("start", [{"mode": "latest"}, {"timestamp": 4_000_000_000_000}])
def test_a_table_that_appears_is_read_from_its_first_row_whatever_its_age(database: Database, start: Any) -> None:
    database.create("old", 1)
    database.create("here", 2)
    aside = database.home.parent / "aside"
    (database.home / "old").rename(aside)
    told: list[DatabaseEvent] = []
    with database.stream().with_start(**start).with_on_event(told.append).open_sync() as stream:
        while not told:
            assert stream.poll(0.05) is None
        aside.rename(database.home / "old")
        assert (batch := stream.poll(30)) is not None
        assert (batch.table, keys(batch)) == ("old", [1])


@pytest.mark.parametrize("start", ["of the table", "of its builder"])
def test_a_table_that_a_position_lacks_is_read_from_its_first_row_whatever_its_own_start(
    database: Database, start: str
) -> None:
    database.create("here", 1)
    with database.stream().with_end(latest=True).open_sync() as stream:
        assert len(list(stream)) == 1
        position = stream.position
    database.create("new", 2, **({"scan__mode": "latest"} if start == "of the table" else {}))
    builder = database.stream().with_start(position=position)
    if start == "of its builder":
        builder.with_table("new", lambda each: each.with_start("latest"))
    assert read(builder) == [("new", [2])]


def test_the_position_of_one_table_is_kept_when_the_table_is_new(database: Database) -> None:
    database.create("here", 1)
    database.create("new", 2)
    with stream_read_builder(database.table("new")).with_end(latest=True).open_sync() as of_table:
        place = [batch.position for batch in of_table][-1]
    database.write("new", 3)
    held = DatabasePosition("db", {})
    builder = database.stream(include="new").with_start(position=held)
    assert read(builder.with_table("new", lambda each: each.with_start(position=place))) == [("new", [3])]


@pytest.mark.parametrize("given", ["start", "consumer", "options"])
def test_a_start_of_changes_needs_more_than_a_consumer_wherever_both_are_given(database: Database, given: str) -> None:
    database.create("t", 1, **({"scan__mode": "latest", "consumer_id": "etl"} if given == "options" else {}))
    builder = database.stream()
    if given == "start":
        builder.with_consumer_id("etl").with_each_table(lambda each: each.with_start("latest"))
    elif given == "consumer":
        builder.with_each_table(lambda each: each.with_consumer_id("etl")).with_start("latest")
    with pytest.raises(TablesFailedError, match="would not be recognised as new"):
        read(builder)
    # The position says which tables there were.
    assert read(builder.copy().with_start(position=DatabasePosition("db", {}))) == [("t", [1])]


def test_the_first_changes_of_a_new_table_may_be_in_a_long_lived_changelog(database: Database) -> None:
    database.create("here", 1)
    database.create("old", 2, changelog__num_retained__max="90", snapshot__num_retained__max="9")
    database.write("old", 3)
    (database.home / "old" / "changelog").mkdir()
    (database.home / "old" / "snapshot" / "snapshot-1").rename(database.home / "old" / "changelog" / "changelog-1")
    aside = database.home.parent / "aside"
    (database.home / "old").rename(aside)
    told: list[DatabaseEvent] = []
    with database.stream().with_start("latest").with_on_event(told.append).open_sync() as stream:
        while not told:
            assert stream.poll(0.05) is None
        aside.rename(database.home / "old")
        assert [keys(batch) for batch in (stream.poll(30), stream.poll(30)) if batch] == [[2], [3]]


def test_a_branch_may_be_named_among_the_tables_that_are_left_out(database: Database) -> None:
    database.create("t", 1)
    assert read(database.stream(exclude=r"x|.*\$branch_.*")) == [("t", [1])]
