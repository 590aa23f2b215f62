"""Requests of the threads of a pool, each with a time limit, and the limit on requests that hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pypaimon.streaming.concurrency.background_threads import BackgroundThread
from pypaimon.streaming.concurrency.forking import ForkSafeLock


@dataclass(slots=True, eq=False)
class Request:
    """A request that a thread waits for.

    Attributes:
        since: When it began, by the monotonic clock; or when the thread was last seen computing.
        spent: CPU seconds of the thread at that time; None if computing counts as waiting.
    """

    since: float
    spent: float | None = None


@dataclass(slots=True, eq=False)
class Running:
    """A call that a thread runs, and the request that it waits for, if any."""

    thread: BackgroundThread
    request: Request | None

    def is_overdue(self, now: float, timeout: float) -> bool:
        """Whether its request takes too long; called with the lock of the pool held, so that the thread is alive."""
        request = self.request
        if request is None:
            return False
        if request.spent is not None and (spent := _cpu_seconds(self.thread)) > request.spent:
            request.since, request.spent = now, spent
        return now - request.since >= timeout


class Hanging:
    """Calls of several pools that were given up. Thread-safe.

    Args:
        most: How many may hang before only those pools may work that have had an answer since: twice as many as one
            reader has in flight at most, so that none of them can stop the others.
    """

    def __init__(self, most: int = 128) -> None:
        self.most = most
        self.abandoned = 0
        self.now = 0
        self._lock = ForkSafeLock()

    @property
    def is_full(self) -> bool:
        """Whether as many hang as may."""
        return self.now >= self.most

    def begin(self) -> None:
        """Count one more call that hangs."""
        with self._lock.held:
            self.abandoned += 1
            self.now += 1

    def end(self) -> None:
        """Count a call that has returned."""
        with self._lock.held:
            self.now -= 1


_here = threading.local()
"""The call of this thread, if the thread belongs to a pool."""


def begin_call(call: Running | None, marked: bool) -> None:
    """From now on requests of this thread belong to a call.

    Args:
        call: The call; None after the call, and if it was given up already.
        marked: Whether only marked parts of the call are requests.
    """
    _here.call, _here.marked = call, marked


@contextmanager
def one_request(decodes: bool = False) -> Iterator[None]:
    """The code within is one request, with a time limit of its own, if it runs on a thread of a pool.

    Args:
        decodes: Whether it also decodes what it reads, which is not limited: a thread that computes does not hang.
    """
    call: Running | None = getattr(_here, "call", None)
    if call is None:
        yield
        return
    call.request = Request(time.monotonic(), _cpu_seconds(call.thread) if decodes else None)
    try:
        yield
    finally:
        call.request = None if _here.marked else Request(time.monotonic())


def _cpu_seconds(thread: BackgroundThread) -> float:
    """CPU seconds of a living thread; 0 if the system does not measure them."""
    if thread.ident is None or not hasattr(time, "pthread_getcpuclockid"):
        return 0.0
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
