"""Threads that pass from one pool to another, and end when no pool needs them."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pypaimon.streaming.errors import IOTimeoutError
from pypaimon.streaming.io import io_pool, workers
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.io.io_requests import Hanging
from pypaimon.streaming.io.workers import Worker
from support.stores.request_time import hang
from support.waits import until

LONG = 30.0


@pytest.fixture(autouse=True)
def no_spares() -> Iterator[None]:
    """No thread of another test is spare or becomes it, and none of these tests is left."""
    end = time.monotonic() + LONG
    while time.monotonic() < end and any(isinstance(thread, Worker) for thread in threading.enumerate()):
        time.sleep(0.01)
    until(lambda: len(workers._spares) == 0)
    yield
    until(lambda: len(workers._spares) == 0)


def worker_of(pool: IOPool) -> threading.Thread:
    return pool.run(threading.current_thread)


@pytest.mark.slow
def test_a_thread_that_has_left_a_pool_serves_the_next_one() -> None:
    threads = set()
    for number in range(5):
        pool = IOPool(2, LONG, name=f"pool{number}")
        threads.add(worker_of(pool))
        until(lambda: len(workers._spares) == 1)
        assert pool.run(lambda: threading.current_thread().name) == f"pool{number}-0"
        until(lambda: len(workers._spares) == 1)
        assert pool.threads == 0
    assert len(threads) == 1


@pytest.mark.slow
def test_a_pool_gets_a_thread_that_has_worked_under_the_same_name() -> None:
    """Threads that serve all kinds of calls in turn keep the most memory that each kind has taken."""
    one, two = IOPool(1, LONG, "one"), IOPool(1, LONG, "two")
    together = threading.Barrier(2)

    def thread() -> threading.Thread:
        together.wait(LONG)
        return threading.current_thread()

    calls = [pool.submit(thread) for pool in (one, two)]
    first, other = (pool.result(call) for pool, call in zip((one, two), calls, strict=True))
    until(lambda: len(workers._spares) == 2)
    for pool, expected in ((one, first), (one, first), (two, other), (one, first), (two, other)):
        assert worker_of(pool) is expected
        until(lambda: len(workers._spares) == 2)
    one.close()
    two.close()


@pytest.mark.slow
def test_a_pool_whose_thread_serves_another_one_gets_another_one() -> None:
    one, other = IOPool(1, LONG), IOPool(1, LONG)
    first = worker_of(one)
    until(lambda: first in workers._spares)
    release = threading.Event()
    try:
        waits = other.submit(lambda: (release.wait(LONG), threading.current_thread())[1])
        second = worker_of(one)
        assert second is not first
    finally:
        release.set()
    assert other.result(waits) is first
    one.close()
    other.close()


@pytest.mark.slow
def test_a_thread_whose_call_hangs_serves_no_other_pool_until_the_call_returns() -> None:
    pool, release = IOPool(1, LONG), threading.Event()
    hanging: list[threading.Thread] = []

    def call() -> None:
        hanging.append(threading.current_thread())
        hang(release)

    try:
        with pytest.raises(IOTimeoutError):
            pool.run(call)
        others = [IOPool(1, LONG) for _ in range(3)]
        assert not {worker_of(each) for each in others} & set(hanging)
        for each in others:
            each.close()
        assert pool.hanging == 1
    finally:
        release.set()
    until(lambda: hanging[0] in workers._spares)
    assert pool.hanging == 0
    # It may serve the pool that has given it up.
    assert worker_of(pool) in hanging
    assert not pool.run(lambda: pool.given_up)
    pool.close()


@pytest.mark.slow
def test_an_interrupt_before_a_thread_has_begun_makes_it_spare_again(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = IOPool(1, LONG), IOPool(1, LONG)
    thread = worker_of(one)
    one.close()
    until(lambda: thread in workers._spares)

    def interrupt() -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    made: list[int] = []
    monkeypatch.setattr(io_pool, "finalize_s3_after_calls", interrupt)
    with pytest.raises(KeyboardInterrupt):
        other.submit(made.append, 1)
    assert thread in workers._spares and not other.threads
    assert worker_of(other) is thread and not made
    other.close()


@pytest.mark.slow
def test_a_thread_that_an_interrupt_has_cut_off_does_not_count_for_one_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread may run although an interrupt came before that was known: it finds that its pool does not have it."""
    hanging, release, may_begin = Hanging(), threading.Event(), threading.Event()
    pool, begin, cut_off = IOPool(1, LONG, hanging=hanging), Worker.begin, list[Worker]()

    def interrupted(worker: Worker, work: Callable[[], object], *arguments: Any) -> None:
        monkeypatch.setattr(Worker, "begin", begin)
        monkeypatch.setattr(Worker, "has_begun", lambda _: False)
        begin(worker, lambda: (may_begin.wait(LONG), work()), *arguments)
        cut_off.append(worker)
        raise KeyboardInterrupt

    try:
        with pytest.raises(IOTimeoutError):
            pool.run(hang, release)
        monkeypatch.setattr(Worker, "begin", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.submit(int)
        assert (pool.threads, pool.hanging, hanging.now) == (0, 1, 1)
        may_begin.set()
        until(lambda: cut_off[0] in workers._spares)
        assert (pool.hanging, hanging.now) == (1, 1)
    finally:
        release.set()
    until(lambda: len(workers._spares) == 2)
    assert (pool.hanging, hanging.now) == (0, 0)
    pool.close()


@pytest.mark.slow
def test_a_call_for_which_no_thread_can_start_is_not_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool, made = IOPool(1, LONG), list[int]()
    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(threading.Thread, "start", refuse)
        pool.submit(made.append, 1)
    assert pool.run(len, "two") == 3 and not made
    pool.close()


@pytest.mark.slow
def test_a_spare_thread_ends_after_a_time() -> None:
    pool = IOPool(1, LONG)
    thread = worker_of(pool)
    pool.close()
    thread.join(LONG)
    assert not thread.is_alive() and not workers._spares


def test_a_thread_that_is_taken_while_its_time_runs_out_serves_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "SPARE_SECONDS", 0.0)
    spares = _Hesitating()
    monkeypatch.setattr(workers, "_spares", spares)
    worker, told = Worker.take("first"), threading.Event()
    worker.begin(lambda: None, "first")
    assert spares.is_removing.wait(LONG)
    # Its time is over, and it is about to leave the list.
    assert Worker.take("second") is worker
    spares.may_remove.set()
    worker.begin(told.set, "second")
    assert told.wait(LONG)
    worker.join(LONG)
    assert not worker.is_alive()


class _Hesitating(list[Worker]):
    def __init__(self) -> None:
        super().__init__()
        self.is_removing, self.may_remove = threading.Event(), threading.Event()

    def remove(self, worker: Worker) -> None:
        self.is_removing.set()
        assert self.may_remove.wait(LONG)
        super().remove(worker)


@pytest.mark.slow
def test_an_idle_thread_keeps_no_job_that_was_cancelled() -> None:
    class Held:
        def call(self) -> None:
            pass

    pool, held, release = IOPool(1, LONG), Held(), threading.Event()
    gone = weakref.ref(held)
    first, second = pool.submit(release.wait, LONG), pool.submit(held.call)
    assert second.cancel()
    del held, second
    release.set()
    assert pool.result(first)
    until(lambda: gone() is None)
    pool.close()


@pytest.mark.slow
def test_a_spare_thread_keeps_nothing_of_its_last_pool_alive() -> None:
    class Held:
        def call(self) -> None:
            pass

    pool, held = IOPool(1, LONG), Held()
    pool.run(held.call)
    pool.close()
    until(lambda: len(workers._spares) == 1)
    gone = [weakref.ref(held), weakref.ref(pool)]
    del pool, held
    assert [each() for each in gone] == [None, None]
