"""`Worker`: the threads of pools, which pass from one pool to another."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from pypaimon.streaming.concurrency.background_threads import BackgroundThread

SPARE_SECONDS = 1.0
"""How long a thread that its pool no longer needs waits for another pool before it ends."""

_spares: deque[Worker] = deque()
# Its methods are atomic, so it needs no lock, which a signal handler could find held.


class Worker(BackgroundThread):
    """A thread that works for one pool at a time.

    A thread that has left its pool is used by the next pool that needs one, because a database stream with many tables
    would start a thread for almost every request otherwise. A thread whose call hangs has not left its pool.

    Attributes:
        is_spare: Whether it waits for a pool.
    """

    def __init__(self) -> None:
        super().__init__(self._serve, "paimon-spare", self._ask_to_end)
        self.is_spare = False
        self._given: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._release: Callable[[], object] | None = None

    @staticmethod
    def take() -> Worker:
        """A spare thread, or a new one. The caller must `begin` it."""
        try:
            return _spares.pop()
        except IndexError:
            return Worker()

    def begin(self, work: Callable[[], object], name: str, release: Callable[[], object]) -> None:
        """Work for a pool.

        Args:
            work: The call to make, which returns when the pool no longer needs the thread.
            name: The name of the thread meanwhile.
            release: Has the pool need it only until its current call is done.
        """
        self.name = name
        self._release = release
        self._given.put(work)
        if self.ident is None:
            self.start()
        self.is_spare = False

    def _ask_to_end(self) -> None:
        release = self._release
        if release is not None:
            release()
        # If a pool has taken it at this moment, the exit asks again.
        with suppress(ValueError):
            _spares.remove(self)
            self._given.put(None)

    def _serve(self) -> None:
        work = self._given.get()
        while work is not None:
            work()
            # A spare thread must not keep its last pool alive.
            work = self._release = None
            work = self._wait()

    def _wait(self) -> Callable[[], object] | None:
        """The work for the next pool; None if no pool needs the thread."""
        self.name = "paimon-spare"
        # Its call no longer hangs, if it did.
        self.is_spare = self.is_awaited = True
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
