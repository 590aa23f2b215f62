"""A clock on which waiting takes no time."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable

from pypaimon.streaming.concurrency.clock import Clock


class VirtualClock(Clock):
    """Stands still, but for waits, which move it at once.

    Attributes:
        now: Seconds of both clocks.
        on_wait: Called at each wait: what happens meanwhile.
    """

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now
        self.waits = 0
        self.on_wait: Callable[[], None] = lambda: None

    def time_millis(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    def wait(self, woken: queue.SimpleQueue[None], seconds: float) -> None:
        self._pass(seconds)

    async def wait_async(self, woken: asyncio.Event, seconds: float) -> None:
        self._pass(seconds)
        await asyncio.sleep(0)

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        self.waits += 1
        self.on_wait()
