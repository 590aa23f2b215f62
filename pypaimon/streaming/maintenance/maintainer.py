"""`Maintainer`: maintains a table in the background while a context is open."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from pypaimon.streaming.concurrency.background_runs import BackgroundRuns
from pypaimon.streaming.concurrency.cancel_scope import CancelScope
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.maintenance.maintain import maintain
from pypaimon.streaming.maintenance.plan import MaintenanceReport
from pypaimon.streaming.maintenance.policy import KeepRules, MaintenancePolicy
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options.arguments import a_table, finite_seconds
from pypaimon.streaming.paimon.handles import WritableTable


class Maintainer(BackgroundRuns[MaintenanceReport]):
    """Maintains a table while it is open: `async with Maintainer(table): ...`, or `with Maintainer(table): ...`.

    It calls `maintain` on a thread of its own: at once, and again after each interval. After a retriable error it runs
    again after a pause. It is opened once.

    Leaving the context stops it. A later run, of any program, finishes what it had begun. If it has failed meanwhile
    with an error that is not retriable, leaving raises that error, unless the block raised one itself.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it.
        policy: What to keep; None: what the table's options say.
        interval: Pause between the end of one run and the next.
        on_report: Called, on the maintainer's thread, with the report of each run that has deleted something. An error
            that it raises ends the maintainer.

    Attributes:
        last_report: The report of the last run that succeeded; None before the first one has ended.
        last_error: The error of the last run; None if it succeeded.

    Raises:
        StreamConfigError: An option or an argument is invalid.
    """

    def __init__(
        self,
        table: WritableTable,
        policy: MaintenancePolicy | None = None,
        *,
        interval: float | timedelta = 3600.0,
        on_report: Callable[[MaintenanceReport], object] | None = None,
    ) -> None:
        given = PaimonTable(a_table("Maintainer: table", table))
        KeepRules.of(policy or MaintenancePolicy(), given.options)
        seconds = finite_seconds("Maintainer: interval", interval)
        if not seconds:
            raise StreamConfigError("Maintainer: interval: give a time above 0.")
        super().__init__("maintenance", seconds, on_report)
        self._table = table
        self._policy = policy
        self._scope = CancelScope()

    def stop(self) -> None:
        """Stop it as leaving the context does, without waiting until it has ended. From any thread."""
        super().stop()
        self._scope.cancel()

    def _report(self) -> MaintenanceReport:
        with self._scope.entered():
            return maintain(self._table, self._policy)

    def _is_worth_reporting(self, report: MaintenanceReport) -> bool:
        return bool(report.resumed or not report.plan.is_empty)
