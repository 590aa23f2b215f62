"""`compactor`: a table that is compacted in the background, for as long as a context lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from pypaimon.streaming.compaction.chosen_partitions import ChosenPartitions
from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.reports import CompactionReport
from pypaimon.streaming.compaction.workers import Threads
from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.concurrency.clock import until_done
from pypaimon.streaming.concurrency.threads_to_asyncio import wait_for_future
from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError, what_fails
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.options.arguments import a_table, finite_seconds

_LOG = StreamLog(__name__)


def compactor(
    table: Any,
    *,
    full: bool = False,
    partition: Mapping[str, Any] | None = None,
    where: str | None = None,
    idle_seconds: float | None = None,
    threads: int = 1,
    interval_seconds: float = 60.0,
    on_report: Callable[[CompactionReport], object] | None = None,
) -> Compactor:
    """Compact a table in the background: `async with compactor(table): ...`, or `with compactor(table): ...`.

    It looks at once, and then again and again; each look asks for what has changed since the last one. What may pass is
    waited out.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it.
        full: As `compact` takes it.
        partition: Likewise.
        where: Likewise.
        idle_seconds: Likewise.
        threads: Likewise.
        interval_seconds: Pause between the end of one look and the next.
        on_report: Called, on the compactor's thread, with the report of each look that has compacted something. What
            it raises ends the compactor.

    Raises:
        StreamConfigError: An argument is none, or each look would write everything anew: `full` of a table with
            `compaction.force-rewrite-all-files`.
    """
    a_table("compactor: table", table)
    if full and CompactionOptions.of(table).force_rewrite:
        raise StreamConfigError(
            "compactor: 'compaction.force-rewrite-all-files' = 'true' makes each full compaction write all files anew: "
            "run compact(table, full=True) once, or take the option off the table."
        )
    chosen = ChosenPartitions(table, partition, where, idle_seconds)
    return Compactor(Compaction(table, chosen, full=full, workers=Threads(threads)), interval_seconds, on_report)


class Compactor:
    """Compacts a table while it is open, on a thread of its own. Made by `compactor`; opened once.

    Leaving the context stops it: what it has in hand is not committed, and its files are deleted. If it has failed for
    good meanwhile, leaving raises that error, unless the block raised one itself.

    Args:
        compaction: What is done.
        interval_seconds: As `compactor` takes it.
        on_report: Likewise.

    Attributes:
        last_report: What the last look did; None before the first one has ended.
    """

    def __init__(
        self,
        compaction: Compaction,
        interval_seconds: float,
        on_report: Callable[[CompactionReport], object] | None = None,
    ) -> None:
        self._compaction = compaction
        self._interval = finite_seconds("compactor: interval_seconds", interval_seconds)
        self._on_report = on_report
        self._stopped = threading.Event()
        self._ended: Future[None] = Future()
        self.last_report: CompactionReport | None = None

    def __enter__(self) -> Compactor:
        threading.Thread(target=self._run, name="paimon-compactor", daemon=True).start()
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self._stopped.set()
        until_done(self._ended, lambda: False)
        self._tell(kind, self._ended.exception())

    async def __aenter__(self) -> Compactor:
        return self.__enter__()

    async def __aexit__(self, kind: Any, *_: object) -> None:
        self._stopped.set()
        error: BaseException | None = None
        try:
            await wait_for_future(self._ended)
        except Exception as raised:  # noqa: BLE001 - told below
            error = raised
        self._tell(kind, error)

    @property
    def is_running(self) -> bool:
        """Whether it goes on: False before it is opened, after it was left, and after an error."""
        return not self._stopped.is_set() and not self._ended.done()

    def wait(self) -> None:
        """Wait until it is stopped, or ends with an error, which is raised."""
        # In pieces: a signal that comes just before a thread begins to wait for a lock is handled when that wait ends.
        until_done(self._ended, lambda: False)
        self._ended.result()

    def stop(self) -> None:
        """Have it end, as leaving the context does, without waiting for it. From any thread."""
        self._stopped.set()

    @staticmethod
    def _tell(kind: Any, error: BaseException | None) -> None:
        if error is not None and kind is None:
            raise error

    def _run(self) -> None:
        backoff, attempt = Backoff(), 0
        try:
            while not self._stopped.is_set():
                try:
                    self._look()
                    attempt, pause = 0, self._interval
                except PaimonStreamError as error:
                    if not error.retriable:
                        raise
                    attempt += 1
                    pause = backoff.pause(attempt)
                    text = "the compaction failed (attempt %(attempt)d) and looks again after a pause: %(error)s"
                    _LOG.outage("waits_out", text, what_fails(error), attempt=attempt, error=str(error))
                self._stopped.wait(pause)
        except _StoppedError:
            self._ended.set_result(None)
        except BaseException as error:  # noqa: BLE001 - leaving raises it
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    def _look(self) -> None:
        self.last_report = report = self._compaction.run(check=self._check)
        if self._on_report is not None and (report.compacted or report.conflicts):
            self._on_report(report)

    def _check(self) -> None:
        if self._stopped.is_set():
            raise _StoppedError


class _StoppedError(Exception):
    """The context was left."""
