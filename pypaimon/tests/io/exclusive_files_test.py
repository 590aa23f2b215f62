"""Files whose names are made once: by one of all who try, found again after a lost answer, or refused by name."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import AwsStandardS3RetryStrategy
from pypaimon.common.options import Options
from pypaimon.filesystem.local_file_io import LocalFileIO
from pypaimon.filesystem.pyarrow_file_io import PyArrowFileIO

from pypaimon.streaming import StreamConfigError, TableChangedError
from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.errors import StoreError
from pypaimon.streaming.io.object_reads import SWITCH
from pypaimon.streaming.io.store import Store
from support import programs
from support.stores.fault_file_io import SCHEME, FaultFileIO
from support.stores.hadoop_file_io import HADOOP, HadoopFileIO
from support.stores.lossy_store import lossy_links
from support.stores.s3_server import BUCKET, S3Server, forget_clients

pytestmark = pytest.mark.server

OBJECTS = f"s3://{BUCKET}/exclusive"
_RACE = """
import sys
from pypaimon.filesystem.local_file_io import LocalFileIO
from pypaimon.streaming.io.store import Store
store, (home, own) = Store(LocalFileIO()), sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
print(*(number for number in range(200) if store.create_exclusive(f"{home}/file-{number}", own.encode() * 1000)))
"""


@pytest.fixture(autouse=True)
def untrusted() -> Iterator[None]:
    """Each test has clients of its own."""
    forget_clients()
    yield
    forget_clients()


def patient(file_io: Any) -> Store:
    return Store(file_io, retry=Backoff(attempts=3), sleep=lambda _: None)


def store_at(server: S3Server) -> Store:
    file_io = PyArrowFileIO(OBJECTS, Options(server.options()))
    file_io.filesystem = server.file_system(retry_strategy=AwsStandardS3RetryStrategy(max_attempts=1))
    return patient(file_io)


@pytest.fixture(params=["local", "hadoop", "objects"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Callable[[], Store], str]:
    """What makes a store, and a directory of it."""
    if request.param == "local":
        return lambda: patient(LocalFileIO()), str(tmp_path / "new" / "directory")
    if request.param == "hadoop":
        return lambda: patient(HadoopFileIO()), f"{HADOOP}{tmp_path}/new"
    server: S3Server = request.getfixturevalue("server")
    return lambda: store_at(server), f"{OBJECTS}/{tmp_path.name}"


def test_a_name_is_made_once_and_its_content_stays(stored: tuple[Callable[[], Store], str]) -> None:
    make, home = stored
    first, second = make(), make()
    assert first.create_exclusive(f"{home}/file", b"first")
    assert not second.create_exclusive(f"{home}/file", b"second")
    assert second.read(f"{home}/file") == b"first"
    # Who lost the answer asks again.
    assert first.create_exclusive(f"{home}/file", b"first")
    assert first.list_names(home) == ["file"]


def test_of_threads_that_race_one_makes_each_name(stored: tuple[Callable[[], Store], str]) -> None:
    make, home = stored
    stores, won = [make() for _ in range(4)], Counter[int]()
    for number in range(10):
        go = threading.Barrier(len(stores))

        def race(own: int, number: int = number, go: threading.Barrier = go) -> None:
            go.wait()
            if stores[own].create_exclusive(f"{home}/{number}", b"%d" % own):
                won[number] += 1

        threads = [threading.Thread(target=race, args=(own,)) for own in range(len(stores))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert won == dict.fromkeys(range(10), 1)


def test_of_processes_that_race_one_makes_each_name(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _RACE, str(tmp_path)]
    racers = [programs.Popen([*command, own], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for own in "ab"]
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [{int(number) for number in racer.communicate(timeout=300)[0].split()} for racer in racers]
    assert won[0] | won[1] == set(range(200)) and not won[0] & won[1]
    for own, numbers in zip("ab", won, strict=True):
        assert all((tmp_path / f"file-{number}").read_text() == own * 1000 for number in numbers)
    assert len(list(tmp_path.iterdir())) == 200


def test_a_link_whose_answer_was_lost_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = patient(LocalFileIO())
    with lossy_links(monkeypatch):
        assert store.create_exclusive(f"{tmp_path}/file", b"own")
        assert not store.create_exclusive(f"{tmp_path}/file", b"other")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("fault", ["lost", "reset", 503, 409, 412])
def test_an_answer_is_not_believed_but_the_object_read(server: S3Server, tmp_path: Path, fault: int | str) -> None:
    store, home = store_at(server), f"{OBJECTS}/{tmp_path.name}"
    assert store.create_exclusive(f"{home}/first", b"1")
    # 409 and 412 may come where nothing was stored.
    for own, created in ((b"own", True), (b"other", False)):
        with server.failing("/file", fault, method="PUT") as faults:
            assert store.create_exclusive(f"{home}/file", own) is created
        assert not faults
    assert store.read(f"{home}/file") == b"own"


def test_a_store_that_keeps_failing_is_neither_made_nor_refused(server: S3Server, tmp_path: Path) -> None:
    store, path = store_at(server), f"{OBJECTS}/{tmp_path.name}/file"
    assert store.create_exclusive(f"{path}.first", b"1")
    with server.failing("/file", *[503] * 9, method="PUT"), pytest.raises(StoreError):
        store.create_exclusive(path, b"own")
    with server.failing("/file", "lost", *[503] * 9), pytest.raises(StoreError):
        store.create_exclusive(path, b"own")
    assert store.create_exclusive(path, b"own")


def test_an_object_store_that_overwrites_is_refused_before_the_first_file(server: S3Server, tmp_path: Path) -> None:
    home = f"{OBJECTS}/{tmp_path.name}"
    with (
        server.behaving(heeds_conditions=False),
        pytest.raises(StreamConfigError, match="overwrites an existing file in spite of the condition"),
    ):
        store_at(server).create_exclusive(f"{home}/file", b"own")
    assert store_at(server).list_names(home) == []


def test_a_directory_that_overwrites_is_refused_before_the_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", os.replace)
    with pytest.raises(StreamConfigError, match="overwrites an existing file in spite of the condition"):
        patient(LocalFileIO()).create_exclusive(f"{tmp_path}/file", b"own")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_without_links_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(StoreError, match="has no hard links"):
        patient(LocalFileIO()).create_exclusive(f"{tmp_path}/file", b"own")
    assert list(tmp_path.iterdir()) == []


def test_stores_that_cannot_promise_it_are_refused_by_name(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StreamConfigError, match="cannot create a file only if there is none"):
        patient(FaultFileIO()).create_exclusive(f"{SCHEME}{tmp_path}/file", b"own")
    monkeypatch.setenv(SWITCH, "off")
    with server.asked() as asked, pytest.raises(StreamConfigError, match="with the extra 'fast' installed"):
        store_at(server).create_exclusive(f"{OBJECTS}/file", b"own")
    assert not [path for method, path in asked if method == "PUT"]


def test_a_crash_on_hdfs_leaves_no_half_of_a_file_and_its_answer_is_found(tmp_path: Path) -> None:
    found = set()
    for steps in count():
        file_io, path = HadoopFileIO(), f"{HADOOP}{tmp_path}/{steps}/file"
        file_io.dies_after(steps)
        with suppress(StoreError):
            patient(file_io).create_exclusive(path, b"own")
        store = patient(HadoopFileIO())
        try:
            there = store.read(path)
        except FileNotFoundError:
            there = None
        found.add(there)
        assert store.create_exclusive(path, b"own")
        assert store.read(path) == b"own"
        if not file_io.dead:
            break
    assert found == {None, b"own"}


def test_a_crash_leaves_no_half_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = patient(LocalFileIO())
    assert store.create_exclusive(f"{tmp_path}/first", b"1")

    class Killed(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Killed

    for step in ("link", "unlink"):
        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(os, step, die)
            store.create_exclusive(f"{tmp_path}/file", b"own")
        whole = [path.read_bytes() for path in tmp_path.iterdir() if not path.name.startswith(".")]
        assert sorted(whole) == ([b"1"] if step == "link" else [b"1", b"own"])
    assert store.create_exclusive(f"{tmp_path}/file", b"own")


@pytest.mark.parametrize(("file_io", "prefix"), [(LocalFileIO, ""), (HadoopFileIO, HADOOP)])
def test_no_directory_is_made_again_for_a_file_whose_own_is_gone(tmp_path: Path, file_io: Any, prefix: str) -> None:
    store, gone = patient(file_io()), tmp_path / "db" / "dropped" / "consumer"
    with pytest.raises(FileNotFoundError):
        store.create_exclusive(f"{prefix}{gone}/file", b"1", directories=0)
    assert not (tmp_path / "db").exists()
    if not prefix:
        with pytest.raises(TableChangedError, match="dropped or renamed"):
            store.create_exclusive(f"{gone}/file", b"1", directories=1)
        with pytest.raises(TableChangedError, match="dropped or renamed"):
            store.replace(f"{gone}/file", b"1", None)
        assert not (tmp_path / "db").exists()
