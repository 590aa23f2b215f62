"""`CompactionReport`: what a compaction has done, or would do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pypaimon.streaming.internals import DataFileMeta


@dataclass(frozen=True, slots=True)
class FileCount:
    """Some data files.

    Attributes:
        files: How many.
        size: Their bytes.
        rows: Their records, superseded ones and deletes among them.
    """

    files: int = 0
    size: int = 0
    rows: int = 0

    def __add__(self, other: FileCount) -> FileCount:
        return FileCount(self.files + other.files, self.size + other.size, self.rows + other.rows)


def counted(files: Iterable[DataFileMeta]) -> FileCount:
    """Data files, by their entries in manifests."""
    return sum((FileCount(1, int(file.file_size), int(file.row_count)) for file in files), FileCount())


@dataclass(frozen=True, slots=True)
class CompactedBucket:
    """What became of one bucket, or of some of its files.

    Attributes:
        partition: Values by partition column.
        bucket: Its number.
        before: The files that were taken.
        after: Those in their place; nothing where it was not carried out.
    """

    partition: Mapping[str, Any]
    bucket: int
    before: FileCount
    after: FileCount = field(default_factory=FileCount)


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What a compaction has done.

    Attributes:
        planned_at: Id of the snapshot that was looked at; None: the table has none.
        snapshots: Ids of the snapshots that it made.
        compacted: What was compacted; of a dry run: what would be.
        conflicts: What another job had changed meanwhile: nothing became of it, the next compaction finds what is left.
    """

    planned_at: int | None
    snapshots: tuple[int, ...] = ()
    compacted: tuple[CompactedBucket, ...] = ()
    conflicts: tuple[CompactedBucket, ...] = ()

    @property
    def before(self) -> FileCount:
        """All files that were taken."""
        return sum((each.before for each in self.compacted), FileCount())

    @property
    def after(self) -> FileCount:
        """All files in their place."""
        return sum((each.after for each in self.compacted), FileCount())
