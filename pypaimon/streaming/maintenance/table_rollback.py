"""`rollback`: makes an earlier snapshot the latest one, by deleting the later ones or by committing its state again.

The order of a rollback that deletes:

1. A pin keeps the snapshot from expiring, and all files that it needs are looked for.
2. If the snapshot has expired and a tag holds it, its file is written again. Java deletes first, so that it may leave a
   table without snapshots. Until the later ones are gone, readers do not find it (`truncation`).
3. The later snapshots go, see `truncation`.

A process that dies leaves a table that ends at a later snapshot, without a gap; the same call finishes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from pypaimon.streaming.errors import MaintenanceConflictError, StreamConfigError
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.maintenance.completeness import check_complete
from pypaimon.streaming.maintenance.overtaken import Overtaken, overtaken_by
from pypaimon.streaming.maintenance.restored_state import commit_state
from pypaimon.streaming.maintenance.retention_pin import pinned
from pypaimon.streaming.maintenance.rollback_target import (
    RollbackTarget,
    restored_text,
    rollback_target,
    snapshot_text,
)
from pypaimon.streaming.maintenance.tags import Tag, tags_of
from pypaimon.streaming.maintenance.truncation import LaterFiles, hide_gap, later_files, truncate
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.arguments import a_table
from pypaimon.streaming.paimon.handles import WritableTable

_LOG = StreamLog(__name__)


@dataclass(frozen=True, slots=True)
class RollbackReport:
    """What a rollback did, or would do.

    Attributes:
        table: Name of the table.
        target_id: Id of the snapshot that the table was rolled back to.
        latest_id: Id of the latest snapshot afterwards; None for the dry run of `as_latest`.
        restored: Whether the snapshot had expired, and its file was written again from a tag.
        deleted_snapshots: Ids of the snapshots that were deleted, ascending.
        deleted_changelogs: Ids of the long-lived changelogs that were deleted.
        deleted_tags: Names of the tags of those snapshots, which were deleted.
        overtaken: The consumers, groups and writers whose progress is beyond the latest snapshot now.
        holding_tag: The tag that keeps the files of the state from Java's expiry (`as_latest`); None: no new one.
        dry_run: Whether nothing was changed.
    """

    table: str
    target_id: int
    latest_id: int | None
    restored: bool = False
    deleted_snapshots: tuple[int, ...] = ()
    deleted_changelogs: tuple[int, ...] = ()
    deleted_tags: tuple[str, ...] = ()
    overtaken: tuple[Overtaken, ...] = ()
    holding_tag: str | None = None
    dry_run: bool = False


def rollback(
    table: WritableTable,
    *,
    snapshot_id: int | None = None,
    tag: str | None = None,
    timestamp: datetime | str | int | None = None,
    watermark: int | None = None,
    as_latest: bool = False,
    dry_run: bool = False,
) -> RollbackReport:
    """Make an earlier snapshot the latest one. Blocks.

    The later snapshots are deleted, with their tags and long-lived changelogs; a REST catalog does that itself. Their
    data files become orphans, which `maintain` deletes with `orphan_age`. Nobody should write meanwhile: a commit that
    follows a deleted snapshot is deleted too. Consumers and the records of writers stay as they are: streams that have
    read further end with `TableChangedError` or `PositionBeyondLatestError`, and the report names them.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it, of the branch that is rolled back.
        snapshot_id: The snapshot. If it has expired, a tag must hold it.
        tag: A tag of the snapshot, instead of its id.
        timestamp: A time, instead of the id: the last snapshot that was committed then or before. An aware datetime,
            ISO 8601 with an offset, or epoch milliseconds.
        watermark: A watermark (epoch milliseconds), instead of the id: the last snapshot with this or a smaller one. A
            snapshot without a watermark has that of the one before.
        as_latest: Delete nothing, and commit the state of the snapshot as a new snapshot (OVERWRITE, without a
            changelog, so that streams pass over it). A tag holds the state, because Java's expiry would delete
            files that come back. Delete that tag once the snapshots up to the new one have expired.
        dry_run: Change nothing.

    Raises:
        StreamConfigError: There is no such snapshot.
        CorruptTableError: A file that the snapshot needs is missing; nothing was deleted.
        MaintenanceConflictError: Maintenance is running, the snapshot expired meanwhile, or the store gave an old
            listing (retriable).
        CommitFailedError: The new snapshot could not be committed (retriable).
        StoreError: The store failed (retriable).
    """
    given = PaimonTable(a_table("rollback: table", table))
    directory = given.new_directory()
    target = rollback_target(directory, snapshot_id, tag, timestamp, watermark)
    run = _Rollback(given, directory, target)
    return run.as_latest(dry_run) if as_latest else run.truncating(dry_run)


class _Rollback:
    """A rollback to a target that was found."""

    def __init__(self, table: PaimonTable, directory: TableDirectory, target: RollbackTarget) -> None:
        self._table = table
        self._directory = directory
        self._target = target
        self._id = target.snapshot.id

    # ---- By deleting the later snapshots

    def truncating(self, dry_run: bool) -> RollbackReport:
        self._check_history()
        overtaken = overtaken_by(self._directory, self._id)
        deleted = later_files(self._directory, self._id)
        if not dry_run:
            catalog = self._table.handle.catalog_environment.catalog_table_rollback()
            if catalog is None:
                deleted = self._truncate()
            else:
                self._ask(catalog, deleted)
            text = "%(table)s: rolled back to snapshot %(snapshot)d; %(count)d later ones were deleted"
            _LOG.info("rolled_back", text, table=self._table.name, snapshot=self._id, count=len(deleted.snapshots))
        return RollbackReport(
            self._table.name,
            self._id,
            self._id,
            not self._target.is_there,
            deleted.snapshots,
            deleted.changelogs,
            deleted.tags,
            overtaken,
            dry_run=dry_run,
        )

    def _check_history(self) -> None:
        """Check that the tag's snapshot has expired, and was not deleted by a rollback.

        Then the table has another snapshot of its id, or ends before it. With it, the table would have a gap.
        """
        if self._target.is_there:
            return
        snapshots = self._directory.snapshots
        latest = snapshots.get_latest_snapshot()
        if snapshots.refreshed(self._id) is not None or (latest is not None and latest.id < self._id):
            raise StreamConfigError(
                f"rollback: the table does not have snapshot {self._id} as tag {self._target.tag!r} holds it, because "
                "the table was rolled back after the tag was made.",
                advice="Roll back with as_latest=True, which commits its state again.",
                option="as_latest",
            )

    def _truncate(self) -> LaterFiles:
        with pinned(self._directory, self._id, f"rollback-{self._id}") as check_pin:
            text = self._restored() if not self._target.is_there else None
            self._check_snapshot(text)
            if text is not None:
                self._write(text)
            check_pin()
            return truncate(self._directory, self._id)

    def _restored(self) -> bytes:
        return restored_text(self._table, self._directory, self._target.stored(self._directory))

    def _check_snapshot(self, text: bytes | None) -> None:
        """Check that the snapshot has not expired since it was found, and is complete."""
        there = self._directory.snapshots.refreshed(self._id) if text is None else Snapshot.from_json(text)
        if there is None or not there.is_same_commit(self._target.snapshot):
            raise MaintenanceConflictError(self._table.name, f"snapshot {self._id} expired meanwhile")
        check_complete(self._table, self._directory, _state_of(there))

    def _write(self, text: bytes) -> None:
        path = self._directory.snapshots.get_snapshot_path(self._id)
        hide_gap(self._directory)
        self._directory.store.write_atomic(path, text)
        self._directory.forget()
        tag = self._directory.tag(str(self._target.tag))
        if tag is None or not tag.is_same_commit(self._target.snapshot):
            # Another program has deleted the tag. It may not have seen the snapshot, and may delete its files.
            self._directory.store.delete(path)
            raise MaintenanceConflictError(self._table.name, f"tag {self._target.tag!r} was deleted meanwhile")

    def _ask(self, catalog: Any, later: LaterFiles) -> None:
        """Have the catalog roll back, on the condition that nobody has committed since."""
        from pypaimon.streaming.paimon.write_internals import Instant

        tagged = self._target.tag is not None
        instant = Instant.tag(self._target.tag) if tagged else Instant.snapshot(self._id)
        latest = later.snapshots[-1] if later.snapshots else None
        path = self._table.path
        self._directory.store.call("catalog", path, lambda _: catalog.rollback_to(instant, latest))

    # ---- By a new snapshot

    def as_latest(self, dry_run: bool) -> RollbackReport:
        latest: int | None = None
        holding = self._holding_tag()
        if not dry_run:
            # Of a purpose of its own: its end must not free what a rollback that deletes still keeps.
            with pinned(self._directory, self._id, f"rollback-as-latest-{self._id}"):
                latest = self._commit(None if holding is None else self._directory.tag_path(holding))
            text = "%(table)s: snapshot %(latest)d has the state of snapshot %(snapshot)d"
            _LOG.info("rolled_back", text, table=self._table.name, snapshot=self._id, latest=latest)
        return RollbackReport(self._table.name, self._id, latest, holding_tag=holding, dry_run=dry_run)

    def _commit(self, tag_path: str | None) -> int:
        store = self._directory.store
        if tag_path is not None:
            store.write_atomic(tag_path, snapshot_text(self._target.stored(self._directory), with_changelog=True))
        try:
            # After the tag, so that whatever is there now stays.
            check_complete(self._table, self._directory, _state_of(self._target.snapshot))
        except BaseException:
            if tag_path is not None:
                store.delete(tag_path)
            raise
        return commit_state(self._table, self._directory, self._target.snapshot, tag_path).id

    def _holding_tag(self) -> str | None:
        """The name of a tag that holds the state for Java's expiry; None: the tag of the target does.

        Java takes the files that later commits have deleted for unneeded, although the new snapshot adds them again. A
        catalog that manages snapshots expires them by its own rules, and keeps tags itself.
        """
        managed = self._table.handle.catalog_environment.catalog_table_rollback() is not None
        if managed or any(_keeps(each, self._target) for each in tags_of(self._directory)):
            return None
        return f"rollback-to-as-latest-{self._id}-{uuid4()}"


def _keeps(tag: Tag, target: RollbackTarget) -> bool:
    same = tag.name == target.tag and tag.snapshot.is_same_commit(target.snapshot)
    return same and tag.expires is None


def _state_of(snapshot: Snapshot) -> Snapshot:
    """The snapshot without its changelog, which its state does not need."""
    return replace(snapshot, changelog_manifest_list=None)
