"""`commit_state`: commits an earlier state of a table again, as a new latest snapshot.

Java's rules: `rollbackToAsLatest` in docs/java-semantics.md#maintenance.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from pypaimon.streaming.commit.changes import OVERWRITE, Changes, FileChange
from pypaimon.streaming.commit.cleanup import commit_or_clean_up
from pypaimon.streaming.commit.conflicts import TableState
from pypaimon.streaming.commit.draft import Draft, Drafter
from pypaimon.streaming.commit.manifests import ManifestOptions, ManifestWriter, NewFiles
from pypaimon.streaming.commit.request import CommitPlan, CommitRequest, PartitionReplacement
from pypaimon.streaming.commit.snapshot_commit import KnownHistory, SnapshotCommit
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory

_UNNUMBERED = 2**63 - 1
"""Paimon's identifier of commits without one."""


def commit_state(table: PaimonTable, directory: TableDirectory, target: Snapshot, held_by: str | None) -> Snapshot:
    """Commit the state of a snapshot as the next snapshot, whatever was committed since.

    Args:
        table: The table.
        directory: The branch.
        target: The snapshot.
        held_by: Path of the tag that was made for this commit, which is deleted if it fails; None: there is none.

    Raises:
        CommitFailedError: It did not get through.
    """
    user = table.handle.new_batch_write_builder().commit_user
    request = CommitRequest(table, user, _UNNUMBERED, (), ordered=False, is_first_attempt=True)
    plan = PartitionReplacement(Changes(), "all")
    known = KnownHistory.up_to(directory.snapshots.get_latest_snapshot())
    commit = SnapshotCommit(directory, request, plan, known, drafter=StateDrafter(table, target))
    advice = f"Look for a snapshot of the commit user '{user}' before you roll back again"
    try:
        outcome = commit_or_clean_up(table, commit, (), "The rollback", advice)
    except BaseException:
        if held_by is not None and not commit.uncertain:
            directory.store.delete(held_by)
        raise
    assert outcome.snapshot is not None
    return outcome.snapshot


class StateDrafter(Drafter):
    """Drafts the snapshot whose live files are those of an earlier one.

    Files keep their entries: they have their row ids and sequence numbers already. Schema, index manifest, watermark
    (which may fall), statistics and properties are those of the earlier snapshot too. Row ids are never used again.
    """

    def __init__(self, table: PaimonTable, target: Snapshot) -> None:
        super().__init__(table)
        self._target = target
        self._writer = ManifestWriter(table, ManifestOptions.of(table))

    def draft(self, state: TableState, plan: CommitPlan, request: CommitRequest) -> Draft:
        """See the base class."""
        present = state.files(None)
        changes = _difference(present, TableState(state.directory, self._target).files(None))
        new = NewFiles()
        # Only live files, as in Java: pypaimon's readers take a file for deleted whose DELETE is followed by an ADD.
        base = self._writer.manifests(new, present)
        names: dict[str, Any] = {}
        for what, records in (("base", base), ("delta", self._writer.manifests(new, changes.files))):
            name, size = self._writer.manifest_list(new, records)
            names |= {f"{what}ManifestList": name, f"{what}ManifestListSize": size}
        return Draft(new, _snapshot_json(state.snapshot, self._target, request, changes, names), changes)


def _difference(present: Sequence[FileChange], wanted: Sequence[FileChange]) -> Changes:
    before, after = {each.identity for each in present}, {each.identity for each in wanted}
    deleted = [each.deleted() for each in present if each.identity not in after]
    return Changes.of((*deleted, *(each for each in wanted if each.identity not in before)))


def _snapshot_json(
    latest: Snapshot | None, target: Snapshot, request: CommitRequest, changes: Changes, names: dict[str, Any]
) -> dict[str, Any]:
    before = 0 if latest is None else latest.total_record_count or 0
    free_row_ids = [each.next_row_id for each in (latest, target) if each is not None and each.next_row_id is not None]
    found: dict[str, Any] = {
        "version": 3,
        "id": 1 if latest is None else latest.id + 1,
        "schemaId": target.schema_id,
        **names,
        "indexManifest": target.index_manifest,
        "commitUser": request.user,
        "commitIdentifier": request.identifier,
        "commitKind": OVERWRITE,
        "timeMillis": time.time_ns() // 1_000_000,
        "totalRecordCount": before + changes.rows,
        "deltaRecordCount": changes.rows,
        "watermark": target.watermark,
        "statistics": target.statistics,
        "properties": dict(target.properties) or None,
        "nextRowId": max(free_row_ids, default=None),
        "uuid": str(uuid4()),
    }
    return {name: value for name, value in found.items() if value is not None}
