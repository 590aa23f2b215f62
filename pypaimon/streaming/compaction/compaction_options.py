"""`CompactionOptions`: the options of a table that decide when and how far it is compacted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pypaimon.streaming.commit.snapshot_commit import check_commit_options
from pypaimon.streaming.compaction.record_expiry import RecordExpiry
from pypaimon.streaming.compaction.sort_order import SortOrder
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.files.row_id_groups import data_file_fields
from pypaimon.streaming.formats.registry import check_format
from pypaimon.streaming.indexes.file_index import IndexOptions
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.merge.engines.factory import merge_engine
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.data_types import holds_blobs, is_blob
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.known_options import refuse_misspelled_keys
from pypaimon.streaming.options.option_key import OptionKey, TableOptions
from pypaimon.streaming.options.table_kinds import ChangelogProducer, MergeEngineKind
from pypaimon.streaming.options.table_traits import BlobStorage, num_levels
from pypaimon.streaming.writing.files.file_options import FileOptions, small_file_bytes, target_file_bytes

_LOG = StreamLog(__name__)
_NO_HOUR = -1
_warned: set[tuple[str, str]] = set()
_NONE: Mapping[OptionKey[Any, Any], str | None] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OffPeak:
    """Hours of the day, local time, at which more is compacted."""

    start: int
    end: int  # The hour before which they end. If not greater than `start`, it is on the next day.
    ratio: int

    def ratio_at(self, hour: int) -> int:
        inside = self.start <= hour < self.end if self.start <= self.end else hour >= self.start or hour < self.end
        return self.ratio if inside else 0


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """Options of one table, by Java's keys and defaults."""

    trigger: int  # Number of sorted runs at which a bucket is compacted (`num-sorted-run.compaction-trigger`)
    levels: int  # Number of levels of a bucket, including 0 (`num-levels`)
    size_amplification: int  # Size that all other runs together may have, in percent of the oldest run
    size_ratio: int  # Percent by which a run may exceed the newer ones together and still be compacted with them
    off_peak: OffPeak | None  # Hours at which `size_ratio` is greater; None: there are none
    interval_millis: int | None  # Time after which a whole bucket is compacted; None: no limit
    total_bytes: int | None  # Size below which a whole bucket is compacted; None: no limit
    # Size of the files below the top level above which a whole bucket is compacted; None: no limit
    incremental_bytes: int | None
    force_rewrite: bool
    force_up_level_0: bool  # Whether files of level 0 are always due
    target_bytes: int  # Target size of files
    small_bytes: int  # Files below this size are small
    min_files: int
    open_bytes: int  # Cost of opening a file, which is added to its size
    # A file is due if a greater part of its rows is deleted, however large it is
    delete_ratio: float = option_keys.COMPACTION_DELETE_RATIO_THRESHOLD.default

    @property
    def by_time(self) -> bool:
        """Whether files may become due without a commit, as time passes."""
        return self.interval_millis is not None or self.off_peak is not None

    @property
    def top_level(self) -> int:
        return self.levels - 1

    @staticmethod
    def of(table: PaimonTable) -> CompactionOptions:
        options = table.options
        target = target_file_bytes(options, table.is_primary_key_table)
        return CompactionOptions(
            trigger=option_keys.NUM_SORTED_RUN_COMPACTION_TRIGGER.of(options),
            levels=num_levels(options),
            size_amplification=option_keys.COMPACTION_MAX_SIZE_AMPLIFICATION_PERCENT.of(options),
            size_ratio=option_keys.COMPACTION_SIZE_RATIO.of(options),
            off_peak=_off_peak(options),
            interval_millis=option_keys.COMPACTION_OPTIMIZATION_INTERVAL.of(options),
            total_bytes=option_keys.COMPACTION_TOTAL_SIZE_THRESHOLD.of(options),
            incremental_bytes=option_keys.COMPACTION_INCREMENTAL_SIZE_THRESHOLD.of(options),
            force_rewrite=option_keys.COMPACTION_FORCE_REWRITE_ALL_FILES.of(options),
            force_up_level_0=option_keys.COMPACTION_FORCE_UP_LEVEL_0.of(options),
            target_bytes=target,
            small_bytes=small_file_bytes(options, target),
            min_files=option_keys.COMPACTION_MIN_FILE_NUM.of(options),
            open_bytes=option_keys.SOURCE_SPLIT_OPEN_FILE_COST.of(options),
            delete_ratio=option_keys.COMPACTION_DELETE_RATIO_THRESHOLD.of(options),
        )


def _off_peak(options: TableOptions) -> OffPeak | None:
    start, end = (
        option_keys.COMPACTION_OFFPEAK_START_HOUR.of(options),
        option_keys.COMPACTION_OFFPEAK_END_HOUR.of(options),
    )
    ratio = option_keys.COMPACTION_OFFPEAK_RATIO.of(options)
    return None if _NO_HOUR in (start, end) or not ratio else OffPeak(start, end, ratio)


_REFUSED_OPTIONS = {
    option_keys.DATA_EVOLUTION_ROW_SIDECAR_ENABLED: "its files have copies by row. Compact it with Java.",
    option_keys.DATA_EVOLUTION_COMPACTION_REWRITE_ROW_IDS: "its compaction would change row ids. Remove the option.",
}
_KEYED_INDEXES = re.compile(r"pk-(vector|btree|bitmap|multivalue|full-text)\.index\.columns")


def under_latest_schema(table: PaimonTable, directory: TableDirectory) -> PaimonTable:
    """The table under its latest schema. Under an older one, columns that were added since would be lost."""
    return table.with_schema(directory.reading_schema(directory.latest_schema().id))


def with_buckets(
    table: PaimonTable, count: int, options: Mapping[OptionKey[Any, Any], str | None] = _NONE
) -> PaimonTable:
    """The table as one with a fixed number of buckets, and with other options (None: without): how its real buckets are
    written.
    """
    given: dict[str, str | None] = {
        **table.schema.options,
        str(option_keys.BUCKET): str(count),
        # Changelog files of the new rows and of the compaction are merged together, later.
        str(option_keys.PRECOMMIT_COMPACT): "false",
        # It is a rule for new partitions, and these are there.
        str(option_keys.PARTITION_TIMESTAMP_FORMAT_STRICT): "false",
    }
    given.update((str(key), value) for key, value in options.items())
    wanted = {key: value for key, value in given.items() if value is not None}
    return table.with_schema(table.schema.copy(new_options=wanted))


def check_compactable(table: PaimonTable) -> None:
    """Refuse a table that cannot be compacted exactly. Raises UnsupportedTableError if its kind, an option, a type or a
    format is not supported.
    """
    refuse_misspelled_keys(table.options)
    for reason in (*_refusals(table), *_clustering_refusals(table), *_blob_refusals(table)):
        raise UnsupportedTableError(reason)
    # These raise by themselves.
    SortOrder.of_clustering(table)
    check_commit_options(table)
    levels = CompactionOptions.of(table).levels if table.is_primary_key_table else 1
    if table.is_primary_key_table:
        merge_engine(table.schema)
        RecordExpiry.of(table)
        SortOrder.of_keyed_files(table)
    written = with_buckets(table, 1) if table.traits.postpone else table
    fields = data_file_fields(table.schema) if table.traits.data_evolution else table.fields
    for level in range(levels):
        check_format(FileOptions.of_compacted(written, level).data.format, fields)


def _refusals(table: PaimonTable) -> Iterator[str]:
    name, options, traits = table.name, table.options, table.traits
    vectors, tracking = option_keys.DELETION_VECTORS_ENABLED, option_keys.ROW_TRACKING_ENABLED
    for key, why in _REFUSED_OPTIONS.items():
        if key.of(options):
            yield f"{name} has '{key}', and such tables are not compacted here: {why}"
    if unwritten := IndexOptions.of(options, table.fields).unwritten:
        yield (
            f"{name} has file indexes that are not written here, so files would lose them: "
            f"{', '.join(map(str, unwritten))}. Compact it with Java, or remove these columns from "
            "'file-index.<kind>.columns'."
        )
    if tracking.of(options) and not traits.unaware_bucket:
        yield f"{name} has '{tracking}' with a primary key or buckets, which Java does not write."
    if traits.data_evolution and not tracking.of(options):
        yield f"{name} has '{option_keys.DATA_EVOLUTION_ENABLED}' without '{tracking}', so its rows have no ids."
    if traits.postpone and traits.snapshot_ordering:
        yield (
            f"{name} has '{option_keys.SEQUENCE_SNAPSHOT_ORDERING}' and postponed buckets, whose records do not keep "
            "their snapshots when they are distributed."
        )
    if not table.is_primary_key_table:
        return
    if vectors.of(options) and traits.merge_engine.keeps_oldest and not traits.clustered:
        yield f"{name} has '{vectors}' and merge engine first-row, which never replaces rows."
    if vectors.of(options) and traits.producer is ChangelogProducer.FULL_COMPACTION:
        yield f"{name} has '{vectors}' and 'changelog-producer' = 'full-compaction', which are not compacted together."
    for given in filter(_KEYED_INDEXES.fullmatch, options):
        yield f"{name} has '{given}': its compaction makes indexes that are not made here."


def _clustering_refusals(table: PaimonTable) -> Iterator[str]:
    """What Java does not have with `pk-clustering-override`, and what is not compacted here."""
    options, traits, clusters = table.options, table.traits, option_keys.PK_CLUSTERING_OVERRIDE
    if not traits.clustered:
        return
    name = f"{table.name} has '{clusters}'"
    engine, vectors = traits.merge_engine, option_keys.DELETION_VECTORS_ENABLED
    if engine.combines:
        yield f"{name} and merge engine {engine.value}, whose rows are not single records."
    if not (traits.deletion_vectors or engine.keeps_oldest):
        yield f"{name}, and replaced rows are not marked. Set '{vectors}' to 'true'."
    if traits.producer not in (ChangelogProducer.NONE, ChangelogProducer.INPUT):
        producer = f"'{option_keys.CHANGELOG_PRODUCER}' = '{traits.producer.value}'"
        yield f"{name} and {producer}, which are not compacted together."
    others = (
        option_keys.SEQUENCE_FIELD, option_keys.SEQUENCE_SNAPSHOT_ORDERING, option_keys.RECORD_LEVEL_EXPIRE_TIME,
        option_keys.CHAIN_TABLE_ENABLED,
    )  # fmt: skip
    for key in others:
        if key.of(options):
            yield f"{name} and '{key}', which are not compacted together."
    if managed := BlobStorage.managed(table.schema):
        yield f"{name}, and its column '{managed[0]}' holds managed blobs, which such a table cannot have."


def _blob_refusals(table: PaimonTable) -> Iterator[str]:
    name, traits, storage = table.name, table.traits, BlobStorage.of(table.schema)
    managed = BlobStorage.managed(table.schema)
    for field in table.fields:
        # What stays in a file of its own, or is a reference in the row, is copied as it is.
        if traits.data_evolution:
            is_copied = storage.in_blob_files(field) or is_blob(field.type)
        else:
            is_copied = field.name in managed or (traits.primary_key and storage.in_data_files(field))
        if holds_blobs(field.type) and (not is_copied or traits.postpone):
            yield f"Column '{field.name}' of {name} is {field.type}, which is not written here."
    # As in Java, where other tables cannot have managed blobs.
    if managed and (traits.merge_engine is MergeEngineKind.AGGREGATE or traits.producer is not ChangelogProducer.NONE):
        yield (
            f"Column '{managed[0]}' of {name} holds managed blobs, which a table with merge engine aggregation or a "
            "changelog producer cannot have."
        )
    if managed and option_keys.DATA_FILE_EXTERNAL_PATHS.of(table.options):
        yield f"Column '{managed[0]}' of {name} holds managed blobs, which a table with external paths cannot have."


def warn_about_ignored(table: PaimonTable) -> None:
    """Log them, once in a process for each table."""
    options = ", ".join(_ignored(table))
    if options and (table.path, options) not in _warned:
        _warned.add((table.path, options))
        text = "compactions of %(table)s ignore options that those of Java heed: %(options)s"
        _LOG.warning("compaction_options_ignored", text, table=table.name, options=options)


def _ignored(table: PaimonTable) -> Iterator[str]:
    options = table.options
    for key in (option_keys.COMPACTION_FILE_NUM_LIMIT, option_keys.LOOKUP_COMPACT_MAX_INTERVAL):
        if key.set_as(options):
            yield f"'{key}' = '{key.of(options)}'"
    if option_keys.LOOKUP_COMPACT.of(options) != option_keys.LOOKUP_COMPACT.default:
        yield f"'{option_keys.LOOKUP_COMPACT}' = '{option_keys.LOOKUP_COMPACT.of(options)}'"
    commits = option_keys.FULL_COMPACTION_DELTA_COMMITS.of(options)
    # With this producer every compaction is a full one, as those of batch jobs in Java are.
    if commits is not None and table.traits.producer is not ChangelogProducer.FULL_COMPACTION:
        yield f"'{option_keys.FULL_COMPACTION_DELTA_COMMITS}' = '{commits}'"
