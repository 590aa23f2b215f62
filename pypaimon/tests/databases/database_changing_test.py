"""Tables that change while one stream of their database is open: each row once, whatever comes in between."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from typing import Any

import pytest

from pypaimon.streaming import BlockingDatabaseStream, CorruptTableError, UnsupportedTableError, list_consumers
from pypaimon.streaming.databases import DatabaseEvent, TableAdded, TableDropped, TableFailed, TableRenamed
from support.crash.interrupted_call import Interrupt
from support.samples import SOAK, is_drawn
from support.stores.fault_file_io import FaultFileIO
from support.tables.databases import SLOW_DOWN, Database, Doors, keys
from support.waits import until

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ONE_IN = 1 if SOAK else 80
"""Each line is in the sample of one in so many commits."""
LONG = 60
"""Seconds after which a call counts as one that does not come back."""


def rows_until(stream: BlockingDatabaseStream, last: tuple[str, int]) -> Counter[tuple[str, int]]:
    """All rows up to this one."""
    found: Counter[tuple[str, int]] = Counter()
    while last not in found:
        batch = next(stream)
        found.update((batch.table, key) for key in keys(batch))
    return found


def test_what_was_read_of_a_table_that_a_listing_lacks_is_handed_out(database: Database) -> None:
    database.create("a", 1)
    files = FaultFileIO()
    doors = Doors(database.catalog, files)
    with database.stream(catalog=doors).open_sync() as stream:
        assert keys(next(stream)) == [1]
        # A look at the table is under way, and finds a snapshot, while a listing does not have it, the next one does.
        files.gate.clear()
        files.asked.clear()
        files.asked.wait()
        database.write("a", 2)
        doors.hide_once("a")
        until(lambda: doors.is_hidden == 0)
        until(lambda: any(table.suspicion for table in stream._engine._state.registry.followed.values()))
        files.gate.set()
        assert keys(next(stream)) == [2]
        database.write("a", 3)
        assert keys(next(stream)) == [3]


def test_a_position_knows_every_table_that_was_reported(database: Database) -> None:
    names = [f"t{number}" for number in range(20)]
    for name in names:
        database.create(name, 1)
    with database.stream().with_end(latest=True).open_sync() as stream:
        list(stream)
        saved = stream.position.to_json()
    told: set[str] = set()

    def check(event: DatabaseEvent) -> None:
        position = stream.position
        assert set(position.tables) >= told
        assert all(position.tables[name].position is not None for name in told)
        told.add(event.table)

    with database.stream().with_start(position=saved).with_end(latest=True).with_on_event(check).open_sync() as stream:
        assert list(stream) == []
    assert told == set(names)


def test_a_table_that_is_renamed_in_the_middle_of_a_plan_continues_in_it(database: Database) -> None:
    database.create("a")
    for number in range(4):
        database.write("a", number)
    told: list[DatabaseEvent] = []
    with database.stream().with_on_event(told.append).open_sync(batch_bytes=1, read_ahead_bytes=0) as stream:
        first = next(stream)
        assert keys(first) == [0] and not first.is_last and first.begins_state
        database.rename("a", "b")
        until(lambda: bool(stream._engine._state.pending_events))
        rest = [next(stream)]
        while not rest[-1].is_last:
            rest.append(next(stream))
        of_b = [batch for batch in rest if batch.table == "b"]
        assert [key for batch in rest for key in keys(batch)] == [1, 2, 3] and of_b
        assert not any(batch.begins_state for batch in rest)
        database.write("b", 4)
        assert keys(next(stream)) == [4]
    assert told == [TableAdded("a"), TableRenamed("b", "a")]


def test_a_parked_table_is_followed_by_the_next_one_of_its_name(database: Database) -> None:
    database.create("a", 1)
    database.create("b", 1)
    told: list[DatabaseEvent] = []
    doors = Doors(database.catalog)
    with database.stream(catalog=doors).with_on_event(told.append).open_sync() as stream:
        assert [keys(next(stream)), keys(next(stream))] == [[1], [1]]
        error = ValueError("its rows cannot be used")
        stream.park("a", error)
        registry = stream._engine._state.registry
        parked_at = registry.rounds
        until(lambda: registry.rounds > parked_at + 2)
        with doors.listing, doors.opening:
            # No listing lacks the name.
            database.drop("a")
            database.create("a", 2)
        until(lambda: TableDropped("a") in [each.event for each in stream._engine._state.pending_events])
        assert rows_until(stream, ("a", 2)) == Counter([("a", 2)])
        assert stream.failed == {}
    assert told[2:] == [TableFailed("a", error), TableDropped("a"), TableAdded("a")]


def test_a_parked_table_that_cannot_be_opened_for_now_keeps_others_from_nothing(database: Database) -> None:
    for name in "ab":
        database.create(name, 1)
    doors = Doors(database.catalog)
    with database.stream(catalog=doors).open_sync() as stream:
        assert [keys(next(stream)), keys(next(stream))] == [[1], [1]]
        stream.park("a", ValueError("its rows cannot be used"))
        until(lambda: "a" in stream.failed)
        doors.fail["a"] = SLOW_DOWN
        until(lambda: "a" in doors.failed)
        database.drop("b")
        until(lambda: TableDropped("b") in [each.event for each in stream._engine._state.pending_events])
        assert isinstance(stream.failed["a"], ValueError)
        with doors.opening:
            doors.fail.clear()
            until(lambda: "a" in stream._engine._state.registry.opening)
            assert stream._engine._state.first_polls == 0


def test_another_error_of_a_parked_table_is_reported_once(database: Database) -> None:
    database.create("a", 1)
    told: list[DatabaseEvent] = []
    with database.stream().with_on_event(told.append).open_sync() as stream:
        assert keys(next(stream)) == [1]
        stream.park("a", ValueError("its rows cannot be used"))
        until(lambda: "a" in stream.failed)
        (database.home / "a/schema/schema-0").write_text("{")
        until(lambda: isinstance(stream.failed["a"], CorruptTableError))
        registry = stream._engine._state.registry
        seen_at = registry.rounds
        until(lambda: registry.rounds > seen_at + 3)
        database.create("b", 2)
        assert keys(next(stream)) == [2]
    assert [type(each.error) for each in told if isinstance(each, TableFailed)] == [ValueError, CorruptTableError]


def test_a_failed_table_that_a_listing_opens_is_not_opened_twice_for_a_retry(database: Database) -> None:
    for name in "ab":
        database.create(name, 1)
    doors, told = Doors(database.catalog), list[DatabaseEvent]()
    doors.fail["a"] = ValueError("it cannot be opened")
    with database.stream(catalog=doors).with_on_event(told.append).open_sync() as stream:
        state = stream._engine._state
        assert keys(next(stream)) == [1]
        until(lambda: "a" in stream.failed)

        def is_under_way() -> bool:
            with state.lock:
                return "a" in state.registry.opening and state.openings.next_due() is None

        with doors.opening:
            doors.fail.clear()
            until(is_under_way)
            with state.lock:
                stream.retry("a")
                assert state.openings.next_due() is None
        assert rows_until(stream, ("a", 1)) == Counter([("a", 1)])
    assert told.count(TableAdded("a")) == 1


def test_a_table_that_failed_and_cannot_be_followed_is_not_failed_any_more(database: Database) -> None:
    for name in "ab":
        database.create(name, 1)
    doors = Doors(database.catalog)
    skipped = doors.fail["a"] = UnsupportedTableError("it cannot be followed")
    with database.stream(catalog=doors).open_sync() as stream:
        registry = stream._engine._state.registry
        assert keys(next(stream)) == [1]
        until(lambda: "a" in registry.skipped)
        doors.fail["a"] = ValueError("it cannot be opened")
        until(lambda: "a" in stream.failed)
        doors.fail["a"] = skipped
        until(lambda: "a" not in stream.failed)
        assert registry.skipped == {"a": str(skipped)}


@pytest.mark.parametrize("why", ["cannot be opened", "cannot start"])
def test_a_table_without_a_stream_is_followed_by_the_next_one_of_its_name(database: Database, why: str) -> None:
    for name in "ab":
        database.create(name, 1)
    doors, told = Doors(database.catalog), list[DatabaseEvent]()
    if why == "cannot be opened":
        (database.home / "a/schema/schema-0").write_text("{")
    with database.stream(catalog=doors).with_on_event(told.append).open_sync() as stream:
        state = stream._engine._state
        while next(stream).table != "b":
            pass
        if why == "cannot start":
            until(lambda: "a" in stream.tables)
            with state.lock:
                # As `start_stream` leaves it.
                table = state.registry.followed.pop("a")
                state.schedule.remove(table)
                state.park("a", ValueError("no such start"), None, table.identity)
            table.close()
        until(lambda: "a" in stream.failed)
        failed_at = state.registry.rounds
        until(lambda: state.registry.rounds > failed_at + 2)
        assert "a" in stream.failed
        with doors.listing, doors.opening:
            # No listing lacks the name.
            shutil.rmtree(database.home / "a")
            database.create("a", 9)
        until(lambda: TableAdded("a") in [each.event for each in state.pending_events])
        assert rows_until(stream, ("a", 9))[("a", 9)] == 1
        assert stream.failed == {} and stream.tables == ("a", "b")
    of_a = [type(event) for event in told if event.table == "a"]
    assert of_a == [
        *([TableFailed] if why == "cannot be opened" else [TableAdded, TableFailed, TableDropped]),
        TableAdded,
    ]


def test_a_table_is_renamed_and_another_one_comes_in_its_place(database: Database) -> None:
    database.create("orders", 1)
    told: list[DatabaseEvent] = []
    with database.stream().with_on_event(told.append).open_sync() as stream:
        next(stream)
        database.rename("orders", "orders_old")
        database.create("orders", 2)
        database.write("orders_old", 3)
        found = rows_until(stream, ("orders", 2))
        if ("orders_old", 3) not in found:
            found += rows_until(stream, ("orders_old", 3))
    assert found == Counter([("orders", 2), ("orders_old", 3)])
    assert told[:1] == [TableAdded("orders")]
    assert set(told[1:]) == {TableRenamed("orders_old", "orders"), TableAdded("orders")}


def test_progress_of_a_table_that_was_recreated_ends_nothing(database: Database) -> None:
    for name in "ab":
        database.create(name, 1)
    told: list[DatabaseEvent] = []
    with database.stream().with_consumer_id("etl").with_on_event(told.append).open_sync() as stream:
        while next(stream).table != "a":
            pass
        database.drop("a")
        database.create("a", 2)
        database.write("b", 3)
        found = rows_until(stream, ("a", 2))
        next_snapshot = {info.consumer_id: info.next_snapshot for info in list_consumers(database.table("b"))}
        assert next_snapshot["etl"] >= 2
    assert found[("a", 2)] == 1 and ("a", 1) not in found
    assert [event for event in told if event.table == "a"] == [TableAdded("a"), TableDropped("a"), TableAdded("a")]


def test_a_table_that_vanishes_though_it_is_listed_is_dropped(database: Database) -> None:
    database.create("a", 1)
    database.create("b", 1)
    doors = Doors(database.catalog)
    told: list[DatabaseEvent] = []
    with database.stream(catalog=doors).with_on_event(told.append).open_sync() as stream:
        for _ in range(2):
            next(stream)
        database.drop("a")
        # As an object store may leave it: a directory without a table.
        (database.home / "a").mkdir()
        database.write("b", 2)
        while TableDropped("a") not in told:
            database.write("b", 2)
            next(stream)
        assert stream.tables == ("b",)


def test_a_catalog_that_fails_for_now_parks_nothing(database: Database) -> None:
    database.create("a", 1)
    doors = Doors(database.catalog)
    doors.fail_once = SLOW_DOWN
    with database.stream(catalog=doors).with_end(latest=True).open_sync() as stream:
        assert [keys(batch) for batch in stream] == [[1]]
    assert doors.fail_once is None


def test_interrupted_at_any_line_a_stream_continues(database: Database) -> None:
    for name in "ab":
        database.create(name)
        for number in range(2):
            database.write(name, 10 * number, 10 * number + 1)
    wanted = Counter((name, key) for name in "ab" for key in (0, 1, 10, 11))
    lines = Interrupt()
    assert followed(database, lines) == wanted
    assert len(lines.seen) > 60
    for line, count in lines.seen.items():
        if not is_drawn(f"database {line}", ONE_IN):
            continue
        for number in {1, min(count, 3)}:
            outcome: list[Any] = []
            thread = threading.Thread(target=follow, args=(database, Interrupt(line, number), outcome), daemon=True)
            thread.start()
            thread.join(LONG)
            assert outcome == [wanted], f"interrupted at {line}: nothing, if it hangs or fails"


def follow(database: Database, interrupt: Interrupt, outcome: list[Any]) -> None:
    """Keep what comes of it, if it comes back."""
    outcome.append(followed(database, interrupt))


def followed(database: Database, interrupt: Interrupt) -> Counter[tuple[str, int]]:
    """The rows of all tables, each call tried again if it was interrupted."""
    found: Counter[tuple[str, int]] = Counter()
    builder = database.stream().with_start("earliest").with_end(latest=True).with_on_event(lambda event: None)
    with builder.open_sync(batch_bytes=1) as stream:
        while True:
            try:
                batch = interrupt.call(lambda: next(stream, None))
            except KeyboardInterrupt:
                continue
            if batch is None:
                return found
            found.update((batch.table, key) for key in keys(batch))
