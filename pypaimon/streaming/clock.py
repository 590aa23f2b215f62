"""`Clock`: where the time of a stream comes from; a test gives another one. `Sleeper`: pauses that can be ended."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import time
from collections.abc import Callable


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
        # `asyncio.wait_for` of Python < 3.12 loses a cancellation that comes together with the event.
        timer = asyncio.get_running_loop().call_later(seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()


class Sleeper:
    """Pauses that anyone may end: another thread, or a signal handler in the midst of one.

    Args:
        clock: Says how to wait.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Unlike an event, it may be used by a signal handler that has interrupted a use of it.
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._wakers: tuple[Callable[[], None], ...] = ()

    def wake(self) -> None:
        """End the pause of now; without one, the next blocking pause."""
        self._woken.put(None)
        for wake in self._wakers:
            wake()

    def pause(self, seconds: float) -> None:
        """Block for a time."""
        self._clock.wait(self._woken, seconds)

    async def pause_async(self, seconds: float, over: Callable[[], bool]) -> None:
        """Wait for a time.

        Args:
            seconds: How long.
            over: Whether there is nothing to wait for any more; asked once `wake` is sure to be heard.
        """
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            # A loop that was closed in the midst of a pause has left its waker here.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(woken.set)

        self._wakers = (*self._wakers, wake)
        try:
            if not over():
                await self._clock.wait_async(woken, seconds)
        finally:
            self._wakers = tuple(each for each in self._wakers if each is not wake)
