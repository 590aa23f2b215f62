"""`run_commit`: one snapshot, and what becomes of the files where it fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pypaimon.streaming.errors import (
    BatchOrderError,
    CommitConflictError,
    CommitFailedError,
    StreamConfigError,
    StrictModeError,
    UnsafeCommitError,
)
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.writing.commit.discarding import discard
from pypaimon.streaming.writing.commit.snapshot_commit import NoConditionalCommitError, Outcome, SnapshotCommit

_LOG = StreamLog(__name__)


def run_commit(table: Any, commit: SnapshotCommit, messages: Sequence[Any], what: str, advice: str) -> Outcome:
    """Commit; where that fails, delete the files that surely no snapshot names.

    Args:
        table: pypaimon's table.
        commit: The commit.
        messages: Whose files they are.
        what: The commit in words.
        advice: How to find out whether it is there, where that is not known.

    Raises:
        CommitConflictError: It may not follow the latest state.
        StrictModeError: Others have changed the same partition since the last safe snapshot.
        StreamConfigError: It overwrites other partitions than it writes.
        BatchOrderError: A later commit of the user is there.
        UnsafeCommitError: Another program commits at the same time, and nobody arbitrates.
        CommitFailedError: It failed otherwise; the message says what became of the files.
    """
    try:
        return commit.run()
    except (CommitConflictError, StrictModeError, StreamConfigError, BatchOrderError):
        _left(table, commit, messages, advice)
        raise
    except Exception as error:
        kind = UnsafeCommitError if isinstance(error, NoConditionalCommitError) else CommitFailedError
        raise kind(f"{what} failed: {_why(error)}. {_left(table, commit, messages, advice)}") from error


def log_kept(table: Any) -> None:
    """Say that files stay, though they may be orphans."""
    text = "files of a commit of %(table)s whose outcome is not known are kept, for a snapshot may name them"
    _LOG.warning("sink_files_kept", text, table=table.identifier.get_full_name())


def _left(table: Any, commit: SnapshotCommit, messages: Sequence[Any], advice: str) -> str:
    """Delete the files of a commit that surely is not there; says what became of it."""
    if commit.uncertain:
        log_kept(table)
        return f"It may have been committed all the same; its files are kept. {advice}."
    discard(table, messages)
    return "It was not committed, and its files are deleted."


def _why(error: BaseException) -> str:
    reasons: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(reasons) < 3:
        reasons.append(str(cause))
        cause = cause.__cause__
    return "; because: ".join(reasons)
