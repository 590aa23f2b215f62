"""Forked processes: locks that a thread of the parent held, caches, streams."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakSet

from cachetools import LRUCache

_generation = 0
"""Number of forks between the first process and this one. Unlike a process id it is never reused."""

_polars_waits = False
"""Whether this process was forked from one that had imported polars."""


def polars_works() -> bool:
    """Whether polars may be used: in a forked process it waits for the threads of its parent forever."""
    return not _polars_waits


class Origin:
    """The process in which the object was made."""

    def __init__(self) -> None:
        self._generation = _generation

    @property
    def is_here(self) -> bool:
        """Whether that is the current process, and not one that it was forked from."""
        return self._generation == _generation


class ForkSafeLock:
    """A lock that is free in a forked process, even if another thread of the parent held it.

    Used as `with lock.held:`. If `__exit__` were Python code, Ctrl-C could come between the block and the release.

    Attributes:
        held: The current lock, one of Python's own.

    Args:
        renew: Called in the forked process if the lock was held, because the change that it guarded is never finished.
            Must not refer to the owner of the lock, take other locks, or raise.
    """

    def __init__(self, renew: Callable[[], None] = lambda: None) -> None:
        # Re-entrant: a thread that forks during a change continues it in the child, and then owns the lock.
        self.held = threading.RLock()
        self._renew = renew
        _locks.add(self)

    def after_fork(self) -> None:
        """Release the lock in a forked process, unless the thread that forked holds it."""
        if self.held.acquire(blocking=False):
            self.held.release()
        else:
            self.held = threading.RLock()
            self._renew()


_locks: WeakSet[ForkSafeLock] = WeakSet()


def cache_lock(cache: LRUCache[Any, Any]) -> ForkSafeLock:
    """A lock for a cache, which is cleared in a forked process if it was in use during the fork."""
    return ForkSafeLock(partial(LRUCache.__init__, cache, cache.maxsize, cache.getsizeof))


def _after_fork() -> None:
    global _generation, _polars_waits
    _generation += 1
    _polars_waits = _polars_waits or "polars" in sys.modules
    for lock in list(_locks):
        lock.after_fork()


# Windows has no forks.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
