"""`commit_once`: the messages of all writers into one snapshot, exactly once per commit user and identifier."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

from pypaimon.streaming.errors import BatchOrderError, CommitUnknownError, PaimonStreamError, StoreError
from pypaimon.streaming.filtering.partition_spec import PartitionSpec
from pypaimon.streaming.io.conditional_writes import ChangedFileError
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.writing.commit.commit_ledger import CommitLedger, CommitStatus
from pypaimon.streaming.writing.commit.commit_plan import AsGiven, InPlaceOf, Plan
from pypaimon.streaming.writing.commit.commit_run import log_kept, run_commit
from pypaimon.streaming.writing.commit.commit_session import CommitSession
from pypaimon.streaming.writing.commit.conflicts import KeyIndexes
from pypaimon.streaming.writing.commit.discarding import discard
from pypaimon.streaming.writing.commit.file_changes import compact_changes, data_changes
from pypaimon.streaming.writing.commit.new_snapshot import CommitFacts
from pypaimon.streaming.writing.commit.reports import Assumption, CommitReport, Written
from pypaimon.streaming.writing.commit.snapshot_commit import GaveUpError, SnapshotCommit
from pypaimon.streaming.writing.commit.strict_mode import StrictMode

_LOG = StreamLog(__name__)
Overwrite: TypeAlias = bool | PartitionSpec
_TRIES = 8
# What Paimon takes for the identifier of a commit that has none.
_UNNUMBERED = 2**63 - 1


def commit_once(
    table: Any,
    user: str,
    identifier: int,
    messages: Sequence[Any],
    *,
    overwrite: Overwrite,
    assumption: Assumption,
    ordered: bool = True,
    origin: str | None = None,
    schema_id: int | None = None,
    properties: Mapping[str, str] | None = None,
    keep_empty: bool = False,
    watermark: int | None = None,
    session: CommitSession | None = None,
    fresh: bool = False,
    key_indexes: KeyIndexes | None = None,
    buckets_of: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> CommitReport:
    """Commit, unless the table has the identifier already.

    Args:
        table: pypaimon's table, under the schema that the messages were written with.
        user: Commit user.
        identifier: Commit identifier.
        messages: pypaimon's commit messages of all that was written. Compact increments make a second snapshot.
        overwrite: Whether they replace what is there: whole partitions with `dynamic-partition-overwrite`, else
            everything. A spec: the partitions that have its values, and no others are written.
        assumption: Beats what would be `CommitUnknownError`.
        ordered: Whether identifiers grow, as those of a stream do. Otherwise any that is not in the table is committed,
            whatever was committed before.
        origin: What counts the identifiers, where that is known, as a streaming query that has an id.
        schema_id: The table's latest schema, which its snapshots name; None: that of `table`.
        properties: What its snapshot says beside, under `properties`.
        keep_empty: Whether a commit without files leaves a snapshot, as progress needs it.
        watermark: Event time up to which rows are complete, epoch milliseconds. That of the table never falls.
        session: What the caller knows from its last commit of this user, which makes this one cheaper; None: nothing.
        fresh: Whether no commit of these messages was ever tried, so that their files are deleted where this one is not
            tried either. Otherwise they stay then, for a snapshot may name them.
        key_indexes: The index files that decided the buckets of the rows; nothing is committed where others are there.
        buckets_of: Snapshot by which rows were divided into a fixed number of buckets, 0 for none; nothing is committed
            where a partition has another number since. None: it is not known, so all files are looked at.
        check: Raises where this is not the table that it was. Not called where the snapshot of the session's last
            commit tells that.

    Raises:
        CommitUnknownError: It cannot be known whether it was committed before.
        BatchOrderError: A later commit of the user is in the table, and this one is not.
        QueryReusedError: The commits before it came from another origin.
        CommitFailedError: It did not get through; where it surely is not there, its files are deleted.
        CommitConflictError: Files that it deletes are not there any more, or a partition has another number of buckets;
            its files are deleted.
        StrictModeError: Others have changed the same partition since the last safe snapshot; its files are deleted.
        KeyIndexConflictError: There are other index files by now; its files are deleted.
        StoreError: The store failed before anything was published.
    """
    session = CommitSession() if session is None else session
    directory = TableDirectory.of(table)
    ledger = CommitLedger(directory, user, origin)
    facts = CommitFacts(
        user, identifier, table.table_schema.id if schema_id is None else schema_id, watermark, properties or {}
    )
    plan = _plan(table, messages, overwrite, keep_empty, key_indexes, buckets_of)
    if not plan.always and all(message.is_empty() for message in messages):
        check()
        status = ledger.status(identifier)
        found = identifier in status.batches
        return _repeated(table, status.snapshot, messages) if found else CommitReport(None, Written.of(messages))
    begun: CommitStatus | CommitReport | None
    try:
        begun = session.covered(identifier)
        anchored = begun is not None
        if begun is None:
            check()
            begun = _begun(table, ledger, identifier, messages, assumption, ordered, session)
    except Exception:
        if fresh:
            discard(table, messages)
        raise
    if isinstance(begun, CommitReport):
        return begun
    return _commit(table, directory, facts, plan, begun, ordered, messages, session, anchored)


def _begun(
    table: Any, ledger: CommitLedger, identifier: int, messages: Sequence[Any], assumption: Assumption, ordered: bool,
    session: CommitSession,
) -> CommitStatus | CommitReport:  # fmt: skip
    """What the table holds of the user, once it is recorded that this commit is tried; or a report: it has it."""
    user = ledger.user
    for _ in range(_TRIES):
        with suppress(ChangedFileError):
            known = session.begin(ledger, identifier)
            if known is not None:
                return known
            status = ledger.status(identifier)
            if identifier in status.batches:
                return _repeated(table, status.snapshot, messages)
            if _is_assumed(user, identifier, status, assumption):
                ledger.assume(identifier, status)
                return CommitReport(None, Written.of(messages), repeated=True)
            _check_order(user, identifier, status, ordered)
            session.note_begun(ledger.begin(identifier, status))
            return status
        session.forget()
    raise StoreError(f"Commit {identifier} of '{user}': other writers of this user keep writing its record; try again")


def _is_assumed(user: str, batch: int, status: CommitStatus, assumption: Assumption) -> bool:
    """Whether a human says that it is in the table, where the table cannot tell."""
    if status.unknown is None or batch > status.unknown or assumption.missing == batch:
        return False
    if assumption.committed == batch:
        return True
    raise CommitUnknownError(user, batch, status.why)


def _commit(
    table: Any, directory: TableDirectory, facts: CommitFacts, plan: Plan, status: CommitStatus, ordered: bool,
    messages: Sequence[Any], session: CommitSession, anchored: bool,
) -> CommitReport:  # fmt: skip
    commit = SnapshotCommit(
        table, directory, plan, facts, status.latest,
        examined=status.examined, mark=status.mark, ordered=ordered, stale=not session.alone, own=session.own,
        anchored=anchored, strict=session.strict(table),
    )  # fmt: skip
    session.forget()
    what = f"Commit {facts.identifier} of '{facts.user}'"
    outcome = run_commit(table, commit, messages, what, "To commit it again under its identifier finds out")
    if outcome.ours:
        latest = _compact(table, directory, facts, outcome.snapshot or status.latest, messages, session)
        if latest is not None:
            count = 1 if latest == outcome.snapshot else 2
            session.note_committed(
                status, facts.identifier, latest, count, looks_back=commit.looks_back, arbitrates=commit.arbitrates
            )
        return CommitReport(outcome.number, Written.of(messages))
    if commit.uncertain:
        log_kept(table)
        return CommitReport(outcome.number, Written.of(messages), repeated=True)
    return _repeated(table, outcome.snapshot, messages)


def _compact(
    table: Any, directory: TableDirectory, facts: CommitFacts, latest: Snapshot | None, messages: Sequence[Any],
    session: CommitSession,
) -> Snapshot | None:  # fmt: skip
    """The second snapshot of a commit whose writers have compacted too. Without it no row is missing.

    Returns:
        The latest snapshot then.
    """
    changes = compact_changes(table, messages)
    if changes.empty:
        return latest
    plan = AsGiven(changes, compaction=True)
    commit = _after(table, directory, plan, facts, latest, session.strict(table))
    try:
        return commit.run().snapshot
    except (PaimonStreamError, GaveUpError) as error:
        text = "the compaction of a commit of %(table)s is left out; its rows are there: %(error)s"
        _LOG.warning("compaction_left_out", text, table=table.identifier.get_full_name(), error=str(error))
        if not commit.uncertain:
            discard(table, [replace(each, new_files=[], changelog_files=[], index_adds=[]) for each in messages])
        return None


def commit_batch(
    table: Any,
    messages: Sequence[Any],
    *,
    overwrite: Overwrite,
    schema_id: int | None = None,
    buckets_of: int | None = None,
) -> CommitReport:
    """Commit under a user of its own: as often as it is called. Arguments as those of `commit_once`.

    Raises:
        CommitFailedError: It did not get through.
        CommitConflictError: Files that it deletes are not there any more, or a partition has another number of buckets;
            its files are deleted.
        StrictModeError: Others have changed the same partition since the last safe snapshot; its files are deleted.
    """
    user = table.new_batch_write_builder().commit_user
    look = (
        f"Look for a snapshot of the commit user '{user}' before you write again: if there is one, the rows are in the "
        "table"
    )
    directory = TableDirectory.of(table)
    latest = directory.snapshots.get_latest_snapshot()
    facts = CommitFacts(user, _UNNUMBERED, table.table_schema.id if schema_id is None else schema_id)
    plan = _plan(table, messages, overwrite, keep_empty=False, buckets_of=buckets_of)
    outcome = run_commit(table, _after(table, directory, plan, facts, latest), messages, "The write", look)
    return CommitReport(outcome.number, Written.of(messages))


def _after(
    table: Any, directory: TableDirectory, plan: Plan, facts: CommitFacts, latest: Snapshot | None,
    strict: StrictMode | None = None,
) -> SnapshotCommit:  # fmt: skip
    """A commit that nobody has begun before this snapshot was seen."""
    examined, mark = (0, None) if latest is None else (latest.id, latest.fingerprint)
    return SnapshotCommit(
        table, directory, plan, facts, latest, examined=examined, mark=mark, ordered=False, strict=strict
    )


def _plan(
    table: Any,
    messages: Sequence[Any],
    overwrite: Overwrite,
    keep_empty: bool,
    key_indexes: KeyIndexes | None = None,
    buckets_of: int | None = None,
) -> Plan:
    changes = data_changes(table, messages)
    if overwrite is False:
        return AsGiven(changes, always=keep_empty, key_indexes=key_indexes or {}, buckets_of=buckets_of)
    if overwrite is not True:
        return InPlaceOf(changes, overwrite)
    by_partition = table.partition_keys and table.options.dynamic_partition_overwrite()
    return InPlaceOf(changes, "written" if by_partition else "all")


def _check_order(user: str, batch: int, status: CommitStatus, ordered: bool) -> None:
    latest = status.batches.greatest
    if ordered and latest is not None and latest > batch:
        raise BatchOrderError(user, batch, latest)


def _repeated(table: Any, snapshot: Snapshot | None, messages: Sequence[Any]) -> CommitReport:
    """It is in the table; what was written for it again is deleted if its commit surely names other files."""
    written = Written.of(messages)
    if snapshot is None:
        return CommitReport(None, written, repeated=True)
    names = {file.file_name for message in messages for file in message.new_files}
    if not _files_of(TableDirectory.of(table), snapshot) & names:
        discard(table, messages)
    return CommitReport(snapshot.id, written, repeated=True)


def _files_of(directory: TableDirectory, snapshot: Snapshot) -> set[str]:
    manifests = directory.manifests.manifest_list(snapshot.delta_manifest_list)
    return set(directory.manifests.entries(manifests).column("file_name").to_pylist())
