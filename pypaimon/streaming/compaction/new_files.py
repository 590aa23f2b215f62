"""What a compaction writes: `CompactedFiles`, the new files of a bucket; `CompactionResult`, what they replace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from pypaimon.streaming.compaction.live_files import LiveBucket, LiveFile
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.paimon.internals import DataFileMeta
from pypaimon.streaming.paimon.write_internals import CommitMessage, IndexManifestEntry
from pypaimon.streaming.writing.files.file_options import BucketFiles, FileKind, FileOptions
from pypaimon.streaming.writing.files.record_facts import RecordFacts
from pypaimon.streaming.writing.files.rolling_files import MOST_PIECE_BYTES, RollingFiles

if TYPE_CHECKING:
    from pyroaring import BitMap


class CompactedFiles:
    """New files of one bucket, written in pieces as large as a row group. Owns them until `take`."""

    def __init__(
        self,
        table: PaimonTable,
        options: FileOptions,
        kind: FileKind,
        bucket: LiveBucket,
        facts: Callable[[], RecordFacts],
    ) -> None:
        files = BucketFiles(table, options, bucket.partition, bucket.bucket)
        self._rolling = RollingFiles(files, kind, facts)
        self._piece = min(MOST_PIECE_BYTES, options.target_bytes)
        self._pending: list[pa.Table] = []
        self._bytes = 0

    def write(self, rows: pa.Table) -> None:
        """Add rows. Raises BadRowError if a value cannot be in its column."""
        self._pending.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= self._piece:
            self._flush()

    def take(self) -> list[DataFileMeta]:
        """Finish the files. Returns their metadata; they belong to the caller from now on."""
        self._flush()
        return self._rolling.take()

    def abort(self) -> None:
        self._rolling.abort()

    def _flush(self) -> None:
        if self._pending:
            self._rolling.write(pa.concat_tables(self._pending))
        self._pending, self._bytes = [], 0


@dataclass(slots=True)
class CompactionResult:
    """The result of one task."""

    before: list[LiveFile] = field(default_factory=list)
    after: list[DataFileMeta] = field(default_factory=list)
    changelog: list[DataFileMeta] = field(default_factory=list)
    # Positions of replaced records in files that stay, by name of the file
    superseded: dict[str, BitMap] = field(default_factory=dict)
    index_added: list[IndexManifestEntry] = field(default_factory=list)
    index_deleted: list[IndexManifestEntry] = field(default_factory=list)

    @property
    def rewritten(self) -> set[str]:
        """Names of the files that are removed from every level."""
        return {file.name for file in self.before} - {str(file.file_name) for file in self.after}

    def message(self, bucket: LiveBucket) -> CommitMessage:
        return CommitMessage(
            bucket.partition,
            bucket.bucket,
            [],
            total_buckets=bucket.total_buckets,
            compact_before=[file.replaced() for file in self.before],
            compact_after=self.after,
            compact_changelog_files=self.changelog,
            compact_index_adds=self.index_added,
            compact_index_deletes=self.index_deleted,
        )
