"""`remove_missing_files`: forget data files that the latest state names and that are gone from the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pypaimon.streaming.commit.changes import Changes, FileChange
from pypaimon.streaming.commit.conflicts import TableState
from pypaimon.streaming.commit.idempotent_commit import commit_maintenance
from pypaimon.streaming.commit.request import FixedChanges
from pypaimon.streaming.commit.snapshot_commit import check_commit_options
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.maintenance.partitions import check_no_chain
from pypaimon.streaming.metadata.file_paths import SpelledPath
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options.arguments import a_table
from pypaimon.streaming.paimon.handles import WritableTable


@dataclass(frozen=True, slots=True)
class MissingFiles:
    """What `remove_missing_files` found.

    Attributes:
        snapshot_id: The snapshot that does not name the files any more; None if all are there, or for a dry run.
        paths: The paths of the missing files.
        rows: How many rows they held.
    """

    snapshot_id: int | None
    paths: tuple[str, ...]
    rows: int


def remove_missing_files(table: WritableTable, *, dry_run: bool = False) -> MissingFiles:
    """Remove data files from the table that its latest snapshot names and that are gone from the store. Blocks.

    Their rows are lost already; without this every read of them fails. Each directory with a missing file is listed
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
    missing = _missing(given, directory.store, state.files(None))
    paths, rows = tuple(missing), sum(each.rows for each in missing.values())
    if dry_run or not missing:
        return MissingFiles(None, paths, rows)
    plan = FixedChanges(Changes.of(each.deleted() for each in missing.values()))
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


def _listed(store: Store, paths: Iterable[str]) -> set[str]:
    """The files in the directories of these paths."""
    directories = dict.fromkeys(each.rpartition("/")[0] for path in paths for each in _spellings(path))
    return {f"{directory}/{name}" for directory in directories for name in store.list_names(directory)}


def _spellings(path: str) -> tuple[str, ...]:
    return (str(path), path.other) if isinstance(path, SpelledPath) else (path,)
