"""`Compactor`: compacts a table in the background while a context is open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from pypaimon.streaming.compaction.chosen_partitions import ChosenPartitions
from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.reports import CompactionReport
from pypaimon.streaming.compaction.tasks import Threads
from pypaimon.streaming.concurrency.background_runs import BackgroundRuns
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.maintenance.commit_maintenance import CommitMaintenance, When, is_automatic_maintenance
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options.arguments import a_table, finite_seconds
from pypaimon.streaming.paimon.handles import WritableTable


class Compactor(BackgroundRuns[CompactionReport]):
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
        maintain: `"auto"`: runs are followed by what `maintain` does, when that is due, also if the table is
            `write-only`. Its errors do not end the compactor.

    Attributes:
        last_report: The report of the last run that succeeded; None before the first one has ended.
        last_error: The error of the last run; None if it succeeded.
        maintenance: Last report and error of maintenance; None if it is off.

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
        maintain: When = "off",
    ) -> None:
        given = PaimonTable(a_table("Compactor: table", table))
        if full and CompactionOptions.of(given).force_rewrite:
            raise StreamConfigError(
                "Compactor: 'compaction.force-rewrite-all-files' = 'true' makes each full compaction rewrite all "
                "files: run compact(table, full=True) once, or remove the option from the table."
            )
        chosen = ChosenPartitions(given, partition, where, partition_idle_time)
        maintains = is_automatic_maintenance("Compactor: maintain", maintain)
        self._compaction = Compaction(given, chosen, full=full, workers=Threads(threads), maintains=maintains)
        self.maintenance = CommitMaintenance(given) if maintains else None
        super().__init__("compaction", finite_seconds("Compactor: interval", interval), on_report)

    def _report(self) -> CompactionReport:
        report = self._compaction.run(check=self._check)
        if self.maintenance is not None and report.latest_id is not None:
            self.maintenance.after_commit(report.latest_id)
        return report

    def _end(self) -> None:
        if self.maintenance is not None:
            self.maintenance.close(finish=False)

    def _is_worth_reporting(self, report: CompactionReport) -> bool:
        return bool(report.compacted or report.conflicts)
