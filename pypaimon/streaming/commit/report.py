"""What a commit reports to its caller, and what the caller may assume about an earlier one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.files.blob_files import is_blob_file
from pypaimon.streaming.files.row_id_groups import is_vector_file


@dataclass(frozen=True, slots=True)
class Written:
    """What was written for a commit.

    Attributes:
        rows: Rows in data files.
        files: Data files, including those of blobs and vectors.
        bytes: Bytes of these files.
    """

    rows: int
    files: int
    bytes: int

    @staticmethod
    def of(messages: Iterable[Any]) -> Written:
        """Totals of the data increments of pypaimon's commit messages."""
        return _sums([file for message in messages for file in message.new_files])

    @staticmethod
    def by_compaction(messages: Iterable[Any]) -> Written:
        """Totals of their compact increments."""
        return _sums([file for message in messages for file in message.compact_after])


@dataclass(frozen=True, slots=True)
class CommitReport:
    """The result of a commit.

    Attributes:
        snapshot_id: Id of its snapshot; None if there was nothing to commit, or the snapshot has expired.
        written: What was written for it, this time.
        repeated: It was in the table already, and nothing was added.
    """

    snapshot_id: int | None
    written: Written
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Assumption:
    """What an operator has found out about a commit, for the case that the table cannot show it.

    Attributes:
        committed: Identifier of a commit that is in the table, or None.
        missing: Identifier of a commit that is not, or None.
    """

    committed: int | None = None
    missing: int | None = None


def _sums(files: list[Any]) -> Written:
    rows = sum(file.row_count for file in files if not (is_blob_file(file) or is_vector_file(file)))
    return Written(rows, len(files), sum(file.file_size for file in files))
