"""`remove_missing_files`: forget data files that the latest state names and that are gone from the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa

from pypaimon.streaming.commit.changes import AvroRecord, Changes, FileChange
from pypaimon.streaming.commit.conflicts import TableState
from pypaimon.streaming.commit.idempotent_commit import commit_maintenance
from pypaimon.streaming.commit.request import FixedChanges
from pypaimon.streaming.commit.row_id_conflicts import FilesByRowId
from pypaimon.streaming.commit.snapshot_commit import check_commit_options
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.files.deletion_vectors import framed, index_file
from pypaimon.streaming.files.row_id_groups import is_data_file_name
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.maintenance.partitions import check_no_chain
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.file_paths import SpelledPath
from pypaimon.streaming.metadata.index_manifests import DELETION_VECTORS, DeletionRange
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options.arguments import a_table
from pypaimon.streaming.paimon.handles import WritableTable
from pypaimon.streaming.paimon.internals import DeletionFile


@dataclass(frozen=True, slots=True)
class MissingFiles:
    """What `remove_missing_files` found.

    Attributes:
        snapshot_id: The snapshot that does not name the files any more; None if all are there, or for a dry run.
        paths: The paths of the missing files.
        rows: How many rows are lost with them.
    """

    snapshot_id: int | None
    paths: tuple[str, ...]
    rows: int


def remove_missing_files(table: WritableTable, *, dry_run: bool = False) -> MissingFiles:
    """Remove data files from the table that its latest snapshot names and that are gone from the store. Blocks.

    Their rows are lost already; without this every read of them fails. With data evolution rows go whole, with their
    columns in other files, because older values would be left over. Each directory with a missing file is listed
    twice, and an error of a listing ends the call with nothing committed.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it.
        dry_run: Commit nothing. The result says which files are missing.

    Raises:
        UnsupportedTableError: It is a chain table, or its commits are not supported.
        CommitConflictError: Another job has removed some of the files meanwhile; call it again.
        CommitFailedError: The commit did not get through (retriable).
        StoreError: The store failed (retriable).
    """
    given = PaimonTable(a_table("remove_missing_files: table", table))
    check_no_chain(given, "its files are not removed here")
    check_commit_options(given)
    directory = given.new_directory()
    state = TableState(directory, directory.snapshots.get_latest_snapshot())
    live = state.files(None)
    missing = _missing(given, directory.store, live)
    paths, lost = tuple(missing), _with_their_rows(given, missing.values(), live)
    rows = _count(given, lost)
    if dry_run or not missing:
        return MissingFiles(None, paths, rows)
    added, deleted = _without_vectors(given, directory.store, state.index, lost)
    plan = FixedChanges(Changes.of((each.deleted() for each in lost), (), added, deleted))
    report = commit_maintenance(given, plan, f"Removing missing files of {given.name}")
    return MissingFiles(report.snapshot_id, paths, rows)


def _missing(table: PaimonTable, store: Store, files: Sequence[FileChange]) -> Mapping[str, FileChange]:
    """The files that are not there, by their paths."""
    homes = table.paths.partitions(pa.array([each.partition for each in files], pa.binary()))
    found = {
        table.paths.data_file(home, each.bucket, each.name, each.file["_EXTERNAL_PATH"]): each
        for home, each in zip(homes, files, strict=True)
    }
    for _ in range(2):
        there = _listed(store, found)
        found = {path: each for path, each in found.items() if there.isdisjoint(_spellings(path))}
    return found


def _with_their_rows(table: PaimonTable, missing: Iterable[FileChange], live: Sequence[FileChange]) -> list[FileChange]:
    """Missing files, and with data evolution the other files of their rows."""
    found = {each.identity: each for each in missing}
    files = FilesByRowId(live if table.traits.data_evolution else ())
    while more := [each for each in files.near(found.values()) if each.identity not in found]:
        found |= {each.identity: each for each in more}
    return list(found.values())


def _count(table: PaimonTable, lost: Iterable[FileChange]) -> int:
    if not table.traits.data_evolution:
        return sum(each.rows for each in lost)
    # Several files hold columns of the same rows.
    data = (each for each in lost if is_data_file_name(each.name))
    return sum({(each.partition, each.file["_FIRST_ROW_ID"]): each.rows for each in data}.values())


def _without_vectors(
    table: PaimonTable, store: Store, index: Iterable[AvroRecord], lost: Iterable[FileChange]
) -> tuple[list[AvroRecord], list[AvroRecord]]:
    """The index files to add and to delete, so that no deletion vector of a lost file stays. The new ones are written;
    if the commit fails, they are orphans.
    """
    gone = {(each.partition, each.bucket, each.name) for each in lost}
    added, deleted = list[AvroRecord](), list[AvroRecord]()
    for record in index:
        place = record["_PARTITION"], record["_BUCKET"]
        ranges = [each for each in record.get("_DELETIONS_VECTORS_RANGES") or () if each is not None]
        kept = [each for each in ranges if (*place, each["f0"]) not in gone]
        if record["_INDEX_TYPE"] != DELETION_VECTORS or len(kept) == len(ranges):
            continue
        deleted.append({**record, "_KIND": int(EntryKind.DELETE)})
        if kept:
            added.append(_rewritten(table, store, record, kept))
    return added, deleted


def _rewritten(table: PaimonTable, store: Store, record: AvroRecord, kept: Iterable[AvroRecord]) -> AvroRecord:
    (home,) = table.paths.partitions(pa.array([record["_PARTITION"]], pa.binary()))
    path = table.paths.index_file(home, record["_BUCKET"], record["_FILE_NAME"], record.get("_EXTERNAL_PATH"))
    try:
        stored = store.read(path)
    except FileNotFoundError as error:
        raise CorruptTableError(path, "holds deletion vectors of the table, and is missing") from error
    places = [DeletionRange(each["f0"], each["f1"], each["f2"], each.get("_CARDINALITY")) for each in kept]
    data, ranges = index_file(
        (each, framed(stored, DeletionFile(path, each.offset, each.length, each.cardinality))) for each in places
    )
    name = f"index-{uuid4()}-0"
    store.begin_write_new(table.paths.index_file(home, record["_BUCKET"], name), data)()
    return {
        **record,
        "_KIND": int(EntryKind.ADD),
        "_FILE_NAME": name,
        "_FILE_SIZE": len(data),
        "_ROW_COUNT": len(ranges),
        "_EXTERNAL_PATH": None,
        "_DELETIONS_VECTORS_RANGES": [
            {"f0": each.data_file, "f1": each.offset, "f2": each.length, "_CARDINALITY": each.cardinality}
            for each in ranges
        ],
    }


def _listed(store: Store, paths: Iterable[str]) -> set[str]:
    """The files in the directories of these paths."""
    directories = dict.fromkeys(each.rpartition("/")[0] for path in paths for each in _spellings(path))
    return {f"{directory}/{name}" for directory in directories for name in store.list_names(directory)}


def _spellings(path: str) -> tuple[str, ...]:
    return (str(path), path.other) if isinstance(path, SpelledPath) else (path,)
