"""Task pickers of append tables whose rows are sorted: on request, or by the table's own options.

What `clustering.incremental` makes due follows Java's `IncrementalClusterManager` and `BucketedAppendClusterManager`.
Java's rules: docs/java-semantics.md#compaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import islice

from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.live_files import CompactionResult, LiveBucket, LiveFile, local_millis
from pypaimon.streaming.compaction.run_picking import LevelRun, Pick, pick_full, pick_needed
from pypaimon.streaming.compaction.sort_order import SortOrder, clustering_columns
from pypaimon.streaming.compaction.tasks import AppendRewriter, CompactionTask, TaskPicker, bad_rows_as_damage
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys


@dataclass(frozen=True, slots=True)
class SortTask(CompactionTask):
    """The rows of files of a bucket become sorted files of a level."""

    level: int = field(default=0, kw_only=True)


class SortTaskPicker(TaskPicker):
    """The `TaskPicker` that sorts all rows of each partition, whatever is due.

    Java overwrites the partition, and loses what others append meanwhile. Here a compaction replaces exactly the files
    that were read.
    """

    def __init__(self, table: PaimonTable, reader: FileReader, order: SortOrder) -> None:
        self._reader = reader
        self._order = order
        self._rewriter = AppendRewriter(table, reader)

    def tasks(self, buckets: Iterable[LiveBucket], *, full: bool) -> Iterator[CompactionTask]:
        for bucket in buckets:
            yield SortTask(bucket, _by_age(bucket.files))

    def execute(self, task: CompactionTask) -> list[CompactionResult]:
        assert isinstance(task, SortTask)
        arranged = partial(self._order.sorted, sample=partial(self._reader.sample, task.files))
        with bad_rows_as_damage(self._reader, task):
            return [self._rewriter.compact(task.bucket, task.files, arranged, task.level)]


class ClusteringTaskPicker(SortTaskPicker):
    """The `TaskPicker` of a table with `clustering.incremental`: one task for each bucket that is due.

    Each file of level 0 is a run, as are all files of a level above it, which may overlap.
    """

    def __init__(self, table: PaimonTable, reader: FileReader, order: SortOrder, now: datetime) -> None:
        super().__init__(table, reader, order)
        options = table.options
        # Java's picks for other tables have more reasons.
        self._options = replace(
            CompactionOptions.of(table), off_peak=None, interval_millis=None, total_bytes=None, incremental_bytes=None
        )
        self._now = now
        unaware = table.total_buckets < 0
        self._idle_millis = option_keys.CLUSTERING_HISTORY_PARTITION_IDLE_TO_FULL_SORT.of(options) if unaware else None
        self._most_idle = option_keys.CLUSTERING_HISTORY_PARTITION_LIMIT.of(options)

    def by_time(self, *, full: bool) -> bool:
        return self._idle_millis is not None

    def tasks(self, buckets: Iterable[LiveBucket], *, full: bool) -> Iterator[CompactionTask]:
        for bucket in buckets:
            pick = self._full(bucket) if full else pick_needed(_runs(bucket), self._options, self._now)
            yield from self._tasks(bucket, pick)

    def idle_tasks(self, others: Iterable[LiveBucket]) -> Iterator[CompactionTask]:
        """Full compactions of partitions that a caller has not chosen, and that have long had no new file.

        The oldest ones come first. Java means that too, but its limit keeps any of them.
        """
        if self._idle_millis is None:
            return
        latest = local_millis(self._now) - self._idle_millis
        written = [(self._last_written(bucket), bucket) for bucket in others]
        idle = [(time, bucket) for time, bucket in written if time is not None and time < latest]
        for _, bucket in islice(sorted(idle, key=lambda each: each[0]), self._most_idle):
            yield from self._tasks(bucket, self._full(bucket))

    def _last_written(self, bucket: LiveBucket) -> int | None:
        """When the newest file below the highest level was made; None: there are none."""
        return max((file.made_millis for file in bucket.files if file.level < self._options.top_level), default=None)

    def _full(self, bucket: LiveBucket) -> Pick | None:
        return pick_full(_runs(bucket), self._options, self._is_outdated)

    def _is_outdated(self, file: LiveFile) -> bool:
        """Whether a file was sorted by other columns."""
        schema = self._reader.schema(file.read.schema_id)
        return clustering_columns(schema.options) != self._order.columns

    @staticmethod
    def _tasks(bucket: LiveBucket, pick: Pick | None) -> Iterator[CompactionTask]:
        if pick is not None:
            yield SortTask(bucket, _by_age(pick.files), level=pick.level)


def _runs(bucket: LiveBucket) -> list[LevelRun]:
    """Files of level 0 in the order of their numbers and then of the manifests, as Java lists them; then the levels."""
    levels: dict[int, list[LiveFile]] = {}
    for file in _by_age(bucket.files):
        levels.setdefault(file.level, []).append(file)
    first = [LevelRun(0, (file,)) for file in levels.pop(0, [])]
    return [*first, *(LevelRun(level, tuple(levels[level])) for level in sorted(levels))]


def _by_age(files: Sequence[LiveFile]) -> list[LiveFile]:
    return sorted(files, key=lambda file: file.read.min_sequence_number)
