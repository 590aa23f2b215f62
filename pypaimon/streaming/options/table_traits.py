"""`TableTraits`: the facts of a table's schema and options that its streams depend on, parsed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.options.retention import changelogs_outlive
from pypaimon.streaming.paimon.internals import TableSchema

DYNAMIC_OR_UNAWARE_BUCKET = -1
SNAPSHOT_ORDERING = "sequence.snapshot-ordering"
RECORD_EXPIRY = "record-level.expire-time"


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


def changelog_producer_of(options: Mapping[str, Any]) -> ChangelogProducer:
    """The changelog producer that a table's options name.

    Raises:
        StreamConfigError: The name is unknown.
    """
    return OptionValues(options).member("changelog-producer", ChangelogProducer, ChangelogProducer.NONE)


def merge_engine_of(options: Mapping[str, Any]) -> MergeEngineKind:
    """The merge engine that a table's options name.

    Raises:
        UnsupportedTableError: The name is unknown.
    """
    try:
        return OptionValues(options).member("merge-engine", MergeEngineKind, MergeEngineKind.DEDUPLICATE)
    except StreamConfigError as error:
        raise UnsupportedTableError(f"The merge engine is not supported. {error}") from None


def bucket_function_of(options: Mapping[str, Any]) -> BucketFunctionType:
    """The bucket function that a table's options name.

    Raises:
        StreamConfigError: The name is unknown.
    """
    return OptionValues(options).member("bucket-function.type", BucketFunctionType, BucketFunctionType.DEFAULT)


@dataclass(frozen=True, slots=True)
class TableTraits:
    """The facts of a table that decide which files a stream reads and how.

    Attributes:
        primary_key: Whether the table has a primary key.
        producer: Who writes changelog files; NONE on append tables.
        merge_engine: How records with one key are merged.
        bucket: The option `bucket`: -1 dynamic (primary key) or unaware (append), -2 postpone.
        deletion_vectors: Whether deleted rows are marked in index files.
        snapshot_ordering: Whether the newer of two records of a key is the one of the later snapshot.
        data_evolution: Whether columns of existing rows are written by later commits.
        decoupled_changelog: Whether changelogs outlive snapshots (`changelog/`).
        num_levels: Levels of the merge tree.
        full_compaction_delta_commits: The option `full-compaction.delta-commits`.
    """

    primary_key: bool
    producer: ChangelogProducer
    merge_engine: MergeEngineKind
    bucket: int
    deletion_vectors: bool
    snapshot_ordering: bool
    data_evolution: bool
    decoupled_changelog: bool
    num_levels: int
    full_compaction_delta_commits: int | None

    @staticmethod
    def of(schema: TableSchema) -> TableTraits:
        """The traits of a schema.

        Raises:
            StreamConfigError: An option cannot be parsed.
            UnsupportedTableError: The merge engine is unknown.
        """
        options = OptionValues(schema.options)
        trigger = options.integer("num-sorted-run.compaction-trigger") or 5
        return TableTraits(
            primary_key=bool(schema.primary_keys),
            producer=changelog_producer_of(schema.options),
            merge_engine=merge_engine_of(schema.options),
            bucket=DYNAMIC_OR_UNAWARE_BUCKET if (bucket := options.integer("bucket")) is None else bucket,
            deletion_vectors=options.boolean("deletion-vectors.enabled", False),
            snapshot_ordering=options.boolean(SNAPSHOT_ORDERING, False),
            data_evolution=options.boolean("data-evolution.enabled", False),
            decoupled_changelog=changelogs_outlive(options),
            num_levels=options.integer("num-levels") or trigger + 1,
            full_compaction_delta_commits=options.integer("full-compaction.delta-commits"),
        )

    @property
    def unaware_bucket(self) -> bool:
        """Whether buckets have no meaning (append table): files are read in parallel, in any order."""
        return not self.primary_key and self.bucket == DYNAMIC_OR_UNAWARE_BUCKET

    @property
    def shards_by_file(self) -> bool:
        """Whether shards divide data files by name. Otherwise they divide buckets."""
        return self.unaware_bucket and not self.data_evolution

    @property
    def rows_move(self) -> bool:
        """Whether compaction moves rows between shards: to new files, or out of bucket -2."""
        return self.shards_by_file or (self.postpone and not self.only_real_buckets)

    @property
    def postpone(self) -> bool:
        """Whether new records wait in bucket -2 for a compaction to distribute them."""
        return self.bucket == POSTPONE_BUCKET

    @property
    def only_real_buckets(self) -> bool:
        """Whether bucket -2 is left out, because its records come as changelog once they are compacted."""
        return self.postpone and self.producer is not ChangelogProducer.NONE

    @property
    def can_retract(self) -> bool:
        """Whether a stream of the table can carry -U or -D."""
        return self.primary_key and not self.merge_engine.keeps_oldest

    @property
    def lowest_state_level(self) -> int:
        """The lowest level that a first plan reads. Files below it come as changelog later."""
        if self.producer is ChangelogProducer.LOOKUP:
            return 1
        return self.num_levels - 1 if self.producer is ChangelogProducer.FULL_COMPACTION else 0


def moved_by(schema: TableSchema) -> list[str]:
    """Partition columns that are not part of the primary key, so that an update of them moves a row."""
    return [name for name in schema.partition_keys if schema.primary_keys and name not in schema.primary_keys]
