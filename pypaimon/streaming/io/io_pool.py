"""`IOPool`: blocking calls on a few daemon threads, each with a time limit, none of which can hold the interpreter."""

from __future__ import annotations

import _thread
import atexit
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from pypaimon.streaming.concurrency import errand as errands
from pypaimon.streaming.errors import IOTimeoutError, StoreError
from pypaimon.streaming.io.io_requests import Hanging, Request, Running, at_call

T = TypeVar("T")

# Waiting is cut into pieces: on Windows a thread that waits for a lock does not see Ctrl-C before it wakes up.
_TICK_SECONDS = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    future: Future[Any]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    errand: errands.Errand | None


class IOPool:
    """A bounded set of daemon threads for blocking calls.

    Threads start when they are needed and end when they were idle for a while. A call whose request takes longer than
    the time limit is given up: its thread is abandoned, counted and replaced; while `max_abandoned` calls hang, every
    other call fails. Nothing waits for an abandoned thread, not even the interpreter's exit. In a process that was
    forked a pool starts anew. What runs on a pool must not wait for calls on the same pool.

    Args:
        size: Calls that run at the same time.
        timeout: Seconds that one request may take. Waiting for a turn does not count.
        name: Prefix of the threads' names.
        idle_seconds: Seconds after which an idle thread ends.
        max_abandoned: Calls that may hang before the pool refuses work.
        hanging: Shared by pools whose hanging calls are bounded together: while too many hang, only those pools go on
            that were answered since a call of their own was given up.
        marked: Only what a call marks as `one_request` is limited; else a call is a request from its begin on, and what
            it marks are further ones.
    """

    def __init__(
        self,
        size: int,
        timeout: float,
        name: str = "paimon-io",
        idle_seconds: float = 5.0,
        max_abandoned: int = 8,
        hanging: Hanging | None = None,
        marked: bool = False,
    ) -> None:
        self.size = size
        self.timeout = timeout
        self._marked = marked
        self._name = name
        self._idle_seconds = idle_seconds
        self._max_abandoned = max_abandoned
        self._shared = hanging or Hanging()
        self._was_answered = False
        self._closed = False
        self._reset()
        _pools[self] = None

    def _reset(self) -> None:
        # The lock itself is taken, not the condition: its `with` is one step, which no signal handler can cut in two.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._jobs: deque[_Job] = deque()
        self._workers: set[threading.Thread] = set()
        self._idle = 0
        self._running: dict[Future[Any], Running] = {}
        self._abandoned = 0
        self._hanging = 0
        # Calls that nobody waits for any more, though they need not hang: by their threads.
        self._left: dict[threading.Thread, Running] = {}
        self._released = False

    @property
    def abandoned(self) -> int:
        """Calls that were given up so far."""
        return self._abandoned

    @property
    def hanging(self) -> int:
        """Calls that were given up and still have not come back."""
        return self._hanging

    @property
    def threads(self) -> int:
        """Threads that are alive and not abandoned."""
        return len(self._workers)

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Run a call on a thread of the pool; it belongs to the errand that this thread is at.

        Raises:
            StoreError: Too many calls hang.
            CancelledError: The errand is over.
            SystemExit: The interpreter is exiting, and this thread works in the background.
            RuntimeError: The pool is closed.
        """
        _refuse_background_work_at_exit()
        errand = errands.current()
        if errand is not None:
            errand.check()
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the IO pool is closed")
            if self._refuses():
                raise self._refusal()
            self._released = False
            self._jobs.append(_Job(future, function, args, errand))
            self._ensure_worker()
        if errand is not None:
            errand.add(future, partial(self._leave, future))
        return future

    def run(self, function: Callable[..., T], *args: Any) -> T:
        """Run a call on a thread of the pool and wait for it.

        Raises:
            IOTimeoutError: A request did not come back within the time limit.
            StoreError: Too many calls hang.
        """
        return self.result(self.submit(function, *args))

    def result(self, future: Future[T]) -> T:
        """Wait for a call that was submitted.

        Raises:
            IOTimeoutError: A request did not come back within the time limit.
            StoreError: It waited for its turn while too many others hung.
        """
        while not future.done():
            # Not `result`: what the call raised may be a time-out too.
            with suppress(CancelledError):
                try:
                    future.exception(self.tick)
                except FutureTimeoutError:
                    self.give_up_overdue()
        return future.result()

    @property
    def tick(self) -> float:
        """Seconds after which who waits for a call is to look for overdue ones."""
        return min(_TICK_SECONDS, self.timeout / 4)

    @property
    def given_up(self) -> bool:
        """Inside a call: whether it was given up, so that nobody waits for what it still does."""
        return threading.current_thread() not in self._workers

    def release(self) -> None:
        """Let idle threads end now, and busy ones once they are done, unless there is more work; may be used again."""
        with self._lock:
            self._released = True
            self._changed.notify_all()

    def close(self) -> None:
        """End the threads once their calls are done; waits for none. Idempotent."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()

    def give_up_overdue(self) -> None:
        """Give up the calls, whoever waits for them, whose requests have taken longer than the time limit."""
        now = time.monotonic()
        with self._lock:
            overdue = [future for future, call in self._running.items() if call.is_overdue(now, self.timeout)]
            for thread in [each for each, call in self._left.items() if call.is_overdue(now, self.timeout)]:
                del self._left[thread]
                self._count_hanging()
        for future in overdue:
            self._give_up(future, IOTimeoutError(f"a request did not come back within {self.timeout:g} s"))

    def _give_up(self, future: Future[Any], error: IOTimeoutError) -> None:
        refused: list[_Job] = []
        with self._lock:
            running = self._running.pop(future, None)
            if running is None:
                return
            self._workers.discard(running.thread)
            self._count_hanging()
            if self._refuses():
                refused = list(self._jobs)
                self._jobs.clear()
            elif self._jobs:
                self._ensure_worker()
        future.set_exception(error)
        for job in refused:
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(self._refusal())
        _wait_for_calls_at_exit()

    def _leave(self, future: Future[Any]) -> None:
        """Have nobody wait for a call any more. Its thread is replaced, and counts as hanging if it takes too long."""
        if future.cancel():
            return
        with self._lock:
            running = self._running.pop(future, None)
            if running is None:
                return
            self._workers.discard(running.thread)
            self._left[running.thread] = running
            if self._jobs:
                self._ensure_worker()
        future.set_exception(CancelledError("nobody waits for this any more"))
        _wait_for_calls_at_exit()

    def _count_hanging(self) -> None:
        self._abandoned += 1
        self._hanging += 1
        self._shared.begin()
        self._was_answered = False

    def _refuses(self) -> bool:
        """Whether there is no new work while so many calls hang; called with the lock held."""
        return (
            self._hanging >= self._max_abandoned
            or len(self._left) >= self.size + self._max_abandoned
            or (self._shared.now >= self._shared.most and not self._was_answered)
        )

    def _refusal(self) -> StoreError:
        return StoreError(
            f"{self._shared.now + len(self._left)} requests to the store hang. Is it reachable? Try again when it is."
        )

    def _ensure_worker(self) -> None:
        """See to it that a thread takes the newest job; called with the lock held."""
        if self._idle >= len(self._jobs):
            self._changed.notify()
        elif len(self._workers) < self.size:
            thread = _Worker(target=self._work, name=f"{self._name}-{len(self._workers)}", daemon=True)
            try:
                self._workers.add(thread)
                _wait_for_calls_at_exit()
                thread.start()
            finally:
                # A signal handler may have raised before it began.
                if thread.ident is None:
                    self._workers.discard(thread)

    def _work(self) -> None:
        thread = threading.current_thread()
        while (job := self._next_job(thread)) is not None:
            with at_call(self._running.get(job.future), self._marked), job.errand.on() if job.errand else nullcontext():
                self._do(job)
            # An idle thread must hold nothing of what it did last.
            del job

    def _next_job(self, thread: threading.Thread) -> _Job | None:
        """The next job, or None when this thread has to end: abandoned, closed, or idle for long."""
        with self._lock:
            if thread not in self._workers:
                if self._left.pop(thread, None) is None:
                    self._hanging -= 1
                    self._shared.end()
                return None
            while True:
                if not (self._jobs or self._closed or self._released):
                    self._idle += 1
                    self._changed.wait_for(lambda: self._jobs or self._closed or self._released, self._idle_seconds)
                    self._idle -= 1
                if not self._jobs:
                    self._workers.discard(thread)
                    return None
                job = self._jobs.popleft()
                if job.future.set_running_or_notify_cancel():
                    request = None if self._marked else Request(time.monotonic())
                    self._running[job.future] = Running(thread, request)
                    return job

    def _do(self, job: _Job) -> None:
        try:
            settle = partial(job.future.set_result, job.function(*job.args))
        except BaseException as error:  # noqa: BLE001 - it belongs to the one who waits for the call
            settle = partial(job.future.set_exception, error)
        with self._lock:
            wanted = self._running.pop(job.future, None) is not None
            self._was_answered = self._was_answered or wanted
        if wanted:
            settle()


def spawn_detached(call: Callable[[], object]) -> None:
    """Have a call made soon, by a thread of its own; waits for nothing and takes no lock.

    For finalizers: the garbage collector may run one in the midst of whatever holds the locks that the call needs.
    """
    # At the interpreter's exit there are no new threads, and those that there are end anyway.
    with suppress(RuntimeError):
        _thread.start_new_thread(call, ())


_pools: WeakKeyDictionary[IOPool, None] = WeakKeyDictionary()


def _pools_of_now() -> list[IOPool]:
    """All pools. Who iterates over weak references meets an error where another thread makes a pool meanwhile."""
    return [pool for each in _pools.keyrefs() if (pool := each()) is not None]


class _Worker(threading.Thread):
    """A thread of a pool."""


def _wait_for_calls_at_exit() -> None:
    """Have the interpreter's exit wait for calls in flight, unless they hang.

    An exit that does not wait may abort the process (SIGABRT): before Python 3.14 a daemon thread is ended when it next
    needs the interpreter's lock, and a thread that needs it inside of Arrow, which reads a Python file for example,
    unwinds through C++ code that allows no exceptions.

    pyarrow's own hook waits for its S3 client, also for requests that hang, and is replaced. Python 3.14 also calls a
    hook that another hook has unregistered, and none that it registers, so both happen ahead of the exit.
    """
    global _is_hooked, _end_s3
    if not threading.main_thread().is_alive():
        return
    if not _is_hooked:
        _is_hooked = True
        atexit.register(_at_exit)
    filesystem = sys.modules.get("pyarrow.fs")
    importing = getattr(getattr(filesystem, "__spec__", None), "_initializing", False)
    if _end_s3 is None and not importing:
        # Without S3 pyarrow has no such hook.
        _end_s3 = getattr(filesystem, "ensure_s3_finalized", None)
        if _end_s3 is not None:
            atexit.unregister(_end_s3)


_is_hooked = _is_exiting = False
_end_s3: Callable[[], None] | None = None
# The exit waits this long for calls that do not hang. Most are answered sooner.
_LAST_SECONDS, _LAST_PAUSE = 2.0, 0.005


def _at_exit() -> None:
    global _is_exiting
    _is_exiting = True
    until = time.monotonic() + _LAST_SECONDS
    while any(pool._running or pool._left for pool in _pools_of_now()) and time.monotonic() < until:
        time.sleep(_LAST_PAUSE)
    # Ending the S3 client would wait for calls that hang. Its teardown without it may crash, which is the lesser evil.
    if _end_s3 is not None and not calls_are_left():
        _end_s3()


def _refuse_background_work_at_exit() -> None:
    """Only the main thread, which runs the exit hooks, and the calls that it waits for still start new calls."""
    thread = threading.current_thread()
    if _is_exiting and thread is not threading.main_thread() and not isinstance(thread, _Worker):
        # The one error by which a thread ends without a stack on the screen.
        raise SystemExit


def calls_are_left() -> bool:
    """Whether any pool is at a call, also one that nobody waits for: a listing of pyarrow's holds up the exit."""
    return any(pool._running or pool._hanging or pool._left for pool in _pools_of_now())


def longest_wait() -> float:
    """Seconds since the oldest request began that some pool waits for; 0 without any.

    Calls without a time limit are none: they plan, say, or wait for requests of other pools.
    """
    now = time.monotonic()
    waits = [0.0]
    for pool in [each for each in _pools_of_now() if math.isfinite(each.timeout)]:
        with pool._lock:
            waits += [now - call.request.since for call in pool._running.values() if call.request is not None]
    return max(waits)


def _after_fork() -> None:
    # Threads and calls stay in the parent.
    for pool in _pools_of_now():
        pool._shared.now = 0
        pool._reset()


# Windows has no forks.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
