"""`Compactor`: compacts a table in the background while a context is open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.live_files import ChosenPartitions
from pypaimon.streaming.compaction.reports import CompactionReport
from pypaimon.streaming.compaction.tasks import Threads
from pypaimon.streaming.concurrency.background_threads import BackgroundThread
from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.concurrency.clock import until_done
from pypaimon.streaming.concurrency.threads_to_asyncio import wait_for_future
from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError, what_fails
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options.arguments import a_table, finite_seconds
from pypaimon.streaming.paimon.handles import WritableTable

_LOG = StreamLog(__name__)


class Compactor:
    """Compacts a table while it is open: `async with Compactor(table): ...`, or `with Compactor(table): ...`.

    It runs on a thread of its own: at once, and again after each interval; each run reads only what has changed since
    the last one. After a retriable error it runs again after a pause. It is opened once.

    Leaving the context stops it. Files that were not committed yet are deleted. If it has failed meanwhile with an
    error that is not retriable, leaving raises that error, unless the block raised one itself.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it.
        full: As `compact` takes it.
        partition: As `compact` takes it.
        where: As `compact` takes it.
        partition_idle_time: As `compact` takes it.
        threads: As `compact` takes it.
        interval: Pause between the end of one run and the next.
        on_report: Called, on the compactor's thread, with the report of each run that has compacted something. An error
            that it raises ends the compactor.

    Attributes:
        last_report: The report of the last run; None before the first one has ended.

    Raises:
        StreamConfigError: An argument is invalid, or each run would rewrite everything: `full` of a table with
            `compaction.force-rewrite-all-files`.
    """

    def __init__(
        self,
        table: WritableTable,
        *,
        full: bool = False,
        partition: Mapping[str, Any] | None = None,
        where: str | None = None,
        partition_idle_time: float | timedelta | None = None,
        threads: int = 1,
        interval: float | timedelta = 60.0,
        on_report: Callable[[CompactionReport], object] | None = None,
    ) -> None:
        given = PaimonTable(a_table("Compactor: table", table))
        if full and CompactionOptions.of(given).force_rewrite:
            raise StreamConfigError(
                "Compactor: 'compaction.force-rewrite-all-files' = 'true' makes each full compaction rewrite all "
                "files: run compact(table, full=True) once, or remove the option from the table."
            )
        chosen = ChosenPartitions(given, partition, where, partition_idle_time)
        self._compaction = Compaction(given, chosen, full=full, workers=Threads(threads))
        self._interval = finite_seconds("Compactor: interval", interval)
        self._on_report = on_report
        self._stopped = threading.Event()
        self._ended: Future[None] = Future()
        self.last_report: CompactionReport | None = None

    def __enter__(self) -> Compactor:
        BackgroundThread(self._run, "paimon-compactor", self.stop).start()
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self._stopped.set()
        until_done(self._ended, lambda: False)
        self._raise(kind, self._ended.exception())

    async def __aenter__(self) -> Compactor:
        return self.__enter__()

    async def __aexit__(self, kind: Any, *_: object) -> None:
        self._stopped.set()
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

    @staticmethod
    def _raise(kind: Any, error: BaseException | None) -> None:
        if error is not None and kind is None:
            raise error

    def _run(self) -> None:
        backoff, attempt = Backoff(), 0
        try:
            while not self._stopped.is_set():
                try:
                    self._run_once()
                    attempt, pause = 0, self._interval
                except PaimonStreamError as error:
                    if not error.retriable:
                        raise
                    attempt += 1
                    pause = backoff.pause(attempt)
                    text = "the compaction failed (attempt %(attempt)d) and runs again after a pause: %(error)s"
                    _LOG.outage("waits_out", text, what_fails(error), attempt=attempt, error=str(error))
                self._stopped.wait(pause)
        except _StoppedError:
            self._ended.set_result(None)
        except BaseException as error:  # noqa: BLE001 - leaving raises it
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    def _run_once(self) -> None:
        self.last_report = report = self._compaction.run(check=self._check)
        if self._on_report is not None and (report.compacted or report.conflicts):
            self._on_report(report)

    def _check(self) -> None:
        if self._stopped.is_set():
            raise _StoppedError


class _StoppedError(Exception):
    """The context was left."""
