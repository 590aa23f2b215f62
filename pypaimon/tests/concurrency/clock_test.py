"""Waits that are interrupted: every wake is seen, and an earlier one does not end a wait."""

from __future__ import annotations

import asyncio
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pypaimon.streaming.concurrency.clock import Clock, Sleeper, is_done_within, until_done
from pypaimon.streaming.io.io_pool import IOPool
from support.stores.virtual_clock import VirtualClock
from support.tables.streamed_table import Table

PATIENCE = 300


class Asleep(Clock):
    """Waits for good; says when it does."""

    def __init__(self) -> None:
        self.waits = threading.Event()

    def wait(self, woken: queue.SimpleQueue[None], seconds: float) -> None:
        self.waits.set()
        woken.get(timeout=PATIENCE)


def never() -> bool:
    return False


def in_thread(call: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_a_wake_ends_a_pause_and_one_from_before_does_not() -> None:
    clock = Asleep()
    sleeper = Sleeper(clock)
    for _ in range(3):
        sleeper.wake()
    thread = in_thread(lambda: sleeper.pause(1, never))
    assert clock.waits.wait(PATIENCE)
    assert thread.is_alive()
    sleeper.wake()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_wake_between_looking_and_waiting_is_heard() -> None:
    sleeper = Sleeper(Asleep())

    def over() -> bool:
        sleeper.wake()
        return False

    thread = in_thread(lambda: sleeper.pause(1, over))
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_wakes_that_nobody_waits_for_leave_nothing() -> None:
    sleeper = Sleeper(VirtualClock())
    for _ in range(1000):
        sleeper.wake()
    assert sleeper._woken.qsize() == 1
    sleeper.pause(1, lambda: True)
    assert sleeper._woken.empty()


def test_what_is_over_is_not_waited_for() -> None:
    clock = VirtualClock()
    sleeper = Sleeper(clock)
    sleeper.pause(5, lambda: True)
    assert clock.waits == 0
    assert not until_done(Future(), lambda: True)
    done: Future[int] = Future()
    done.set_result(1)
    assert until_done(done, lambda: True)


async def test_an_awaited_call_ends_by_its_result_or_by_being_over() -> None:
    sleeper, future, is_over = Sleeper(VirtualClock()), Future[int](), []
    first = asyncio.ensure_future(sleeper.until_done(future, never).awaitable())
    second = asyncio.ensure_future(sleeper.until_done(future, lambda: bool(is_over)).awaitable())
    for _ in range(3):
        sleeper.wake()
        await asyncio.sleep(0)
    assert not first.done() and not second.done()
    is_over.append(True)
    sleeper.wake()
    assert await asyncio.wait_for(second, PATIENCE) is None
    in_thread(lambda: future.set_result(1))
    assert await asyncio.wait_for(first, PATIENCE) == 1
    assert sleeper._wakers == ()


async def test_a_cancelled_wait_leaves_the_call_alone() -> None:
    sleeper, future = Sleeper(VirtualClock()), Future[int]()
    waiting = asyncio.ensure_future(sleeper.until_done(future, never).awaitable())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not future.cancelled() and sleeper._wakers == ()


async def test_a_wait_with_a_timeout_can_be_repeated_without_end() -> None:
    """Each would leave a callback otherwise, as long as the future is not done."""
    sleeper, future = Sleeper(Clock()), Future[int]()
    for _ in range(20):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(sleeper.until_done(future, lambda: False).awaitable(), 0.001)
    assert len(future._done_callbacks) == 1
    waiting = asyncio.create_task(sleeper.until_done(future, lambda: False).awaitable())
    await asyncio.sleep(0)
    threading.Thread(target=future.set_result, args=(7,)).start()
    assert await waiting == 7


@pytest.fixture
def interrupts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ctrl-C raises, as where no handler is set."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Interrupted:
    """Sends SIGINT at the n-th line that this thread comes to in the waits for conditions of Python."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.lines = 0

    def call(self, function: Callable[[], Any]) -> Any:
        wait, before = threading.Condition.wait.__code__, sys.gettrace()

        def on_event(frame: FrameType, event: str, _: Any) -> Any:
            self.lines += event == "line"
            if event == "line" and self.lines == self._number:
                signal.raise_signal(signal.SIGINT)
            return on_event

        sys.settrace(lambda frame, event, _: on_event if frame.f_code is wait else None)
        try:
            return function()
        finally:
            sys.settrace(before)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("what", ["future", "call", "stream"])
def test_an_interrupt_at_any_line_of_a_wait_is_raised_as_itself(what: str, tmp_path: Path) -> None:
    """Right after the condition has released its lock, leaving its `with` block fails with a RuntimeError."""
    whole = Interrupted(0)
    assert not whole.call(lambda: is_done_within(Future(), 0.001)) and whole.lines > 8
    pool, table, gate = IOPool(1, PATIENCE), Table(tmp_path), threading.Event()
    for number in range(1, whole.lines + 1):
        future: Future[None] = Future()
        with table.builder().open_sync() as stream:
            waits: dict[str, Callable[[], object]] = {
                "future": partial(until_done, future, never),
                "call": partial(pool.run, gate.wait, PATIENCE),
                "stream": partial(next, stream),
            }
            with pytest.raises(KeyboardInterrupt):
                Interrupted(number).call(waits[what])
            gate.set()
            # No lock is kept: the other thread could not set the result.
            in_thread(partial(future.set_result, None)).join(PATIENCE)
            assert future.done() and pool.run(int) == 0
            gate.clear()
    pool.close()


def test_a_time_limit_of_a_signal_handler_ends_a_wait() -> None:
    """The error is of the class that a wait of Python raises when its own time is over."""

    def expire(*_: object) -> None:
        raise TimeoutError("of the program")

    before = signal.signal(signal.SIGINT, expire)
    try:
        with pytest.raises(TimeoutError, match="of the program"):
            Interrupted(5).call(partial(until_done, Future[None](), never))
    finally:
        signal.signal(signal.SIGINT, before)
