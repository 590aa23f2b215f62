"""Databases of many tables, of which few are busy, and some come and go: nothing starves, and what it costs is bounded.

60 tables; in the long form 1,000, whose memory is measured too.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pypaimon.streaming import BlockingDatabaseStream
from pypaimon.streaming.databases import TableAdded, TableDropped
from pypaimon.streaming.databases.events import DatabaseEvent
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.samples import SOAK
from support.stores.s3_server import S3Server
from support.tables.databases import Database, keys

pytestmark = [pytest.mark.server, pytest.mark.soak]

TABLES = 1000 if SOAK else 30
BUSY = 10
MOST_THREADS = 64
MOST_MEGABYTES = 300


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def requests(stream: BlockingDatabaseStream) -> int:
    """What all tables that are followed have asked for so far."""
    total: Counter[str] = Counter()
    for table in list(stream._engine._state.registry.followed.values()):
        total.update(table.scan.metrics.requests)
    return sum(total.values())


class Reader:
    """Reads rows of a stream until they are all there. Made while nothing else has threads that come and go."""

    def __init__(self, stream: BlockingDatabaseStream) -> None:
        self._stream = stream
        self._others = set(threading.enumerate())
        self.rows: Counter[tuple[str, int]] = Counter()
        self.most_threads = 0

    def read_until(self, wanted: set[tuple[str, int]]) -> None:
        """Asks for batches while rows are missing, which would be for ever if a table starved."""
        while wanted - self.rows.keys():
            batch = next(self._stream)
            self.rows.update((batch.table, key) for key in keys(batch))
            threads = set(threading.enumerate()) - self._others
            self.most_threads = max(self.most_threads, len(threads))

    def wrote(self) -> None:
        """The threads that are there now and make requests may be those of writers."""
        self._others |= {thread for thread in threading.enumerate() if thread.name.startswith("paimon-io")}


def test_many_tables_cost_little_and_none_starves(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.create("t0", 1)
    for number in range(1, TABLES):
        database.copy("t0", f"t{number}")
    told: list[DatabaseEvent] = []
    poll_seconds = 1.0 if SOAK else 0.2
    builder = database.stream().with_poll_interval_ms(round(poll_seconds * 1000)).with_discovery_interval(poll_seconds)
    before = resident_megabytes() if SOAK else 0.0
    with builder.with_on_event(told.append).open_sync() as stream:
        reader = Reader(stream)
        expected = {(f"t{number}", 1) for number in range(TABLES)}
        reader.read_until(expected)
        for round_ in range(10 if SOAK else 2):
            written = {(f"t{number}", 10 * round_ + 2) for number in range(BUSY)}
            for name, key in written:
                database.write(name, key)
            database.create(f"new{round_}", round_)
            database.drop(f"t{TABLES - 1 - round_}")
            expected |= written | {(f"new{round_}", round_)}
            reader.wrote()
            reader.read_until(expected)
        assert reader.rows == Counter(dict.fromkeys(expected, 1))
        assert reader.most_threads <= MOST_THREADS
        # Whoever has nothing to read asks once in a poll interval, and for the range now and then.
        since, asked = time.monotonic(), requests(stream)
        database.write("t0", 10**6)
        reader.wrote()
        reader.read_until({("t0", 10**6)})
        polls = 1 + (time.monotonic() - since) / (0.9 * poll_seconds)
        assert requests(stream) - asked <= TABLES * polls * 1.25 + 50
        if SOAK:
            assert resident_megabytes() - before <= MOST_MEGABYTES
    added = {event.table for event in told if isinstance(event, TableAdded)}
    assert added == {name for name, _ in expected}
    dropped = {event.table for event in told if isinstance(event, TableDropped)}
    assert dropped <= {f"t{number}" for number in range(TABLES)}


def test_a_table_that_is_far_behind_holds_up_no_other(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.create("far")
    for number in range(20):
        database.write("far", number)
    for number in range(5):
        database.create(f"t{number}", number)
    builder = database.stream().with_start("earliest").with_each_table(lambda each: each.with_limits(max_splits=1))
    with builder.open_sync(read_ahead_bytes=1) as stream:
        tables = [next(stream).table for _ in range(25)]
    assert max(index for index, name in enumerate(tables) if name != "far") < 20


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    server = S3Server()
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("fast", ["on", "off"] if SOAK else ["on"])
def test_an_object_store(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fast: str) -> None:
    from pypaimon.streaming.io.object_reads import SWITCH

    monkeypatch.setenv(SWITCH, fast)
    database = Database(tmp_path, server.catalog(f"crowd-{fast}"))
    for number in range(4):
        database.create(f"t{number}", number)
    builder = database.stream().with_poll_interval_ms(50).with_discovery_interval(0.1)
    told: list[DatabaseEvent] = []
    with builder.with_on_event(told.append).open_sync() as stream:
        reader = Reader(stream)
        reader.read_until({(f"t{number}", number) for number in range(4)})
        database.write("t0", 10)
        database.create("new", 20)
        database.drop("t2")
        database.create("t2", 12)
        reader.wrote()
        reader.read_until({("t0", 10), ("new", 20), ("t2", 12)})
        assert set(reader.rows.values()) == {1} and len(reader.rows) == 7
        assert reader.most_threads <= MOST_THREADS
    assert [type(event) for event in told if event.table == "t2"] == [TableAdded, TableDropped, TableAdded]


def test_tables_share_one_cache_of_manifests_and_let_their_snapshots_go(tmp_path: Path) -> None:
    database = Database(tmp_path)
    for name in "ab":
        database.create(name)
        for number in range(20):
            database.write(name, number)
    expected = {(name, number) for name in "ab" for number in range(20)}
    with database.stream().with_start("earliest").open_sync() as stream:
        Reader(stream).read_until(expected)
        parts = [table.driver.parts.get() for table in stream._engine._state.registry.followed.values()]
        # With the look that finds nothing new.
        while any(known_snapshots(each.directory) > 16 for each in parts):
            threading.Event().wait(0.002)
        first, second = (each.directory.manifests._cache for each in parts)
        assert first is second and first.held_bytes > 0


def known_snapshots(directory: TableDirectory) -> int:
    found = directory.snapshots.get_snapshots_batch(range(1, 21), most=0)
    return sum(snapshot is not None for snapshot in found.values())
