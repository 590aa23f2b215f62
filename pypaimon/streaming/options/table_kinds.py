"""The words that options of a table may have, with what follows from each."""

from __future__ import annotations

from enum import Enum

_HILBERT_COLUMNS = 5


class ChangelogProducer(str, Enum):
    """Who writes changelog files, option `changelog-producer`."""

    NONE = "none"
    INPUT = "input"
    LOOKUP = "lookup"
    FULL_COMPACTION = "full-compaction"

    @property
    def complete(self) -> bool:
        """Whether every change has a record of the row before (-U, -D)."""
        return self in (ChangelogProducer.LOOKUP, ChangelogProducer.FULL_COMPACTION)


class SortStrategy(str, Enum):
    """How files are sorted by several columns, option `clustering.strategy`."""

    AUTO = "auto"
    ORDER = "order"
    ZORDER = "zorder"
    HILBERT = "hilbert"

    def chosen(self, columns: int) -> SortStrategy:
        """The strategy for a number of columns. One column has only one order."""
        if columns == 1:
            return SortStrategy.ORDER
        if self is not SortStrategy.AUTO:
            return self
        return SortStrategy.ZORDER if columns < _HILBERT_COLUMNS else SortStrategy.HILBERT


class MergeEngineKind(str, Enum):
    """How records with one key are merged, option `merge-engine`, and what follows for streams and writers."""

    DEDUPLICATE = "deduplicate"
    PARTIAL_UPDATE = "partial-update"
    AGGREGATE = "aggregation"
    FIRST_ROW = "first-row"

    @property
    def keeps_newest(self) -> bool:
        """Whether a key's newest record is its row, so that one record is a complete change."""
        return self is MergeEngineKind.DEDUPLICATE

    @property
    def keeps_oldest(self) -> bool:
        """Whether a key's first record stays its row, so that a row is never changed or deleted."""
        return self is MergeEngineKind.FIRST_ROW

    @property
    def combines(self) -> bool:
        """Whether a row may hold values of several records."""
        return self in (MergeEngineKind.PARTIAL_UPDATE, MergeEngineKind.AGGREGATE)


class BucketFunctionType(str, Enum):
    """How the bucket key of a row becomes its bucket, option `bucket-function.type`."""

    DEFAULT = "default"
    MOD = "mod"
    HIVE = "hive"


class BetweenMode(str, Enum):
    """How a range is read."""

    AUTO = "auto"
    """The changelog if the table has a changelog producer, else the delta."""
    DELTA = "delta"
    """The files that APPEND snapshots added."""
    CHANGELOG = "changelog"
    """The changelog files of snapshots other than OVERWRITE."""
    DIFF = "diff"
    """The difference of the states at both ends."""
