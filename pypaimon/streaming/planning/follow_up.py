"""Which snapshots a stream reads after its start (docs/java-semantics.md#follow-ups)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum

from pypaimon.streaming.internals import PaimonFollowUpScanner
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.options.table_traits import ChangelogProducer, TableTraits


class CommitKind(str, Enum):
    """What a commit did, as snapshots record it."""

    APPEND = "APPEND"
    COMPACT = "COMPACT"
    OVERWRITE = "OVERWRITE"
    ANALYZE = "ANALYZE"


class FollowUpScanner(PaimonFollowUpScanner, ABC):
    """Decides which snapshots hold something for a stream.

    Attributes:
        kind: The kind of plan that such a snapshot gives.
    """

    kind: PlanKind

    @abstractmethod
    def should_scan(self, snapshot: Snapshot) -> bool:
        """Whether the snapshot is read; if not, the stream passes over it."""


class DeltaFollowUpScanner(FollowUpScanner):
    """Reads the files that APPEND snapshots added (changelog producer `none`, and append tables)."""

    kind = PlanKind.DELTA

    def should_scan(self, snapshot: Snapshot) -> bool:
        """True for APPEND; COMPACT, OVERWRITE and ANALYZE are passed over."""
        return bool(snapshot.commit_kind == CommitKind.APPEND)


class ChangelogFollowUpScanner(FollowUpScanner):
    """Reads the changelog files of snapshots that have some (`input`, `lookup`, `full-compaction`)."""

    kind = PlanKind.CHANGELOG

    def should_scan(self, snapshot: Snapshot) -> bool:
        """True if the snapshot has a changelog manifest list."""
        return snapshot.changelog_manifest_list is not None


def follow_up_scanner(traits: TableTraits) -> FollowUpScanner:
    """The scanner for a table's changelog producer."""
    if traits.producer is ChangelogProducer.NONE:
        return DeltaFollowUpScanner()
    return ChangelogFollowUpScanner()
