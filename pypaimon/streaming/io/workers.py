"""`Worker`: the threads of pools, which pass from one pool to another."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from pypaimon.streaming.concurrency.background_threads import BackgroundThread

SPARE_SECONDS = 1.0
"""How long a thread that no pool needs waits before it ends."""

_Given = tuple[Callable[[], object], str]
"""What a pool gives a thread: the call, and the name of the thread."""
_spares: list[Worker] = []
# Its methods are atomic, so it needs no lock, which a signal handler could find held.


class Worker(BackgroundThread):
    """A thread that works for one pool at a time.

    A thread leaves its pool as soon as no call waits there, and the next pool that needs a thread uses it: a
    database stream has several pools for each table, which would start a thread for almost every request otherwise. A
    thread whose call hangs has not left its pool.

    Attributes:
        is_spare: Whether it waits for a pool.
        former_name: Its name when it worked for a pool.
    """

    def __init__(self) -> None:
        super().__init__(self._serve, "paimon-spare", self._ask_to_end)
        self.is_spare = False
        self.former_name = ""
        self._given: _Given | None = None
        self._woken: SimpleQueue[bool] = SimpleQueue()

    @staticmethod
    def take(name: str) -> Worker:
        """A spare thread, or a new one. The caller must `begin` it.

        One that has worked under the same name is preferred: the memory of a thread's allocator then serves calls of
        the same kind again, where threads that do everything in turn keep the most that each kind has taken.
        """
        same = [index for index, spare in enumerate(_spares) if spare.former_name == name]
        try:
            # If others have taken spares since, it is another one, or a new one. To choose a thread and then remove it
            # would lose it if a signal handler raised in between.
            return _spares.pop(same[-1] if same else -1)
        except IndexError:
            return Worker()

    def begin(self, work: Callable[[], object], name: str) -> None:
        """Work for a pool.

        Args:
            work: The call to make, which returns when the pool no longer needs the thread.
            name: The name of the thread meanwhile.
        """
        self._given = work, name
        self._woken.put(True)
        if self.ident is None:
            self.start()

    def has_begun(self) -> bool:
        """Whether it works for the pool that has taken it, or soon will. If not, it is spare again.

        For a caller of `begin` that a signal handler may have interrupted.
        """
        if self.ident is None:
            return False
        # Read before `is_spare`, which the thread changes first.
        if self._given is not None:
            self._woken.put(True)
        elif self.is_spare:
            _spares.append(self)
            return False
        return True

    def _ask_to_end(self) -> None:
        # If a pool has taken it, the exit asks again.
        with suppress(ValueError):
            _spares.remove(self)
            self._woken.put(False)

    def _serve(self) -> None:
        while (given := self._next()) is not None:
            work, self.name = given
            del given
            work()
            # A spare thread must not keep its last pool alive.
            del work
            self.former_name, self.name = self.name, "paimon-spare"
            # Its call no longer hangs, if it did.
            self.is_spare = self.is_awaited = True
            _spares.append(self)

    def _next(self) -> _Given | None:
        """The work for the next pool; None if no pool needs the thread, or the interpreter exits."""
        timeout: float | None = SPARE_SECONDS if self.is_spare else None
        while True:
            try:
                may_go_on = self._woken.get(timeout=timeout)
            except Empty:
                try:
                    _spares.remove(self)
                except ValueError:
                    # A pool has taken it at this moment.
                    timeout = None
                    continue
                return None
            given = self._given
            if given is not None:
                self.is_spare = False
                self._given = None
                return given
            if not may_go_on:
                return None


# Threads stay in the parent. Windows has no forks.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_spares.clear)
