"""Consumer files of a reader whose caller is slow: rewritten in time, nothing confirmed, no thread left."""

from __future__ import annotations

import gc
import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pypaimon.streaming import ConsumerConflictError, ConsumerManager
from pypaimon.streaming.concurrency.clock import Clock
from support.crash.child_process import run
from support.stores.fault_file_io import RESET, FaultFileIO, failing
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

HOUR = 3600.0
PATIENCE = 300


class PassingClock(Clock):
    """A clock that moves only by `passes`, which ends the waits that are over then."""

    def __init__(self) -> None:
        self._now = 0.0
        self._lock = threading.Lock()
        self._waits: list[tuple[float, queue.SimpleQueue[None]]] = []
        self._begun = threading.Semaphore(0)

    def monotonic(self) -> float:
        return self._now

    def wait(self, woken: queue.SimpleQueue[None], seconds: float) -> None:
        with self._lock:
            self._waits.append((self._now + seconds, woken))
        self._begun.release()
        woken.get(timeout=PATIENCE)

    def passes(self, seconds: float, ends: bool = False) -> None:
        """Let time pass. Returns once the waiting threads wait again, or (ends) have ended."""
        with self._lock:
            self._now += seconds
            over = [woken for due, woken in self._waits if due <= self._now]
            self._waits = [(due, woken) for due, woken in self._waits if due > self._now]
        for woken in over:
            woken.put(None)
        if over and not ends:
            self.is_waited_on()

    def is_waited_on(self) -> None:
        """Block until a thread waits."""
        assert self._begun.acquire(timeout=PATIENCE)


@pytest.fixture
def clock() -> PassingClock:
    return PassingClock()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "w", consumer__expiration_time="1 h").commit_each(range(1, 5))


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "paimon-keep-alive"]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    all_ended()


def all_ended() -> None:
    gc.collect()
    for thread in threads():
        thread.join(PATIENCE)
        assert not thread.is_alive()


def grows_old(path: Path) -> None:
    os.utime(path, (0, 0))


def is_new(path: Path) -> bool:
    return path.stat().st_mtime > 0


@pytest.mark.parametrize("start", ["earliest", "latest-full"])
def test_files_live_on_while_the_caller_holds_a_plan(table: Table, clock: PassingClock, start: str) -> None:
    builder = table.builder(clock=clock).with_start(start).with_catch_up("replay").with_consumer_id("c")
    scan = builder.new_streaming_scan()
    assert scan.plan() is not None
    clock.is_waited_on()
    name, saved = ("consumer-c", 1) if start == "earliest" else ("consumer-c.first-plan", 4)
    path = table.path / "consumer" / name
    for _ in range(8):
        grows_old(path)
        clock.passes(HOUR / 2)
        assert is_new(path)
    assert [path.name for path in (table.path / "consumer").iterdir()] == [name]
    assert ConsumerManager(table.handle().file_io, str(table.path)).consumers() == {"c": saved}
    scan.close()


def test_files_live_on_while_the_caller_holds_a_batch(table: Table, clock: PassingClock) -> None:
    builder = table.builder(clock=clock).with_start("earliest").with_catch_up("replay").with_consumer_id("c")
    path = table.path / "consumer" / "consumer-c"
    with builder.open_sync(read_ahead_bytes=0) as stream:
        assert next(stream).num_rows == 1
        clock.is_waited_on()
        grows_old(path)
        clock.passes(HOUR / 2)
        assert is_new(path)
        assert stream.scan.committed() == 1


def test_nothing_is_written_before_it_is_due(table: Table, clock: PassingClock) -> None:
    file_io = FaultFileIO()
    builder = table.builder(file_io, clock).with_start("latest").with_consumer_id("c").with_prefetch(0)
    scan = builder.new_streaming_scan()
    assert scan.plan() is None
    clock.is_waited_on()
    file_io.forget()
    clock.passes(HOUR / 6)
    assert file_io.calls == []
    clock.passes(HOUR / 6)
    assert file_io.counts() == {"read": 1, "write": 1}
    scan.close()


def test_a_store_that_fails_is_asked_again_before_the_file_expires(table: Table, clock: PassingClock) -> None:
    file_io = FaultFileIO()
    scan = table.builder(file_io, clock).with_start("earliest").with_consumer_id("c").new_streaming_scan()
    assert scan.plan() is not None
    clock.is_waited_on()
    path = table.path / "consumer" / "consumer-c"
    grows_old(path)
    file_io.wherever(failing(RESET))
    clock.passes(HOUR / 3)
    assert not is_new(path)
    file_io.wherever(None)
    clock.passes(HOUR / 3)
    assert is_new(path)
    scan.close()


def test_a_conflict_is_raised_by_the_next_call(table: Table, clock: PassingClock) -> None:
    builder = table.builder(clock=clock).with_start("earliest").with_catch_up("replay").with_consumer_id("c")
    scan, other = builder.new_streaming_scan(), table.builder().with_consumer_id("c").new_streaming_scan()
    assert scan.plan() is not None
    clock.is_waited_on()
    (thread,) = threads()
    assert other.plan() is not None
    grows_old(table.path / "consumer" / "consumer-c")
    clock.passes(HOUR, ends=True)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert not is_new(table.path / "consumer" / "consumer-c")
    with pytest.raises(ConsumerConflictError):
        scan.plan()
    scan.close()
    other.close()


@pytest.mark.parametrize("end", ["close", "break", "bound", "forgotten"])
def test_the_thread_ends_with_the_stream(table: Table, clock: PassingClock, end: str) -> None:
    builder = table.builder(clock=clock).with_start("earliest").with_catch_up("replay").with_consumer_id("c")
    scan = builder.with_end(snapshot_id=2).new_streaming_scan()
    stream = scan.stream_sync()
    assert next(stream).snapshot_id == 1
    assert len(threads()) == 1
    if end == "close":
        scan.close()
    elif end == "break":
        stream.close()
    elif end == "bound":
        assert [plan.snapshot_id for plan in stream] == [2]
    del stream
    if end == "break":
        all_ended()
        with scan.stream_sync() as again:
            assert next(again).snapshot_id == 2
            assert len(threads()) == 1
    del scan
    all_ended()


def test_without_an_expiration_or_a_consumer_there_is_no_thread(table: Table, tmp_path: Path) -> None:
    plain = Table(tmp_path / "plain").commit_each([1])
    with (
        table.builder().new_streaming_scan() as scan,
        plain.builder().with_consumer_id("c").new_streaming_scan() as kept,
    ):
        assert scan.plan() is not None and kept.plan() is not None
        assert threads() == []


def test_it_does_not_hold_the_program(table: Table, tmp_path: Path) -> None:
    body = """
        scan = table.builder().with_start("earliest").with_consumer_id("c").new_streaming_scan()
        print(scan.plan().snapshot_id, [thread.name for thread in threading.enumerate()].count("paimon-keep-alive"))
    """
    with run(tmp_path, body) as process:
        output, errors = process.communicate(timeout=600)
        assert (output.split(), errors, process.returncode) == (["1", "1"], "", 0)
