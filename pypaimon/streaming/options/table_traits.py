"""What a table's options say about it as a whole: its kind, what is kept, its chain, its blobs.

Java's rules: docs/java-semantics.md#consumers, #long-lived-changelogs and #chain-tables.
"""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.model.data_types import BLOB, is_blob, is_blob_collection
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.options.table_kinds import ChangelogProducer, MergeEngineKind
from pypaimon.streaming.paimon.internals import DataField, TableSchema

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


def is_clustered(schema: TableSchema) -> bool:
    """Whether a table has a primary key, and its files above level 0 are sorted by other columns, which are also those
    of the bounds that the metadata of these files calls keys.
    """
    return bool(schema.primary_keys) and option_keys.PK_CLUSTERING_OVERRIDE.of(schema.options)


@dataclass(frozen=True, slots=True)
class TableTraits:
    """The facts of a table that decide which files a stream reads and how.

    Attributes:
        bucket: The option `bucket`: -1 dynamic (primary key) or unaware (append), -2 postpone.
        snapshot_ordering: Whether the newer of two records of a key is the one of the later snapshot.
        data_evolution: Whether columns of existing rows are written by later commits.
        decoupled_changelog: Whether changelogs outlive snapshots (`changelog/`).
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
    clustered: bool  # Whether files above level 0 are sorted by other columns than the key

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
            clustered=is_clustered(schema),
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
            # Level 0 comes as changelog, once a compaction has looked up what its records replace.
            return 1
        return self.num_levels - 1 if self.producer is ChangelogProducer.FULL_COMPACTION else 0


def moved_by(schema: TableSchema) -> list[str]:
    """Partition columns that are not part of the primary key, so that an update of them moves a row."""
    return [name for name in schema.partition_keys if schema.primary_keys and name not in schema.primary_keys]


@dataclass(frozen=True, slots=True)
class Retention:
    """Which snapshots writers expire. Java's rules: docs/java-semantics.md#consumers.

    Attributes:
        changelogs_outlive: Whether changelogs are kept longer than their snapshots.
        changelog_only: Whether consumers keep only changelogs.
    """

    least: int
    most: int
    millis: int
    consumer_millis: int | None
    changelogs_outlive: bool
    changelog_only: bool

    @staticmethod
    def of(options: TableOptions) -> Retention:
        """The retention of a table's options.

        Raises:
            StreamConfigError: An option cannot be parsed.
        """
        outlive = changelogs_outlive(options)
        return Retention(
            least=option_keys.SNAPSHOT_NUM_RETAINED_MIN.of(options),
            most=option_keys.SNAPSHOT_NUM_RETAINED_MAX.of(options),
            millis=option_keys.SNAPSHOT_TIME_RETAINED.of(options),
            consumer_millis=option_keys.CONSUMER_EXPIRATION_TIME.of(options),
            changelogs_outlive=outlive,
            changelog_only=outlive and option_keys.CONSUMER_CHANGELOG_ONLY.of(options),
        )

    def lets_go(self, snapshot_id: int, time_millis: int, latest_id: int, now_millis: int) -> bool:
        """Whether the next commit may expire a snapshot that no consumer keeps.

        Args:
            time_millis: When it was committed.
            latest_id: The latest snapshot.
            now_millis: The current time.
        """
        age = latest_id - snapshot_id
        return age >= self.least and (age >= self.most or time_millis < now_millis - self.millis)


def changelogs_outlive(options: TableOptions) -> bool:
    """Whether a changelog retention is larger than its snapshot twin (docs/java-semantics.md#long-lived-changelogs)."""
    for of_changelogs, of_snapshots in (
        (option_keys.CHANGELOG_NUM_RETAINED_MIN, option_keys.SNAPSHOT_NUM_RETAINED_MIN),
        (option_keys.CHANGELOG_NUM_RETAINED_MAX, option_keys.SNAPSHOT_NUM_RETAINED_MAX),
        (option_keys.CHANGELOG_TIME_RETAINED, option_keys.SNAPSHOT_TIME_RETAINED),
    ):
        retained = of_changelogs.of(options)
        # An option of changelogs that is not set follows that of snapshots.
        if retained is not None and retained > of_snapshots.of(options):
            return True
    return False


@dataclass(frozen=True, slots=True)
class ChainBranches:
    """The branches of a chain table, and its options for the first plan of a stream.

    Attributes:
        snapshot: The branch that holds whole partitions, from time to time.
        delta: The branch that holds the changes since then, which a stream follows.
        options: Options of the branch that was loaded, which take precedence over those of the snapshot branch.
    """

    snapshot: str
    delta: str
    options: TableOptions

    @staticmethod
    def of(options: TableOptions, branch: str) -> ChainBranches | None:
        """The branches that a table is read through.

        Args:
            branch: The branch that was loaded.

        Returns:
            None for a table that is not a chain table, and for the two branches, which are ordinary tables.
        """
        if not option_keys.CHAIN_TABLE_ENABLED.of(options):
            return None
        snapshot = option_keys.SCAN_FALLBACK_SNAPSHOT_BRANCH.of(options)
        delta = option_keys.SCAN_FALLBACK_DELTA_BRANCH.of(options)
        # Java compares the names of branches without case here.
        if snapshot is None or delta is None or branch.lower() in (snapshot.lower(), delta.lower()):
            return None
        return ChainBranches(snapshot, delta, options)

    def is_merged(self, of_branch: TableOptions) -> bool:
        """Whether the first plan merges the partitions of each chain into the last one.

        Args:
            of_branch: Options of the snapshot branch.
        """
        return option_keys.CHAIN_TABLE_STREAMING_MERGE_SNAPSHOT.of({**of_branch, **self.options})

    def chain_keys(self, partition_keys: list[str], of_branch: TableOptions) -> list[str]:
        """The last partition columns, which order the partitions of a chain; those before them identify the chain.

        Args:
            partition_keys: All partition columns.
            of_branch: Options of the snapshot branch.

        Raises:
            ValueError: The option does not name the last partition columns.
        """
        option = option_keys.CHAIN_TABLE_CHAIN_PARTITION_KEYS
        text = option.of({**of_branch, **self.options}) or ""
        keys = [key.strip() for key in text.split(",")] if text.strip() else partition_keys
        if partition_keys[len(partition_keys) - len(keys) :] != keys:
            raise ValueError(f"'{option}' = '{text}' is not the end of the partition columns {partition_keys}")
        return keys


@dataclass(frozen=True, slots=True)
class BlobStorage:
    """Where a table keeps its blobs.

    Attributes:
        dedicated: Whether blob columns have blob files of their own, except those in `descriptors` and `views`.
        descriptors: Columns whose data files hold descriptors from the writer.
        views: Columns whose data files hold references to rows of other tables.
        resolves_views: Whether these references are resolved. Otherwise they come out as they are.
    """

    dedicated: bool
    descriptors: frozenset[str]
    views: frozenset[str]
    resolves_views: bool

    @staticmethod
    def of(schema: TableSchema) -> BlobStorage:
        """The blob storage that a schema's options describe."""
        options = schema.options
        return BlobStorage(
            dedicated=not schema.primary_keys and option_keys.DATA_EVOLUTION_ENABLED.of(options),
            descriptors=_names(option_keys.BLOB_DESCRIPTOR_FIELD.of(options)),
            views=_names(option_keys.BLOB_VIEW_FIELD.of(options)),
            resolves_views=option_keys.BLOB_VIEW_RESOLVE_ENABLED.of(options),
        )

    def in_blob_files(self, field: DataField) -> bool:
        """Whether the values of a field are in blob files."""
        if not self.dedicated or field.name in self.descriptors or field.name in self.views:
            return False
        return is_blob(field.type) or is_blob_collection(field.type)

    def in_data_files(self, field: DataField) -> bool:
        """Whether data files hold the values of a blob column as bytes that refer to blobs elsewhere."""
        return is_blob(field.type) and (field.name in self.descriptors or field.name in self.views)

    @staticmethod
    def managed(schema: TableSchema) -> tuple[str, ...]:
        """The columns of a primary-key table whose blobs are in files that data files share."""
        storage = BlobStorage.of(schema)
        if not schema.primary_keys:
            return ()
        blobs = (each for each in schema.fields if is_blob(each.type) or is_blob_collection(each.type))
        return tuple(each.name for each in blobs if not storage.in_data_files(each))

    def as_read(self, field: DataField) -> DataField:
        """The field as it is read first. A collection of blobs is stored as one blob that names its elements."""
        if not (self.in_blob_files(field) and is_blob_collection(field.type)):
            return field
        return DataField(field.id, field.name, BLOB, field.description, field.default_value)


def _names(text: str | None) -> frozenset[str]:
    return frozenset(filter(None, (name.strip() for name in (text or "").split(","))))
