"""`merge_branch`: adds the rows that a branch has got since the fork to another branch, which keeps its own.

Files are compared by name, so it must be certain that a file which the target does not have was never there: after a
compaction or an overwrite its rows may be there in other files. Java therefore merges only branches that are complete
from their first snapshot on. Here the last common snapshot is known, and the histories since then decide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pypaimon.streaming.commit.changes import APPEND, Changes, FileChange
from pypaimon.streaming.commit.conflicts import TableState, check_bucket_counts
from pypaimon.streaming.commit.idempotent_commit import commit_maintenance
from pypaimon.streaming.commit.snapshot_commit import check_commit_options
from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.maintenance.branch_files import (
    MAIN,
    existing_branch,
    is_same_schema,
    known_snapshots,
    last_common,
    schema_files,
)
from pypaimon.streaming.maintenance.partitions import check_no_chain
from pypaimon.streaming.maintenance.retention_pin import pinned
from pypaimon.streaming.maintenance.roots import of_branch
from pypaimon.streaming.maintenance.tags import tags_of
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import a_table
from pypaimon.streaming.paimon.handles import WritableTable
from pypaimon.streaming.planning.follow_up import CommitKind

_ADDING = (CommitKind.APPEND, CommitKind.ANALYZE)
_SAME = (option_keys.ROW_TRACKING_ENABLED, option_keys.BUCKET)
_REFUSED = (option_keys.DATA_EVOLUTION_ENABLED, option_keys.DELETION_VECTORS_ENABLED)


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What `merge_branch` did, or would do.

    Attributes:
        table: Name of the table.
        branch: The branch whose rows were added.
        fork_id: The last snapshot that both had; None: they had none in common.
        snapshot_id: The snapshot with these rows; None if there was nothing to add, or for a dry run.
        files: Number of data files that were added. Both branches share them.
        rows: Their rows.
        dry_run: Whether nothing was changed.
    """

    table: str
    branch: str
    fork_id: int | None
    snapshot_id: int | None = None
    files: int = 0
    rows: int = 0
    dry_run: bool = False


def merge_branch(table: WritableTable, branch: str, *, dry_run: bool = False) -> MergeReport:
    """Add the rows that a branch has got since the fork to a table without a primary key, in one commit. Blocks.

    Both branches must only have appended since the last snapshot that they have in common: no compaction, overwrite or
    delete, and no snapshot that has expired. What was merged before is not added again. Nobody should delete the branch
    meanwhile.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it, on the branch that gets the rows, usually main.
        branch: The branch whose rows are added; `main` for a table that was loaded on another branch.
        dry_run: Change nothing.

    Raises:
        StreamConfigError: There is no such branch, one of the two has no snapshot, or has not only appended since then.
        UnsupportedTableError: Such tables are not merged, or the schemas of the branches differ.
        MaintenanceConflictError: Maintenance is running (retriable).
        CommitFailedError: The commit did not get through (retriable).
        StoreError: The store failed (retriable).
    """
    given = PaimonTable(a_table("merge_branch: table", table))
    directory = given.new_directory()
    if branch != MAIN:
        existing_branch("merge_branch", directory, branch)
    if branch == directory.branch:
        raise StreamConfigError(f"merge_branch: the table was loaded on branch {branch!r}. Load it on another branch.")
    source = of_branch(directory, branch)
    check_no_chain(given, "its branches are not merged here")
    check_commit_options(given)
    _check_kind(directory, source)
    merge = _Merge.of(directory, source)
    planned = merge.changes(TableState(directory, directory.snapshots.get_latest_snapshot()))
    _check_schemas(directory, source, planned.files)
    number = None
    if not (dry_run or planned.empty):
        with pinned(source, source.snapshots.list_ids()[-1], f"merge-{directory.branch}"):
            number = commit_maintenance(given, merge, f"Merging branch {branch} of {given.name}").snapshot_id
    (added,) = merge.last
    return MergeReport(given.name, branch, merge.fork, number, len(added.files), added.rows, dry_run)


@dataclass(frozen=True, slots=True)
class _Merge:
    """The commit of a merge: what the source has, without what the target has by then.

    Attributes:
        fork: The last common snapshot; None: there is none.
        files: The files of the source.
        last: The changes to the last state that was asked for, alone.
    """

    fork: int | None
    files: tuple[FileChange, ...]
    last: list[Changes] = field(default_factory=list)
    kind: str = APPEND
    may_conflict: bool = False
    keep_empty: bool = False

    @staticmethod
    def of(target: TableDirectory, source: TableDirectory) -> _Merge:
        """Find out what the source has, and since when both have only appended."""
        ours, theirs = (known_snapshots(each.snapshots.list_snapshots(), tags_of(each)) for each in (target, source))
        fork = last_common(ours, theirs)
        for each in (source, target):
            _check_appended(each, fork)
        live = TableState(source, source.snapshots.get_latest_snapshot()).files(None)
        # They get new row ids, because the target has given the same ones to other rows.
        return _Merge(fork, tuple(each.with_values({"_FIRST_ROW_ID": None}) for each in live))

    def changes(self, state: TableState) -> Changes:
        """The files that a state of the target does not have. It still has those of the fork."""
        _check_appended(state.directory, self.fork)
        present = state.files(None)
        identities = {each.identity for each in present}
        added = [each for each in self.files if each.identity not in identities]
        check_bucket_counts([*present, *added])
        self.last[:] = [Changes.of(added)]
        return self.last[0]


def _check_appended(branch: TableDirectory, fork: int | None) -> None:
    """Check that a branch has all snapshots since the fork, and that each of them only added rows."""
    ids = branch.snapshots.list_ids()
    if not ids:
        raise StreamConfigError(f"merge_branch: branch {branch.branch!r} has no snapshot.")
    since = [number for number in ids if number > (fork or 0)]
    start = "its beginning" if fork is None else f"the common snapshot {fork}"
    if since != [*range((fork or 0) + 1, ids[-1] + 1)]:
        raise StreamConfigError(
            f"merge_branch: snapshots of branch {branch.branch!r} since {start} have expired, so it is not known "
            "which files were there."
        )
    for each in branch.snapshots.get_snapshots_batch(since).values():
        if each is not None and each.commit_kind not in _ADDING:
            raise StreamConfigError(
                f"merge_branch: branch {branch.branch!r} has not only appended since {start}: snapshot {each.id} is of "
                f"kind {each.commit_kind}."
            )


def _check_kind(target: TableDirectory, source: TableDirectory) -> None:
    schemas = [each.latest_schema() for each in (target, source)]
    for each, schema in zip((target, source), schemas, strict=True):
        refused = [str(key) for key in _REFUSED if key.of(schema.options)]
        if schema.primary_keys or refused:
            why = f"'{refused[0]}'" if refused else "a primary key"
            raise UnsupportedTableError(
                f"merge_branch: branch {each.branch!r} has {why}. Only tables without them are merged."
            )
    own, other = schemas
    different = [str(key) for key in _SAME if key.of(own.options) != key.of(other.options)]
    if own.fields != other.fields or own.partition_keys != other.partition_keys:
        different.append("columns")
    if different:
        raise UnsupportedTableError(
            f"merge_branch: branches {target.branch!r} and {source.branch!r} differ in {', '.join(different)}."
        )


def _check_schemas(target: TableDirectory, source: TableDirectory, added: Iterable[FileChange]) -> None:
    """Check that the schemas of files mean the same in both branches."""
    own, other = schema_files(target), schema_files(source)
    for number in sorted({int(each.file["_SCHEMA_ID"]) for each in added}):
        if number not in own or number not in other or not is_same_schema(own[number], other[number]):
            raise UnsupportedTableError(
                f"merge_branch: files of branch {source.branch!r} have schema {number}, which is another one in branch "
                f"{target.branch!r}, or is not there."
            )
