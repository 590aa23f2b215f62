"""Conditional writes, commits, consumers, groups, copies and maintenance on real servers of stores and catalogs.

Each behaviour runs on each server where it may differ; rows and files are as on a disk.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileType
from pypaimon import CatalogFactory, Schema

from pypaimon.streaming import (
    ConsumerConflictError,
    MaintenanceConflictError,
    MaintenancePolicy,
    PaimonTarget,
    ParquetTarget,
    StreamConfigError,
    StreamReadBuilder,
    compact,
    copy_stream,
    list_consumers,
    maintain,
    replicate,
    stream_read_builder,
    stream_write_builder,
)
from pypaimon.streaming.errors import WriterConflictError
from pypaimon.streaming.io.conditional_writes import ChangedFileError
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.maintenance import create_branch, create_tag, delete_branch, delete_tag, list_tags, rollback
from support.stores.real_servers import hdfs, postgresql, rest, seaweed, sqlite
from support.stores.s3_server import forget_clients
from support.tables.handles import sorted_rows, write_by_stream
from support.tables.named_files import files_of, needed_files

pytestmark = pytest.mark.slow

COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
TWO_LEFT = MaintenancePolicy(min_snapshots=2, max_snapshots=2, orphan_age=0, young_orphans=True)
STORES = [
    pytest.param(seaweed, marks=pytest.mark.server),
    pytest.param(hdfs, marks=[pytest.mark.java, pytest.mark.nightly]),
]
CATALOGS = [
    *STORES,
    pytest.param(rest, marks=pytest.mark.java),
    pytest.param(sqlite),
    pytest.param(postgresql, marks=pytest.mark.server),
]
T = TypeVar("T")


class Lake:
    """The warehouse of a server.

    Attributes:
        options: Of a catalog on it.
    """

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.catalog().create_database("db", True)

    def catalog(self) -> Any:
        """A catalog with clients of its own."""
        return CatalogFactory.create(self.options)

    def create(self, *, keyed: bool = True, buckets: int = 1) -> Table:
        """A table of a new name, empty."""
        name, options = f"db.t{uuid4().hex}", {"bucket": str(buckets)} if keyed else {}
        options |= {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "50 ms", "commit.max-retries": "100"}
        schema = Schema.from_pyarrow_schema(COLUMNS, primary_keys=["k"] if keyed else None, options=options)
        self.catalog().create_table(name, schema, False)
        return Table(self, name)


class Table:
    """One table; each handle is of another catalog, as in other programs."""

    def __init__(self, lake: Lake, name: str) -> None:
        self._lake, self._name = lake, name

    def handle(self) -> Any:
        return self._lake.catalog().get_table(self._name)

    def store(self) -> tuple[Store, str]:
        handle = self.handle()
        return Store(handle.file_io), str(handle.table_path)

    def writer(self, user: str) -> Any:
        return stream_write_builder(self.handle()).with_commit_user(user).open_sync()

    def write(self, *keys: int) -> None:
        write_by_stream(self.handle(), rows(*keys))

    def changes(self) -> StreamReadBuilder:
        return (
            stream_read_builder(self.handle()).with_start("earliest").with_catch_up("replay").with_poll_interval_ms(50)
        )

    def keys(self) -> list[int]:
        with stream_read_builder(self.handle()).with_end(latest=True).open_sync() as stream:
            return sorted(key for batch in stream for key in keys_of(batch))


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": list(keys), "v": [f"v{key}" for key in keys]}, schema=COLUMNS)


def keys_of(batch: Any) -> list[int]:
    found: list[int] = batch.rows["k"].to_pylist()
    return found


def at_once(count: int, act: Callable[[int], T]) -> list[T]:
    """What threads return that act at the same time."""
    begin = threading.Barrier(count)

    def run(number: int) -> T:
        begin.wait()
        return act(number)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count)))


@pytest.fixture(scope="module")
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    forget_clients()
    with request.param(tmp_path_factory.mktemp(request.param.__name__)) as options:
        yield Lake(options)
    forget_clients()


@pytest.mark.parametrize("lake", STORES, indirect=True)
def test_one_of_eight_creates_a_file(lake: Lake) -> None:
    table = lake.create()
    stores = [table.store() for _ in range(8)]

    def create(number: int) -> bool:
        store, path = stores[number]
        return store.create_exclusive(f"{path}/file", f"{number}".encode())

    created = at_once(8, create)
    assert created.count(True) == 1
    store, path = stores[0]
    assert store.read(f"{path}/file") == f"{created.index(True)}".encode()


@pytest.mark.parametrize("lake", STORES, indirect=True)
def test_a_file_is_replaced_by_who_has_seen_it(lake: Lake) -> None:
    """On HDFS one after the other: it has no condition, so that ours compare and then write."""
    table = lake.create()
    stores = [table.store() for _ in range(8)]
    name = f"{stores[0][1]}/file"
    stores[0][0].replace(name, b"old", None)
    seen = [store.look(name, bytes)[1] for store, _ in stores]

    def replace(number: int) -> bool:
        with suppress(ChangedFileError):
            stores[number][0].replace(name, f"{number}".encode(), seen[number])
            return True
        return False

    is_at_once = lake.options["warehouse"].startswith("s3")
    replaced = at_once(8, replace) if is_at_once else [replace(number) for number in range(8)]
    assert replaced.count(True) == 1
    assert stores[0][0].read(name) == f"{replaced.index(True)}".encode()


@pytest.mark.parametrize("keyed", [False, True], ids=["append", "keyed"])
@pytest.mark.parametrize("lake", CATALOGS, indirect=True)
def test_commits_of_two_at_once_are_there_once(lake: Lake, keyed: bool) -> None:
    table = lake.create(keyed=keyed)
    writers = [table.writer(user) for user in ("a", "b")]

    def write(number: int) -> list[int]:
        found = []
        with writers[number] as writer:
            for each in range(4):
                writer.write(rows(10 * number + each))
                found.append(writer.commit().snapshot_id)
        return found

    ids = at_once(2, write)
    assert sorted(ids[0] + ids[1]) == list(range(1, 9)) and ids == [sorted(each) for each in ids]
    assert table.keys() == [0, 1, 2, 3, 10, 11, 12, 13]


@pytest.mark.parametrize("lake", CATALOGS, indirect=True)
def test_a_commit_user_commits_once(lake: Lake) -> None:
    table = lake.create(keyed=False)
    writers = [table.writer("import") for _ in range(2)]

    def commit(number: int) -> bool:
        with writers[number] as writer:
            writer.write(rows(number))
            with suppress(WriterConflictError):
                return not writer.commit(7, properties={"writer": str(number)}).repeated
        return False

    committed = at_once(2, commit)
    assert committed.count(True) == 1
    winner = committed.index(True)
    with table.writer("import") as writer:
        assert writer.last_committed == 7 and writer.committed_properties == {"writer": str(winner)}
        writer.write(rows(3))
        assert writer.commit(7).repeated
    assert table.keys() == [winner]


@pytest.mark.parametrize("lake", CATALOGS, indirect=True)
def test_a_consumer_has_one_reader_and_continues(lake: Lake) -> None:
    table = lake.create(keyed=False)
    for key in range(4):
        table.write(key)

    def reader() -> Any:
        return table.changes().with_consumer_id("etl", commit="manual").with_end(latest=True).open_sync()

    with reader() as former:
        batch = next(former)
        batch.commit()
        late = next(former)
        with reader() as newer:
            again = next(newer)
            assert keys_of(batch) == [0] and keys_of(late) == keys_of(again) == [1]
            again.commit()
            with pytest.raises(ConsumerConflictError):
                late.commit()
    assert [(each.consumer_id, each.next_snapshot, each.lag) for each in list_consumers(table.handle())] == [
        ("etl", 3, 2)
    ]
    with reader() as rest_of_it:
        assert [key for batch in rest_of_it for key in keys_of(batch)] == [2, 3]


@pytest.mark.parametrize("lake", CATALOGS, indirect=True)
def test_a_group_reads_each_row_once(lake: Lake) -> None:
    table = lake.create(buckets=4)
    for start in (0, 10, 20):
        table.write(*range(start, start + 10))

    def member() -> Any:
        group = table.changes().with_end(latest=True).new_group("workers", commit="manual", session_timeout=4)
        return group.open_sync()

    with member() as alone:
        batch = next(alone)
        confirmed = keys_of(batch)
        batch.commit()
        # It leaves with what it has not confirmed.
        next(alone)

    def read(_: int) -> list[int]:
        found = []
        with member() as stream:
            for batch in stream:
                found += keys_of(batch)
                batch.commit()
        return found

    assert sorted(sum(at_once(3, read), confirmed)) == list(range(30))


@pytest.mark.parametrize("lake", CATALOGS, indirect=True)
def test_a_copy_continues_where_it_ended(lake: Lake) -> None:
    source, copied, replicated = (lake.create() for _ in range(3))
    for key in range(3):
        source.write(key, 100)
        for _ in range(2):
            reading = stream_read_builder(source.handle()).with_end(latest=True)
            with copied.writer("copy") as writer:
                copy_stream(reading, writer)
            replicate(reading, PaimonTarget(replicated.handle()))
        latest = [each.handle().snapshot_manager().get_latest_snapshot().id for each in (copied, replicated)]
        assert latest == [key + 1] * 2
    assert copied.keys() == replicated.keys() == [0, 1, 2, 100]


@pytest.mark.parametrize("lake", STORES, indirect=True)
def test_a_directory_of_parquet_files_has_each_row_once(lake: Lake) -> None:
    source, directory = lake.create(keyed=False), f"{lake.options['warehouse']}/files-{uuid4().hex}"
    store, _ = source.store()

    def copy(_: int) -> bool:
        with suppress(StreamConfigError):
            target = ParquetTarget(directory, options=lake.options)
            replicate(stream_read_builder(source.handle()).with_end(latest=True), target)
            return True
        return False

    for key in range(3):
        source.write(key, 100 + key)
        # Of several at once one publishes the plan; the others find it, or are refused.
        assert any(at_once(3, copy))
    names = store.list_names(directory)
    assert sorted(names) == [f"plan-{number:012}.parquet" for number in (1, 2, 3)]
    files = [pq.read_table(pa.BufferReader(store.read(f"{directory}/{name}"))) for name in names]
    assert sorted(pa.concat_tables(files)["k"].to_pylist()) == [0, 1, 2, 100, 101, 102]


def life(catalog: Any, copies: Path) -> list[tuple[Any, Counter[str]]]:
    """What is in the table, and how many files of each kind, after each part of its life."""
    seen: list[tuple[Any, Counter[str]]] = []
    catalog.create_database("db", True)
    schema = Schema.from_pyarrow_schema(COLUMNS, primary_keys=["k"], options={"bucket": "1"})
    catalog.create_table("db.t", schema, False)

    def table(branch: str = "") -> Any:
        return catalog.get_table(f"db.t$branch_{branch}" if branch else "db.t")

    def write(key: int, branch: str = "") -> None:
        write_by_stream(table(branch), pa.table({"k": [key], "v": ["x"]}, schema=COLUMNS))

    def look() -> None:
        rows = [sorted_rows(table(each)) for each in ("", *branches)]
        tags = [(each.name, each.snapshot.id) for each in list_tags(table())]
        copy = copies / f"{len(seen)}"
        _copy(Store(table().file_io), str(table().table_path), copy)
        files = files_of(copy)
        assert files == needed_files(copy)
        ids = sorted(path.name for path in copy.glob("snapshot/snapshot-*"))
        seen.append(((rows, tags, ids), Counter(name.partition("-")[0] for name in files)))

    branches: list[str] = []
    for key in range(4):
        write(key)
    create_tag(table(), "kept", snapshot=2)
    create_branch(table(), "b", tag="kept")
    branches.append("b")
    write(50, "b")
    compact(table(), full=True)
    two_at_once(table)
    look()
    for key in (4, 5):
        write(key)
    rollback(table(), snapshot_id=6)
    # The files of snapshot 7 are orphans now, as are those of writers that have died.
    Store(table().file_io).write_atomic(f"{table().table_path}/bucket-0/data-lost-0.parquet", b"lost")
    two_at_once(table)
    look()
    rollback(table(), tag="kept")
    two_at_once(table)
    look()
    delete_branch(table(), "b")
    branches.clear()
    delete_tag(table(), "kept")
    write(6)
    compact(table(), full=True)
    two_at_once(table)
    look()
    return seen


def two_at_once(table: Callable[[], Any]) -> None:
    """Two maintainers begin at the same time. One that is disturbed too often leaves its part to the next run."""

    def run(_: int) -> None:
        with suppress(MaintenanceConflictError):
            maintain(table(), TWO_LEFT)

    at_once(2, run)
    maintain(table(), TWO_LEFT)


def _copy(store: Store, directory: str, to: Path) -> None:
    to.mkdir(parents=True)
    for status in store.list_statuses(directory):
        name = str(status.path).rstrip("/").rpartition("/")[2]
        if status.type == FileType.Directory:
            _copy(store, f"{directory}/{name}", to / name)
        else:
            (to / name).write_bytes(store.read(f"{directory}/{name}"))


@pytest.mark.parametrize("lake", STORES, indirect=True)
def test_the_life_of_a_table(lake: Lake, tmp_path: Path) -> None:
    on_disk = life(CatalogFactory.create({"warehouse": str(tmp_path / "disk")}), tmp_path / "copies of disk")
    assert life(lake.catalog(), tmp_path / "copies") == on_disk
