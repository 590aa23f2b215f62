"""What happens to the files of a commit that fails: deleted if no snapshot can name them, otherwise kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from pypaimon.streaming.commit.snapshot_commit import NoConditionalCommitError, Outcome, SnapshotCommit
from pypaimon.streaming.errors import (
    BatchOrderError,
    CommitConflictError,
    CommitFailedError,
    PaimonStreamError,
    StreamConfigError,
    StrictModeError,
    UnsafeCommitError,
)
from pypaimon.streaming.formats.binary_row_encoding import encoded_row
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.file_paths import merged_changelog_range
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.paimon.write_internals import CommitMessage

_LOG = StreamLog(__name__)


def commit_or_clean_up(
    table: PaimonTable, commit: SnapshotCommit, messages: Sequence[CommitMessage], what: str, advice: str
) -> Outcome:
    """Commit. On failure, delete the files unless a snapshot may name them. Raises CommitFailedError if it failed for
    another reason. The message says what happened to the files.
    """
    try:
        return commit.run()
    except BaseException as error:
        result = _clean_up(table, commit, messages, advice)
        known = (CommitConflictError, StrictModeError, StreamConfigError, BatchOrderError)
        # These say by themselves that nothing was committed, and an interruption must stay one.
        if isinstance(error, known) or not isinstance(error, Exception):
            raise
        kind = UnsafeCommitError if isinstance(error, NoConditionalCommitError) else CommitFailedError
        raise kind(f"{what} failed: {_why(error)}. {result}") from error


@contextmanager
def discarded_on_error(table: PaimonTable, messages: Sequence[CommitMessage]) -> Iterator[None]:
    """A context for what precedes the first attempt of a commit: if it fails, the files are deleted.

    Not for messages that an earlier attempt may have committed.
    """
    try:
        yield
    except BaseException:
        # The caller must see this error, not one of the cleanup.
        with suppress(Exception):
            discard(table, messages)
        raise


def log_kept(table: PaimonTable) -> None:
    """Log that files are kept although they may be orphans."""
    text = "files of a commit of %(table)s whose outcome is not known are kept, because a snapshot may name them"
    _LOG.warning("sink_files_kept", text, table=table.name)


def discard(table: PaimonTable, messages: Sequence[CommitMessage], kept: Sequence[CommitMessage] = ()) -> None:
    """Delete files that no snapshot names or will name. Failures are ignored: what is left is an orphan.

    A file that compaction only moved to another level, or gave other indexes, belongs to the table and stays. So does
    one that `kept` messages name too: parts of a merged changelog file have one path.
    """
    directory = table.new_directory()
    stay = set(_paths(table, kept))
    for path in dict.fromkeys(_paths(table, messages)):
        if path in stay:
            continue
        with suppress(PaimonStreamError, OSError):
            directory.store.delete(path)


def discard_unfinished(table: PaimonTable, tasks: Sequence[Any | None], messages: Sequence[CommitMessage]) -> bool:
    """Delete the files of finished tasks if some task did not finish, because then no commit was tried.

    If all have finished, a commit may have been tried, and may have succeeded whatever it raised. The files stay.
    Returns whether they were deleted.
    """
    if all(task is not None for task in tasks):
        return False
    discard(table, messages)
    return True


def _clean_up(table: PaimonTable, commit: SnapshotCommit, messages: Sequence[CommitMessage], advice: str) -> str:
    """Delete the files unless the commit may be in the table. Returns what was done, in words."""
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


def _paths(table: PaimonTable, messages: Sequence[CommitMessage]) -> Iterator[str]:
    paths = table.paths
    for message in messages:
        row = encoded_row(message.partition, table.partition_fields)
        (home,) = paths.partitions(pa.array([row], pa.binary()))
        there = {file.file_name for file in message.compact_before}
        there |= {name for file in message.compact_before for name in file.extra_files or ()}
        made = *message.new_files, *message.changelog_files, *message.compact_changelog_files
        for file, stay in (*((each, ()) for each in made), *((each, there) for each in message.compact_after)):
            path = file.physical_path() or str(paths.data_file(home, message.bucket, file.file_name))
            part = merged_changelog_range(path)
            if file.file_name not in stay:
                yield path if part is None else part.path
            extra = (name for name in file.extra_files or () if name not in stay)
            yield from (f"{path.rpartition('/')[0]}/{name}" for name in extra)
        for entry in (*message.index_adds, *message.compact_index_adds):
            index = entry.index_file
            yield str(paths.index_file(home, entry.bucket, index.file_name, index.external_path))
