"""`commit_parts`: commits a compaction whose parts may be committed without each other.

Parts that conflict with what others have committed meanwhile are left out, so that the work of the others is not lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from pypaimon.streaming.commit.changes import compact_changes
from pypaimon.streaming.commit.cleanup import discard, log_kept
from pypaimon.streaming.commit.idempotent_commit import commit_rewritten
from pypaimon.streaming.commit.request import CommitReport, CommitRequest, SeparableChanges
from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.paimon.write_internals import CommitMessage

Part = Sequence[CommitMessage]
"""Messages that are committed together or not at all."""


def commit_parts(request: CommitRequest, parts: Sequence[Part], planned_at: int) -> tuple[CommitReport, set[int]]:
    """Commit the compact increments of parts, as `commit_compaction` does. Returns the numbers of the parts that were
    left out, too; their new files are deleted.

    Args:
        request: With the messages of all parts.

    Raises:
        CommitConflictError: All parts conflict.
    """
    plan = SeparableChanges([compact_changes(request.table, part) for part in parts])
    report = commit_rewritten(request, plan, planned_at, again=False, strict=False)
    if plan.left_out is None or report.snapshot_id is None:
        return report, set()
    # Which attempt got through decides what was left out, and its snapshot shows that.
    try:
        committed = _committed(request.table, report.snapshot_id)
    except (PaimonStreamError, OSError):
        # It has expired already, or cannot be read now. That was most probably the last attempt, but a file is only
        # deleted if that is certain.
        log_kept(request.table)
        return report, plan.left_out
    left = {number for number, part in enumerate(parts) if not committed & _names(part)}
    kept = [message for number, part in enumerate(parts) if number not in left for message in part]
    discard(request.table, [message for number in left for message in parts[number]], kept)
    return report, left


def _committed(table: PaimonTable, snapshot_id: int) -> set[str]:
    """The names of the files that a snapshot adds or deletes."""
    directory = table.new_directory()
    snapshot = directory.snapshots.get(snapshot_id)
    manifests = directory.manifests.manifest_list(snapshot.delta_manifest_list)
    return set(directory.manifests.entries(manifests)["file_name"].to_pylist())


def _names(part: Part) -> set[str]:
    return {str(file.file_name) for each in part for file in (*each.compact_before, *each.compact_after)}
