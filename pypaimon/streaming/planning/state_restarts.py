"""`StateRestarts`: where a copy reads the full state again, because the changes do not name the removed rows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from pypaimon.streaming.metadata.history import SnapshotRangeValidator
from pypaimon.streaming.metadata.snapshots import Snapshot, SnapshotManager
from pypaimon.streaming.options.stream_options import StreamOptions
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.planning.follow_up import Bounds, CommitKind
from pypaimon.streaming.planning.snapshot_plans import SnapshotPlans


@dataclass(frozen=True, slots=True)
class StateRestarts:
    """Which snapshots make the full state begin again, and at which snapshot it begins.

    In an append table: snapshots that remove files, delete rows by deletion vectors, or write columns of existing rows.
    Compactions do not, because they leave the rows as they are. In a table with a complete changelog: overwrites, which
    have no changelog. Other tables with a primary key retract the rows that an overwrite replaces.

    Attributes:
        snapshots: Snapshots of the table.
        traits: Its kind.
        options: The stream's settings.
        checks: Finds the snapshot before.
        bounds: The ends of the stream.
    """

    snapshots: SnapshotManager
    traits: TableTraits
    options: StreamOptions
    checks: SnapshotRangeValidator
    bounds: Bounds

    def may_be_due(self, snapshot: Snapshot) -> bool:
        """Whether `is_due` has to be called for a snapshot. Sends no requests."""
        if not self.traits.primary_key:
            return snapshot.commit_kind not in (CommitKind.COMPACT, CommitKind.ANALYZE)
        return self.traits.producer.complete and (
            snapshot.commit_kind == CommitKind.OVERWRITE or _compacts_without_changelog(snapshot)
        )

    def is_due(self, plans: SnapshotPlans, snapshot: Snapshot) -> bool:
        """Whether the full state begins again. Raises FileNotFoundError if a manifest is gone."""
        if self.traits.primary_key:
            return snapshot.commit_kind == CommitKind.OVERWRITE or self._compacts_an_overwrite(snapshot)
        if plans.removes_files(snapshot):
            return True
        if self.traits.data_evolution and self._writes_columns_of_rows(plans, snapshot):
            return True
        return snapshot.commit_kind == CommitKind.OVERWRITE and self._deletes_rows(plans, snapshot)

    def begins_at(self, snapshot: Snapshot, end_id: int | None) -> Snapshot:
        """The snapshot whose state is read: the last one up to the end, which avoids a later restart."""
        options, end = self.options, self.options.end
        has_time = options.end_watermark is not None or options.delay_ms or (end is not None and end.millis is not None)
        is_part = options.shard is not None or options.bucket_filter is not None
        if has_time or is_part:
            # All shards have to begin at the same snapshot, because rows move between them.
            return snapshot
        last = self.bounds.last_id(end_id) or self.snapshots.latest_id() or 0
        later = self.snapshots.refreshed(last) if last > snapshot.id else None
        return later or snapshot

    def _compacts_an_overwrite(self, snapshot: Snapshot) -> bool:
        """Whether this is the compaction that Java commits after an overwrite, without the changelog that it made."""
        before = self.checks.available(snapshot.id - 1)
        return (
            before is not None
            and before.commit_kind == CommitKind.OVERWRITE
            and before.commit_user == snapshot.commit_user
            and before.commit_identifier == snapshot.commit_identifier
        )

    def _writes_columns_of_rows(self, plans: SnapshotPlans, snapshot: Snapshot) -> bool:
        """Whether files were added for row ids that existed before."""
        before = self.checks.available(snapshot.id - 1)
        if before is None and snapshot.id > 1:
            return True
        next_id = 0 if before is None else before.next_row_id or 0
        first_ids = plans.entries_added(snapshot)["first_row_id"]
        return bool(pc.any(pc.less(first_ids, next_id)).as_py())

    def _deletes_rows(self, plans: SnapshotPlans, snapshot: Snapshot) -> bool:
        """Whether deletion vectors differ from those of the snapshot before."""
        before = self.checks.available(snapshot.id - 1)
        if before is None:
            return snapshot.id > 1 and snapshot.index_manifest is not None
        return (plans.deletions(before) or {}) != (plans.deletions(snapshot) or {})


def _compacts_without_changelog(snapshot: Snapshot) -> bool:
    return snapshot.commit_kind == CommitKind.COMPACT and snapshot.changelog_manifest_list is None
