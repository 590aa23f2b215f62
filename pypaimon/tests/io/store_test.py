"""Requests to a store: missing, refused and failing ones are distinguished, retried, counted; writes are atomic."""

from __future__ import annotations

import errno
import json
import random
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pypaimon.filesystem.local_file_io import LocalFileIO

from pypaimon.streaming.errors import CorruptTableError, IOTimeoutError, StoreError
from pypaimon.streaming.io import retried_requests
from pypaimon.streaming.io.retried_requests import asked_ahead
from pypaimon.streaming.io.store import CONCURRENCY, Store
from support.stores.request_time import hang

TRANSIENT = [
    OSError(
        "When reading information for key 'k' in bucket 'b': AWS Error SLOW_DOWN during HeadObject operation: Reduce"
    ),
    OSError("AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 28, Timeout was reached"),
    OSError("AWS Error UNKNOWN (HTTP status 503) during HeadObject operation: No response body."),
    OSError("AWS Error REQUEST_TIMEOUT during GetObject operation for key 'forbidden/ACCESS_DENIED-403'"),
    ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
    TimeoutError("the socket timed out"),
    BrokenPipeError(errno.EPIPE, "Broken pipe"),
]
REFUSED = [
    OSError(
        "When reading information for key 'k' in bucket 'b': AWS Error ACCESS_DENIED during HeadObject operation: No"
    ),
    OSError("AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation: The specified bucket does not exist"),
    OSError("AWS Error INVALID_ACCESS_KEY_ID during GetObject operation: unknown key"),
    OSError("AWS Error UNKNOWN (HTTP status 403) during HeadObject operation: No response body."),
    OSError("<Code>AccessDenied</Code>"),
    PermissionError(errno.EACCES, "Permission denied"),
    IsADirectoryError(errno.EISDIR, "Is a directory"),
]
MISSING = [
    OSError("AWS Error NO_SUCH_KEY during GetObject operation: The specified key does not exist."),
    OSError("AWS Error UNKNOWN (HTTP status 404) during HeadObject operation: No response body."),
]


class FailingFileIO(LocalFileIO):
    """A local store whose requests raise, or do, what is next in `answers`, until there is nothing more."""

    def __init__(self, *answers: BaseException | Callable[[], None]) -> None:
        super().__init__()
        self.answers = list(answers)
        self.requests: list[str] = []
        self._lock = threading.Lock()

    def _next(self, path: str) -> None:
        with self._lock:
            self.requests.append(Path(path).name)
            answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        if answer is not None:
            answer()

    def new_input_stream(self, path: str) -> Any:
        self._next(path)
        return super().new_input_stream(path)

    def new_output_stream(self, path: str) -> Any:
        self._next(path)
        return super().new_output_stream(path)

    def list_status(self, path: str) -> Any:
        self._next(path)
        return super().list_status(path)

    def delete(self, path: str, recursive: bool = False) -> Any:
        self._next(path)
        return super().delete(path, recursive)


def patient(file_io: LocalFileIO, pauses: list[float] | None = None) -> Store:
    """A store that retries without pauses."""
    return Store(file_io, sleep=(pauses if pauses is not None else []).append, rng=random.Random(7))


def ident(error: BaseException) -> str:
    return str(error)[-40:]


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    return str(path)


# Reading.


def test_a_file_is_one_request_and_a_missing_one_is_too(file: str) -> None:
    io = FailingFileIO()
    store = patient(io)
    assert store.read(file) == b"content"
    with pytest.raises(FileNotFoundError):
        store.read(f"{file}.missing")
    assert io.requests == ["file", "file.missing"]
    assert store.requests == {"read": 2, "abandoned": 0}


def test_a_local_file_is_opened_without_a_look_before(
    tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked(path: Path) -> bool:
        raise AssertionError(path)

    monkeypatch.setattr(Path, "exists", looked)
    store = patient(LocalFileIO())
    assert store.read(file) == store.read(f"file://{file}") == b"content"
    with pytest.raises(FileNotFoundError):
        store.read(str(tmp_path / "missing"))


def test_a_path_that_no_file_can_have_is_a_missing_file(file: str) -> None:
    store = patient(LocalFileIO())
    for path in (f"{file}/below", f"{file}\0"):
        with pytest.raises(FileNotFoundError):
            store.read(path)
        assert store.read_many([path, file]) == [None, b"content"]


def test_uris_are_read_as_the_file_io_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "a b"
    store = patient(LocalFileIO())
    store.write_atomic(path.as_uri(), b"content")
    assert path.read_bytes() == store.read(path.as_uri()) == b"content"
    assert store.list_names(tmp_path.as_uri()) == ["a b"]
    store.delete(path.as_uri())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", TRANSIENT, ids=ident)
def test_what_may_pass_is_retried(file: str, error: OSError) -> None:
    store = patient(FailingFileIO(error, error))
    assert store.read(file) == b"content"
    assert store.requests == {"read": 3, "retried": 2, "abandoned": 0}


@pytest.mark.parametrize("error", TRANSIENT, ids=ident)
def test_what_does_not_pass_is_a_retriable_error_with_the_path(file: str, error: OSError) -> None:
    store = patient(FailingFileIO(*[error] * 5))
    with pytest.raises(StoreError, match="file") as raised:
        store.read(file)
    assert raised.value.retriable
    assert raised.value.__cause__ is error
    assert store.read(file) == b"content"


@pytest.mark.parametrize("error", REFUSED, ids=ident)
@pytest.mark.parametrize("many", [False, True])
def test_what_is_refused_is_an_error_at_once_and_never_missing(file: str, error: OSError, many: bool) -> None:
    io = FailingFileIO(error)
    with pytest.raises(CorruptTableError) as raised:
        patient(io).read_many([file]) if many else patient(io).read(file)
    assert raised.value.path == file
    assert raised.value.__cause__ is error
    assert len(io.requests) == 1


@pytest.mark.parametrize("error", MISSING, ids=ident)
def test_what_a_store_reports_as_missing_is_missing(file: str, error: OSError) -> None:
    with pytest.raises(FileNotFoundError):
        patient(FailingFileIO(error)).read(file)


def test_a_bug_of_the_file_io_is_neither_retried_nor_hidden(file: str) -> None:
    io = FailingFileIO(TypeError("bug"))
    with pytest.raises(TypeError, match="bug"):
        patient(io).read(file)
    assert len(io.requests) == 1
    with pytest.raises(IndexError, match="bug"):
        patient(FailingFileIO(IndexError("bug"))).read_many([file, file])


def test_pauses_double_up_to_a_bound_and_differ() -> None:
    pauses: list[float] = []
    with pytest.raises(StoreError):
        patient(FailingFileIO(*[OSError("503")] * 5), pauses=pauses).read("file")
    assert len(pauses) == 4
    for pause, longest in zip(pauses, (0.1, 0.2, 0.4, 0.8), strict=True):
        assert longest / 2 <= pause <= longest


def test_a_request_that_hangs_is_asked_again_once_and_then_an_error(file: str) -> None:
    event = threading.Event()
    try:
        store = patient(FailingFileIO(lambda: hang(event)))
        assert store.read(file) == b"content"
        store = patient(FailingFileIO(*[lambda: hang(event)] * 2))
        with pytest.raises(IOTimeoutError, match="file") as raised:
            store.read(file)
        assert raised.value.retriable
        assert store.requests == {"read": 2, "retried": 1, "abandoned": 2}
        assert store.read(file) == b"content"
    finally:
        event.set()


def test_what_hung_ahead_has_had_its_first_attempt(file: str) -> None:
    event = threading.Event()
    file_io = FailingFileIO(*[lambda: hang(event)] * 2, None, *[lambda: hang(event)] * 2)
    store = patient(file_io)
    try:
        with asked_ahead(), pytest.raises(IOTimeoutError):
            store.read(file)
        assert store.requests["read"] == 1
        with pytest.raises(IOTimeoutError):
            store.read(file)
        assert store.requests["read"] == 2
        # The next request has all of its attempts again.
        assert store.read(file) == b"content"
        with pytest.raises(IOTimeoutError):
            store.read(file)
        assert store.requests == {"read": 5, "retried": 1, "abandoned": 4}
    finally:
        event.set()


# Several at the same time.


def test_many_files_come_in_order_with_none_for_missing_ones(tmp_path: Path) -> None:
    for number in range(0, 100, 2):
        (tmp_path / f"f{number}").write_text(str(number))
    store = patient(LocalFileIO())
    found = store.read_many([str(tmp_path / f"f{number}") for number in range(100)])
    assert found == [None if number % 2 else str(number).encode() for number in range(100)]
    assert store.read_many([]) == []
    assert store.pool.threads <= CONCURRENCY


def test_many_files_are_asked_for_at_the_same_time(tmp_path: Path) -> None:
    barrier = threading.Barrier(8)
    for number in range(8):
        (tmp_path / str(number)).write_bytes(b"")
    store = patient(FailingFileIO(*[lambda: barrier.wait(300) and None] * 8))
    assert store.read_many([str(tmp_path / str(number)) for number in range(8)]) == [b""] * 8


def test_local_files_that_come_at_once_are_read_by_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retried_requests, "_IN_TURN_SECONDS", 300.0)
    for number in range(0, 40, 2):
        (tmp_path / str(number)).write_text(str(number))
    threads = set()
    file_io = FailingFileIO(*[lambda: threads.add(threading.current_thread())] * 20, OSError("503"))
    store = patient(file_io)
    found = store.read_many([str(tmp_path / str(number)) for number in range(40)])
    assert found == [None if number % 2 else str(number).encode() for number in range(40)]
    assert len(threads) == 1
    assert store.requests == {"read": 41, "retried": 1, "abandoned": 0}
    # Their requests have no result.
    store.delete_all([str(tmp_path / str(number)) for number in range(40)])
    assert list(tmp_path.iterdir()) == []


def test_a_local_file_that_hangs_is_the_one_that_is_named(tmp_path: Path) -> None:
    event = threading.Event()
    paths = [tmp_path / str(number) for number in range(5)]
    for path in paths:
        path.write_bytes(b"content")

    class Hanging(FailingFileIO):
        def new_input_stream(self, path: str) -> Any:
            if path == str(paths[2]):
                hang(event)
            return super().new_input_stream(path)

    file_io = Hanging()
    store = patient(file_io)
    try:
        with pytest.raises(IOTimeoutError, match=re.escape(str(paths[2]))):
            store.read_many([str(path) for path in paths])
        assert sorted(file_io.requests) == ["0", "1", "3", "4"]
        assert store.requests == {"read": 6, "retried": 1, "abandoned": 2}
    finally:
        event.set()


def test_only_those_that_failed_are_asked_for_again_and_after_one_pause(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / str(number)).write_text(str(number))
    pauses: list[float] = []
    io = FailingFileIO(*[OSError("503")] * 4)
    store = patient(io, pauses=pauses)
    assert store.read_many([str(tmp_path / str(number)) for number in range(6)]) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert store.requests == {"read": 10, "retried": 4, "abandoned": 0}
    assert len(pauses) == 1


# Parsing.


def test_a_file_that_is_just_being_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "half"
    path.write_text('{"a": ')
    io = FailingFileIO(lambda: None, lambda: path.write_text('{"a": 1}') and None)
    assert patient(io).parse(str(path), json.loads) == {"a": 1}


def test_a_file_that_stays_damaged_is_an_error_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "half"
    path.write_text('{"a": ')
    io = FailingFileIO()
    with pytest.raises(CorruptTableError, match="decoded") as raised:
        patient(io).parse(str(path), json.loads)
    assert raised.value.path == str(path)
    assert len(io.requests) == 5


def test_a_file_that_goes_while_it_is_read_again_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "half"
    path.write_text('{"a": ')
    with pytest.raises(FileNotFoundError):
        patient(FailingFileIO(lambda: None, path.unlink)).parse(str(path), json.loads)


# Listing.


def test_a_missing_directory_is_empty_and_a_refused_one_an_error(tmp_path: Path) -> None:
    assert patient(LocalFileIO()).list_names(str(tmp_path / "none")) == []
    assert patient(FailingFileIO(FileNotFoundError())).list_names(str(tmp_path)) == []
    with pytest.raises(CorruptTableError):
        patient(FailingFileIO(PermissionError(errno.EACCES, "no"))).list_names(str(tmp_path))
    with pytest.raises(StoreError):
        patient(FailingFileIO(*[OSError("503")] * 5)).list_names(str(tmp_path))


# Writing and deleting.


def test_a_write_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    store = patient(LocalFileIO())
    path = tmp_path / "new" / "consumer-a"
    for content in (b"one", b"two"):
        store.write_atomic(str(path), content)
        assert path.read_bytes() == content
    assert [each.name for each in path.parent.iterdir()] == ["consumer-a"]
    assert store.requests == {"write": 2, "abandoned": 0}


def test_a_temporary_file_is_hidden_and_goes_when_the_write_fails(tmp_path: Path, file: str) -> None:
    names: list[str] = []

    class FullDisk(LocalFileIO):
        def new_output_stream(self, path: str) -> Any:
            names.append(Path(path).name)
            with super().new_output_stream(path) as stream:
                stream.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StoreError, match="No space left"):
        patient(FullDisk()).write_atomic(file, b"new")
    assert all(name.startswith(".file.") for name in names)
    assert len(names) == len(set(names)) == 5
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert Path(file).read_bytes() == b"content"


def test_a_write_that_was_given_up_does_not_undo_a_later_one(tmp_path: Path, file: str) -> None:
    event, deleted = threading.Event(), threading.Event()

    class Slow(FailingFileIO):
        def delete(self, path: str, recursive: bool = False) -> Any:
            gone = LocalFileIO.delete(self, path, recursive)
            deleted.set()
            return gone

    store = patient(Slow(lambda: hang(event)))
    store.write_atomic(file, b"later")
    event.set()
    assert deleted.wait(300)
    assert Path(file).read_bytes() == b"later"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_an_object_store_gets_one_put(tmp_path: Path) -> None:
    paths: list[str] = []

    class ObjectStore(LocalFileIO):
        def new_output_stream(self, path: str) -> Any:
            paths.append(path)
            return super().new_output_stream(str(tmp_path / "object"))

    patient(ObjectStore()).write_atomic("s3://bucket/table/consumer/consumer-a", b"x")
    assert paths == ["s3://bucket/table/consumer/consumer-a"]
    assert (tmp_path / "object").read_bytes() == b"x"


def test_what_is_deleted_is_gone_and_what_is_gone_is_fine(file: str) -> None:
    store = patient(FailingFileIO(OSError("503"), lambda: None, FileNotFoundError()))
    for _ in range(2):
        store.delete(file)
        assert not Path(file).exists()


def test_a_failed_delete_is_an_error(file: str) -> None:
    with pytest.raises(CorruptTableError):
        patient(FailingFileIO(PermissionError(errno.EACCES, "no"))).delete(file)
