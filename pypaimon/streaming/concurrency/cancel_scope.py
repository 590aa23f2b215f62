"""`CancelScope`: calls on other threads that are cancelled together when nobody waits for their results any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import Any

_here = threading.local()


class CancelScope:
    """Calls of pools that are made inside it belong to it. Thread-safe; several threads may enter it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._calls: dict[Future[Any], Callable[[], None]] = {}
        self._is_cancelled = False

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Calls that this thread makes within belong to the scope."""
        before = current_scope()
        enter(self)
        try:
            yield
        finally:
            enter(before)

    def check(self) -> None:
        """Raise CancelledError if the scope was cancelled, before a call is made."""
        if self._is_cancelled:
            raise CancelledError("nobody waits for this any more")

    def add(self, future: Future[Any], cancel: Callable[[], None]) -> None:
        """Add a call to the scope.

        Args:
            future: The call's outcome.
            cancel: Ends the wait for it with `CancelledError`.
        """
        with self._lock:
            self._calls[future] = cancel
        future.add_done_callback(self._done)
        # After the call was added: `cancel` on another thread may have missed it.
        if self._is_cancelled:
            cancel()

    def cancel(self) -> None:
        """Cancel the calls of the scope, and all that it would make later. Idempotent."""
        self._is_cancelled = True
        with self._lock:
            calls = list(self._calls.values())
        for cancel in calls:
            cancel()

    def _done(self, future: Future[Any]) -> None:
        with self._lock:
            self._calls.pop(future, None)


def current_scope() -> CancelScope | None:
    """The scope that this thread has entered."""
    return getattr(_here, "scope", None)


def enter(scope: CancelScope | None) -> None:
    """From now on calls that this thread makes belong to a scope; None: to no scope."""
    _here.scope = scope


@contextmanager
def shielded() -> Iterator[None]:
    """Calls within are not cancelled with the scope: a write may have taken effect already, and others depend on it.

    Raises:
        CancelledError: The scope was cancelled before.
    """
    scope = current_scope()
    if scope is None:
        yield
        return
    scope.check()
    _here.scope = None
    try:
        yield
    finally:
        _here.scope = scope
