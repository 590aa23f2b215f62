"""Whether all files of a snapshot exist: before a rollback makes it the latest, and after a tag was written of it."""

from __future__ import annotations

from collections.abc import Iterable

from pypaimon.streaming.consumers.consumer_manager import consumers_of
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.maintenance.plan import unfinished_plans
from pypaimon.streaming.maintenance.references import Candidates, References, TableFile, missing_file_error
from pypaimon.streaming.maintenance.roots import Roots, is_held
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory

_LOOKS = 2
"""Listings that must not show a file that counts as gone."""


def check_complete(table: PaimonTable, directory: TableDirectory, snapshot: Snapshot) -> None:
    """Check that all files of a snapshot exist, its changelog among them. Costs its manifests and some listings.

    Raises:
        CorruptTableError: One is missing.
        MaintenanceConflictError: One is missing, and the snapshot has expired meanwhile.
    """
    candidates = Candidates(directory.manifests, table.paths)
    named = [*candidates.of_states((snapshot,)), *candidates.of_snapshots((snapshot,), None)]
    missing = missing_file(table, directory, Roots(snapshots=(snapshot,)), named)
    if missing is not None:
        expired = None if is_held(directory, snapshot) else snapshot
        error = FileNotFoundError(2, "missing", missing)
        raise missing_file_error(table.name, error, f"snapshot {snapshot.id}", expired)


def missing_of_state(table: PaimonTable, directory: TableDirectory, snapshot: Snapshot) -> str | None:
    """Path of a file that the state of a snapshot needs, and that is gone; None if all are there."""
    named = Candidates(directory.manifests, table.paths).of_states((snapshot,))
    return missing_file(table, directory, Roots(tagged=(snapshot,)), named)


def has_changelog(table: PaimonTable, directory: TableDirectory, snapshot: Snapshot) -> bool:
    """Whether the changelog of a snapshot can still be read. Tags do not keep it."""
    if snapshot.changelog_manifest_list is None:
        return False
    named = Candidates(directory.manifests, table.paths).of_snapshots((snapshot,), None)
    try:
        return missing_file(table, directory, Roots(changelogs=(snapshot,)), named) is None
    except CorruptTableError:
        return False


def missing_file(table: PaimonTable, directory: TableDirectory, roots: Roots, named: Iterable[TableFile]) -> str | None:
    """Path of a file that is needed, and is gone or about to go; None if all are there.

    Args:
        table: The table.
        directory: Its files.
        roots: What needs files.
        named: Files among which those are that it needs.

    Raises:
        CorruptTableError: A file is damaged.
    """
    references = References(directory.manifests)
    try:
        references.add(roots)
    except FileNotFoundError as error:
        return str(error.filename or error)
    # A partition may have two spellings, so a file counts wherever it is.
    paths = {name: each.path for each in named if (name := _name(each)) in references.names}
    consumers = consumers_of(directory).directory
    listed = directory.store.list_names(consumers)
    plans = unfinished_plans(directory.store, consumers, listed, table.path).values()
    going = {_name(each) for files in plans for each in files}
    # Listed after the plans: a plan is there until its files are gone. Manifests may be cached, so the store is asked.
    missing = paths
    for _ in range(_LOOKS):
        homes = dict.fromkeys(path.rpartition("/")[0] for path in missing.values())
        there = {name for home in homes for name in directory.store.list_names(home)} - going
        missing = {name: path for name, path in missing.items() if name not in there}
    return next(iter(missing.values()), None)


def _name(file: TableFile) -> str:
    return file.path.rpartition("/")[2]
