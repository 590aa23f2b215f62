"""`IOPool`: blocking calls on daemon threads, each with a time limit, none of which can keep the interpreter alive."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from pypaimon.streaming.concurrency.background_threads import BackgroundThread
from pypaimon.streaming.concurrency.cancel_scope import CancelScope, current_scope, enter
from pypaimon.streaming.concurrency.clock import is_done_within
from pypaimon.streaming.errors import IOTimeoutError, StoreError
from pypaimon.streaming.io.io_requests import Hanging, Request, Running, begin_call
from pypaimon.streaming.io.pool_registry import finalize_s3_after_calls, pools, refuse_background_work_at_exit
from pypaimon.streaming.io.workers import Worker

T = TypeVar("T")

# Waiting is cut into pieces: on Windows a thread that waits for a lock does not see Ctrl-C before it wakes up.
_TICK_SECONDS = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    future: Future[Any]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    scope: CancelScope | None


class IOPool:
    """A bounded set of daemon threads for blocking calls.

    A pool has threads only while it has calls: without one a thread serves other pools (see `Worker`). A call whose
    request exceeds the time limit is given up: its thread is abandoned, counted and replaced. While `max_abandoned`
    calls hang, every other call fails. Nothing waits for an abandoned thread, not even the interpreter's exit. In a
    forked process a pool is empty again. Calls on a pool must not wait for calls on the same pool: all threads could
    wait.

    Args:
        size: The most calls that run at the same time.
        timeout: Seconds that one request may take. Waiting for a free thread does not count.
        name: Prefix of the threads' names.
        max_abandoned: Calls that may hang before the pool refuses work.
        hanging: Shared by pools whose hanging calls are limited together. While too many hang, only those pools work
            that have had an answer since they gave up a call of their own.
        marked: Whether only parts of a call that are marked with `one_request` are limited. Otherwise a call is a
            request from its start, and the parts that it marks are further requests.
    """

    def __init__(
        self,
        size: int,
        timeout: float,
        name: str = "paimon-io",
        max_abandoned: int = 8,
        hanging: Hanging | None = None,
        marked: bool = False,
    ) -> None:
        self.size = size
        self.timeout = timeout
        self._marked = marked
        self._name = name
        self._max_abandoned = max_abandoned
        self._shared = hanging
        self._was_answered = False
        self._closed = False
        self._reset()
        pools[self] = None

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._jobs: deque[_Job] = deque()
        self._workers: set[BackgroundThread] = set()
        self._running: dict[Future[Any], Running] = {}
        self._abandoned = 0
        # Threads whose calls were given up and have not returned yet.
        self._hanging: set[BackgroundThread] = set()
        # Calls that nobody waits for any more, although they need not hang, by thread.
        self._left: dict[BackgroundThread, Running] = {}

    @property
    def abandoned(self) -> int:
        """Calls that were given up so far."""
        return self._abandoned

    @property
    def hanging(self) -> int:
        """Calls that were given up and have not returned yet."""
        return len(self._hanging)

    @property
    def threads(self) -> int:
        """Threads that are alive and not abandoned."""
        return len(self._workers)

    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        """Run a call on a thread of the pool; it belongs to the cancel scope of this thread.

        Raises:
            StoreError: Too many calls hang.
            CancelledError: The scope was cancelled.
            SystemExit: The interpreter is exiting, and this thread works in the background.
            RuntimeError: The pool is closed.
        """
        refuse_background_work_at_exit()
        scope = current_scope()
        if scope is not None:
            scope.check()
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the IO pool is closed")
            if self._refuses():
                raise self._refusal()
            self._enqueue(_Job(future, function, args, scope))
        if scope is not None:
            scope.add(future, partial(self._leave, future))
        return future

    def run(self, function: Callable[..., T], *args: Any) -> T:
        """Run a call on a thread of the pool and wait for it.

        Raises:
            IOTimeoutError: A request did not return within the time limit.
            StoreError: Too many calls hang.
        """
        return self.result(self.submit(function, *args))

    def result(self, future: Future[T]) -> T:
        """Wait for a call that was submitted.

        Raises:
            IOTimeoutError: A request did not return within the time limit.
            StoreError: It waited for a thread while too many other calls hung.
        """
        while not is_done_within(future, self.tick):
            self.give_up_overdue()
        return future.result()

    @property
    def tick(self) -> float:
        """Seconds between checks for overdue calls."""
        return min(_TICK_SECONDS, self.timeout / 4)

    @property
    def given_up(self) -> bool:
        """Inside a call: whether it was given up, so that nobody waits for its result."""
        return threading.current_thread() not in self._workers

    def close(self) -> None:
        """Accept no more calls. Those that were submitted are made, without waiting for them. Idempotent."""
        self._closed = True

    def give_up_overdue(self) -> None:
        """Give up all calls whose requests have exceeded the time limit, including those of other threads."""
        now = time.monotonic()
        with self._lock:
            overdue = [future for future, call in self._running.items() if call.is_overdue(now, self.timeout)]
            for thread in [each for each, call in self._left.items() if call.is_overdue(now, self.timeout)]:
                del self._left[thread]
                self._count_hanging(thread)
        for future in overdue:
            self._give_up(future, IOTimeoutError(f"a request did not return within {self.timeout:g} s"))

    def _give_up(self, future: Future[Any], error: IOTimeoutError) -> None:
        refused: list[_Job] = []
        with self._lock:
            running = self._running.pop(future, None)
            if running is None:
                return
            self._workers.discard(running.thread)
            self._count_hanging(running.thread)
            if self._refuses():
                refused = list(self._jobs)
                self._jobs.clear()
            elif self._jobs:
                self._ensure_worker()
        future.set_exception(error)
        for job in refused:
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(self._refusal())
        finalize_s3_after_calls()

    def _leave(self, future: Future[Any]) -> None:
        """End the wait for a call. Its thread is replaced, and counts as hanging if it exceeds the time limit."""
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
        finalize_s3_after_calls()

    def _count_hanging(self, thread: BackgroundThread) -> None:
        thread.is_awaited = False
        self._abandoned += 1
        self._hanging.add(thread)
        if self._shared is not None:
            self._shared.begin()
        self._was_answered = False

    def _refuses(self) -> bool:
        """Whether too many calls hang to accept new work; called with the lock held."""
        return (
            len(self._hanging) >= self._max_abandoned
            or len(self._left) >= self.size + self._max_abandoned
            or (self._shared is not None and self._shared.is_full and not self._was_answered)
        )

    def _refusal(self) -> StoreError:
        hanging = len(self._hanging) if self._shared is None else self._shared.now
        return StoreError(
            f"{hanging + len(self._left)} requests to the store hang. Is it reachable? Try again when it is."
        )

    def _enqueue(self, job: _Job) -> None:
        """Have a thread make a call; called with the lock held.

        A method of its own: in Python 3.11 a signal handler that raises at a `try` inside of a `with` leaves the lock
        held.
        """
        try:
            self._jobs.append(job)
            self._ensure_worker()
        except BaseException:
            # The caller sees the error, and may call again.
            with suppress(ValueError):
                self._jobs.remove(job)
            raise

    def _ensure_worker(self) -> None:
        """Have a thread take the newest job; called with the lock held."""
        if len(self._workers) >= self.size:
            return
        thread: Worker | None = None
        name = f"{self._name}-{len(self._workers)}"
        try:
            thread = Worker.take(name)
            self._workers.add(thread)
            finalize_s3_after_calls()
            thread.begin(self._work, name)
        except BaseException:
            # No thread can start, or a signal handler has raised.
            if thread is not None and not thread.has_begun():
                self._workers.discard(thread)
            raise

    def _work(self) -> None:
        thread = cast(BackgroundThread, threading.current_thread())
        while (job := self._next_job(thread)) is not None:
            begin_call(self._running.get(job.future), self._marked)
            enter(job.scope)
            try:
                self._do(job)
            finally:
                begin_call(None, self._marked)
                enter(None)
            # A thread must not keep objects of its last job alive.
            del job

    def _next_job(self, thread: BackgroundThread) -> _Job | None:
        """The next job; None if this thread leaves the pool, because it was abandoned or there is none."""
        with self._lock:
            if thread not in self._workers:
                # Neither left nor hanging is a thread whose start an interrupt has cut off from the pool.
                if self._left.pop(thread, None) is None and thread in self._hanging:
                    self._hanging.remove(thread)
                    if self._shared is not None:
                        self._shared.end()
                return None
            while self._jobs:
                job = self._jobs.popleft()
                if job.future.set_running_or_notify_cancel():
                    request = None if self._marked else Request(time.monotonic())
                    self._running[job.future] = Running(thread, request)
                    return job
            self._workers.discard(thread)
            return None

    def _do(self, job: _Job) -> None:
        try:
            settle = partial(job.future.set_result, job.function(*job.args))
        except BaseException as error:  # noqa: BLE001 - raised to the caller that waits
            settle = partial(job.future.set_exception, error)
        with self._lock:
            wanted = self._running.pop(job.future, None) is not None
            self._was_answered = self._was_answered or wanted
        if wanted:
            settle()
