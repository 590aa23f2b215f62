"""`Errand`: calls on other threads that serve one purpose, and are given up together once that is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import Any

_here = threading.local()


class Errand:
    """Within it, on any thread, calls of pools belong to it. Thread-safe; may be entered by several threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._calls: dict[Future[Any], Callable[[], None]] = {}
        self._is_over = False

    @contextmanager
    def on(self) -> Iterator[None]:
        """What this thread does within is done for it."""
        before, _here.errand = current(), self
        try:
            yield
        finally:
            _here.errand = before

    def check(self) -> None:
        """Begin nothing more once it is over.

        Raises:
            CancelledError: It is.
        """
        if self._is_over:
            raise CancelledError("nobody waits for this any more")

    def add(self, future: Future[Any], give_up: Callable[[], None]) -> None:
        """A call that belongs to it.

        Args:
            future: Its outcome.
            give_up: Has whoever waits for it wait no longer, by `CancelledError`.
        """
        with self._lock:
            self._calls[future] = give_up
        future.add_done_callback(self._done)
        if self._is_over:
            give_up()

    def give_up(self) -> None:
        """Have it over at once: its calls are given up, and it makes no more. Idempotent."""
        self._is_over = True
        with self._lock:
            calls = list(self._calls.values())
        for give_up in calls:
            give_up()

    def _done(self, future: Future[Any]) -> None:
        with self._lock:
            self._calls.pop(future, None)


def current() -> Errand | None:
    """What this thread is at."""
    return getattr(_here, "errand", None)


@contextmanager
def not_given_up() -> Iterator[None]:
    """What is begun here is waited for, whatever becomes of the errand: a write may take effect, and others follow.

    Raises:
        CancelledError: The errand is over: nothing is to be begun.
    """
    errand = current()
    if errand is None:
        yield
        return
    errand.check()
    _here.errand = None
    try:
        yield
    finally:
        _here.errand = errand
