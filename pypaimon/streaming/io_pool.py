"""`IOPool`: blocking calls on a few daemon threads, each with a time limit, none of which can hold the interpreter."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from pypaimon.streaming.errors import IOTimeoutError, StoreError

T = TypeVar("T")
_Job = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...]]


class IOPool:
    """A bounded set of daemon threads for blocking calls.

    Threads start when they are needed and end when they were idle for a while. A call that does not come back within the
    time limit is given up: its thread is abandoned, counted and replaced, `max_abandoned` times, then every call fails.
    Nothing waits for an abandoned thread, not even the interpreter's exit. A pool that is used after a fork starts anew.

    Args:
        size: Calls that run at the same time.
        timeout: Seconds that `run` waits for one call.
        name: Prefix of the threads' names.
        idle_seconds: Seconds after which an idle thread ends.
        max_abandoned: Threads that may hang before the pool refuses work.
    """

    def __init__(
        self, size: int, timeout: float, name: str = "paimon-io", idle_seconds: float = 5.0, max_abandoned: int = 8
    ) -> None:
        self.size = size
        self.timeout = timeout
        self._name = name
        self._idle_seconds = idle_seconds
        self._max_abandoned = max_abandoned
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._workers: set[threading.Thread] = set()
        self._idle = 0
        self._running: dict[Future[Any], threading.Thread] = {}
        self._abandoned = 0
        self._closed = False

    @property
    def abandoned(self) -> int:
        """Threads given up because their call hangs, or hung, for longer than the time limit."""
        return self._abandoned

    @property
    def threads(self) -> int:
        """Threads that are alive and not abandoned."""
        return len(self._workers)

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Run a call on a thread of the pool.

        Raises:
            StoreError: Too many requests hang.
            RuntimeError: The pool is closed.
        """
        if self._pid != os.getpid():
            self._reset()
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the IO pool is closed")
            if self._abandoned >= self._max_abandoned:
                raise StoreError(
                    f"{self._abandoned} requests to the store hang. Is it reachable? Then build a new stream."
                )
            self._jobs.append((future, function, args))
            self._employ()
        return future

    def run(self, function: Callable[..., T], *args: Any) -> T:
        """Run a call on a thread of the pool and wait for it.

        Raises:
            IOTimeoutError: It did not come back within the time limit.
            StoreError: Too many requests hang.
        """
        return self.result(self.submit(function, *args))

    def result(self, future: Future[T]) -> T:
        """Wait for a call that was submitted, for at most the time limit from now; an interrupted wait gives it up."""
        try:
            return future.result(self.timeout)
        except FutureTimeoutError:
            if future.done():
                raise
            self.abandon(future)
            raise IOTimeoutError(f"a request did not come back within {self.timeout:g} s") from None

    def abandon(self, future: Future[Any]) -> None:
        """Give up a call: unless it is done its thread is replaced and never waited for."""
        if future.cancel():
            return
        with self._lock:
            thread = self._running.pop(future, None)
            if thread is None or thread not in self._workers:
                return
            self._workers.discard(thread)
            self._abandoned += 1
            if self._jobs:
                self._employ()
        _let_interpreter_exit()

    def close(self) -> None:
        """End the threads once their calls are done; waits for none. Idempotent."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()

    def _employ(self) -> None:
        """See to it that a thread takes the newest job; called with the lock held."""
        if self._idle >= len(self._jobs):
            self._lock.notify()
        elif len(self._workers) < self.size:
            thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._workers)}", daemon=True)
            self._workers.add(thread)
            thread.start()

    def _work(self) -> None:
        thread = threading.current_thread()
        while (job := self._next_job(thread)) is not None:
            self._do(job, thread)

    def _next_job(self, thread: threading.Thread) -> _Job | None:
        """The next job, or None when this thread has to end: abandoned, closed, or idle for long."""
        with self._lock:
            if thread not in self._workers:
                return None
            if not self._jobs and not self._closed:
                self._idle += 1
                self._lock.wait_for(lambda: self._jobs or self._closed, self._idle_seconds)
                self._idle -= 1
            if self._jobs:
                return self._jobs.popleft()
            self._workers.discard(thread)
            return None

    def _do(self, job: _Job, thread: threading.Thread) -> None:
        future, function, args = job
        if not future.set_running_or_notify_cancel():
            return
        with self._lock:
            self._running[future] = thread
        try:
            result = function(*args)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            with self._lock:
                self._running.pop(future, None)


def _let_interpreter_exit() -> None:
    """Keep pyarrow's exit hook from waiting for the request that hangs (it waits for calls in flight)."""
    filesystem = sys.modules.get("pyarrow.fs")
    finalize = getattr(filesystem, "ensure_s3_finalized", None)
    if finalize is not None:
        atexit.unregister(finalize)
