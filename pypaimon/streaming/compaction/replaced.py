"""`Replaced`: what a compaction made of files of a bucket."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pypaimon.streaming.compaction.live_files import LiveBucket, LiveFile
from pypaimon.streaming.internals import DataFileMeta
from pypaimon.streaming.write_internals import CommitMessage, IndexManifestEntry

if TYPE_CHECKING:
    from pyroaring import BitMap


@dataclass(slots=True)
class Replaced:
    """What a compaction made of files of a bucket.

    Attributes:
        before: The files that go.
        after: Those that come, files that were moved among them.
        changelog: New changelog files.
        superseded: Places of records that new ones are in the place of, by name of the file, which stays.
        index_added: New index files.
        index_deleted: Index files that go.
    """

    before: list[LiveFile] = field(default_factory=list)
    after: list[DataFileMeta] = field(default_factory=list)
    changelog: list[DataFileMeta] = field(default_factory=list)
    superseded: dict[str, BitMap] = field(default_factory=dict)
    index_added: list[IndexManifestEntry] = field(default_factory=list)
    index_deleted: list[IndexManifestEntry] = field(default_factory=list)

    @property
    def rewritten(self) -> set[str]:
        """Names of the files that are no longer there, on no level."""
        return {file.name for file in self.before} - {str(file.file_name) for file in self.after}

    def message(self, bucket: LiveBucket) -> CommitMessage:
        """What is to be committed of it."""
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
