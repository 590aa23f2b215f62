"""`maintain` and `Maintainer`: the upkeep of a table, compaction included, at a call or in the background."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta

from pypaimon.streaming.compaction.chosen_partitions import ChosenPartitions
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.concurrency.background_runs import BackgroundRuns
from pypaimon.streaming.concurrency.cancel_scope import CancelScope
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.maintenance.maintain import run_once
from pypaimon.streaming.maintenance.plan import CompactedFiles, MaintenanceReport
from pypaimon.streaming.maintenance.policy import KeepRules, MaintenancePolicy
from pypaimon.streaming.maintenance.seen_files import SeenFiles
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options.arguments import a_table, finite_seconds
from pypaimon.streaming.paimon.handles import WritableTable


def maintain(
    table: WritableTable, policy: MaintenancePolicy | None = None, *, dry_run: bool = False
) -> MaintenanceReport:
    """Expire partitions, snapshots, long-lived changelogs and consumers, and delete files that nothing needs. Blocks.

    Rows of streams that are still protected, of tags and of branches do not change. May run at any time, next to
    writers, compactors, readers, Java's own expiry, and itself; a run that is killed is finished by the next one.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it.
        policy: What to keep; None: what the table's options say.
        dry_run: Delete nothing. The report says what would be deleted, and what would be compacted; it does not count
            what a run would expire and delete only because it has compacted the table before.

    Raises:
        StreamConfigError: An option or an argument cannot be read; nothing was deleted.
        TableChangedError: A protected position belongs to another table, or the table was rolled back since.
        CorruptTableError: A file that decides what is needed is damaged or missing; nothing was deleted.
        UnsupportedTableError: The partitions of such a table cannot expire, or it cannot be compacted; nothing was
            deleted.
        CommitFailedError: A compaction or the drop of partitions was not committed, or manifests were not rewritten
            (retriable).
        MaintenanceConflictError: Others kept changing what is protected meanwhile (retriable).
        StoreError: The store failed (retriable).
    """
    given = PaimonTable(a_table("maintain: table", table))
    return _run(given, policy or MaintenancePolicy(), dry_run=dry_run)


def _run(
    table: PaimonTable, policy: MaintenancePolicy, seen: SeenFiles | None = None, *, dry_run: bool = False
) -> MaintenanceReport:
    def compact(given: PaimonTable, without: Collection[bytes]) -> CompactedFiles:
        compaction = Compaction(given, ChosenPartitions(given, without=without), maintains=True)
        report = compaction.run(dry_run=dry_run)
        return CompactedFiles(report.before.files, report.before.bytes, report.new_snapshot_ids)

    return run_once(table, policy, seen, dry_run=dry_run, compact=compact if policy.compact else None)


class Maintainer(BackgroundRuns[MaintenanceReport]):
    """Maintains a table while it is open: `async with Maintainer(table): ...`, or `with Maintainer(table): ...`.

    It calls `maintain` on a thread of its own: at once, and again after each interval. After a retriable error it runs
    again after a pause. It is opened once. A run reads what is new since the last one.

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
        self._table = given
        self._policy = policy or MaintenancePolicy()
        self._seen = SeenFiles()
        self._scope = CancelScope()

    def stop(self) -> None:
        """Stop it as leaving the context does, without waiting until it has ended. From any thread."""
        super().stop()
        self._scope.cancel()

    def _report(self) -> MaintenanceReport:
        with self._scope.entered():
            return _run(self._table, self._policy, self._seen)

    def _is_worth_reporting(self, report: MaintenanceReport) -> bool:
        return not report.is_empty
