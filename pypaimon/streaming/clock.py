"""`Clock`: where the time of a stream comes from, and how it waits; a test gives another one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time


class Clock:
    """The machine's clocks."""

    def time_millis(self) -> int:
        """Wall-clock time, epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> None:
        """Block until the event is set, at most this long."""
        event.wait(seconds)

    async def wait_async(self, event: asyncio.Event, seconds: float) -> None:
        """Wait until the event is set, at most this long."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(event.wait(), seconds)
