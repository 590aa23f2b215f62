"""`CompactionOptions`: the options of a table that decide when and how far it is compacted."""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.writing.files.file_options import small_file_bytes, target_file_bytes

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
