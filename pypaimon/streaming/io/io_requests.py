"""What the threads of pools wait for: requests with a time limit each, and the bound of those that hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pypaimon.streaming.concurrency.forking import ForkSafeLock


@dataclass(slots=True, eq=False)
class Request:
    """A request that a thread waits for.

    Attributes:
        since: When it began, on the monotonic clock; or when the thread was last seen to compute.
        spent: Seconds of a processor that the thread had spent by then; None if computing does not count.
    """

    since: float
    spent: float | None = None


@dataclass(slots=True, eq=False)
class Running:
    """A call that a thread is at, and the request that it waits for, if it does."""

    thread: threading.Thread
    request: Request | None

    def is_overdue(self, now: float, timeout: float) -> bool:
        """Whether its request takes too long; called with the lock of the pool held, so that the thread lives."""
        request = self.request
        if request is None:
            return False
        if request.spent is not None and (spent := _processor_seconds(self.thread)) > request.spent:
            request.since, request.spent = now, spent
        return now - request.since >= timeout


class Hanging:
    """Calls that were given up, over several pools. Thread-safe.

    Args:
        most: So many of them may hang before others than proven pools are refused work.
    """

    def __init__(self, most: int = 64) -> None:
        self.most = most
        self.abandoned = 0
        self.now = 0
        self._lock = ForkSafeLock()

    def begin(self) -> None:
        """One more hangs."""
        with self._lock.held:
            self.abandoned += 1
            self.now += 1

    def end(self) -> None:
        """One of them has come back."""
        with self._lock.held:
            self.now -= 1


_here = threading.local()
"""What this thread, if it is one of a pool's, is at."""


@contextmanager
def at_call(call: Running | None, marked: bool) -> Iterator[None]:
    """What this thread of a pool does within belongs to a call.

    Args:
        call: It; None if it was given up by now.
        marked: Only what it marks is a request.
    """
    _here.call, _here.marked = call, marked
    try:
        yield
    finally:
        _here.call = None


@contextmanager
def one_request(decodes: bool = False) -> Iterator[None]:
    """What is done here is one request, with a time limit of its own, if a thread of a pool does it.

    Args:
        decodes: It also decodes what it reads, for which there is no limit: as long as it computes, it does not hang.
    """
    call: Running | None = getattr(_here, "call", None)
    if call is None:
        yield
        return
    call.request = Request(time.monotonic(), _processor_seconds(call.thread) if decodes else None)
    try:
        yield
    finally:
        call.request = None if _here.marked else Request(time.monotonic())


def _processor_seconds(thread: threading.Thread) -> float:
    """Seconds that a living thread has spent of a processor; 0 where the system does not tell."""
    if thread.ident is None or not hasattr(time, "pthread_getcpuclockid"):
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
