"""`CompactionOptions`: the options of a table that decide when and how far it is compacted."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pypaimon.streaming.commit.snapshot_commit import check_commit_options
from pypaimon.streaming.compaction.record_expiry import RecordExpiry
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats.registry import check_format
from pypaimon.streaming.indexes.file_index import IndexOptions
from pypaimon.streaming.merge.engines.factory import merge_engine
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.data_types import holds_blobs
from pypaimon.streaming.options.known_options import refuse_misspelled_keys
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.options.table_traits import SNAPSHOT_ORDERING, ChangelogProducer
from pypaimon.streaming.writing.files.file_options import FileOptions, small_file_bytes, target_file_bytes

_NO_HOUR = -1


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
    delete_ratio: float = 0.2  # A file is due if a greater part of its rows is deleted, however large it is

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

        def number(key: str, default: int, least: int, *aliases: str) -> int:
            found = options.integer(key, *aliases, least=least)
            return default if found is None else found

        def size(key: str) -> int | None:
            return None if options.text(key) is None else options.size_bytes(key, 0)

        trigger = number("num-sorted-run.compaction-trigger", 5, 1)
        target = target_file_bytes(options, table.is_primary_key_table)
        return CompactionOptions(
            trigger,
            number("num-levels", trigger + 1, 2),
            number("compaction.max-size-amplification-percent", 200, 0),
            number("compaction.size-ratio", 1, 0),
            _off_peak(options),
            options.duration_millis("compaction.optimization-interval"),
            size("compaction.total-size-threshold"),
            size("compaction.incremental-size-threshold"),
            options.boolean("compaction.force-rewrite-all-files", False),
            options.boolean("compaction.force-up-level-0", False),
            target,
            small_file_bytes(options, target),
            number("compaction.min.file-num", 5, 1),
            options.size_bytes("source.split.open-file-cost", 4 << 20),
            options.number("compaction.delete-ratio-threshold", 0.2),
        )


def _off_peak(options: OptionValues) -> OffPeak | None:
    start, end, ratio = (
        options.integer(f"compaction.{key}") for key in ("offpeak.start.hour", "offpeak.end.hour", "offpeak-ratio")
    )
    if start in (None, _NO_HOUR) or end in (None, _NO_HOUR) or not ratio:
        return None
    assert start is not None
    assert end is not None
    return OffPeak(start, end, ratio)


_REFUSED_OPTIONS = {
    "row-tracking.enabled": "its rows have ids",
    "data-evolution.enabled": "its rows are spread over several files",
    "clustering.incremental": "its files are clustered",
    "pk-clustering-override": "its files are clustered",
    SNAPSHOT_ORDERING: "snapshots decide which of its records is the newer one",
}
_VECTORS = "deletion-vectors.enabled"
_KEYED_INDEXES = re.compile(r"pk-(vector|btree|bitmap|multivalue|full-text)\.index\.columns")


def under_latest_schema(table: PaimonTable, directory: TableDirectory) -> PaimonTable:
    """The table under its latest schema. Under an older one, columns that were added since would be lost."""
    return table.with_schema(directory.reading_schema(directory.latest_schema().id))


def check_compactable(table: PaimonTable) -> None:
    """Refuse a table that cannot be compacted exactly. Raises UnsupportedTableError if its kind, an option, a type or a
    format is not supported.
    """
    options, name = table.options, table.name
    refuse_misspelled_keys(options)
    for key, why in _REFUSED_OPTIONS.items():
        if options.boolean(key, False):
            raise UnsupportedTableError(f"{name} has '{key}': {why}, and such tables are not compacted here.")
    if options.boolean(_VECTORS, False):
        _check_vectors(table)
    if unwritten := IndexOptions.of(options, table.fields).unwritten:
        lost = ", ".join(map(str, unwritten))
        raise UnsupportedTableError(f"{name} has file indexes that compaction here would lose: {lost}.")
    if options.boolean("chain-table.enabled", False):
        raise UnsupportedTableError(f"{name} is a chain table, which is not compacted here.")
    for field in table.fields:
        if holds_blobs(field.type):
            raise UnsupportedTableError(f"Column '{field.name}' of {name} is {field.type}, which is not written here.")
    check_commit_options(table)
    found = CompactionOptions.of(table)
    if table.is_primary_key_table:
        _check_keyed(table)
    for level in range(found.levels if table.is_primary_key_table else 1):
        check_format(FileOptions.of_compacted(table, level).data.format, table.fields)


def _check_vectors(table: PaimonTable) -> None:
    name = table.name
    if not table.is_primary_key_table:
        return
    if table.traits.merge_engine.keeps_oldest:
        raise UnsupportedTableError(f"{name} has '{_VECTORS}' and merge engine first-row, which never replaces rows.")
    if table.traits.producer is ChangelogProducer.FULL_COMPACTION:
        raise UnsupportedTableError(
            f"{name} has '{_VECTORS}' and 'changelog-producer' = 'full-compaction', which are not compacted together."
        )


def _check_keyed(table: PaimonTable) -> None:
    name = table.name
    for key in table.options:
        if _KEYED_INDEXES.fullmatch(key):
            raise UnsupportedTableError(f"{name} has '{key}': its compaction makes indexes that are not made here.")
    if table.traits.postpone:
        raise UnsupportedTableError(
            f"{name} has postponed buckets ('bucket' = '-2'): its compaction distributes records over buckets, which "
            "is not done here. Run `CALL sys.compact(...)` of Flink or Spark."
        )
    merge_engine(table.schema)
    RecordExpiry.of(table)
