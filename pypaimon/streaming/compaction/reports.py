"""`CompactionReport`: what a compaction has done, or would do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pypaimon.streaming.paimon.internals import DataFileMeta


@dataclass(frozen=True, slots=True)
class FileCount:
    """Totals of some data files.

    Attributes:
        files: Number of files.
        bytes: Their bytes.
        rows: Records, including superseded ones and deletes. With data evolution a row counts in each file that has
            columns of it.
    """

    files: int = 0
    bytes: int = 0
    rows: int = 0

    def __add__(self, other: FileCount) -> FileCount:
        return FileCount(self.files + other.files, self.bytes + other.bytes, self.rows + other.rows)


def counted(files: Iterable[DataFileMeta]) -> FileCount:
    return sum((FileCount(1, int(file.file_size), int(file.row_count)) for file in files), FileCount())


@dataclass(frozen=True, slots=True)
class CompactedBucket:
    """The compaction of one bucket, or of some of its files.

    Attributes:
        partition: Values by partition column.
        bucket: Number of the bucket.
        before: The files that were compacted.
        after: The files that replace them; empty if it was not executed.
    """

    partition: Mapping[str, Any]
    bucket: int
    before: FileCount
    after: FileCount = field(default_factory=FileCount)


@dataclass(frozen=True, slots=True)
class SkippedPartition:
    """A partition that is left as it is, although the rest of its table is compacted.

    Attributes:
        partition: Values by partition column.
        reason: Why, and what to do.
    """

    partition: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What a compaction has done; returned by `compact`.

    Attributes:
        snapshot_id: Id of the snapshot that was compacted; None: the table has no snapshot.
        new_snapshot_ids: Ids of the snapshots that it made.
        compacted: What was compacted, or would be in a dry run.
        conflicts: Files that another job has changed meanwhile. They were left as they are, for the next compaction.
        skipped: Partitions that cannot be compacted.
    """

    snapshot_id: int | None
    new_snapshot_ids: tuple[int, ...] = ()
    compacted: tuple[CompactedBucket, ...] = ()
    conflicts: tuple[CompactedBucket, ...] = ()
    skipped: tuple[SkippedPartition, ...] = ()

    @property
    def latest_id(self) -> int | None:
        """The latest snapshot that it knows; None: the table has no snapshot."""
        return max(self.new_snapshot_ids, default=self.snapshot_id)

    @property
    def before(self) -> FileCount:
        """All files that were compacted."""
        return sum((each.before for each in self.compacted), FileCount())

    @property
    def after(self) -> FileCount:
        """All files that replace them."""
        return sum((each.after for each in self.compacted), FileCount())
