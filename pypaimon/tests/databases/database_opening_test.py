"""How tables of a database are opened: what that asks for, what waits for it, and which errors stay with a table."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pypaimon.filesystem.local_file_io import LocalFileIO

from pypaimon.streaming import (
    BlockingDatabaseStream,
    CorruptTableError,
    StreamReadBuilder,
    TableChangedError,
    UnsupportedTableError,
    stream_read_builder,
)
from pypaimon.streaming.databases import TableDropped, TableFailed, followed_table, table_discovery, table_poller
from pypaimon.streaming.databases.engine_state import OPENERS, WORKERS
from pypaimon.streaming.databases.followed_table import FollowedTable
from pypaimon.streaming.databases.tables_of_database import TablesOfDatabase
from pypaimon.streaming.planning import planner
from pypaimon.streaming.spec.openers import open_chunks
from pypaimon.streaming.spec.spec_builder import resolved
from support.tables.databases import Database, Doors, keys
from support.tables.streamed_table import expire

pytestmark = pytest.mark.slow


class Requests(LocalFileIO):
    """Notes what it is asked for, and lets a test hold a request up."""

    def __init__(self, hold_up: Callable[[str], object] = lambda _: None) -> None:
        super().__init__()
        self.asked: list[str] = []
        self._hold_up = hold_up

    @property
    def names(self) -> list[str]:
        return [Path(path).name for path in self.asked]

    @property
    def kinds(self) -> list[str]:
        """Names without their unique parts."""
        return [re.sub(r"-[0-9a-f]{8}-.*", "", name) for name in self.names]

    def _note(self, path: str) -> None:
        self.asked.append(path)
        self._hold_up(path)

    def new_input_stream(self, path: str) -> Any:
        self._note(path)
        return super().new_input_stream(path)

    def list_status(self, path: str) -> Any:
        self._note(path)
        return super().list_status(path)

    def exists(self, path: str) -> bool:
        self._note(path)
        return bool(super().exists(path))


def through(database: Database, files: Requests) -> Database:
    """The database, whose catalog and tables ask through this FileIO."""
    database.catalog.file_io = files
    return database


def test_to_open_a_table_is_a_listing_and_its_schema(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.create("t", 1)
    files = Requests()
    tables = TablesOfDatabase(through(database, files).catalog, "db")
    opened = tables.open("t", 1, time.monotonic, is_followed=True)
    assert opened is not None and opened.builder.table.identifier.get_full_name() == "db.t"
    assert files.names == ["schema", "schema-0"]


def test_the_latest_snapshot_is_read_before_the_schema_that_identifies_the_table(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.create("t", 1)
    files = Requests()
    TablesOfDatabase(through(database, files).catalog, "db").open("t", 1, time.monotonic)
    assert sorted(files.names[:2]) == ["LATEST", "schema"]
    assert sorted(files.names[2:4]) == ["snapshot-1", "snapshot-2"] and files.names[4:] == ["schema-0"]


@pytest.mark.parametrize(("commits", "start"), [(1, None), (2, None), (1, "latest-full")])
def test_each_table_is_asked_for_nothing_twice_until_its_first_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int, start: str | None
) -> None:
    """Eight requests of a table with one snapshot; of another one also the base list, and its further files."""
    # On a busy machine an answer may be too old to be used.
    monkeypatch.setattr(planner, "LATEST_COUNTS_SECONDS", 60.0)
    monkeypatch.setattr(followed_table, "_POLL_COUNTS_SECONDS", 60.0)
    database, count = Database(tmp_path), 8
    for number in range(count):
        database.create(f"t{number}")
        for value in range(commits):
            database.write(f"t{number}", value)
    files = Requests()
    builder = through(database, files).stream().with_poll_interval_ms(60_000).with_discovery_interval(60)
    if start is not None:
        builder.with_start(start)
    with builder.open_sync() as stream:
        assert {next(stream).table for _ in range(count)} == {f"t{number}" for number in range(count)}
        until_idle(stream)
    asked = Counter(files.kinds)
    assert asked.pop("db.db") == 2
    once = ["LATEST", "schema", "schema-0", f"snapshot-{commits}", f"snapshot-{commits + 1}"]
    of_commits = {"manifest-list": count * min(commits, 2), "manifest": count * commits, "data": count * commits}
    assert asked == {**dict.fromkeys(once, count), **of_commits}


@pytest.mark.parametrize("is_bounded", [True, False])
def test_a_restart_at_a_position_asks_for_nothing_twice_where_nothing_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_bounded: bool
) -> None:
    monkeypatch.setattr(planner, "LATEST_COUNTS_SECONDS", 60.0)
    monkeypatch.setattr(followed_table, "_POLL_COUNTS_SECONDS", 60.0)
    database, count = Database(tmp_path), 4
    for number in range(count):
        database.create(f"t{number}", 1)
    with database.stream().open_sync() as stream:
        assert [next(stream).data.num_rows for _ in range(count)] == [1] * count
        position = stream.position
    files = Requests()
    builder = through(database, files).stream().with_start(position=position).with_poll_interval_ms(60_000)
    builder.with_discovery_interval(60)
    if is_bounded:
        with builder.with_end(latest=True).open_sync() as stream:
            assert list(stream) == []
    else:
        with builder.open_sync() as stream:
            caller = threading.Thread(target=lambda: list(stream))
            caller.start()
            while len(stream.tables) < count:
                threading.Event().wait(0.002)
            until_idle(stream)
            stream.stop()
            caller.join()
    asked = Counter(files.kinds)
    assert asked.pop("db.db") == 2
    assert asked == dict.fromkeys(["LATEST", "schema", "schema-0", "snapshot-1", "snapshot-2"], count)


def until_idle(stream: BlockingDatabaseStream) -> None:
    """Wait until each table was looked at once more after its rows."""
    while stream.lag().unknown:
        threading.Event().wait(0.002)


def test_rows_come_while_other_tables_are_still_opened(tmp_path: Path) -> None:
    database = Database(tmp_path)
    for number in range(12):
        database.create(f"t{number:02}", number)
    first = threading.Event()

    def hold_up(path: str) -> None:
        if "/schema" in path and "/t00/" not in path:
            assert first.wait(60), "the rows of the first table wait for the other tables"

    with through(database, Requests(hold_up)).stream().open_sync() as stream:
        assert next(stream).table == "t00"
        first.set()
        assert {next(stream).table for _ in range(11)} == {f"t{number:02}" for number in range(1, 12)}


@pytest.mark.parametrize("by_name", [False, True])
def test_a_broken_schema_is_an_error_of_its_table(tmp_path: Path, by_name: bool) -> None:
    database = Database(tmp_path)
    database.create("bad", 1)
    database.create("good", 2)
    (database.home / "bad" / "schema" / "schema-0").write_text('{"version": 3, "id": 0')
    told: list[Any] = []
    catalog = Doors(database.catalog) if by_name else None
    with database.stream(catalog).with_on_event(told.append).open_sync() as stream:
        assert keys(next(stream)) == [2]
        while not any(isinstance(event, TableFailed) for event in told):
            database.write("good", 3)
            next(stream)
        (failed,) = (event for event in told if isinstance(event, TableFailed))
    assert failed.table == "bad" and isinstance(failed.error, CorruptTableError) and "bad" in str(failed.error)


def test_a_column_of_an_unknown_type_is_refused_by_name(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.create("t", 1)
    schema = database.home / "t" / "schema" / "schema-0"
    schema.write_text(schema.read_text().replace('"BIGINT"', '"GEOMETRY"'))
    with pytest.raises(UnsupportedTableError, match="GEOMETRY"):
        TablesOfDatabase(database.catalog, "db").open("t", 1, time.monotonic)


@pytest.mark.parametrize("is_bounded", [True, False])
def test_a_database_that_is_dropped_ends_the_stream_and_its_lag_is_unknown(tmp_path: Path, is_bounded: bool) -> None:
    database = Database(tmp_path)
    for name in ("a", "b", "c"):
        database.create(name, 1)
        database.write(name, 2)
    builder = database.stream().with_each_table(lambda each: each.with_limits(max_rows=1))
    if is_bounded:
        builder.with_end(latest=True)
    with builder.open_sync(read_ahead_bytes=0) as stream:
        next(stream)
        database.catalog.drop_database("db", False, True)
        with pytest.raises(TableChangedError, match="The database 'db' was dropped"):
            list(stream)
        lag = stream.lag()
        assert lag.snapshots is None and lag.rows is None and lag.seconds is None
        assert stream.lag(fresh=True).snapshots is None


def test_a_request_of_a_dropped_table_that_hangs_holds_up_no_worker(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.create("old", 1)
    database.create("other", 2)
    hanging, release, told = threading.Event(), threading.Event(), list[Any]()
    is_held = False

    def hold_up(path: str) -> None:
        if is_held and "/old/snapshot" in path:
            hanging.set()
            release.wait()

    stream = through(database, Requests(hold_up)).stream().with_on_event(told.append).open_sync()
    try:
        assert sorted(keys(next(stream)) + keys(next(stream))) == [1, 2]
        is_held = True
        assert hanging.wait(60)
        old = stream._engine._state.registry.followed["old"]
        database.drop("old")
        value = 3
        while TableDropped("old") not in told:
            database.write("other", value)
            assert keys(next(stream)) == [value]
            value += 1
        # The worker that waited for the answer is told to go on: it would wait for the request's time limit.
        for _ in range(5000):
            if old not in stream._engine._poller._at_work:
                break
            threading.Event().wait(0.002)
        else:
            raise AssertionError("a worker still waits for the table that was dropped")
    finally:
        release.set()
        stream.close()


def test_a_table_that_is_recreated_between_its_snapshot_and_its_schema(tmp_path: Path) -> None:
    database, other = Database(tmp_path), Database(tmp_path)
    database.create("t", 1)
    asked: list[str] = []

    def recreate(path: str) -> None:
        if path.endswith("/t/schema/schema-0") and not asked:
            asked.append(path)
            other.drop("t")
            other.create("t", 2)

    with through(database, Requests(recreate)).stream().open_sync() as stream:
        assert keys(next(stream)) == [2]
        other.write("t", 3)
        assert keys(next(stream)) == [3]
    assert asked


def test_a_snapshot_that_expires_before_a_consumer_reads_it_is_not_waited_for(tmp_path: Path) -> None:
    database, other = Database(tmp_path), Database(tmp_path)
    database.create("t", 1)

    def expire_once(_: Any) -> None:
        if not expired:
            expired.append(True)
            other.write("t", 2)
            other.write("t", 3)
            expire(database.home / "t", 3)

    expired: list[bool] = []
    with database.stream().with_consumer_id("c").with_each_table(expire_once).open_sync() as stream:
        assert sorted(keys(next(stream))) == [1, 2, 3]


def test_a_bounded_stream_does_not_end_at_a_snapshot_of_an_earlier_table(tmp_path: Path) -> None:
    database, other = Database(tmp_path), Database(tmp_path)
    database.create("t", 1)
    for value in range(2, 6):
        database.write("t", value)
    recreated: list[str] = []

    def recreate(path: str) -> None:
        if path.endswith("/t/schema/schema-0") and not recreated:
            recreated.append(path)
            other.drop("t")
            other.create("t", 20)

    with through(database, Requests(recreate)).stream().with_end(latest=True).open_sync() as stream:
        assert [keys(batch) for batch in stream] == [[20]]


def test_a_builder_that_a_caller_keeps_reads_to_the_latest_snapshot(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.create("t", 1)
    kept: list[StreamReadBuilder] = []
    with database.stream().with_each_table(kept.append).open_sync() as stream:
        assert keys(next(stream)) == [1]
        database.write("t", 2)
        with kept[0].copy().with_end(latest=True).open_sync() as batches:
            assert [value for batch in batches for value in batch.rows["k"].to_pylist()] == [1, 2]


def test_parts_of_a_snapshot_after_the_first_plan_follow_each_other(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.create("t", 1, keyed=True, bucket="4")
    builder = stream_read_builder(database.table("t")).with_limits(max_splits=1)
    _, _, reader = open_chunks(resolved(builder), 1 << 20)
    try:
        assert reader.look(60.0) is not None
        reader.rest()
        database.write("t", *range(2, 40))
        assert [reader.look(60.0) is not None for _ in range(5)] == [True, True, True, True, False]
    finally:
        reader.close()


def test_few_tables_are_opened_before_others_are_read(tmp_path: Path) -> None:
    """What was read to open a table would be too old, and asked for again, when its turn comes."""
    database, count = Database(tmp_path), 60
    database.create("t00", 1)
    for number in range(1, count):
        database.copy("t00", f"t{number:02}")
    read, is_held = threading.Event(), threading.Event()

    def hold_up(path: str) -> None:
        if "/manifest/" in path:
            is_held.set()
            assert read.wait(60)

    files = Requests(hold_up)
    with through(database, files).stream().open_sync() as stream:
        stream_reader = threading.Thread(target=lambda: {next(stream).table for _ in range(count)}, daemon=True)
        stream_reader.start()
        assert is_held.wait(60)
        before = -1
        while before < (before := files.kinds.count("schema-0")):
            threading.Event().wait(0.3)
        assert before <= 2 * WORKERS + 2 * OPENERS + WORKERS
        read.set()
        stream_reader.join(60)
        assert not stream_reader.is_alive()


@pytest.mark.parametrize("turn", [0.5, -1.0])
@pytest.mark.parametrize("commits", [1, 3])
def test_a_first_look_that_takes_longer_than_a_turn_asks_for_no_snapshot_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: float, commits: int
) -> None:
    """A state of several commits comes in several chunks, between which other tables have their turns."""
    monkeypatch.setattr(planner, "LATEST_COUNTS_SECONDS", 60.0)
    monkeypatch.setattr(followed_table, "_POLL_COUNTS_SECONDS", 60.0)
    monkeypatch.setattr(table_poller, "_TURN_SECONDS", turn)
    found_nothing = threading.Event()

    class Watched(FollowedTable):
        def look(self, *arguments: Any) -> Any:
            chunk = super().look(*arguments)
            if chunk is None:
                found_nothing.set()
            return chunk

    monkeypatch.setattr(table_discovery, "FollowedTable", Watched)
    database = Database(tmp_path)
    database.create("t")
    for value in range(commits):
        database.write("t", value)
    files = Requests()
    builder = through(database, files).stream().with_poll_interval_ms(60_000).with_discovery_interval(60)
    with builder.open_sync(batch_bytes=1) as stream:
        assert [key for _ in range(commits) for key in keys(next(stream))] == list(range(commits))
        assert found_nothing.wait(60)
    asked = Counter(files.kinds)
    assert asked["LATEST"] == asked[f"snapshot-{commits}"] == 1
    # Threads and prefetched steps do not outlive a turn, so that the last turn of several polls.
    assert asked[f"snapshot-{commits + 1}"] == (2 if commits > 1 and turn < 0 else 1)
