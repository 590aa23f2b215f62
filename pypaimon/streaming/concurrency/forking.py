"""What a forked process does with what it inherits: locks that a thread of its parent held, caches, streams."""

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
"""How many forks lie between this process and the one that began. Unlike a process id it never comes again."""

_polars_waits = False
"""Threads of polars stayed in a parent of this process."""


def polars_works() -> bool:
    """Whether polars may be used: in a forked process it waits for ever for the threads that its parent had started."""
    return not _polars_waits


class Origin:
    """The process in which this was made."""

    def __init__(self) -> None:
        self._generation = _generation

    @property
    def is_here(self) -> bool:
        """Whether it is the process of now, and not one from which that was forked."""
        return self._generation == _generation


class ForkSafeLock:
    """A lock that is free in a process which was just forked, though another thread of the parent held it.

    Used as `with lock.held:`. Had this class methods for `with` in Python, Ctrl-C could come between the block and
    the release.

    Attributes:
        held: The lock of now, a lock of Python itself.

    Args:
        renew: Called in the forked process if the lock was held: the change that it guarded will never be finished.
            Must not refer to what holds the lock, take other locks, or raise.
    """

    def __init__(self, renew: Callable[[], None] = lambda: None) -> None:
        # Re-entrant, to tell the thread that forks in the midst of a change, and goes on with it, from others.
        self.held = threading.RLock()
        self._renew = renew
        _locks.add(self)

    def after_fork(self) -> None:
        """Be free."""
        if self.held.acquire(blocking=False):
            self.held.release()
        else:
            self.held = threading.RLock()
            self._renew()


_locks: WeakSet[ForkSafeLock] = WeakSet()


def cache_lock(cache: LRUCache[Any, Any]) -> ForkSafeLock:
    """A lock for a cache, which is empty in a forked process if it was in use at that moment."""
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
