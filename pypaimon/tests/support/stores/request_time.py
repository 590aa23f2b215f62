"""Requests that take long without waiting: tests say how long one is under way, the limits of pools are as they are."""

from __future__ import annotations

import threading

from pypaimon.streaming.io import io_requests, pool_registry

FOR_EVER = 1e9
"""Seconds, more than any time limit."""


def takes(seconds: float) -> None:
    """Let the request that this thread of a pool is at be under way so much longer, which every pool looks at."""
    call = io_requests._here.call
    if call.request is not None:
        call.request.since -= seconds
    _look()


def hang(until: threading.Event) -> None:
    """Have the request that this thread of a pool is at be given up, and come back only after an event."""
    takes(FOR_EVER)
    until.wait()


def let_pass(seconds: float) -> None:
    """Let all requests be under way so much longer; who waits for one finds that at the next look."""
    for pool in list(pool_registry.pools):
        with pool._lock:
            for call in pool._running.values():
                if call.request is not None:
                    call.request.since -= seconds


def _look() -> None:
    for pool in list(pool_registry.pools):
        pool.give_up_overdue()
