"""`commit_once`: the messages of all tasks into one snapshot, exactly once per query and batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.errors import PaimonStreamError, StoreError
from pypaimon.streaming.io.conditional_writes import ChangedFileError
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.write_internals import StreamTableCommit
from pypaimon.streaming.writing.commit.commit_ledger import (
    BatchOrderError,
    CommitLedger,
    CommitStatus,
    CommitUnknownError,
)
from pypaimon.streaming.writing.commit.fenced_commit import Claim, FencedSnapshotCommit

_LOG = StreamLog(__name__)
_WHOLE_TABLE: dict[str, Any] = {}
_TRIES = 8
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
    table: Any,
    user: str,
    batch: int,
    messages: Sequence[Any],
    *,
    overwrite: bool,
    assumption: Assumption,
    ordered: bool = True,
    origin: str | None = None,
    schema_id: int | None = None,
    properties: Mapping[str, str] | None = None,
    keep_empty: bool = False,
) -> CommitReport:
    """Commit a batch unless it is in the table.

    Args:
        table: pypaimon's table, under the schema that the messages were written with.
        user: Commit user of the query.
        batch: Commit identifier.
        messages: pypaimon's commit messages of all tasks.
        overwrite: Whether they replace what is there: whole partitions with `dynamic-partition-overwrite`, else
            everything.
        assumption: Beats what would be `CommitUnknownError`.
        ordered: Whether batches are committed in order, as those of a stream are. Otherwise any batch that is not in
            the table is committed, whatever was committed before.
        origin: What counts the batches, where that is known: Spark's id of the streaming query.
        schema_id: The table's latest schema, which its snapshots name; None: that of `table`.
        properties: What its snapshot says beside, under `properties`.
        keep_empty: Whether a batch without files leaves a snapshot, as progress needs it.

    Raises:
        CommitUnknownError: It cannot be known whether the batch was committed before.
        BatchOrderError: A later batch of the stream is in the table, and this one is not.
        QueryReusedError: The batches before it came from another streaming query.
        CommitFailedError: pypaimon gave up; where the commit surely is not there, its files are deleted.
        StoreError: The store failed before anything was published.
    """
    ledger = CommitLedger(TableDirectory.of(table), user, origin)
    for _ in range(_TRIES):
        status = ledger.status(batch)
        if batch in status.batches:
            return _repeated(table, status.snapshot, messages)
        if not (overwrite or keep_empty or any(not message.is_empty() for message in messages)):
            return CommitReport(None, Written.of(messages))
        try:
            if _is_assumed(user, batch, status, assumption):
                ledger.assume(batch, status)
                return CommitReport(None, Written.of(messages), repeated=True)
            _check_order(user, batch, status, ordered)
            ledger.begin(batch, status)
        except ChangedFileError:
            continue
        claim = Claim(user, batch, status.examined, ordered, schema_id, dict(properties or {}), keep_empty)
        return _commit(table, claim, messages, overwrite)
    raise StoreError(f"Batch {batch} of '{user}': other jobs of the same query keep writing its record; try again")


def _is_assumed(user: str, batch: int, status: CommitStatus, assumption: Assumption) -> bool:
    """Whether a human says that the batch is in the table, where the table cannot tell."""
    if status.unknown is None or batch > status.unknown or assumption.missing == batch:
        return False
    if assumption.committed == batch:
        return True
    raise CommitUnknownError(user, batch, status.why)


def _commit(table: Any, claim: Claim, messages: Sequence[Any], overwrite: bool) -> CommitReport:
    restart = "A restart of the query finds out"
    fence = _publish(table, claim, messages, overwrite, f"Batch {claim.batch} of '{claim.user}'", restart)
    if fence.refused is not None:
        raise fence.refused
    if fence.found is None:
        return CommitReport(fence.published, Written.of(messages))
    if fence.uncertain:
        _log_kept(table)
        return CommitReport(fence.found.id, Written.of(messages), repeated=True)
    return _repeated(table, fence.found, messages)


def commit_batch(table: Any, messages: Sequence[Any], *, overwrite: bool, schema_id: int | None = None) -> CommitReport:
    """Commit a batch write, which happens once as far as Spark calls it once. Arguments as those of `commit_once`.

    Raises:
        CommitFailedError: pypaimon gave up.
    """
    user = table.new_batch_write_builder().commit_user
    look = (
        f"Look for a snapshot of the commit user '{user}' before you write again: if there is one, the rows are in the "
        "table. With the options 'query-id' and 'batch-id' a write may be repeated without looking"
    )
    fence = _publish(table, Claim(user, _UNNUMBERED, None, False, schema_id), messages, overwrite, "The write", look)
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


def _check_order(user: str, batch: int, status: CommitStatus, ordered: bool) -> None:
    latest = status.batches.greatest
    if ordered and latest is not None and latest > batch:
        raise BatchOrderError(user, batch, latest)


def _publish(
    table: Any, claim: Claim, messages: Sequence[Any], overwrite: bool, what: str, advice: str
) -> FencedSnapshotCommit:
    """Commit through pypaimon, behind a fence that says what became of it.

    Args:
        table, messages, overwrite: As for `commit_once`.
        claim: Which commit it is.
        what: It, in words.
        advice: How to find out whether it is there, where that is not known.

    Raises:
        CommitFailedError: pypaimon gave up; where the commit surely is not there, its files are deleted.
    """
    if claim.keep_empty:
        table = table.copy_without_time_travel({"snapshot.ignore-empty-commit": "false"})
    commit = StreamTableCommit(table, claim.user)
    if overwrite:
        commit.overwrite_partition = _WHOLE_TABLE
    fence = FencedSnapshotCommit(commit.file_store_commit.snapshot_commit, TableDirectory.of(table), claim)
    commit.file_store_commit.snapshot_commit = fence
    try:
        # Properties, though none: without them pypaimon may publish past the fence, through its native library.
        commit.commit(list(messages), claim.batch, claim.properties)
    except Exception as error:
        raise CommitFailedError(f"{what} failed: {_why(error)}. {_left(table, fence, messages, advice)}") from error
    finally:
        commit.close()
    if fence.gone is not None:
        raise CommitFailedError(
            f"{what} failed: snapshot {fence.gone}, which had to be looked at first, expired meanwhile, as when "
            f"another job of the same query goes on. {_left(table, fence, messages, advice)}"
        )
    fence.settle()
    return fence


def _repeated(table: Any, snapshot: Snapshot | None, messages: Sequence[Any]) -> CommitReport:
    """The batch is in the table; what was written for it again is deleted if its commit surely names other files."""
    written = Written.of(messages)
    if snapshot is None:
        return CommitReport(None, written, repeated=True)
    names = {file.file_name for message in messages for file in message.new_files}
    if not _files_of(TableDirectory.of(table), snapshot) & names:
        discard(table, messages)
    return CommitReport(snapshot.id, written, repeated=True)


def _log_kept(table: Any) -> None:
    text = "files of a commit of %(table)s whose outcome is not known are kept, for a snapshot may name them"
    _LOG.warning("sink_files_kept", text, table=str(table.identifier))


def _files_of(directory: TableDirectory, snapshot: Snapshot) -> set[str]:
    manifests = directory.manifests.manifest_list(snapshot.delta_manifest_list)
    return set(directory.manifests.entries(manifests).column("file_name").to_pylist())


def _why(error: BaseException) -> str:
    reasons: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(reasons) < 3:
        reasons.append(str(cause))
        cause = cause.__cause__
    return "; because: ".join(reasons)


def _left(table: Any, fence: FencedSnapshotCommit, messages: Sequence[Any], advice: str) -> str:
    """Delete the files of a commit that surely is not there; says what became of it."""
    if fence.uncertain:
        _log_kept(table)
        return f"It may have been committed all the same; its files are kept. {advice}."
    discard(table, messages)
    return "It was not committed, and its files are deleted."
