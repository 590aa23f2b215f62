"""Whether all files of a snapshot exist. A rollback asks before it deletes the newer snapshots."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.maintenance.references import Candidates, References, TableFile, required
from pypaimon.streaming.maintenance.roots import Roots
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory


def check_complete(table: PaimonTable, directory: TableDirectory, snapshot: Snapshot) -> None:
    """Check that all files of a snapshot exist. Costs its manifests and a listing for each bucket.

    Raises:
        CorruptTableError: One is missing.
    """
    references = References(directory.manifests)
    what = f"snapshot {snapshot.id}"
    try:
        references.add(Roots(snapshots=(snapshot,)))
    except FileNotFoundError as error:
        raise required(error, what) from error
    candidates = Candidates(directory.manifests, table.paths)
    named = chain(candidates.of_states((snapshot,)), candidates.of_snapshots((snapshot,), None))
    missing = _missing(directory, (each for each in named if _name(each) in references.names))
    if missing:
        raise required(FileNotFoundError(2, "missing", missing[0]), what)


def has_changelog(table: PaimonTable, directory: TableDirectory, snapshot: Snapshot) -> bool:
    """Whether the changelog of a snapshot can still be read. Tags do not keep it."""
    if snapshot.changelog_manifest_list is None:
        return False
    references = References(directory.manifests)
    try:
        references.add(Roots(changelogs=(snapshot,)))
    except (FileNotFoundError, CorruptTableError):
        return False
    named = Candidates(directory.manifests, table.paths).of_snapshots((snapshot,), None)
    return not _missing(directory, (each for each in named if _name(each) in references.names))


def _missing(directory: TableDirectory, files: Iterable[TableFile]) -> list[str]:
    """Paths of the files that do not exist. Manifests may be cached, so the store is asked."""
    wanted = {_name(each): each.path for each in files}
    # A partition may have two spellings, so a file counts wherever it is.
    homes = dict.fromkeys(path.rpartition("/")[0] for path in wanted.values())
    there = {name for home in homes for name in directory.store.list_names(home)}
    return [path for name, path in wanted.items() if name not in there]


def _name(file: TableFile) -> str:
    return file.path.rpartition("/")[2]
