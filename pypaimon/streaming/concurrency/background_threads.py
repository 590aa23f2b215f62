"""`BackgroundThread`: a daemon thread that the interpreter's exit asks to end and waits for, unless it hangs.

Without the wait an exit may abort the process (SIGABRT): before Python 3.14 a daemon thread is ended when it next needs
the interpreter's lock, and a thread that needs it inside of Arrow or DuckDB, which read a Python file or close a
database, unwinds through C++ code that allows no exceptions.
"""

from __future__ import annotations

import _thread
import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pypaimon.streaming.concurrency.signals import interruptible

# The exit waits this long for threads that do not hang. Most end sooner.
_LAST_SECONDS, _LAST_PAUSE = 2.0, 0.005

_is_hooked = False
_exit_until: float | None = None
# Sets, because they add and remove without a lock, which a finalizer could find held.
_threads: set[BackgroundThread] = set()
_detached: set[object] = set()
_afterwards: list[Callable[[], None]] = []


class BackgroundThread(threading.Thread):
    """A daemon thread that ends before the interpreter does.

    Args:
        target: What it runs.
        name: Its name.
        stop: Asks it to end, and returns at once. The exit calls it, again and again, on the main thread.
        args: Arguments of `target`.

    Attributes:
        is_awaited: Whether the exit waits for it: false for a thread whose request hangs.
    """

    def __init__(self, target: Callable[..., object], name: str, stop: Callable[[], object], *args: Any) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)
        self._stop_running: Callable[[], object] | None = stop
        self.is_awaited = True

    def start(self) -> None:
        """Start the thread."""
        _register_hook()
        _threads.add(self)
        try:
            with interruptible():
                super().start()
        finally:
            # A signal handler may have raised before the thread started.
            if self.ident is None:
                _threads.discard(self)

    def run(self) -> None:
        """Run the target; nothing that it used is freed later than this."""
        try:
            super().run()
        finally:
            self._stop_running = None
            _threads.discard(self)

    def ask_to_end(self) -> None:
        """Call `stop` if the thread still runs."""
        stop = self._stop_running
        if stop is not None:
            stop()


def spawn_detached(call: Callable[[], object]) -> None:
    """Make a call soon, on a thread of its own, without waiting and without taking a lock.

    For finalizers: the garbage collector may run one while this thread holds the locks that the call needs.
    """
    token = object()

    def run() -> None:
        nonlocal call
        try:
            call()
        finally:
            del call
            _detached.discard(token)

    _register_hook()
    _detached.add(token)
    try:
        _thread.start_new_thread(run, ())
    except RuntimeError:
        # While the interpreter exits no thread can start, and the call is not needed.
        _detached.discard(token)
    if _exit_until is not None and threading.current_thread() is threading.main_thread():
        # A finalizer that runs at exit after `_at_exit`.
        _wait_for_threads(_exit_until)


def call_after_threads_at_exit(hook: Callable[[], None]) -> None:
    """Have the exit call this after it has waited for the threads."""
    _afterwards.append(hook)
    _register_hook()


def is_exiting() -> bool:
    """Whether the interpreter's exit has begun to end the threads."""
    return _exit_until is not None


def _register_hook() -> None:
    global _is_hooked
    if not _is_hooked and threading.main_thread().is_alive():
        _is_hooked = True
        # Hooks run in reverse order. With a finalizer made here, that of all finalizers runs after ours, so they find
        # the threads ended: one closes the database that a live table's thread uses.
        weakref.finalize(BackgroundThread, int)
        atexit.register(_at_exit)


def _at_exit() -> None:
    global _exit_until
    _exit_until = time.monotonic() + _LAST_SECONDS
    _wait_for_threads(_exit_until)
    for hook in _afterwards:
        hook()


def _wait_for_threads(until: float) -> None:
    while time.monotonic() < until:
        threads = [thread for thread in list(_threads) if thread.is_awaited]
        if not (threads or _detached):
            return
        for thread in threads:
            with suppress(Exception):
                thread.ask_to_end()
        time.sleep(_LAST_PAUSE)


def _after_fork() -> None:
    # The threads stay in the parent.
    _threads.clear()
    _detached.clear()


# Windows has no forks.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
