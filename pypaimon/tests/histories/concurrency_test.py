"""Writers commit and expire while readers, shards and consumers follow: every row exactly once."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema

from pypaimon.streaming import StreamReadBuilder
from pypaimon.streaming.consumers.consumer_manager import ConsumerManager
from pypaimon.streaming.io.object_reads import SWITCH
from support.samples import SOAK, sample_seed

pytestmark = [pytest.mark.slow, pytest.mark.soak]

STORES = ("s3", "s3_without_fast") if SOAK else (("s3", "s3_without_fast")[sample_seed() % 2],)
"""One of the two ways to an object store, both in the long form."""
WRITERS = 2
COMMITS = {"local": 6, "s3": 2}
"""Of each writer; many more in the long form."""
BEFORE = 3
"""Commits before anybody reads."""
PATIENCE = 240 * (1 + 10 * SOAK)
"""Seconds after which a test fails that stands still."""
PAUSE = 0.25
"""Seconds between two expirations, so that they leave time to the others."""
ROWS = 5
"""Of a commit."""
RETAINED = 2
"""Snapshots that expiry leaves, unless a consumer needs more."""
MANIFEST_LISTS = ("baseManifestList", "deltaManifestList", "changelogManifestList")


class Site:
    """A table (k, v) of four buckets, and everybody who works on it with a handle of his own.

    Attributes:
        total: Commits in all, which is the last snapshot.
    """

    def __init__(self, catalog: Callable[[], Any], commits: int = 0) -> None:
        self.commits = commits * (1 + 20 * SOAK)
        self.total = BEFORE + WRITERS * self.commits
        self._catalog = catalog
        columns = pa.schema([("k", pa.int64()), ("v", pa.string())])
        options = {"bucket": "4", "bucket-key": "k"}
        catalog().create_database("db", True)
        catalog().create_table("db.t", Schema.from_pyarrow_schema(columns, options=options), False)
        self._committing = threading.Lock()

    def handle(self) -> Any:
        return self._catalog().get_table("db.t")

    def builder(self, consumer_id: str | None = None, **settings: Any) -> StreamReadBuilder:
        builder = StreamReadBuilder(self.handle()).with_poll_interval_ms(300)
        return builder if consumer_id is None else builder.with_consumer_id(consumer_id, **settings)

    def commit(self, table: Any, keys: list[int]) -> None:
        """Commits of several writers are made one after the other, as under a catalog's lock."""
        builder = table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(pa.table({"k": keys, "v": [f"v{key}" for key in keys]}))
        messages = write.prepare_commit()
        with self._committing:
            commit.commit(messages)
        write.close()
        commit.close()

    def expire(self, table: Any) -> range:
        """As Java: all but the retained ones, and never what a consumer still needs. The snapshots that are left."""
        io, home = table.file_io, str(table.table_path)
        ids = sorted(int(name) for name in self._names(io, f"{home}/snapshot", "snapshot-") if name.isdecimal())
        needed = [info.next_snapshot for info in ConsumerManager(io, home).infos()]
        keep_from = max(ids[0], min([ids[-1] - RETAINED + 1, *needed]))
        for number in range(ids[0], keep_from):
            path = f"{home}/snapshot/snapshot-{number}"
            with io.new_input_stream(path) as stream:
                snapshot = json.loads(stream.read())
            for kind in MANIFEST_LISTS:
                if snapshot.get(kind):
                    io.delete(f"{home}/manifest/{snapshot[kind]}", False)
            io.delete(path, False)
        return range(keep_from, ids[-1] + 1)

    def _names(self, io: Any, directory: str, prefix: str) -> list[str]:
        names = (str(status.path).rpartition("/")[2] for status in io.list_status(directory))
        return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]


@pytest.fixture(params=["local", *STORES])
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    if request.param == "local":
        return Site(lambda: CatalogFactory.create({"warehouse": str(tmp_path)}), COMMITS["local"])
    if request.param == "s3_without_fast":
        monkeypatch.setenv(SWITCH, "off")
    server = request.getfixturevalue("server")
    return Site(lambda: server.catalog(request.param), COMMITS["s3"])


class Reader:
    """Reads to the last snapshot, in several lives of a few plans each that end by `stop`."""

    def __init__(self, site: Site, consumer_id: str, *, plans: int, shard: tuple[int, int] | None = None) -> None:
        self._site = site
        self._consumer_id = consumer_id
        self._plans = plans
        self._shard = shard
        self.rows: Counter[int] = Counter()
        self.lives = 0
        self.next: int | None = None
        self.after_first_plan: Callable[[], None] = lambda: None

    def run(self) -> None:
        while self.next is None or self.next <= self._site.total:
            self._live()

    def _live(self) -> None:
        self.lives += 1
        builder = self._site.builder(self._consumer_id).with_end(snapshot_id=self._site.total)
        if self._shard is not None:
            builder.with_shard(*self._shard)
        read, scan = builder.new_read(), builder.new_streaming_scan()
        with scan:
            for number, plan in enumerate(scan.stream_sync(), 1):
                self.rows.update(read.to_arrow(plan.splits())["k"].to_pylist())
                self.after_first_plan()
                self.after_first_plan = lambda: None
                if number == self._plans:
                    scan.stop()
            self.next = scan.next_snapshot_id


def test_every_reader_gets_every_row_once_while_writers_commit_and_expire(site: Site) -> None:
    """A reader with a first full plan waits with it until expiry would have taken what follows, but for its fence."""
    table = site.handle()
    for number in range(BEFORE):
        site.commit(table, list(range(number * ROWS, (number + 1) * ROWS)))
    late = Reader(site, "late", plans=1000)
    readers = [
        late,
        Reader(site, "steady", plans=1000),
        Reader(site, "restless", plans=1),
        *(Reader(site, "shards", plans=4, shard=(index, 3)) for index in range(3)),
    ]
    held, go_on, restless_has_begun = threading.Event(), threading.Event(), threading.Event()
    begun = threading.Semaphore(0)

    def wait() -> None:
        held.set()
        assert go_on.wait(PATIENCE)

    def tell() -> None:
        begun.release()
        restless_has_begun.set()

    for reader in readers:
        reader.after_first_plan = lambda: begun.release()
    late.after_first_plan, readers[2].after_first_plan = wait, tell
    left: list[range] = []

    def write(writer: int) -> None:
        own = site.handle()
        for number in range(site.commits):
            # So that it has something to come back for.
            assert number < site.commits - 1 or restless_has_begun.wait(PATIENCE)
            first = (BEFORE + writer * site.commits + number) * ROWS
            site.commit(own, list(range(first, first + ROWS)))

    def expire(until: threading.Event) -> None:
        own = site.handle()
        for _ in readers[1:]:
            begun.acquire()
        while not until.wait(PAUSE):
            left.append(site.expire(own))
            if left[-1][-1] >= BEFORE + RETAINED:
                go_on.set()

    finished = threading.Event()
    with ThreadPoolExecutor(len(readers) + WRITERS + 1) as everybody:
        reading = [everybody.submit(readers[0].run)]
        assert held.wait(PATIENCE)
        expiring = everybody.submit(expire, finished)
        writing = [everybody.submit(write, writer) for writer in range(WRITERS)]
        reading += [everybody.submit(reader.run) for reader in readers[1:]]
        try:
            for each in (*writing, *reading):
                each.result(PATIENCE)
        finally:
            finished.set()
            go_on.set()
            begun.release(len(readers))
        expiring.result(PATIENCE)
    everything = dict.fromkeys(range(site.total * ROWS), 1)
    for reader in readers[:3]:
        assert reader.rows == everything
    assert sum((reader.rows for reader in readers[3:]), Counter()) == everything
    assert readers[2].lives > 1
    # While the late reader held its first plan, expiry wanted more than its fence gave.
    fenced = [snapshots for snapshots in left if snapshots[-1] >= BEFORE + RETAINED and snapshots[0] == BEFORE]
    assert fenced
    assert site.expire(table) == range(site.total - RETAINED + 1, site.total + 1)
    saved = {info.name.text: info.next_snapshot for info in ConsumerManager(table.file_io, table.table_path).infos()}
    names = ("late", "steady", "restless", *(f"shards.shard-{index}-of-3" for index in range(3)))
    assert saved == dict.fromkeys(names, site.total + 1)
