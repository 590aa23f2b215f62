"""Files of commits that are not there: which may be deleted, and that they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.formats.binary_row_encoding import encoded_row
from pypaimon.streaming.metadata.file_paths import FilePaths, merged_changelog_range
from pypaimon.streaming.metadata.table_directory import TableDirectory


def discard(table: Any, messages: Sequence[Any]) -> None:
    """Delete files that surely no snapshot names and none will, as far as that succeeds.

    What compaction only moved to another level is a file of the table, and stays.

    Args:
        table: pypaimon's table.
        messages: Its commit messages.
    """
    directory = TableDirectory.of(table)
    for path in dict.fromkeys(_paths(table, messages)):
        with suppress(PaimonStreamError, OSError):
            directory.store.delete(path)


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


def _paths(table: Any, messages: Sequence[Any]) -> Iterator[str]:
    paths = FilePaths.of(table.table_path, table.table_schema)
    for message in messages:
        row = encoded_row(message.partition, table.partition_keys_fields)
        (home,) = paths.partitions(pa.array([row], pa.binary()))
        moved = {file.file_name for file in message.compact_before}
        compacted = [file for file in message.compact_after if file.file_name not in moved]
        for file in (*message.new_files, *message.changelog_files, *compacted, *message.compact_changelog_files):
            path = file.physical_path() or str(paths.data_file(home, message.bucket, file.file_name))
            part = merged_changelog_range(path)
            yield path if part is None else part.path
            yield from (f"{path.rpartition('/')[0]}/{name}" for name in file.extra_files or ())
        for entry in (*message.index_adds, *message.compact_index_adds):
            file = entry.index_file
            yield str(paths.index_file(home, entry.bucket, file.file_name, file.external_path))
