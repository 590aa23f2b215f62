"""Which snapshots a stream reads after its start, which files of them, and where it has to read the state again.

Java's rules: docs/java-semantics.md#follow-ups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow.compute as pc

from pypaimon.streaming.errors import StreamConfigError, TableChangedError
from pypaimon.streaming.files import deletion_vectors
from pypaimon.streaming.metadata.history import SnapshotRangeValidator
from pypaimon.streaming.metadata.snapshots import Snapshot, SnapshotManager
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.options.stream_options import OnOverwrite, StreamOptions
from pypaimon.streaming.options.table_kinds import ChangelogProducer
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.paimon.internals import PaimonChangelogFollowUpScanner, PaimonFollowUpScanner
from pypaimon.streaming.planning.schema_change import SchemaPolicy
from pypaimon.streaming.planning.snapshot_plans import SnapshotPlans
from pypaimon.streaming.planning.units import differing_vectors


class CommitKind(str, Enum):
    """The kind of a commit, as snapshots record it."""

    APPEND = "APPEND"
    COMPACT = "COMPACT"
    OVERWRITE = "OVERWRITE"
    ANALYZE = "ANALYZE"


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """Files of one snapshot that can make its plan.

    Attributes:
        kind: The kind of that plan: DELTA or CHANGELOG.
        manifest_list: The list that names the files; None if the snapshot has no such files.
        record_count: Records in the files; None if that is not recorded.
    """

    kind: PlanKind
    manifest_list: str | None
    record_count: int | None


class SnapshotReader:
    """The files of a snapshot that `FollowUpScanner.scan` can choose. Sends no requests."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def delta(self) -> SnapshotFiles:
        """The data files that the snapshot added: records as they were written, also by a compaction."""
        snapshot = self._snapshot
        return SnapshotFiles(PlanKind.DELTA, snapshot.delta_manifest_list, snapshot.delta_record_count)

    def changelog(self) -> SnapshotFiles:
        """The changelog files of the snapshot; without any it makes no plan."""
        snapshot = self._snapshot
        if not snapshot.changelog_manifest_list:
            return SnapshotFiles(PlanKind.CHANGELOG, None, 0)
        return SnapshotFiles(PlanKind.CHANGELOG, snapshot.changelog_manifest_list, snapshot.changelog_record_count)


class FollowUpScanner(PaimonFollowUpScanner, ABC):
    """Decides which snapshots a stream reads after its start, and which files of them make its plan.

    Java's interface of this name. A scanner of your own (`with_follow_up_scanner`) has to decide by the snapshot alone,
    because it is called again after an error or a restart, in the middle of a snapshot that limits cut, for the lag,
    and on threads of the stream.

    Attributes:
        kind: Which files `scan` chooses, unless you override it: DELTA (the default) or CHANGELOG.
    """

    kind: PlanKind = PlanKind.DELTA

    @abstractmethod
    def should_scan(self, snapshot: Snapshot) -> bool:
        """Whether the snapshot is read. Otherwise the stream passes over it."""

    def scan(self, snapshot: Snapshot, snapshot_reader: SnapshotReader) -> SnapshotFiles:
        """The files that make the plan of a snapshot that is read: the result of a method of `snapshot_reader`."""
        return snapshot_reader.changelog() if self.kind is PlanKind.CHANGELOG else snapshot_reader.delta()


class DeltaFollowUpScanner(FollowUpScanner):
    """Reads the files that APPEND snapshots added (changelog producer `none`, and append tables)."""

    kind = PlanKind.DELTA

    def should_scan(self, snapshot: Snapshot) -> bool:
        """True for APPEND; COMPACT, OVERWRITE and ANALYZE are passed over."""
        return bool(snapshot.commit_kind == CommitKind.APPEND)


class ChangelogFollowUpScanner(FollowUpScanner):
    """Reads the changelog files of snapshots that have any (`input`, `lookup`, `full-compaction`)."""

    kind = PlanKind.CHANGELOG

    def should_scan(self, snapshot: Snapshot) -> bool:
        """True if the snapshot has a changelog manifest list."""
        return bool(snapshot.changelog_manifest_list)


class ChangelogOfRangeScanner(ChangelogFollowUpScanner):
    """As `ChangelogFollowUpScanner`, for a range, where Java does not read the changelog of an OVERWRITE."""

    def should_scan(self, snapshot: Snapshot) -> bool:
        """True if the snapshot has a changelog manifest list and is not an OVERWRITE."""
        return super().should_scan(snapshot) and snapshot.commit_kind != CommitKind.OVERWRITE


class _AdoptedScanner(FollowUpScanner):
    """A scanner that only has pypaimon's methods. Files are chosen as in pypaimon, unless it has a `scan`."""

    def __init__(self, scanner: Any) -> None:
        self._scanner = scanner
        if isinstance(scanner, PaimonChangelogFollowUpScanner):
            self.kind = PlanKind.CHANGELOG

    def should_scan(self, snapshot: Snapshot) -> bool:
        return bool(self._scanner.should_scan(snapshot))

    def scan(self, snapshot: Snapshot, snapshot_reader: SnapshotReader) -> SnapshotFiles:
        if hasattr(self._scanner, "scan"):
            files: SnapshotFiles = self._scanner.scan(snapshot, snapshot_reader)
            return files
        return super().scan(snapshot, snapshot_reader)


def follow_up_scanner(traits: TableTraits, given: Any = None) -> FollowUpScanner:
    """The scanner that was given, else the one for a table's changelog producer."""
    if given is not None:
        return given if isinstance(given, FollowUpScanner) else _AdoptedScanner(given)
    if traits.producer is ChangelogProducer.NONE:
        return DeltaFollowUpScanner()
    return ChangelogFollowUpScanner()


class FollowUp:
    """Which snapshots one stream reads after its start, by its scanner and its policy for overwrites."""

    def __init__(self, scanner: FollowUpScanner, options: StreamOptions) -> None:
        self._scanner = scanner
        self._options = options

    def is_read(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot is read. Otherwise it is passed over."""
        if snapshot.commit_kind == CommitKind.OVERWRITE and self._options.read_overwrite:
            return True
        return bool(self._scanner.should_scan(snapshot))

    def must_read(self, snapshot: Snapshot) -> bool:
        """As `is_read`, for the next snapshot of the stream.

        Raises:
            TableChangedError: The snapshot overwrites data, and the policy is to fail.
        """
        if snapshot.commit_kind == CommitKind.OVERWRITE and self._options.on_overwrite is OnOverwrite.FAIL:
            raise TableChangedError(
                f"Snapshot {snapshot.id} overwrites data, and with_on_overwrite('fail') is set. "
                "Choose 'skip' or 'read', or start again after it."
            )
        return self.is_read(snapshot)

    def files(self, snapshot: Snapshot) -> SnapshotFiles:
        """The files that make the plan of a snapshot that is read.

        Raises:
            StreamConfigError: A scanner of the user returned something else.
        """
        files = self._scanner.scan(snapshot, SnapshotReader(snapshot))
        if not isinstance(files, SnapshotFiles):
            raise StreamConfigError(
                f"{type(self._scanner).__name__}.scan: expected the result of snapshot_reader.delta() or .changelog(), "
                f"got {files!r}"
            )
        return files

    def record_count(self, snapshot: Snapshot) -> int | None:
        """Records that the stream gets for a snapshot, before filter and shard; None if that is not recorded."""
        return self.files(snapshot).record_count if self.is_read(snapshot) else 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The ends of one stream, and its delay."""

    options: StreamOptions
    now_millis: Callable[[], int]

    def last_id(self, latest_at_start: int | None) -> int | None:
        """Id of the last snapshot of the stream; None if no snapshot id bounds it."""
        end = self.options.end
        return latest_at_start if end is None or end.snapshot_id is None else end.snapshot_id

    def check_first_plan(self, snapshot: Snapshot) -> None:
        """Refuse a first full plan that holds more than the bound allows.

        Raises:
            StreamConfigError: Its snapshot is later than the last one of the stream.
        """
        last = self.last_id(None)
        if last is not None and snapshot.id > last:
            raise StreamConfigError(
                f"The first full plan would be of snapshot {snapshot.id}, beyond the end at snapshot {last}.",
                advice=f"Start with with_start(snapshot_id={last}, full=True).",
                option="with_start",
            )

    def is_beyond(self, snapshot: Snapshot) -> bool:
        """Whether the stream ends before this snapshot, by its watermark or its commit time.

        A first full plan of such a snapshot is still handed out, as the last plan.
        """
        bound, end = self.options.end_watermark, self.options.end
        # A snapshot without a watermark ends nothing, as in Java.
        if bound is not None and snapshot.watermark is not None and snapshot.watermark > bound:
            return True
        return end is not None and end.millis is not None and snapshot.time_millis > end.millis

    def ends_when_caught_up(self) -> bool:
        """Whether a stream that has read everything ends, because its last commit time has passed."""
        end = self.options.end
        return end is not None and end.millis is not None and self.now_millis() > end.millis

    def is_held_back(self, snapshot: Snapshot) -> bool:
        """Whether the snapshot is younger than `streaming.read.snapshot.delay`."""
        delay = self.options.delay_ms
        return delay > 0 and snapshot.time_millis > self.now_millis() - delay


@dataclass(frozen=True, slots=True)
class StateRestarts:
    """Which snapshots make the full state begin again, and at which snapshot it begins.

    In an append table: snapshots that remove files, delete rows by deletion vectors, or write columns of existing rows.
    Compactions do not, because they leave the rows as they are, but see `may_delete_rows`. In a table with a complete
    changelog: overwrites, which have no changelog. Other tables with a primary key retract the rows that an overwrite
    replaces. In every table with a primary key: a change of `changelog-producer`.
    """

    snapshots: SnapshotManager
    schemas: SchemaPolicy
    traits: TableTraits
    checks: SnapshotRangeValidator
    bounds: Bounds

    def may_be_due(self, snapshot: Snapshot) -> bool:
        """Whether `is_due` has to be called for a snapshot. Sends no requests."""
        if not self.traits.primary_key:
            return snapshot.commit_kind not in (CommitKind.COMPACT, CommitKind.ANALYZE) or may_delete_rows(
                self.traits, snapshot
            )
        has_former_schema = 0 < self.schemas.first.id >= snapshot.schema_id
        return has_former_schema or self._may_lack_changelog(snapshot)

    def is_due(self, plans: SnapshotPlans, snapshot: Snapshot) -> bool:
        """Whether the full state begins again. Raises FileNotFoundError if a manifest is gone."""
        if self.traits.primary_key:
            return self._lacks_changelog(snapshot) or self._has_other_producer(snapshot)
        if snapshot.commit_kind == CommitKind.COMPACT:
            return self._compaction_deletes_rows(plans, snapshot)
        if plans.removes_files(snapshot):
            return True
        if self.traits.data_evolution and self._writes_columns_of_rows(plans, snapshot):
            return True
        return snapshot.commit_kind == CommitKind.OVERWRITE and self._deletes_rows(plans, snapshot)

    def begins_at(self, snapshot: Snapshot, end_id: int | None) -> Snapshot:
        """The snapshot whose state is read: the last one up to the end, which avoids a later restart."""
        options, end = self.bounds.options, self.bounds.options.end
        has_time = options.end_watermark is not None or options.delay_ms or (end is not None and end.millis is not None)
        is_part = options.shard is not None or options.bucket_filter is not None
        if has_time or is_part:
            # All shards have to begin at the same snapshot, because rows move between them.
            return snapshot
        last = self.bounds.last_id(end_id) or self.snapshots.latest_id() or 0
        later = self.snapshots.refreshed(last) if last > snapshot.id else None
        return later or snapshot

    def _may_lack_changelog(self, snapshot: Snapshot) -> bool:
        is_overwrite = snapshot.commit_kind == CommitKind.OVERWRITE
        return self.traits.producer.complete and (is_overwrite or _compacts_without_changelog(snapshot))

    def _lacks_changelog(self, snapshot: Snapshot) -> bool:
        if not self._may_lack_changelog(snapshot):
            return False
        return snapshot.commit_kind == CommitKind.OVERWRITE or self._compacts_an_overwrite(snapshot)

    def _has_other_producer(self, snapshot: Snapshot) -> bool:
        """Whether `changelog-producer` was another one at this snapshot, or until then, so that rows are in no change.

        `SchemaPolicy.check_producer` refuses schemas that are newer than the stream.
        """
        producer = self.schemas.producer(snapshot.schema_id)
        if producer is ChangelogProducer.NONE and producer is not self.traits.producer:
            # The stream passes over files without a changelog.
            return snapshot.commit_kind == CommitKind.APPEND
        before = self.checks.available(snapshot.id - 1)
        if before is None or before.schema_id == snapshot.schema_id:
            return False
        former = self.schemas.producer(before.schema_id)
        # What waits for a compaction is in the changes of one of them, or the copy has it although it waits.
        return former is not producer and (former.complete or producer.complete)

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
            # What rows existed is not known any more, so the safe answer is that some of them have changed.
            return True
        next_id = 0 if before is None else before.next_row_id or 0
        first_ids = plans.entries_added(snapshot)["first_row_id"]
        return bool(pc.any(pc.less(first_ids, next_id)).as_py())

    def _deletes_rows(self, plans: SnapshotPlans, snapshot: Snapshot) -> bool:
        """Whether deletion vectors differ from those of the snapshot before."""
        before = self.checks.available(snapshot.id - 1)
        if before is None:
            return snapshot.id > 1 and snapshot.index_manifest is not None
        return bool(differing_vectors(plans.deletions(before), plans.deletions(snapshot)))

    def _compaction_deletes_rows(self, plans: SnapshotPlans, snapshot: Snapshot) -> bool:
        """Whether files that a COMPACT left in place have other deletion vectors than before."""
        before = self.checks.available(snapshot.id - 1)
        if before is None:
            return snapshot.id > 1
        if before.index_manifest == snapshot.index_manifest:
            return False
        old, new = plans.deletions(before) or {}, plans.deletions(snapshot) or {}
        changed = {file: vector for file, vector in new.items() if old.get(file) != vector}
        if not changed:
            return False
        # With data evolution a compaction moves the vectors to its own files.
        added = set(plans.entries_added(snapshot)["file_name"].to_pylist())
        store = plans.directory.store
        for file, vector in changed.items():
            if file[2] in added:
                continue
            # The vectors of one index file are written again together.
            if file not in old or not deletion_vectors.are_equal(store, old[file], vector):
                return True
        return False


def may_delete_rows(traits: TableTraits, snapshot: Snapshot) -> bool:
    """Whether a COMPACT of an append table may delete rows: Paimon before 1.3 commits the deletion vectors of a DELETE
    or UPDATE so.
    """
    is_compaction = snapshot.commit_kind == CommitKind.COMPACT and not traits.primary_key
    return is_compaction and traits.deletion_vectors and snapshot.index_manifest is not None


def _compacts_without_changelog(snapshot: Snapshot) -> bool:
    return snapshot.commit_kind == CommitKind.COMPACT and snapshot.changelog_manifest_list is None
