"""`Preparation`: what a run of maintenance changes in the table before snapshots expire.

Partitions expire, others are marked as done, and manifests are merged. All of it is planned before the first change,
so that a dry run plans what a run does. A run that is killed is not finished but planned again: each part finds what is
done already. If the table is compacted too, that is done before the rest is planned, so that the snapshots with the
small files can expire in the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime

from pypaimon.streaming.maintenance.done_marks import DoneMarks
from pypaimon.streaming.maintenance.manifest_rewrite import due_manifests, rewritten
from pypaimon.streaming.maintenance.partition_expiry import PartitionExpiry
from pypaimon.streaming.maintenance.partition_files import PartitionFiles, PartitionValues, all_rows, partitions_at
from pypaimon.streaming.maintenance.plan import CompactedFiles, MaintenanceReport
from pypaimon.streaming.maintenance.policy import MaintenancePolicy
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys

Compact = Callable[[PaimonTable, Collection[bytes]], CompactedFiles]
"""Compacts a table but for some partitions, given as serialised rows; in a dry run only says what it would compact."""


class Preparation:
    """The changes of one run, planned at once and made by `run`.

    Raises:
        StreamConfigError: An option cannot be parsed.
        UnsupportedTableError: Partitions of such a table cannot expire, or the format of their times is not supported.
        CorruptTableError: A manifest is damaged or missing.
        StoreError: The store failed (retriable).
    """

    def __init__(self, table: PaimonTable, policy: MaintenancePolicy, now: datetime | None = None) -> None:
        self._table = table
        self._now = table.zone.now() if now is None else now
        self._expiry = (
            PartitionExpiry.of(table, policy.partition_seconds, self._now) if policy.expire_partitions else None
        )
        self._marks = DoneMarks(table)
        partitions = self._partitions()
        self._expired = [] if self._expiry is None else self._expiry.due(partitions)
        expired = all_rows(self._expired)
        kept = [each for each in partitions if each.stored[0] not in expired]
        self._done = self._marks.due(kept, self._now)
        self._manifests = due_manifests(table) if policy.rewrite_manifests else 0
        self._compaction: CompactedFiles | None = None
        self._dropped: tuple[PartitionValues, ...] | None = None

    def compact(self, compact: Compact) -> None:
        """Compact the partitions that do not expire. A compaction counts as a write, which would make others stay."""
        self._compaction = compact(self._table, all_rows(self._expired))

    def run(self) -> None:
        """Make the changes, once.

        Raises:
            CommitFailedError: A commit did not get through (retriable).
            StoreError: The store failed (retriable).
        """
        if self._dropped is not None:
            return
        self._dropped = () if self._expiry is None else tuple(self._expiry.drop(self._expired))
        self._marks.write(self._marks.paths([each.stored[0] for each in self._done]))
        if self._manifests:
            rewritten(self._table, dry_run=False)

    def noted(self, report: MaintenanceReport) -> MaintenanceReport:
        """A report with these changes."""
        plan = replace(
            report.plan,
            partitions=tuple(each.values for each in self._expired),
            done_partitions=tuple(each.values for each in self._done),
            rewritten_manifests=self._manifests,
            compaction=self._compaction,
            null_text=option_keys.PARTITION_DEFAULT_NAME.of(self._table.options),
        )
        return replace(report, plan=plan, dropped_partitions=self._dropped or ())

    def _partitions(self) -> list[PartitionFiles]:
        marks = option_keys.PARTITION_IDLE_TIME_TO_DONE.of(self._table.options)
        if not self._table.partition_keys or (self._expiry is None and marks is None):
            return []
        directory = self._table.new_directory()
        snapshot = directory.snapshots.get_latest_snapshot()
        return [] if snapshot is None else partitions_at(self._table, directory, snapshot)
