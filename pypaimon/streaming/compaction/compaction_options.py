"""`CompactionOptions`: the options of a table that decide when and how far it is compacted."""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.options.table_traits import num_levels
from pypaimon.streaming.writing.files.file_options import small_file_bytes, target_file_bytes

_NO_HOUR = -1


@dataclass(frozen=True, slots=True)
class OffPeak:
    """Hours of the day, local time, at which more is compacted.

    Attributes:
        start: The first hour.
        end: The hour before which they end. If not greater than `start`, it is on the next day.
        ratio: Percent that are added to the size ratio.
    """

    start: int
    end: int
    ratio: int

    def ratio_at(self, hour: int) -> int:
        inside = self.start <= hour < self.end if self.start <= self.end else hour >= self.start or hour < self.end
        return self.ratio if inside else 0


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """The options of one table; what each does: `option_keys`, and docs/options.md.

    Attributes:
        off_peak: Hours at which `size_ratio` is greater; None: there are none.
        small_bytes: Files below this size are small.
    """

    trigger: int
    levels: int
    size_amplification: int
    size_ratio: int
    off_peak: OffPeak | None
    interval_millis: int | None
    total_bytes: int | None
    incremental_bytes: int | None
    force_rewrite: bool
    force_up_level_0: bool
    target_bytes: int
    small_bytes: int
    min_files: int
    open_bytes: int
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
        """Raises StreamConfigError if an option cannot be read, or is out of its range."""
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
