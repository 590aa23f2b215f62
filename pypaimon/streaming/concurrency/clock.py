"""`Clock`: where a stream gets its time; tests use another one. `Sleeper`: waits that can be interrupted."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeVar

from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.concurrency.signals import interruptible
from pypaimon.streaming.concurrency.waits import Wait
from pypaimon.streaming.lazy_imports import LazyModule

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = LazyModule("asyncio")

T = TypeVar("T")

# Waiting is cut into pieces: on Windows a thread that waits for a lock does not see Ctrl-C before it wakes up, and a
# signal handler must not take the lock that it may have interrupted.
_TICK_SECONDS = 0.25


class Clock:
    """The machine's clocks."""

    def time_millis(self) -> int:
        """Wall-clock time, epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    def wait(self, woken: queue.SimpleQueue[None], seconds: float) -> None:
        """Block until something is put, at most this long."""
        with contextlib.suppress(queue.Empty):
            woken.get(timeout=seconds)

    async def wait_async(self, woken: asyncio.Event, seconds: float) -> None:
        """Wait until the event is set, at most this long."""
        import asyncio

        # `asyncio.wait_for` of Python < 3.12 loses a cancellation that comes together with the event.
        timer = asyncio.get_running_loop().call_later(seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


AWAKE = _boottime if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


class SuspendAwareClock:
    """Seconds that never go back, and that also pass while the machine is suspended. Thread-safe.

    One clock may stand still during a suspend, another one may be set back. So of two readings the greatest difference
    that any of the clocks shows counts.

    Args:
        clocks: Each returns seconds.
    """

    def __init__(self, clocks: Sequence[Callable[[], float]] = (AWAKE, time.time)) -> None:
        self._clocks = clocks
        self._lock = threading.Lock()
        self._last = [clock() for clock in clocks]
        self._total = 0.0

    def __call__(self) -> float:
        """Seconds since the object was made."""
        with self._lock:
            now = [clock() for clock in self._clocks]
            self._total += max(0.0, *(new - old for new, old in zip(now, self._last, strict=True)))
            self._last = now
            return self._total


def until_done(future: Future[Any], is_cancelled: Callable[[], bool]) -> bool:
    """Block until a call on another thread is done, or the wait is cancelled; returns whether the call is done.

    A cancellation is seen within a quarter of a second, also if a signal handler in this thread causes it.
    """
    while not (future.done() or is_cancelled()):
        is_done_within(future, _TICK_SECONDS)
    return future.done()


def is_done_within(future: Future[Any], seconds: float) -> bool:
    """Block until a call on another thread is done, for a time at most; returns whether it is.

    All waits for futures go through here, because a signal may interrupt them.
    """
    # Several times cheaper than `concurrent.futures.wait`, which serves several futures.
    try:
        with contextlib.suppress(CancelledError), interruptible():
            future.exception(seconds)
    except FutureTimeoutError as error:
        if _raised_in(error) is not Future.exception.__code__:
            raise  # by a signal handler: the time limit of the program
    return future.done()


def _raised_in(error: BaseException) -> CodeType:
    trace = error.__traceback__
    assert trace is not None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code


class Sleeper:
    """Waits that another thread, or a signal handler that interrupts one, can end.

    Each wait gets a function that returns whether the wait is cancelled. Code that makes it true calls `wake`.

    Args:
        clock: Waits for a time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Unlike an event, it may be used by a signal handler that has interrupted a use of it.
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._wakers: tuple[Callable[[], None], ...] = ()
        self._awaited: weakref.ref[Future[Any]] | None = None
        self._origin = Origin()

    def wake(self) -> None:
        """Have all current waits check again whether they are cancelled. Does nothing in a forked process."""
        if not self._origin.is_here:
            return
        if self._woken.empty():
            self._woken.put(None)
        self._wake_waits()

    def pause(self, seconds: float, is_cancelled: Callable[[], bool]) -> None:
        """Block for a time, or until the wait is cancelled."""
        # An earlier wake must not end this pause; one from here on does.
        with contextlib.suppress(queue.Empty):
            while True:
                self._woken.get_nowait()
        if not is_cancelled():
            self._clock.wait(self._woken, seconds)

    async def pause_async(self, seconds: float, is_cancelled: Callable[[], bool]) -> None:
        """Wait for a time, or until the wait is cancelled."""
        with self._awake() as (woken, _):
            if not is_cancelled():
                await self._clock.wait_async(woken, seconds)

    def until_due(self, due: float, is_cancelled: Callable[[], bool]) -> Wait[None]:
        """Wait until a time of the monotonic clock, or until the wait is cancelled."""

        def seconds() -> float:
            return 0.0 if is_cancelled() else max(0.0, due - self._clock.monotonic())

        def block() -> None:
            if (pause := seconds()) > 0:
                self.pause(pause, is_cancelled)

        async def awaitable() -> None:
            if (pause := seconds()) > 0:
                await self.pause_async(pause, is_cancelled)

        return Wait(block, awaitable)

    def until_done(self, future: Future[T], is_cancelled: Callable[[], bool]) -> Wait[T | None]:
        """The result of a call on another thread, or None if the wait is cancelled before."""

        def result() -> T | None:
            try:
                return future.result() if future.done() else None
            except CancelledError:
                # Closing a stream also cancels its calls.
                if is_cancelled():
                    return None
                raise

        def block() -> T | None:
            until_done(future, is_cancelled)
            return result()

        async def awaitable() -> T | None:
            with self._awake() as (woken, _):
                self._wake_when_done(future)
                while not (future.done() or is_cancelled()):
                    await woken.wait()
                    woken.clear()
            return result()

        return Wait(block, awaitable)

    def _wake_when_done(self, future: Future[Any]) -> None:
        # Once per future, because a caller with a timeout waits for the same one again and again.
        if self._awaited is None or self._awaited() is not future:
            self._awaited = weakref.ref(future)
            future.add_done_callback(self._wake_waits)

    def _wake_waits(self, _: object = None) -> None:
        for wake in self._wakers:
            wake()

    @contextlib.contextmanager
    def _awake(self) -> Iterator[tuple[asyncio.Event, Callable[[], None]]]:
        """An event that is set by `wake`, even before anybody waits for it; and a function that sets it."""
        import asyncio

        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            # A loop that was closed during a wait has left its waker here.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(woken.set)

        self._wakers = (*self._wakers, wake)
        try:
            yield woken, wake
        finally:
            self._wakers = tuple(each for each in self._wakers if each is not wake)
