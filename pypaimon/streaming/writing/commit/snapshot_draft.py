"""`SnapshotDrafts`: from a state and a plan to the files of a snapshot, and the snapshot. Nothing is published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from pypaimon.streaming.formats.binary_row import decode_column
from pypaimon.streaming.merge.ordering import python_order
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.options.table_traits import SNAPSHOT_ORDERING, TableTraits
from pypaimon.streaming.writing.commit.commit_plan import Plan
from pypaimon.streaming.writing.commit.conflicts import ConflictRules, check_changes
from pypaimon.streaming.writing.commit.file_changes import COMPACT, Changes, FileChange
from pypaimon.streaming.writing.commit.index_changes import combined_index
from pypaimon.streaming.writing.commit.manifest_files import ManifestFiles, ManifestOptions, NewFiles
from pypaimon.streaming.writing.commit.manifest_merge import merged_manifests
from pypaimon.streaming.writing.commit.new_snapshot import CommitFacts, ManifestNames, new_snapshot
from pypaimon.streaming.writing.commit.numbered_files import with_row_ids, with_snapshot_order
from pypaimon.streaming.writing.commit.strict_mode import StrictMode
from pypaimon.streaming.writing.commit.table_state import TableState

GREATEST_SEQUENCE = "sequence.generation.max-sequence-number"
"""Property of snapshots from which writers take the first sequence number (`write.sequence-number-init-mode`)."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A snapshot that could be published.

    Attributes:
        files: The files that it names and that are new.
        snapshot: Its JSON.
        changes: What it changes.
    """

    files: NewFiles
    snapshot: dict[str, Any]
    changes: Changes


class SnapshotDrafts:
    """Makes drafts for one table.

    Args:
        table: pypaimon's table.
        strict: Which snapshots of others forbid to go on; None: none does.

    Raises:
        UnsupportedTableError: Its manifests cannot be written.
        StreamConfigError: An option cannot be read.
    """

    def __init__(self, table: Any, strict: StrictMode | None = None) -> None:
        self._strict = strict
        self._traits = TableTraits.of(table.table_schema)
        self._manifests = ManifestFiles(table, ManifestOptions.of(table))
        options = OptionValues(table.options.options.to_map())
        self._by_snapshot = options.boolean(SNAPSHOT_ORDERING, False)
        self._notes_sequence = options.text("write.sequence-number-init-mode") == "snapshot"
        self._row_ids = bool(table.options.row_tracking_enabled())
        self._grouped = bool(table.options.row_tracking_partition_group_on_commit())
        keys = table.trimmed_primary_keys_fields
        self._rules = ConflictRules(partial(_key_order, keys) if keys else None, self._traits.unaware_bucket)

    def draft(self, state: TableState, plan: Plan, facts: CommitFacts) -> Draft | None:
        """What would follow a state. Reads its manifest lists, and its manifests where files are checked or merged.

        Returns:
            None: There is nothing to commit.

        Raises:
            CommitConflictError: The changes may not follow this state.
            StrictModeError: Nor because of what others have committed since a snapshot that was safe.
            CorruptTableError: A file of the metadata is damaged.
            StoreError: The store failed.
        """
        changes = plan.changes(state)
        if changes.empty and not plan.always:
            return None
        if self._strict is not None:
            self._strict.check(state, plan.kind, changes, facts.user)
        if plan.may_conflict:
            check_changes(plan.kind, state.files(changes.partitions), state.index, changes, self._rules)
        changes, next_row_id = self._numbered(state, plan.kind, changes)
        new = NewFiles()
        base = merged_manifests(state.directory.manifests, self._manifests, new, state.manifests)
        names = ManifestNames(
            base=self._manifests.manifest_list(new, base),
            delta=self._listed(new, changes.files),
            changelog=self._listed(new, changes.changelog) if changes.changelog else None,
            index=self._index(state, new, changes),
        )
        noted = self._noted(state.snapshot, changes)
        facts = replace(facts, properties={**facts.properties, **noted})
        return Draft(new, new_snapshot(state.snapshot, plan.kind, facts, changes, names, next_row_id), changes)

    def _numbered(self, state: TableState, kind: str, changes: Changes) -> tuple[Changes, int]:
        number = 1 if state.snapshot is None else state.snapshot.id + 1
        next_row_id = 0 if state.snapshot is None else state.snapshot.next_row_id or 0
        if self._by_snapshot and kind != COMPACT:
            changes = with_snapshot_order(changes, number)
        if self._row_ids:
            return with_row_ids(changes, number, next_row_id, grouped=self._grouped)
        return changes, next_row_id

    def _listed(self, new: NewFiles, files: Sequence[FileChange]) -> tuple[str, int]:
        return self._manifests.manifest_list(new, self._manifests.manifests(new, files))

    def _index(self, state: TableState, new: NewFiles, changes: Changes) -> str | None:
        if not changes.index_added and not changes.index_deleted:
            return None if state.snapshot is None else state.snapshot.index_manifest
        combined = combined_index(state.index, changes, unaware_buckets=self._traits.unaware_bucket)
        return self._manifests.index_manifest(new, combined) if combined else None

    def _noted(self, latest: Snapshot | None, changes: Changes) -> dict[str, str]:
        """The greatest sequence number, where writers ask for it, and it is known of all files."""
        if not self._notes_sequence:
            return {}
        before = -1 if latest is None else latest.properties.get(GREATEST_SEQUENCE)
        if before is None:
            # An earlier commit did not note it. Without it the next writer looks at all files.
            return {}
        numbers = [int(each.file["_MAX_SEQUENCE_NUMBER"]) for each in changes.added]
        return {GREATEST_SEQUENCE: str(max((int(before), *numbers)))}


def _key_order(fields: Sequence[Any], key: bytes) -> list[Any]:
    """What a serialised key sorts by, to the nanosecond."""
    columns = [decode_column(pa.array([key], pa.binary()), index, field.type) for index, field in enumerate(fields)]
    exact = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in columns)
    return [python_order(column[0].as_py()) for column in exact]
