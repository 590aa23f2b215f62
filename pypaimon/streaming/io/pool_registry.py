"""The pools of this process: what happens to their calls at the interpreter's exit and at a fork."""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pypaimon.streaming.concurrency.background_threads import call_after_threads_at_exit, is_exiting
from pypaimon.streaming.io.workers import Worker

if TYPE_CHECKING:
    from pypaimon.streaming.io.io_pool import IOPool

pools: WeakKeyDictionary[IOPool, None] = WeakKeyDictionary()
"""All pools."""


def _current_pools() -> list[IOPool]:
    """All pools, safe against another thread that makes one: iterating over weak references would fail then."""
    return [pool for each in pools.keyrefs() if (pool := each()) is not None]


def finalize_s3_after_calls() -> None:
    """Have the interpreter's exit finalize pyarrow's S3 client after the calls in flight, unless they hang.

    pyarrow's own hook waits for its client, also for requests that hang, and is replaced. Python 3.14 also calls a hook
    that another hook has unregistered, and none that it registers, so both happen before the exit.
    """
    global _finalize_s3
    if _finalize_s3 is not None:
        return
    filesystem = sys.modules.get("pyarrow.fs")
    importing = getattr(getattr(filesystem, "__spec__", None), "_initializing", False)
    if importing or not threading.main_thread().is_alive():
        return
    # Without S3 pyarrow has no such hook.
    _finalize_s3 = getattr(filesystem, "ensure_s3_finalized", None)
    if _finalize_s3 is not None:
        atexit.unregister(_finalize_s3)
        call_after_threads_at_exit(_at_last)


_finalize_s3: Callable[[], None] | None = None


def _at_last() -> None:
    # It would wait for calls that hang. An exit without it may crash, which is the lesser evil.
    if _finalize_s3 is not None and not calls_are_left():
        _finalize_s3()


def refuse_background_work_at_exit() -> None:
    """Allow new calls only to the main thread, which runs the exit hooks, and to the calls that it still waits for."""
    thread = threading.current_thread()
    if is_exiting() and thread is not threading.main_thread() and not isinstance(thread, Worker):
        # The one error that ends a thread without a stack trace on the screen.
        raise SystemExit


def calls_are_left() -> bool:
    """Whether any pool runs a call, even one that nobody waits for: a listing of pyarrow's delays the exit."""
    return any(pool._running or pool._hanging or pool._left for pool in _current_pools())


def longest_wait() -> float:
    """Seconds since the start of the oldest request that some pool waits for; 0 if there is none.

    Calls without a time limit do not count: they plan, for example, or wait for requests of other pools.
    """
    now = time.monotonic()
    waits = [0.0]
    for pool in [each for each in _current_pools() if math.isfinite(each.timeout)]:
        with pool._lock:
            waits += [now - call.request.since for call in pool._running.values() if call.request is not None]
    return max(waits)


def _after_fork() -> None:
    # Threads and calls stay in the parent.
    for pool in _current_pools():
        if pool._shared is not None:
            pool._shared.now = 0
        pool._reset()


# Windows has no forks.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
