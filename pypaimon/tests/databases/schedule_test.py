"""Jobs come to workers in time and none is lost, although few workers are woken for them."""

from __future__ import annotations

import random
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.databases.engine_state import WORKERS, EngineState, Schedule
from pypaimon.streaming.databases.jobs import EngineSettings, OnTableError
from pypaimon.streaming.scanning.metrics import ScanMetrics

LONG = 60.0


class Workers:
    """Threads that take jobs of a schedule and do nothing with them, until `close`."""

    def __init__(self, count: int) -> None:
        self.lock = threading.RLock()
        self.schedule: Schedule[int] = Schedule(count, self.lock)
        self.done: list[int] = []
        self.waits = 0
        self._changed = threading.Condition(self.lock)
        self._is_closed = False
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while True:
            with self.lock:
                while (taken := self.schedule.take(time.monotonic())) is None:
                    if self._is_closed:
                        return
                    self.waits += 1
                    self._changed.notify_all()
                    self.schedule.wait(time.monotonic())
            with self.lock:
                self.schedule.done(busy=taken[1])
                self.done.append(taken[0])
                self._changed.notify_all()

    def put(self, job: int, pause: float = 0.0, *, busy: bool = False) -> None:
        with self.lock:
            self.schedule.put(job, time.monotonic() + pause, busy=busy)

    def until(self, done: int = 0, waits: int = 0) -> None:
        with self.lock:
            assert self._changed.wait_for(lambda: len(self.done) >= done and self.waits >= waits, LONG)

    def close(self) -> None:
        with self.lock:
            self._is_closed = True
            self.schedule.wake_all()
        for thread in self._threads:
            thread.join(LONG)
            assert not thread.is_alive()


@pytest.mark.slow
def test_one_job_wakes_few_workers() -> None:
    workers = Workers(8)
    workers.until(waits=8)
    for number in range(50):
        workers.put(number)
        workers.until(done=number + 1)
    workers.close()
    assert workers.done == list(range(50))
    # All eight woke for each job otherwise.
    assert workers.waits <= 8 + 3 * 50


@pytest.mark.slow
def test_one_worker_waits_for_the_next_time() -> None:
    workers = Workers(8)
    workers.put(0, LONG)
    workers.until(waits=8)
    before = workers.waits
    for number in range(1, 6):
        workers.put(number, 0.01)
        workers.until(done=number)
    workers.close()
    assert workers.done == [1, 2, 3, 4, 5]
    assert workers.waits - before <= 4 * 5 + 8


@pytest.mark.slow
def test_a_job_that_is_due_earlier_than_all_others_is_not_waited_past() -> None:
    workers = Workers(2)
    for number, pause in enumerate((LONG, LONG / 2, 0.05, 0.0)):
        workers.put(number, pause)
    workers.until(done=2)
    workers.put(0)
    workers.put(1)
    workers.until(done=4)
    workers.close()
    assert workers.done[:2] == [3, 2] and sorted(workers.done[2:]) == [0, 1]


@pytest.mark.slow
def test_a_schedule_that_is_paused_gives_out_no_job_until_it_continues() -> None:
    workers = Workers(4)
    workers.until(waits=4)
    with workers.lock:
        workers.schedule.pause(True)
    before = workers.waits
    for number in range(10):
        workers.put(number)
    workers.until(waits=before + 1)
    assert not workers.done
    with workers.lock:
        workers.schedule.pause(False)
    workers.until(done=10)
    workers.close()
    assert sorted(workers.done) == list(range(10))


@pytest.mark.parametrize("end", ["polled", "suspected", "forgotten"])
def test_tables_that_wait_for_their_first_poll_hold_up_openings_only_while_they_can_be_polled(end: str) -> None:
    state = EngineState(EngineSettings(1.0, 1, 1, OnTableError.PARK, is_bounded=False, places=None), Clock())
    with state.lock:
        opening = state.registry.new_opening("last")
        state.schedule_soon(opening)
        tables: list[Any] = [_Unpolled(f"t{number}") for number in range(2 * WORKERS)]
        for table in tables:
            state.registry.followed[table.name] = table
            state.waits_for_poll(table.name)
        assert state.first_polls == len(tables) + 1
        now = time.monotonic()
        assert state.openings.take(now) is None and state.openings.next_due() is None
        if end == "polled":
            state.was_polled("t3")
        elif end == "suspected":
            state.suspect(tables[3], ValueError())
        else:
            state.forget("t3")
        assert state.first_polls == len(tables)
        assert state.openings.take(now) == (opening, False)


class _Unpolled:
    def __init__(self, name: str) -> None:
        self.name = name
        self.failures = 0
        self.chunks: list[Any] = []
        self.suspicion: Exception | None = None
        self.driver = SimpleNamespace(metrics=ScanMetrics())

    def close(self) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_job_is_lost(seed: int) -> None:
    chance, workers = random.Random(seed), Workers(4)
    for number in range(400):
        workers.put(number, chance.choice((0.0, 0.0, 0.001, 0.02)), busy=chance.random() < 0.5)
        if chance.random() < 0.1:
            time.sleep(chance.random() / 100)
    workers.until(done=400)
    workers.close()
    assert sorted(workers.done) == list(range(400))
