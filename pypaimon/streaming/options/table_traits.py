"""`TableTraits`: the facts of a table's schema and options that its streams depend on, parsed once."""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.options.retention import changelogs_outlive
from pypaimon.streaming.options.table_kinds import ChangelogProducer, MergeEngineKind
from pypaimon.streaming.paimon.internals import TableSchema

DYNAMIC_OR_UNAWARE_BUCKET = -1


def merge_engine_of(options: TableOptions) -> MergeEngineKind:
    """The merge engine that a table's options name.

    Raises:
        UnsupportedTableError: The name is unknown.
    """
    try:
        return option_keys.MERGE_ENGINE.of(options)
    except StreamConfigError as error:
        raise UnsupportedTableError(f"The merge engine is not supported. {error}") from None


def num_levels(options: TableOptions) -> int:
    """Levels of the merge tree."""
    return option_keys.NUM_LEVELS.of(options) or option_keys.NUM_SORTED_RUN_COMPACTION_TRIGGER.of(options) + 1


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
        options = schema.options
        return TableTraits(
            primary_key=bool(schema.primary_keys),
            producer=option_keys.CHANGELOG_PRODUCER.of(options),
            merge_engine=merge_engine_of(options),
            bucket=option_keys.BUCKET.of(options),
            deletion_vectors=option_keys.DELETION_VECTORS_ENABLED.of(options),
            snapshot_ordering=option_keys.SEQUENCE_SNAPSHOT_ORDERING.of(options),
            data_evolution=option_keys.DATA_EVOLUTION_ENABLED.of(options),
            decoupled_changelog=changelogs_outlive(options),
            num_levels=num_levels(options),
            full_compaction_delta_commits=option_keys.FULL_COMPACTION_DELTA_COMMITS.of(options),
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
