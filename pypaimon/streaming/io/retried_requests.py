"""`RetriedRequests`: requests that are timed out, retried and counted, and whose errors are translated."""

from __future__ import annotations

import copy
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar, cast

from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.concurrency.cancel_scope import shielded
from pypaimon.streaming.concurrency.clock import is_done_within
from pypaimon.streaming.concurrency.forking import ForkSafeLock
from pypaimon.streaming.errors import CorruptTableError, IOTimeoutError, StoreError
from pypaimon.streaming.io.conditional_writes import is_local
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.io.io_requests import Hanging, one_request
from pypaimon.streaming.io.request_errors import place_of, translated
from pypaimon.streaming.logs import StreamLog

T = TypeVar("T")
R = TypeVar("R", bound="RetriedRequests")

_LOG = StreamLog(__name__)
_LASTING = frozenset(("write", "delete"))
"""Kinds of requests that change the store. After one is given up it is not known whether it took effect."""
_IN_TURN_SECONDS = 0.004
"""How long requests for local files are made one after the other, before the rest are made at the same time."""
_IS_AHEAD = ContextVar("_IS_AHEAD", default=False)


@contextmanager
def asked_ahead() -> Iterator[None]:
    """Requests of this thread are prefetches: one that hangs is given up after one time limit.

    It counts as the first attempt of the request that needs the answer later, so that the prefetch does not delay the
    error.
    """
    token = _IS_AHEAD.set(True)
    try:
        yield
    finally:
        _IS_AHEAD.reset(token)


@dataclass(eq=False)
class _Common:
    """State that the readers of a table handle share."""

    retry: Backoff
    sleep: Callable[[float], None]
    rng: random.Random
    hanging: Hanging = field(default_factory=Hanging)
    counts: Counter[str] = field(default_factory=Counter)
    lock: ForkSafeLock = field(default_factory=ForkSafeLock)


@dataclass(frozen=True, slots=True)
class BegunCall(Generic[T]):
    """A call that was submitted; calling this object waits for the answer."""

    _answer: Callable[[], T]
    _future: Future[T]
    requests: ClassVar[int] = 1
    """See `fetch_ahead.Answer`."""

    def __call__(self) -> T:
        """The answer; raises as `RetriedRequests.call`."""
        return self._answer()

    def cancel(self) -> None:
        """Cancel the call, unless a thread has started it."""
        self._future.cancel()

    def when_answered(self, call: Callable[[], object]) -> None:
        """Call a function when the first attempt has ended, or was cancelled."""
        self._future.add_done_callback(lambda _: call())


class RetriedRequests:
    """Requests that run on the threads of a pool. Thread-safe.

    Args:
        timeout: Seconds that one request may take.
        concurrency: Requests in flight at the same time.
        retry: How often requests are repeated; must limit the attempts.
        sleep: Called with the seconds of each pause.
        rng: Source of jitter.
        hung_attempts: Requests in total that may hang until they time out.

    Attributes:
        pool: The threads that requests run on.
        hung_attempts: As above.
    """

    def __init__(
        self,
        timeout: float,
        concurrency: int,
        retry: Backoff,
        sleep: Callable[[float], None],
        rng: random.Random,
        hung_attempts: int,
    ) -> None:
        self.hung_attempts = hung_attempts
        self._common = _Common(retry, sleep, rng)
        self.pool = IOPool(concurrency, timeout, hanging=self._common.hanging)
        self._hung_ahead: set[str] = set()

    def for_reader(self: R) -> R:
        """The same for one more reader, on threads of its own, so that its hanging requests do not block others.

        Requests of all readers are counted together.
        """
        requests = copy.copy(self)
        requests.pool = IOPool(self.pool.size, self.pool.timeout, hanging=self._common.hanging)
        requests._hung_ahead = set()
        return requests

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests so far by kind: read, list, write, delete; and how many of them were retried or abandoned."""
        with self._common.lock.held:
            return {**self._common.counts, "abandoned": self._common.hanging.abandoned}

    def call(self, kind: str, subject: str, request: Callable[[str], T]) -> T:
        """Make a request with a time limit, retries and a count.

        Args:
            kind: The kind under which it is counted: read, list, write or delete.
            subject: The argument of the request, named in errors.
            request: Runs on a thread of the pool; fails with `OSError`.
        """
        return self._one(kind, subject, request)

    def begin_call(self, kind: str, subject: str, request: Callable[[str], T]) -> BegunCall[T]:
        """Submit a request as `call` makes it; the returned call waits for the answer."""
        future = self.pool.submit(request, subject)
        self._count(kind)

        def answer() -> T:
            first: T | FileNotFoundError | StoreError = self._answer(subject, future)
            return self._found(self._repeated(kind, (subject,), request, [first]))

        return BegunCall(answer, future)

    def _one(self, kind: str, path: str, request: Callable[[str], T]) -> T:
        return self._found(self._ask(kind, (path,), request))

    @staticmethod
    def _found(answers: list[T | FileNotFoundError]) -> T:
        (answer,) = answers
        if isinstance(answer, FileNotFoundError):
            raise answer
        return answer

    def _ask(self, kind: str, paths: Sequence[str], request: Callable[[str], T]) -> list[T | FileNotFoundError]:
        """Request all paths at once, and repeat those that failed. A missing file does not count as a failure."""
        with shielded() if kind in _LASTING else nullcontext():
            return self._repeated(kind, paths, request, self._round(kind, paths, request))

    def _repeated(
        self,
        kind: str,
        paths: Sequence[str],
        request: Callable[[str], T],
        answers: list[T | FileNotFoundError | StoreError],
    ) -> list[T | FileNotFoundError]:
        hung_attempts = self._hung_attempts(paths)
        for attempt in itertools.count(1):
            failed = [index for index, answer in enumerate(answers) if isinstance(answer, StoreError)]
            if not failed:
                break
            errors = [answers[index] for index in failed]
            hung = {paths[index]: error for index in failed if isinstance(error := answers[index], IOTimeoutError)}
            # A hung request has cost a whole timeout and holds a thread, so that few of them are repeated.
            if hung and attempt >= hung_attempts:
                if _IS_AHEAD.get():
                    self._hung_ahead.update(hung)
                raise next(iter(hung.values()))
            if attempt == self._common.retry.attempts:
                raise cast("StoreError", errors[0])
            self._count("retried", len(failed))
            cause = errors[0].__cause__ if isinstance(errors[0], StoreError) else None
            text = "%(count)d requests (%(kind)s) failed and are repeated, the first %(path)s: %(error)s"
            fields: dict[str, Any] = {"kind": kind, "count": len(failed), "attempt": attempt, "path": paths[failed[0]]}
            _LOG.outage("retry", text, place_of(paths[failed[0]]), **fields, error=str(cause or errors[0]))
            self._pause(attempt)
            for index, answer in zip(failed, self._round(kind, [paths[each] for each in failed], request), strict=True):
                answers[index] = answer
        return cast("list[T | FileNotFoundError]", answers)

    def _hung_attempts(self, paths: Sequence[str]) -> int:
        """Attempts for these paths if they hang."""
        had_one = self._hung_ahead.intersection(paths)
        self._hung_ahead.difference_update(had_one)
        # A prefetch that hung was the first attempt of the request that needs its answer.
        return 1 if _IS_AHEAD.get() else max(1, self.hung_attempts - bool(had_one))

    def _round(
        self, kind: str, paths: Sequence[str], request: Callable[[str], T]
    ) -> list[T | FileNotFoundError | StoreError]:
        waiting = deque(enumerate(paths))
        in_turn, found = None, dict[int, T | OSError]()
        futures: dict[int, Future[T]] = {}
        try:
            if len(paths) > 1 and all(map(is_local, paths)):
                # Waking a thread takes about as long as reading a small file that the system has in memory.
                in_turn = self.pool.submit(self._make_in_turn, kind, request, waiting, found)
                is_done_within(in_turn, _IN_TURN_SECONDS)
            for index, path in _taken(waiting):
                futures[index] = self.pool.submit(request, path)
                self._count(kind)
            answers: list[T | FileNotFoundError | StoreError] = []
            for index, path in enumerate(paths):
                answer: T | FileNotFoundError | StoreError
                if in_turn is None or index in futures:
                    answer = self._answer(path, futures[index])
                else:
                    answer = self._answer_in_turn(path, index, in_turn, found)
                answers.append(answer)
            return answers
        except BaseException:
            # Those that no thread has begun would be made in vain, and late.
            waiting.clear()
            for future in futures.values():
                future.cancel()
            raise

    def _make_in_turn(
        self,
        kind: str,
        request: Callable[[str], T],
        waiting: deque[tuple[int, str]],
        found: dict[int, T | OSError],
    ) -> None:
        """Make requests one after the other, as long as no other thread takes them."""
        for index, path in _taken(waiting):
            self._count(kind)
            try:
                with one_request():
                    found[index] = request(path)
            except OSError as error:
                found[index] = error

    def _answer(self, path: str, future: Future[T]) -> T | FileNotFoundError | StoreError:
        """The outcome of a request; raises errors that a retry cannot change."""
        try:
            return self.pool.result(future)
        except OSError as error:
            return self._failure(path, error)

    def _answer_in_turn(
        self, path: str, index: int, call: Future[None], found: Mapping[int, T | OSError]
    ) -> T | FileNotFoundError | StoreError:
        """As `_answer`, of one of the requests of a call."""
        if index not in found:
            try:
                self.pool.result(call)
            except OSError as error:
                return self._failure(path, error)
        answer = found[index]
        return self._failure(path, answer) if isinstance(answer, OSError) else answer

    @staticmethod
    def _failure(path: str, error: OSError) -> FileNotFoundError | StoreError:
        failure = translated(path, error)
        if isinstance(failure, CorruptTableError):
            raise failure from error
        if failure is not error:
            failure.__cause__ = error
        return failure

    def _pause(self, attempt: int) -> None:
        self._common.sleep(self._common.retry.pause(attempt, self._common.rng.random))

    def _count(self, kind: str, number: int = 1) -> None:
        with self._common.lock.held:
            self._common.counts[kind] += number


def _taken(waiting: deque[T]) -> Iterator[T]:
    """Take what waits, also while another thread does."""
    while True:
        try:
            first = waiting.popleft()
        except IndexError:
            return
        yield first
