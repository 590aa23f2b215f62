"""`BackgroundRuns`: repeats a call on a thread of its own while a context is open."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, Generic, TypeVar

from pypaimon.streaming.concurrency.background_threads import BackgroundThread
from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.concurrency.clock import until_done
from pypaimon.streaming.concurrency.threads_to_asyncio import wait_for_future
from pypaimon.streaming.errors import PaimonStreamError, what_fails
from pypaimon.streaming.logs import StreamLog

R = TypeVar("R")
S = TypeVar("S", bound="BackgroundRuns[Any]")

_LOG = StreamLog(__name__)


class BackgroundRuns(ABC, Generic[R]):
    """Runs at once, and again a while after each run has ended. After a retriable error it pauses and runs again.

    Args:
        what: What a run is, for log lines.
        interval: Seconds between the end of one run and the next.
        on_report: Called, on the thread, with each report that is worth it. An error that it raises ends the runs.
    """

    def __init__(self, what: str, interval: float, on_report: Callable[[R], object] | None) -> None:
        self._what = what
        self._interval = interval
        self._on_report = on_report
        self._stopped = threading.Event()
        self._ended: Future[None] = Future()
        self.last_report: R | None = None
        self.last_error: Exception | None = None

    def __enter__(self: S) -> S:
        BackgroundThread(self._run, f"paimon-{self._what}", self.stop).start()
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self.stop()
        until_done(self._ended, lambda: False)
        self._raise(kind, self._ended.exception())

    async def __aenter__(self: S) -> S:
        return self.__enter__()

    async def __aexit__(self, kind: Any, *_: object) -> None:
        self.stop()
        error: BaseException | None = None
        try:
            await wait_for_future(self._ended)
        except Exception as raised:  # noqa: BLE001 - raised below
            error = raised
        self._raise(kind, error)

    @property
    def is_running(self) -> bool:
        """Whether it is running: False before it is opened, after it was left, and after an error."""
        return not self._stopped.is_set() and not self._ended.done()

    def wait(self) -> None:
        """Wait until it is stopped, or raise the error with which it ends."""
        # In short waits: Python handles a signal that comes just before a wait for a lock only when that wait ends.
        until_done(self._ended, lambda: False)
        self._ended.result()

    def stop(self) -> None:
        """Stop it as leaving the context does, without waiting until it has ended. From any thread."""
        self._stopped.set()

    @abstractmethod
    def _report(self) -> R:
        """Run once. Raises `CancelledError` soon after `stop`."""

    @abstractmethod
    def _is_worth_reporting(self, report: R) -> bool: ...

    def _check(self) -> None:
        if self._stopped.is_set():
            raise CancelledError("it was stopped")

    @staticmethod
    def _raise(kind: Any, error: BaseException | None) -> None:
        if error is not None and kind is None:
            raise error

    def _end(self) -> None:
        """Called on the thread after the last run."""

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._repeat()
        except CancelledError as raised:
            error = None if self._stopped.is_set() else raised
        except BaseException as raised:  # noqa: BLE001 - leaving raises it
            error = raised
            self.last_error = raised if isinstance(raised, Exception) else None
        try:
            self._end()
        finally:
            if error is None:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(error)

    def _repeat(self) -> None:
        backoff, attempt = Backoff(), 0
        while not self._stopped.is_set():
            try:
                self._run_once()
                attempt, pause, self.last_error = 0, self._interval, None
            except PaimonStreamError as error:
                self.last_error = error
                if not error.retriable:
                    raise
                attempt += 1
                pause = backoff.pause(attempt)
                text = f"the {self._what} failed (attempt %(attempt)d) and runs again after a pause: %(error)s"
                _LOG.outage("waits_out", text, what_fails(error), attempt=attempt, error=str(error))
            self._stopped.wait(pause)

    def _run_once(self) -> None:
        self.last_report = report = self._report()
        if self._on_report is not None and self._is_worth_reporting(report):
            self._on_report(report)
