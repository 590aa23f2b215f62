"""`Replaced`: what a compaction made of files of a bucket."""

from __future__ import annotations

from dataclasses import dataclass, field

from pypaimon.streaming.compaction.live_files import LiveBucket, LiveFile
from pypaimon.streaming.internals import DataFileMeta
from pypaimon.streaming.write_internals import CommitMessage, IndexManifestEntry


@dataclass(slots=True)
class Replaced:
    """What a compaction made of files of a bucket.

    Attributes:
        before: The files that go.
        after: Those that come, files that were moved among them.
        changelog: New changelog files.
        index_added: New index files.
        index_deleted: Index files that go.
    """

    before: list[LiveFile] = field(default_factory=list)
    after: list[DataFileMeta] = field(default_factory=list)
    changelog: list[DataFileMeta] = field(default_factory=list)
    index_added: list[IndexManifestEntry] = field(default_factory=list)
    index_deleted: list[IndexManifestEntry] = field(default_factory=list)

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
