"""`Worker`: the threads of pools, which pass from one pool to another."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

SPARE_SECONDS = 1.0
"""How long a thread that its pool no longer needs waits for another pool before it ends."""

_spares: deque[Worker] = deque()
# Its methods are atomic, so it needs no lock, which a signal handler could find held.


class Worker(threading.Thread):
    """A daemon thread that works for one pool at a time.

    A thread that has left its pool is used by the next pool that needs one, because a database stream with many tables
    would start a thread for almost every request otherwise. A thread whose call hangs has not left its pool.

    Attributes:
        is_spare: Whether it waits for a pool.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.is_spare = False
        self._given: SimpleQueue[Callable[[], object]] = SimpleQueue()

    @staticmethod
    def take() -> Worker:
        """A spare thread, or a new one. The caller must `begin` it."""
        try:
            return _spares.pop()
        except IndexError:
            return Worker()

    def begin(self, work: Callable[[], object], name: str) -> None:
        """Work for a pool: make this call, which returns when the pool no longer needs the thread."""
        self.name = name
        self._given.put(work)
        if self.ident is None:
            self.start()
        self.is_spare = False

    def run(self) -> None:
        work: Callable[[], object] | None = self._given.get()
        while work is not None:
            work()
            # A spare thread must not keep its last pool alive.
            work = None
            work = self._wait()

    def _wait(self) -> Callable[[], object] | None:
        """The work for the next pool; None if no pool needs the thread."""
        self.name = "paimon-spare"
        self.is_spare = True
        _spares.append(self)
        with suppress(Empty):
            return self._given.get(timeout=SPARE_SECONDS)
        try:
            _spares.remove(self)
        except ValueError:
            # A pool has taken it at this moment.
            return self._given.get()
        return None


# Threads stay in the parent. Windows has no forks.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_spares.clear)
