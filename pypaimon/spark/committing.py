"""`commit_once`: the messages of all tasks into one snapshot, exactly once per query and batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pypaimon.spark.commit_ledger import CommitLedger, CommitUnknownError, Standing
from pypaimon.spark.internals import StreamTableCommit
from pypaimon.spark.publishing import FencedSnapshotCommit
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory

_WHOLE_TABLE: dict[str, Any] = {}
# What Paimon takes for the identifier of a commit that has none.
_UNNUMBERED = 2**63 - 1


class CommitFailedError(PaimonStreamError):
    """A batch was not committed, or it is not known whether it was: the query may be restarted, which finds out."""

    retriable = True


@dataclass(frozen=True, slots=True)
class Written:
    """What tasks wrote.

    Attributes:
        rows: Rows in data files.
        files: Data files.
        size: Their bytes.
    """

    rows: int
    files: int
    size: int

    @staticmethod
    def of(messages: Iterable[Any]) -> Written:
        """Sums over pypaimon's commit messages."""
        files = [file for message in messages for file in message.new_files]
        return Written(sum(file.row_count for file in files), len(files), sum(file.file_size for file in files))


@dataclass(frozen=True, slots=True)
class CommitReport:
    """What became of a batch.

    Attributes:
        snapshot: Id of its snapshot; None if there was nothing to commit, or the snapshot is gone by now.
        written: What was written for it, this time.
        repeated: The batch was in the table already, and nothing was added.
    """

    snapshot: int | None
    written: Written
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Assumption:
    """What a human has found out where the table cannot tell.

    Attributes:
        committed: Batch that is in the table, or None.
        missing: Batch that is not, or None.
    """

    committed: int | None = None
    missing: int | None = None


def commit_once(
    table: Any, user: str, batch: int, messages: Sequence[Any], *, overwrite: bool, assumption: Assumption
) -> CommitReport:
    """Commit a batch unless it is in the table.

    Args:
        table: pypaimon's table.
        user: Commit user of the query.
        batch: Commit identifier; later batches have greater ones.
        messages: pypaimon's commit messages of all tasks.
        overwrite: Whether they replace what is there: whole partitions with `dynamic-partition-overwrite`, else
            everything.
        assumption: Beats what would be `CommitUnknownError`.

    Raises:
        CommitUnknownError: It cannot be known whether the batch was committed before.
        CommitFailedError: pypaimon gave up; where the commit surely is not there, its files are deleted.
        StoreError: The store failed before anything was published.
    """
    directory = TableDirectory.of(table)
    ledger = CommitLedger(directory, user)
    written = Written.of(messages)
    standing = _standing(ledger, batch, assumption)
    if standing.holds(batch):
        return _repeated(table, directory, standing.snapshot, batch, messages)
    if not overwrite and not any(not message.is_empty() for message in messages):
        return CommitReport(None, written)
    ledger.begin(batch, standing)
    fence = _publish(table, user, batch, messages, overwrite, standing.examined, f"Batch {batch} of '{user}'")
    if fence.found is not None:
        return _repeated(table, directory, fence.found, batch, messages)
    return CommitReport(fence.published, written)


def commit_batch(table: Any, messages: Sequence[Any], *, overwrite: bool) -> CommitReport:
    """Commit a batch write, which happens once as far as Spark calls it once.

    Raises:
        CommitFailedError: pypaimon gave up.
    """
    user = table.new_batch_write_builder().commit_user
    latest = TableDirectory.of(table).snapshots.latest_id() or 0
    fence = _publish(table, user, _UNNUMBERED, messages, overwrite, latest, "The write")
    return CommitReport(fence.published, Written.of(messages))


def discard(table: Any, messages: Sequence[Any]) -> None:
    """Delete files that surely no snapshot names and none will."""
    commit = StreamTableCommit(table, "")
    try:
        # Not `commit.abort`, which may hand the messages to the native library.
        commit.file_store_commit.abort(list(messages))
    finally:
        commit.close()


def discard_unfinished(table: Any, tasks: Sequence[Any | None], messages: Sequence[Any]) -> bool:
    """Delete what finished tasks wrote, if some task did not finish, so that no commit was tried.

    When all have finished, a commit may have been tried and may have succeeded whatever it raised; the files stay.

    Returns:
        Whether they were deleted.
    """
    if all(task is not None for task in tasks):
        return False
    discard(table, messages)
    return True


def _standing(ledger: CommitLedger, batch: int, assumption: Assumption) -> Standing:
    try:
        return ledger.standing(batch)
    except CommitUnknownError as error:
        if assumption.committed == batch:
            return Standing(batch, None, error.latest)
        if assumption.missing == batch:
            return Standing(None, None, error.latest)
        raise


def _publish(
    table: Any, user: str, batch: int, messages: Sequence[Any], overwrite: bool, examined: int, what: str
) -> FencedSnapshotCommit:
    """Commit through pypaimon, behind a fence that says what became of it.

    Raises:
        CommitFailedError: pypaimon gave up; where the commit surely is not there, its files are deleted.
    """
    commit = StreamTableCommit(table, user)
    if overwrite:
        commit.overwrite_partition = _WHOLE_TABLE
    publisher = commit.file_store_commit.snapshot_commit
    fence = FencedSnapshotCommit(publisher, TableDirectory.of(table), user, batch, examined)
    commit.file_store_commit.snapshot_commit = fence
    try:
        # Properties, though none: without them pypaimon may publish past the fence, through its native library.
        commit.commit(list(messages), batch, {})
    except Exception as error:
        if not fence.uncertain:
            discard(table, messages)
        raise CommitFailedError(_why(what, fence, error)) from error
    finally:
        commit.close()
    return fence


def _repeated(
    table: Any, directory: TableDirectory, snapshot: Snapshot | None, batch: int, messages: Sequence[Any]
) -> CommitReport:
    """The batch is in the table; what was written for it again is deleted if its commit surely names other files."""
    written = Written.of(messages)
    if snapshot is None or snapshot.commit_identifier != batch:
        return CommitReport(None, written, repeated=True)
    if not _files_of(directory, snapshot) & {file.file_name for message in messages for file in message.new_files}:
        discard(table, messages)
    return CommitReport(snapshot.id, written, repeated=True)


def _files_of(directory: TableDirectory, snapshot: Snapshot) -> set[str]:
    manifests = directory.manifests.manifest_list(snapshot.delta_manifest_list)
    return set(directory.manifests.entries(manifests).column("file_name").to_pylist())


def _why(what: str, fence: FencedSnapshotCommit, error: BaseException) -> str:
    reasons: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(reasons) < 3:
        reasons.append(str(cause))
        cause = cause.__cause__
    state = (
        "may have been committed all the same; its files are kept, and a restart of the query finds out"
        if fence.uncertain
        else "was not committed, and its files are deleted"
    )
    return f"{what} failed: {'; because: '.join(reasons)}. It {state}."
