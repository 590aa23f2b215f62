"""Conditional saves: a late save of an abandoned reader neither takes its file back nor ends another reader."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.filesystem.local_file_io import LocalFileIO

from pypaimon.streaming import ConsumerConflictError, StreamReadBuilder
from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerManager
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.errors import StoreError
from pypaimon.streaming.io.conditional_writes import ChangedFileError
from pypaimon.streaming.io.object_reads import SWITCH
from pypaimon.streaming.io.store import Store
from support import programs
from support.samples import SOAK
from support.stores.fault_file_io import HangingFileIO
from support.stores.hadoop_file_io import HADOOP, HadoopFileIO
from support.stores.s3_server import BUCKET, S3Server
from support.tables.handles import write_by_pypaimon
from support.tables.streamed_table import COLUMNS, Table

pytestmark = [pytest.mark.server, pytest.mark.soak]

ETL = ConsumerName("etl")


class Place:
    """A table, two handles of it, and a way to hold the next save of the first one.

    Attributes:
        holding: The next save within the block waits until `go_on`, after `hanging`.
    """

    def __init__(
        self,
        table: Any,
        second: Any,
        holding: Callable[[], AbstractContextManager[tuple[threading.Event, threading.Event]]],
        compares: bool,
    ) -> None:
        self._table, self._second, self.holding, self.compares = table, second, holding, compares

    def commit(self, *keys: int) -> None:
        write_by_pypaimon(self._second, pa.table({"k": list(keys), "v": [str(key) for key in keys]}, COLUMNS))

    def scan(self, table: Any, start: str) -> Any:
        builder = StreamReadBuilder(table).with_start(start).with_prefetch(0).with_catch_up("replay")
        return builder.with_consumer_id("etl", commit="manual").new_streaming_scan()

    def first(self, start: str) -> Any:
        return self.scan(self._table, start)

    def second(self, start: str) -> Any:
        return self.scan(self._second, start)

    def saved(self) -> Consumer | None:
        return ConsumerManager(self._second.file_io, self._second.table_path).read(ETL)


PLACES = ["local", "fast", "overwriting", "file_io"]
STARTS = [(place, "earliest") for place in PLACES]
STARTS += [(place, "latest-full") for place in (PLACES if SOAK else PLACES[:2])]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    if request.param == "local":
        table = Table(tmp_path / "w")
        held = HangingFileIO()
        first = table.handle()
        first.file_io = held

        @contextmanager
        def holding() -> Iterator[tuple[threading.Event, threading.Event]]:
            held.hangs = lambda call: call.kind == "write" and "consumer-" in call.name and not held.hanging.is_set()
            yield held.hanging, held.go_on
            held.go_on.set()

        yield Place(first, table.handle(), holding, compares=True)
        return
    server = request.getfixturevalue("server")
    monkeypatch.setenv(SWITCH, "off" if request.param == "file_io" else "on")
    name = "".join(character if character.isalnum() else "_" for character in request.node.name)
    table = Table(tmp_path, name, catalog=server.catalog("takeover"))

    @contextmanager
    def hanging() -> Iterator[tuple[threading.Event, threading.Event]]:
        with server.failing(f"{name}/consumer/consumer-etl", "hang", method="PUT"):
            yield server.hanging, server.go_on

    with server.behaving(heeds_conditions=request.param != "overwriting"):
        yield Place(table.handle(), table.handle(), hanging, compares=request.param == "fast")


PROGRAM = """
import json, sys
from pypaimon import CatalogFactory
from pypaimon.streaming import stream_read_builder

table = CatalogFactory.create(json.loads(sys.argv[1])).get_table(sys.argv[2])
with stream_read_builder(table).with_start("earliest").with_consumer_id("etl").open_sync() as stream:
    next(stream)
"""


@pytest.mark.parametrize("place", ["fast"], indirect=True)
@pytest.mark.parametrize("is_claimed", [False, True], ids=["first claim", "later claim"])
def test_a_claim_of_a_killed_program_that_lands_late_does_not_end_its_successor(
    place: Place, server: S3Server, is_claimed: bool
) -> None:
    place.commit(1)
    if is_claimed:
        with place.first("earliest") as earlier:
            earlier.commit(earlier.plan())
        place.commit(2)
    options = {"warehouse": f"s3://{BUCKET}/takeover", **server.options()}
    name = place.second("earliest").table.identifier.get_full_name()
    with place.holding() as (hanging, go_on):
        killed = programs.Popen([sys.executable, "-c", PROGRAM, json.dumps(options), name])
        assert hanging.wait(120)
        killed.kill()
        killed.wait()
        with place.second("earliest") as successor:
            plan = successor.plan()
            go_on.set()
            assert server.carried_out.wait(120)
            successor.commit(plan)
    saved = place.saved()
    assert saved is not None and saved.next_snapshot == plan.snapshot_id + 1


@pytest.mark.parametrize(("place", "start"), STARTS, indirect=["place"])
def test_a_late_save_does_not_end_the_reader_that_took_over(place: Place, start: str) -> None:
    """`earliest`: the file exists already; `latest-full`: it is the first save, after the first plan."""
    for key in range(3):
        place.commit(key)
    old = place.first(start)
    plan = old.plan()
    with place.holding() as (hanging, go_on), ThreadPoolExecutor(1) as late:
        save: Future[None] = late.submit(old.commit, plan)
        assert hanging.wait(60)
        old.close()
        new = place.second(start)
        plans = [new.plan()]
        assert plans[0].snapshot_id == plan.snapshot_id
        go_on.set()
        failure = save.exception()
    if place.compares and start == "earliest":
        assert isinstance(failure, ConsumerConflictError)
    else:
        assert failure is None
    if start != "earliest":
        place.commit(3)
    plans.append(new.plan())
    for each in plans:
        new.commit(each)
        saved = place.saved()
        assert saved is not None and saved.next_snapshot == each.position.snapshot
    with pytest.raises(ConsumerConflictError):
        old._driver.progress().open(0)
    new.close()


def test_another_reader_than_the_former_one_still_ends_it(place: Place) -> None:
    place.commit(1)
    place.commit(2)
    scans = [place.first("earliest"), place.second("earliest"), place.second("earliest")]
    plans = [scan.plan() for scan in scans]
    scans[2].commit(plans[2])
    for scan, plan in zip(scans[:2], plans[:2], strict=True):
        with pytest.raises(ConsumerConflictError, match="another reader"):
            scan.commit(plan)
    scans[2].commit(scans[2].plan())


# ---- files ----


@pytest.fixture(params=["local", "hadoop", "fast", "file_io"])
def files(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Store, str]:
    """A store, and a directory in it."""
    if request.param == "local":
        return Store(LocalFileIO(), sleep=lambda _: None), str(tmp_path / "d")
    if request.param == "hadoop":
        return Store(HadoopFileIO(), sleep=lambda _: None), f"{HADOOP}{tmp_path}/d"
    server = request.getfixturevalue("server")
    monkeypatch.setenv(SWITCH, "on" if request.param == "fast" else "off")
    table = Table(tmp_path, f"files_{request.param}", catalog=server.catalog(f"files{tmp_path.name}")).handle()
    return Store(table.file_io, sleep=lambda _: None), f"{table.table_path}/d"


def test_a_file_is_created_once(files: tuple[Store, str]) -> None:
    store, directory = files
    path = f"{directory}/a"
    with pytest.raises(FileNotFoundError):
        store.look(path, bytes)
    store.replace(path, b"1", None)
    store.replace(path, b"1", None)
    assert store.look(path, bytes)[0] == b"1"
    assert store.list_names(directory) == ["a"]


def test_a_file_that_was_seen_is_replaced(files: tuple[Store, str]) -> None:
    store, directory = files
    path = f"{directory}/a"
    store.replace(path, b"1", None)
    for text in (b"2", b"3", b"3"):
        store.replace(path, text, store.look(path, bytes)[1])
        assert store.read(path) == text
    store.delete(path)
    assert store.list_names(directory) == []
    with pytest.raises(FileNotFoundError):
        store.look(path, bytes)


def test_a_file_that_is_another_one_is_left_as_it_is(files: tuple[Store, str], request: pytest.FixtureRequest) -> None:
    if "file_io" in request.node.name:
        # Such a store has no conditional writes. The tests above say what happens to readers there.
        store, directory = files
        store.replace(f"{directory}/a", b"1", None)
        return
    store, directory = files
    path = f"{directory}/a"
    store.replace(path, b"1", None)
    seen = store.look(path, bytes)[1]
    with pytest.raises(ChangedFileError):
        store.replace(path, b"2", None)
    store.replace(path, b"3", seen)
    with pytest.raises(ChangedFileError):
        store.replace(path, b"2", seen)
    assert store.read(path) == b"3"
    store.delete(path)
    with pytest.raises(ChangedFileError):
        store.replace(path, b"2", seen)
    assert store.list_names(directory) == []


def test_of_many_that_create_a_local_file_one_does(tmp_path: Path) -> None:
    barrier = threading.Barrier(8)

    def create(number: int) -> bool:
        store = Store(LocalFileIO())
        barrier.wait(60)
        try:
            store.replace(str(tmp_path / "d" / "a"), str(number).encode(), None)
        except ChangedFileError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(8)))
    assert [str(number) for number, each in enumerate(won) if each] == [(tmp_path / "d" / "a").read_text()]


@pytest.mark.parametrize("create", [True, False])
def test_a_write_whose_answer_was_lost_is_known_again(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, create: bool
) -> None:
    monkeypatch.setenv(SWITCH, "on")
    table = Table(tmp_path, "lost", catalog=server.catalog(f"lost{create}")).handle()
    store, path = Store(table.file_io, sleep=lambda _: None), f"{table.table_path}/d/a"
    seen = None
    if not create:
        store.replace(path, b"1", None)
        seen = store.look(path, bytes)[1]
    with server.failing("/d/a", "lost", method="PUT") as left:
        store.replace(path, b"2", seen)
        assert not left
    assert store.read(path) == b"2"


def test_a_store_that_refuses_conditions_is_written_by_the_file_io(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SWITCH, "on")
    table = Table(tmp_path, "refuses", catalog=server.catalog(tmp_path.name)).handle()
    store, path = Store(table.file_io, sleep=lambda _: None), f"{table.table_path}/d/a"
    with server.behaving():
        with pytest.raises(FileNotFoundError):
            store.look(path, bytes)
        with server.failing("/d/.probe-", 501, 501, method="PUT") as left:
            store.replace(path, b"1", None)
            assert not left
        store.replace(path, b"2", store.look(path, bytes)[1])
    assert store.read(path) == b"2"
    assert [record.paimon["event"] for record in caplog.records if hasattr(record, "paimon")] == ["store_unconditional"]  # type: ignore[attr-defined]


def test_a_store_that_calls_another_tag_a_conflict_compares(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "on")
    table = Table(tmp_path, "conflicts", catalog=server.catalog(tmp_path.name)).handle()
    store, path = Store(table.file_io, sleep=lambda _: None), f"{table.table_path}/d/a"
    with server.behaving():
        with pytest.raises(FileNotFoundError):
            store.look(path, bytes)
        with server.failing("/d/.probe-", *[None, None, 409] * 9, method="PUT") as left:
            store.replace(path, b"1", None)
            assert len(left) == 24, "one probe is enough"
        with pytest.raises(ChangedFileError):
            store.replace(path, b"2", None)


@pytest.mark.parametrize("fault", [405, 409, 501])
@pytest.mark.parametrize("create", [True, False])
def test_a_refusal_of_a_store_that_compares_is_repeated_with_the_condition(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, create: bool, fault: int
) -> None:
    monkeypatch.setenv(SWITCH, "on")
    table = Table(tmp_path, "repeats", catalog=server.catalog(tmp_path.name)).handle()
    store, path = Store(table.file_io, sleep=lambda _: None), f"{table.table_path}/d/a"
    store.replace(f"{path}-first", b"0", None)
    if not create:
        store.replace(path, b"0", None)
    seen = None if create else store.look(path, bytes)[1]
    with server.failing("/d/a", fault, method="PUT") as left:
        store.replace(path, b"1", seen)
        assert not left
    assert store.read(path) == b"1"

    def another_one() -> None:
        store.replace(path, b"other", None if create else store.look(path, bytes)[1])
        server.go_on.set()

    if create:
        store.delete(path)
    seen = None if create else store.look(path, bytes)[1]
    with server.failing("/d/a", *[fault] * 3, "hang", method="PUT", on_hang=another_one) as left:
        with pytest.raises(ChangedFileError):
            store.replace(path, b"2", seen)
        assert not left
    assert store.read(path) == b"other"


# ---- HDFS and viewfs ----


def test_a_save_on_hadoop_is_seen_as_a_whole(tmp_path: Path) -> None:
    """There a file is visible while it is written."""
    io = HadoopFileIO()
    manager = ConsumerManager(io, f"{HADOOP}{tmp_path}")
    manager.write(ETL, Consumer(5))
    halfway: list[Any] = []
    io.halfway = lambda: halfway.append(manager.consumers())
    manager.write(ETL, Consumer(6))
    found = manager.look(ETL)
    assert found is not None
    manager.replace(ETL, Consumer(7), found[1])
    assert halfway == [{"etl": 5}, {"etl": 6}]
    assert manager.consumers() == {"etl": 7}
    assert os.listdir(tmp_path / "consumer") == ["consumer-etl"]


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("conditional", [True, False])
@pytest.mark.parametrize("listed", [True, False])
def test_a_reader_that_dies_while_saving_on_hadoop_leaves_the_old_or_the_new_file(
    tmp_path: Path, conditional: bool, goes_on: bool, listed: bool
) -> None:
    """Also for expiry, which lists the consumers to find the file."""
    found = set()
    for steps in range(30):
        io = HadoopFileIO()
        path = f"{HADOOP}{tmp_path}/{steps}"
        store = Store(io, sleep=lambda _: None)
        manager = ConsumerManager(io, path, store=store)
        manager.write(ETL, Consumer(5))
        seen = manager.look(ETL)
        assert seen is not None
        io.dies_after(steps)
        try:
            if conditional:
                manager.replace(ETL, Consumer(6), seen[1])
            else:
                manager.write(ETL, Consumer(6))
        except StoreError:
            assert io.dead
        dead = io.dead
        after = ConsumerManager(HadoopFileIO(), path)
        if listed:
            assert [info.consumer_id for info in after.infos()] == ["etl"]
            assert after.min_next_snapshot() in (5, 6)
        left = after.look(ETL)
        assert left is not None
        found.add(left[0].next_snapshot)
        assert not dead or left[0].next_snapshot in (5, 6)
        # Another reader continues from there, and the file stays deleted once it is deleted.
        if goes_on:
            after.replace(ETL, Consumer(9), left[1])
            assert after.consumers() == {"etl": 9}
        after.delete_consumer("etl")
        assert after.look(ETL) is None
        if not dead:
            break
    else:
        raise AssertionError("it always died")
    assert found == {5, 6}
