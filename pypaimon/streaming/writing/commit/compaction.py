"""`commit_compaction`: files in the place of others with the same rows, as a snapshot of kind COMPACT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pypaimon.streaming.errors import CommitFailedError
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.writing.commit.commit_plan import AsGiven
from pypaimon.streaming.writing.commit.commit_run import log_kept, run_commit
from pypaimon.streaming.writing.commit.discarding import discard
from pypaimon.streaming.writing.commit.file_changes import compact_changes
from pypaimon.streaming.writing.commit.new_snapshot import CommitFacts
from pypaimon.streaming.writing.commit.reports import CommitReport, Written
from pypaimon.streaming.writing.commit.snapshot_commit import SnapshotCommit


def commit_compaction(
    table: Any,
    user: str,
    identifier: int,
    messages: Sequence[Any],
    *,
    planned_at: int,
    again: bool = True,
    schema_id: int | None = None,
    watermark: int | None = None,
    properties: Mapping[str, str] | None = None,
) -> CommitReport:
    """Commit the compact increments of messages, unless the table has them already.

    It needs no ledger: the files that it deletes are there once. What was committed after it was planned stays, for
    only the files that it names are touched; if one of them is gone, the whole is refused. To call it again with the
    same messages after `CommitFailedError` is safe.

    Args:
        table: pypaimon's table, under the schema that the files were written with.
        user: Commit user; no writer of rows should have the same one.
        identifier: Commit identifier: of the user's commits each has another one.
        messages: pypaimon's commit messages. Their data increments are not looked at.
        planned_at: Id of the snapshot that was compacted.
        again: Whether an earlier call, of this process or another, may have had the same messages. Then it looks at all
            snapshots since `planned_at`, none of which may have expired.
        schema_id: The table's latest schema, which its snapshots name; None: that of `table`.
        watermark: As for `commit_once`.
        properties: As for `commit_once`.

    Raises:
        CommitConflictError: Another job has rewritten or deleted some of the files. The new ones are deleted; plan the
            compaction anew from the latest snapshot.
        CommitFailedError: It did not get through; where it surely is not there, the new files are deleted.
    """
    directory = TableDirectory.of(table)
    latest = directory.snapshots.get_latest_snapshot()
    facts = CommitFacts(
        user, identifier, table.table_schema.id if schema_id is None else schema_id, watermark, properties or {}
    )
    plan = AsGiven(compact_changes(table, messages), compaction=True)
    if latest is None or latest.id < planned_at:
        if again:
            log_kept(table)
        else:
            discard(table, messages)
        raise CommitFailedError(
            f"Compaction {identifier} of '{user}' failed: the table was rolled back behind snapshot {planned_at}. It "
            f"was not committed; its files are {'kept' if again else 'deleted'}."
        )
    examined, mark = (planned_at, None) if again else (latest.id, latest.fingerprint)
    commit = SnapshotCommit(table, directory, plan, facts, latest, examined=examined, mark=mark, ordered=False)
    outcome = run_commit(table, commit, messages, f"Compaction {identifier} of '{user}'", "Commit the messages again")
    return CommitReport(outcome.number, Written.by_compaction(messages), repeated=not outcome.ours)
