"""Commits that happen exactly once per commit user and identifier: `commit_once`, `commit_batch`, `commit_compaction`.

The protocol, in the order in which files appear in the store. Only the snapshot file of step 4 is ever visible to
readers; everything before it can be lost or left behind without harm.

1. *Data files* (by the writer). Data, changelog and index files are written under new names. No snapshot names them. A
   crash leaves orphans, which `maintain` deletes at an `orphan_age`; after an error the writer deletes them itself.

2. *The ledger* (`ledger`, `session`). The record says that the identifier is about to be tried, and a consumer of the
   commit user's name keeps the snapshots that will show whether it got through. If the snapshots already show it, the
   commit ends here. The record is written on the condition that nobody else has written it since it was read. A crash
   after this step leaves an attempt that never happened: the next writer examines the snapshots since, does not find
   the commit, and makes it. A `CommitSession` reserves identifiers ahead, so most commits of a writer skip this step.

3. *Manifests* (`draft`, `manifests`). The changes are checked against the latest state (`conflicts`). Then manifests,
   manifest lists and an index manifest are written under new names. A crash leaves orphans; after an error they are
   deleted.

4. *The snapshot* (`snapshot_commit`, `publishing`). `snapshot-N` is created if there is none of that id. This one write
   makes the commit visible. If another writer was first, the manifests of step 3 are deleted, the snapshots that have
   appeared are examined, and steps 3 and 4 are repeated on top of them. If the answer is lost, snapshot N is read to
   find out. A crash after the write changes nothing: the next writer finds the commit in step 2.

5. *The hint* `LATEST` shows readers where to look first. They verify it, so it may be missing or old.

6. *Compaction.* If the messages contain compact increments, they become a second snapshot by steps 3 to 5. Without it
   no row is missing, so its failure is only logged.

Files are deleted only if no snapshot can name them (`cleanup`). While the outcome of step 4 is unknown they are kept,
and the error says to repeat the commit under its identifier, which finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from uuid import uuid4

from pypaimon.streaming.commit.changes import COMPACT, compact_changes, data_changes
from pypaimon.streaming.commit.cleanup import commit_or_clean_up, discard, discarded_on_error, log_kept
from pypaimon.streaming.commit.conflicts import StrictMode
from pypaimon.streaming.commit.ledger import CommitLedger, CommitStatus
from pypaimon.streaming.commit.request import (
    CommitPlan,
    CommitReport,
    CommitRequest,
    FixedChanges,
    Overwrite,
    Written,
    plan_of,
)
from pypaimon.streaming.commit.session import CommitSession
from pypaimon.streaming.commit.snapshot_commit import GaveUpError, KnownHistory, SnapshotCommit
from pypaimon.streaming.errors import (
    BatchOrderError,
    CommitFailedError,
    CommitUnknownError,
    PaimonStreamError,
    StoreError,
)
from pypaimon.streaming.io.conditional_writes import ChangedFileError
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshot_files import SAME_ROWS
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.paimon.write_internals import CommitMessage

_LOG = StreamLog(__name__)
_TRIES = 8
# Paimon's identifier of a commit without one (Java's BatchWriteBuilder.COMMIT_IDENTIFIER).
_UNNUMBERED = 2**63 - 1


def commit_once(request: CommitRequest, session: CommitSession | None = None) -> CommitReport:
    """Commit, unless the table has the identifier already.

    Args:
        session: What the caller knows from its last commit of this user, which makes this one cheaper; None: nothing.

    Raises:
        CommitUnknownError: It is unknown whether it was committed before.
        BatchOrderError: A later commit of the user is in the table, and this one is not.
        QueryReusedError: The earlier commits came from another origin.
        CommitFailedError: It did not get through. Its files are deleted unless it may be there.
        CommitConflictError: Files that it deletes are gone, or a partition has another number of buckets; its files are
            deleted.
        StrictModeError: Others have changed the same partition since the last safe snapshot; its files are deleted.
        KeyIndexConflictError: Other index files decide the buckets by now; its files are deleted.
        StoreError: The store failed before anything was published.
    """
    session = CommitSession() if session is None else session
    directory = request.table.new_directory()
    ledger = CommitLedger(directory, request.user, request.origin)
    with discarded_on_error(request.table, request.messages) if request.is_first_attempt else nullcontext():
        plan = plan_of(request)
        if not plan.keep_empty and all(message.is_empty() for message in request.messages):
            return _report_empty(request, ledger)
        started: CommitStatus | CommitReport | None = session.reserved(request.identifier)
        was_reserved = started is not None
        if started is None:
            request.check_table()
            started = _start(request, ledger, session)
        if isinstance(started, CommitReport):
            return started
        known = KnownHistory(
            started.latest,
            started.examined,
            started.fingerprint,
            outdated=not session.alone,
            own_fingerprint=session.last_fingerprint,
            # What was reserved relies on the last snapshot of the session. If it is gone, the table was rolled back or
            # recreated.
            must_exist=was_reserved,
        )
        commit = SnapshotCommit(directory, request, plan, known, session.strict_mode(request.table))
    return _commit(commit, started, session)


def commit_batch(
    table: PaimonTable,
    messages: Sequence[CommitMessage],
    *,
    overwrite: Overwrite,
    schema_id: int | None = None,
    buckets_of: int | None = None,
) -> CommitReport:
    """Commit under a new user. Each call commits again. The arguments are those of `CommitRequest`.

    The files are deleted on any error, unless the commit may be in the table.
    """
    user = table.handle.new_batch_write_builder().commit_user
    advice = (
        f"Look for a snapshot of the commit user '{user}' before you write again: if there is one, the rows are in the "
        "table"
    )
    request = CommitRequest(
        table,
        user,
        _UNNUMBERED,
        messages,
        overwrite=overwrite,
        schema_id=schema_id,
        buckets_of=buckets_of,
        ordered=False,
        is_first_attempt=True,
    )
    return _commit_new(request, plan_of, "The write", advice)


def commit_planned(
    table: PaimonTable, messages: Sequence[CommitMessage], plan: CommitPlan, what: str, advice: str
) -> CommitReport:
    """Commit messages as a plan says, under a new user. Each call commits again.

    The files are deleted on any error, unless the commit may be in the table.

    Args:
        plan: The changes, which follow from the state that the commit follows.
        what: What the commit does, at the beginning of an error's message.
        advice: What to do if it is not known whether it was committed.

    Raises:
        CommitFailedError: It did not get through, or it is unknown whether it did.
        StoreError: The store failed before anything was published.
    """
    user = table.handle.new_batch_write_builder().commit_user
    request = CommitRequest(table, user, _UNNUMBERED, messages, ordered=False, is_first_attempt=True)
    return _commit_new(request, lambda _: plan, what, advice)


def _commit_new(
    request: CommitRequest, plan_of_request: Callable[[CommitRequest], CommitPlan], what: str, advice: str
) -> CommitReport:
    """Commit what no earlier call can have committed."""
    table, messages = request.table, request.messages
    with discarded_on_error(table, messages):
        directory = table.new_directory()
        known = KnownHistory.up_to(directory.snapshots.get_latest_snapshot())
        commit = SnapshotCommit(directory, request, plan_of_request(request), known)
    outcome = commit_or_clean_up(table, commit, messages, what, advice)
    return CommitReport(outcome.number, Written.of(messages))


def commit_maintenance(table: PaimonTable, plan: CommitPlan, what: str) -> CommitReport:
    """Commit changes that follow from the state of the table, and write no data files. Each call commits again.

    Args:
        plan: The changes, which find nothing to do in a state that has them already.
        what: What the commit does, at the beginning of an error's message.

    Raises:
        CommitFailedError: It did not get through, or it is unknown whether it did.
        StrictModeError: Others have changed the same partition since the last safe snapshot.
        StoreError: The store failed before anything was published.
    """
    directory = table.new_directory()
    latest = directory.snapshots.get_latest_snapshot()
    if latest is None:
        return CommitReport(None, Written.of(()))
    schema_id = int(directory.latest_schema().id)
    is_compaction = plan.kind == COMPACT
    user = new_compaction_user(table.options) if is_compaction else table.handle.new_batch_write_builder().commit_user
    request = CommitRequest(
        table, user, _UNNUMBERED, (), schema_id=schema_id, ordered=False, is_first_attempt=True
    )  # fmt: skip
    commit = SnapshotCommit(directory, request, plan, KnownHistory.up_to(latest))
    outcome = commit_or_clean_up(table, commit, (), what, "Call it again; what is done already is left as it is")
    return CommitReport(outcome.number, Written.of(()))


def new_compaction_user(options: TableOptions) -> str:
    """A commit user that no other compaction has, with the table's `commit.user-prefix`."""
    prefix = option_keys.COMMIT_USER_PREFIX.of(options)
    return f"{prefix + '_' if prefix else ''}compaction-{uuid4()}"


def commit_compaction(
    request: CommitRequest, planned_at: int, *, again: bool = True, strict: bool = False
) -> CommitReport:
    """Commit the compact increments of messages, unless the table has them already.

    It needs no ledger, because the files that it deletes exist only once. Later commits are kept, because only the
    files that it names are touched; if one of those is gone, the whole commit is refused. It is safe to call it again
    with the same messages after `CommitFailedError`.

    Args:
        request: What is committed. The data increments of its messages are ignored. No writer of rows should have its
            user.
        again: Whether an earlier call, in this process or another, may have had the same messages. Then all snapshots
            since `planned_at` are examined, none of which may have expired.
        strict: Whether nobody else may have compacted or overwritten the same partitions since `planned_at`, although
            the files that the messages name are there.

    Raises:
        StrictModeError: Somebody has. The new files are deleted; plan the compaction again.
        CommitConflictError: Another job has rewritten or deleted some of the files. The new ones are deleted; plan the
            compaction again from the latest snapshot.
        CommitFailedError: It did not get through. The new files are deleted unless it may be there.
    """
    plan = FixedChanges(compact_changes(request.table, request.messages), compaction=True)
    return commit_rewritten(request, plan, planned_at, again=again, strict=strict)


def commit_replacement(request: CommitRequest, planned_at: int) -> CommitReport:
    """Commit the data increments of messages that replace files by other files with the same rows (OVERWRITE).

    Each call commits again. It is refused if others have changed the partitions since `planned_at`, except for files in
    the postponed bucket. Raises as `commit_compaction`, which ignores these increments.
    """
    plan = FixedChanges(data_changes(request.table, request.messages))
    request = replace(request, properties={**request.properties, SAME_ROWS: request.user})
    return commit_rewritten(request, plan, planned_at, again=False, strict=True)


def commit_rewritten(
    request: CommitRequest, plan: CommitPlan, planned_at: int, *, again: bool, strict: bool
) -> CommitReport:
    """As `commit_compaction` and `commit_replacement`, with changes that follow from the state."""
    table, messages = request.table, request.messages
    what = f"Compaction {request.identifier} of '{request.user}'"
    with nullcontext() if again else discarded_on_error(table, messages):
        directory = table.new_directory()
        latest = directory.snapshots.get_latest_snapshot()
        if latest is None or latest.id < planned_at:
            if again:
                log_kept(table)
            raise CommitFailedError(
                f"{what} failed: the table was rolled back to before snapshot {planned_at}. It was not committed; its "
                f"files are {'kept' if again else 'deleted'}."
            )
        # As in Java a snapshot names the latest schema, whichever the table was planned with.
        request = replace(request, schema_id=int(directory.latest_schema().id))
        known = KnownHistory(latest, planned_at, None) if again else KnownHistory.up_to(latest)
        # Whether an earlier call may have committed the files follows from `known`, see
        # `SnapshotCommit.uncertain`.
        rule = StrictMode.since(planned_at, table) if strict else None
        commit = SnapshotCommit(directory, replace(request, ordered=False, is_first_attempt=True), plan, known, rule)
    outcome = commit_or_clean_up(table, commit, messages, what, "Commit the messages again")
    return CommitReport(outcome.number, Written.by_compaction(messages), repeated=not outcome.ours)


def _report_empty(request: CommitRequest, ledger: CommitLedger) -> CommitReport:
    request.check_table()
    # Nothing is written for a commit without files, but an earlier call may have committed some.
    status = ledger.status(request.identifier)
    if request.identifier in status.batches:
        return _already_committed(request, status.snapshot)
    return CommitReport(None, Written.of(request.messages))


def _start(request: CommitRequest, ledger: CommitLedger, session: CommitSession) -> CommitStatus | CommitReport:
    """Record that this commit is about to be tried. Returns what the table holds of the user; a report if it holds this
    commit.
    """
    user, identifier = request.user, request.identifier
    for _ in range(_TRIES):
        with suppress(ChangedFileError):
            known = session.begin(ledger, identifier)
            if known is not None:
                return known
            status = ledger.status(identifier, session.new_since)
            if identifier in status.batches:
                return _already_committed(request, status.snapshot)
            if _is_assumed_committed(request, status):
                ledger.assume(identifier, status)
                return CommitReport(None, Written.of(request.messages), repeated=True)
            latest = status.batches.greatest
            if request.ordered and latest is not None and latest > identifier:
                raise BatchOrderError(user, identifier, latest)
            session.note_begun(ledger.begin(identifier, status))
            return status
        session.forget()
    raise StoreError(f"Commit {identifier} of '{user}': other writers of this user keep writing its record; try again")


def _is_assumed_committed(request: CommitRequest, status: CommitStatus) -> bool:
    """Whether an operator says that the commit is in the table, if the table itself cannot show it. Raises
    CommitUnknownError if the operator says nothing about it.
    """
    identifier, assumption = request.identifier, request.assumption
    if status.unknown is None or identifier > status.unknown or assumption.missing == identifier:
        return False
    if assumption.committed == identifier:
        return True
    raise CommitUnknownError(request.user, identifier, status.why)


def _commit(commit: SnapshotCommit, status: CommitStatus, session: CommitSession) -> CommitReport:
    request = commit.request
    # Whatever interrupts the commit, the session must not know more than is true afterwards.
    session.forget()
    outcome = commit_or_clean_up(
        request.table,
        commit,
        request.messages,
        f"Commit {request.identifier} of '{request.user}'",
        "To commit it again under its identifier finds out",
    )
    if outcome.ours:
        latest = _commit_compact_increments(commit, outcome.snapshot or status.latest, session)
        if latest is not None:
            session.note_committed(status, commit, latest, count=1 if latest == outcome.snapshot else 2)
        return CommitReport(outcome.number, Written.of(request.messages))
    # The commit that was found may be that of an earlier call with these very files.
    if commit.uncertain:
        log_kept(request.table)
        return CommitReport(outcome.number, Written.of(request.messages), repeated=True)
    return _already_committed(request, outcome.snapshot)


def _commit_compact_increments(
    first: SnapshotCommit, latest: Snapshot | None, session: CommitSession
) -> Snapshot | None:
    """Returns the latest snapshot afterwards; None: it is not known."""
    table, messages = first.request.table, first.request.messages
    changes = compact_changes(table, messages)
    if changes.empty:
        return latest
    plan, known = FixedChanges(changes, compaction=True), KnownHistory.up_to(latest)
    request = replace(first.request, ordered=False)
    commit = SnapshotCommit(first.directory, request, plan, known, session.strict_mode(table))
    # The files of the first snapshot are live by now. Only those of the compaction may be deleted.
    compacted = [replace(each, new_files=[], changelog_files=[], index_adds=[]) for each in messages]
    try:
        return commit.run().snapshot
    # Without the second snapshot no row is missing, so the commit has succeeded.
    except (PaimonStreamError, GaveUpError) as error:
        text = "the compaction of a commit of %(table)s is left out; its rows are there: %(error)s"
        _LOG.warning("compaction_left_out", text, table=table.name, error=str(error))
        if not commit.uncertain:
            discard(table, compacted)
        return None
    except BaseException:
        if not commit.uncertain:
            discard(table, compacted)
        raise


def _already_committed(request: CommitRequest, snapshot: Snapshot | None) -> CommitReport:
    written = Written.of(request.messages)
    if snapshot is None:
        return CommitReport(None, written, repeated=True)
    # If that commit names other files, no snapshot will ever name those of this call.
    names = {file.file_name for message in request.messages for file in message.new_files}
    if not _files_of(request.table.new_directory(), snapshot) & names:
        discard(request.table, request.messages)
    return CommitReport(snapshot.id, written, repeated=True)


def _files_of(directory: TableDirectory, snapshot: Snapshot) -> set[str]:
    manifests = directory.manifests.manifest_list(snapshot.delta_manifest_list)
    return set(directory.manifests.entries(manifests).column("file_name").to_pylist())
