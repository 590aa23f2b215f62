"""`Drafter`: the snapshot that would follow a state, with the manifests that it names. Nothing is written yet."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

from pypaimon.streaming.commit.changes import COMPACT, AvroRecord, Changes, FileChange
from pypaimon.streaming.commit.conflicts import ConflictRules, StrictMode, TableState, check_changes
from pypaimon.streaming.commit.manifests import ManifestOptions, ManifestWriter, NewFiles, merged_manifests
from pypaimon.streaming.commit.request import CommitPlan, CommitRequest, ManifestRewrite, SeparableChanges
from pypaimon.streaming.commit.row_id_conflicts import given_up
from pypaimon.streaming.errors import CommitConflictError, UnsupportedTableError
from pypaimon.streaming.files.blob_files import BLOB_FILE
from pypaimon.streaming.files.row_id_groups import VECTOR_FILE
from pypaimon.streaming.merge.runs import stored_key_order
from pypaimon.streaming.metadata.data_file_meta import bound_fields
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.index_manifests import DELETION_VECTORS, HASH
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.options import option_keys

GREATEST_SEQUENCE = "sequence.generation.max-sequence-number"
"""Property of snapshots from which writers take the first sequence number (`write.sequence-number-init-mode`)."""

_APPENDED = 0
_ROW_ID = "_ROW_ID"


@dataclass(frozen=True, slots=True)
class Draft:
    """A snapshot that can be published once its files are written."""

    files: NewFiles
    snapshot: dict[str, Any]
    changes: Changes


class Drafter:
    """Makes drafts for one table."""

    def __init__(self, table: PaimonTable, strict: StrictMode | None = None) -> None:
        self._strict = strict
        self._traits = table.traits
        self._manifests = ManifestWriter(table, ManifestOptions.of(table))
        self._notes_sequence = option_keys.WRITE_SEQUENCE_NUMBER_INIT_MODE.of(table.options) == "snapshot"
        self._row_ids = option_keys.ROW_TRACKING_ENABLED.of(table.options)
        self._grouped = option_keys.ROW_TRACKING_PARTITION_GROUP_ON_COMMIT.of(table.options)
        traits, keys = self._traits, bound_fields(table.schema)
        order = partial(stored_key_order, keys) if keys else None
        self._rules = ConflictRules(order, traits.unaware_bucket, traits.data_evolution)

    def draft(self, state: TableState, plan: CommitPlan, request: CommitRequest) -> Draft | None:
        """The snapshot that would follow a state.

        Reads the manifest lists of the state, and its manifests if files must be checked or merged. None: there is
        nothing to commit.
        """
        changes = plan.changes(state)
        if changes.empty and not plan.keep_empty:
            return None
        if self._strict is not None:
            self._strict.check(state, plan.kind, changes, request.user)
        if plan.may_conflict:
            changes = self._checked(state, plan, changes)
        if plan.kind == COMPACT and self._rules.data_evolution:
            changes = _without_outdated_indexes(changes, state.index)
        changes, next_row_id = self._numbered(state, plan.kind, changes)
        new = NewFiles()
        base = merged_manifests(state.directory.manifests, self._manifests, new, state.manifests)
        if isinstance(plan, ManifestRewrite):
            if state.snapshot is None or not new.files:
                return None
            # The snapshot says what the one before it said, as in Java.
            request = replace(request, properties=state.snapshot.properties, schema_id=state.snapshot.schema_id)
        # Java reads both lists of every snapshot, so an empty one is written too.
        lists = {"base": self._manifests.manifest_list(new, base), "delta": self._listed(new, changes.files)}
        if changes.changelog:
            lists["changelog"] = self._listed(new, changes.changelog)
        names: dict[str, Any] = {}
        for what, (name, size) in lists.items():
            names |= {f"{what}ManifestList": name, f"{what}ManifestListSize": size}
        names["indexManifest"] = self._index(state, new, changes)
        request = replace(request, properties={**request.properties, **self._noted(state.snapshot, changes)})
        snapshot = _snapshot_json(state.snapshot, plan.kind, request, changes, names, next_row_id)
        return Draft(new, snapshot, changes)

    def _checked(self, state: TableState, plan: CommitPlan, changes: Changes) -> Changes:
        """The changes, or those of them that may follow the state if the plan can leave out the others."""
        base = state.files(changes.partitions)
        try:
            check_changes(plan.kind, base, state.index, changes, self._rules)
            return changes
        except CommitConflictError:
            rest = None
            if isinstance(plan, SeparableChanges):
                rest = plan.without_conflicts(base, state.index, self._rules)
            if rest is None:
                raise
        # Other partitions may be wrong by now, which must not refuse these.
        partitions = rest.partitions
        base = [each for each in base if each.partition in partitions]
        check_changes(plan.kind, base, state.index, rest, self._rules)
        return rest

    def _numbered(self, state: TableState, kind: str, changes: Changes) -> tuple[Changes, int]:
        """The changes with the numbers that depend on the snapshot, and the first row id that is free afterwards."""
        number = 1 if state.snapshot is None else state.snapshot.id + 1
        next_row_id = 0 if state.snapshot is None else state.snapshot.next_row_id or 0
        # A compaction keeps the numbers that its records have.
        if self._traits.snapshot_ordering and kind != COMPACT:
            changes = _with_snapshot_order(changes, number)
        if self._row_ids:
            return _with_row_ids(changes, number, next_row_id, grouped=self._grouped)
        return changes, next_row_id

    def _listed(self, new: NewFiles, files: Sequence[FileChange]) -> tuple[str, int]:
        return self._manifests.manifest_list(new, self._manifests.manifests(new, files))

    def _index(self, state: TableState, new: NewFiles, changes: Changes) -> str | None:
        if not changes.index_added and not changes.index_deleted:
            # An index manifest lists all index files, so without changes the one before is still right.
            return None if state.snapshot is None else state.snapshot.index_manifest
        combined = combined_index(state.index, changes, unaware_buckets=self._traits.unaware_bucket)
        return self._manifests.index_manifest(new, combined) if combined else None

    def _noted(self, latest: Snapshot | None, changes: Changes) -> dict[str, str]:
        """The greatest sequence number, if writers ask for it and it is known of all files."""
        if not self._notes_sequence:
            return {}
        before = -1 if latest is None else latest.properties.get(GREATEST_SEQUENCE)
        if before is None:
            # An earlier commit did not note it. Without it the next writer reads the metadata of all files.
            return {}
        numbers = [int(each.file["_MAX_SEQUENCE_NUMBER"]) for each in changes.added]
        return {GREATEST_SEQUENCE: str(max((int(before), *numbers)))}


# The snapshot's JSON, with the fields in the order in which current Java writes them


def _snapshot_json(
    latest: Snapshot | None,
    kind: str,
    request: CommitRequest,
    changes: Changes,
    names: Mapping[str, Any],
    next_row_id: int,
) -> dict[str, Any]:
    """The snapshot that follows another one (None: the first one)."""
    # The watermark never falls.
    watermarks = [request.watermark, None if latest is None else latest.watermark]
    schema_id = request.snapshot_schema_id
    # Statistics of the table are of one schema, and are carried over as long as that stays.
    carried = latest.statistics if latest is not None and latest.schema_id == schema_id else None
    before = 0 if latest is None else latest.total_record_count or 0
    changelog_rows = sum(each.rows for each in changes.changelog)
    found: dict[str, Any] = {
        "version": 3,
        "id": 1 if latest is None else latest.id + 1,
        "schemaId": schema_id,
        **names,
        "commitUser": request.user,
        "commitIdentifier": request.identifier,
        "commitKind": kind,
        # Not corrected if the clock of the writer before was ahead, as in Java: commit times may fall.
        "timeMillis": time.time_ns() // 1_000_000,
        "totalRecordCount": before + changes.rows,
        "deltaRecordCount": changes.rows,
        "changelogRecordCount": changelog_rows if changes.changelog else None,
        "watermark": max((each for each in watermarks if each is not None), default=None),
        "statistics": carried,
        "properties": dict(request.properties) or None,
        "nextRowId": next_row_id,
        "uuid": str(uuid4()),
    }
    return {name: value for name, value in found.items() if value is not None}


# Index files


def combined_index(index: Sequence[AvroRecord], changes: Changes, *, unaware_buckets: bool) -> list[AvroRecord]:
    """The index files after changes. Each snapshot lists all of them.

    Indexes of keys (HASH), and deletion vectors in tables with buckets, are one file per bucket: a new file replaces
    the existing one, whether the changes delete that or not. Other files are removed only if the changes delete them.
    """
    deleted = {each["_FILE_NAME"] for each in changes.index_deleted}
    of_buckets = (HASH,) if unaware_buckets else (HASH, DELETION_VECTORS)
    replaced = {_place(each) for each in changes.index_added if each["_INDEX_TYPE"] in of_buckets}
    kept = [each for each in index if each["_FILE_NAME"] not in deleted and _place(each) not in replaced]
    return [*kept, *changes.index_added]


def _without_outdated_indexes(changes: Changes, index: Sequence[AvroRecord]) -> Changes:
    """The changes of a compaction, which drop the global indexes of partitions whose rows get other ids. Those are in
    the index of the state that the commit follows, because others may have made them meanwhile.
    """
    gone = given_up(changes)
    outdated = [each for each in index if each["_PARTITION"] in gone and each.get("_GLOBAL_INDEX") is not None]
    if not outdated:
        return changes
    deleted = [{**each, "_KIND": int(EntryKind.DELETE)} for each in outdated]
    return replace(changes, index_deleted=(*changes.index_deleted, *deleted))


def _place(record: AvroRecord) -> tuple[bytes, int, str]:
    return record["_PARTITION"], record["_BUCKET"], record["_INDEX_TYPE"]


# Numbers that depend on the snapshot: sequence numbers and row ids


def _with_snapshot_order(changes: Changes, snapshot_id: int) -> Changes:
    """The changes with the snapshot id as the sequence number of all new rows (`sequence.snapshot-ordering`)."""
    numbers = {"_MIN_SEQUENCE_NUMBER": snapshot_id, "_MAX_SEQUENCE_NUMBER": snapshot_id}
    files = (each.with_values(numbers) if each.kind == EntryKind.ADD else each for each in changes.files)
    return replace(changes, files=tuple(files))


def _with_row_ids(changes: Changes, snapshot_id: int, next_row_id: int, *, grouped: bool) -> tuple[Changes, int]:
    """Returns the changes with row ids, and the first row id that is free afterwards."""
    deleted = [each for each in changes.files if each.kind == EntryKind.DELETE]
    added = changes.added
    if grouped:
        order: dict[bytes, int] = {}
        for each in added:
            order.setdefault(each.partition, len(order))
        added.sort(key=lambda each: order[each.partition])
    numbered, next_row_id = _with_first_row_ids([_with_sequence(each, snapshot_id) for each in added], next_row_id)
    return replace(changes, files=(*deleted, *numbered)), next_row_id


def _with_first_row_ids(added: Sequence[FileChange], free: int) -> tuple[list[FileChange], int]:
    found = []
    # Files of blobs and vectors follow the file of their rows and share its ids. A column may have several files, one
    # after the other: `rows` is the first id of the rows, `next_of` the first id that a column has not reached.
    rows, next_of = free, dict[str, int]()
    for each in added:
        file = each.file
        explicit = _ROW_ID in (file["_WRITE_COLS"] or ())
        if file["_FILE_SOURCE"] == _APPENDED and file["_FIRST_ROW_ID"] is None and not explicit:
            count = int(file["_ROW_COUNT"])
            column = _split_column(each)
            start = free if column is None else next_of.get(column, rows)
            each = each.with_values({"_FIRST_ROW_ID": start})
            if column is None:
                rows, next_of, free = free, {}, free + count
            elif start + count > free:
                raise UnsupportedTableError(f"File {each.name} holds columns of rows that are not part of the commit")
            else:
                next_of[column] = start + count
        found.append(each)
    return found, free


def _split_column(each: FileChange) -> str | None:
    """Which columns a file holds apart from their rows: one of blobs, or all of vectors; None: it holds rows."""
    if each.name.endswith(BLOB_FILE):
        return str(each.file["_WRITE_COLS"][0])
    return VECTOR_FILE if VECTOR_FILE in each.name else None


def _with_sequence(each: FileChange, snapshot_id: int) -> FileChange:
    # As in Java 0 means "not numbered". So of a writer without data evolution only the first file gets the
    # snapshot's number; files that it rolled to keep their counters.
    if each.file["_MIN_SEQUENCE_NUMBER"] == 0:
        return each.with_values({"_MIN_SEQUENCE_NUMBER": snapshot_id, "_MAX_SEQUENCE_NUMBER": snapshot_id})
    if each.file["_MAX_SEQUENCE_NUMBER"] == 0:
        return each.with_values({"_MAX_SEQUENCE_NUMBER": snapshot_id})
    return each
