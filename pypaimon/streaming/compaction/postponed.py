"""`PostponedTaskPicker`: distributes the records of postponed buckets over real ones, and compacts those.

As Flink's compaction of such tables does. Java's rules: docs/java-semantics.md#compaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from pypaimon.streaming.compaction.compaction_options import with_buckets
from pypaimon.streaming.compaction.distribution import Distributor
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.live_files import CompactionResult, LiveBucket, LiveFile
from pypaimon.streaming.compaction.tasks import CompactionTask, TaskPicker, bad_rows_as_damage
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions

_WRITER = re.compile(r".*-w-")
"""The part of a file's name that its writer decides."""
_COUNTER = re.compile(r"-(\d+)\.[^-]*$")


def in_written_order(files: Iterable[LiveFile]) -> list[LiveFile]:
    """Postponed files of a partition in the order in which their records were written.

    Only the files of one writer have an order: that of their creation times, and of the numbers in their names where
    these are equal. A writer whose first file is older comes first.
    """
    of_writer: dict[str, list[LiveFile]] = {}
    for file in files:
        writer = _WRITER.match(file.name)
        of_writer.setdefault("" if writer is None else writer.group(), []).append(file)
    ordered = sorted(of_writer.items(), key=lambda each: (min(file.made_millis for file in each[1]), each[0]))
    return [file for _, its_own in ordered for file in sorted(its_own, key=_age)]


def _age(file: LiveFile) -> tuple[int, int, str]:
    counter = _COUNTER.search(file.name)
    return file.made_millis, 0 if counter is None else int(counter.group(1)), file.name


def bucket_count(postponed: Iterable[LiveFile], real: Iterable[LiveBucket], options: TableOptions) -> int:
    """The number of buckets of a partition: that of its files in real buckets, or else what the options say."""
    counts = {bucket.total_buckets for bucket in real}
    if counts:
        (count,) = counts
        return count
    given = option_keys.POSTPONE_DEFAULT_BUCKET_NUM.of(options)
    if given is not None:
        return given
    files = list(postponed)
    rows = option_keys.POSTPONE_TARGET_ROW_NUM_PER_BUCKET.of(options)
    if rows is not None:
        return max(1, -(-sum(int(file.read.row_count) for file in files) // rows))
    size = max(1, option_keys.POSTPONE_TARGET_SIZE_PER_BUCKET.of(options))
    return max(1, -(-sum(file.size for file in files) // size))


@dataclass(frozen=True, slots=True)
class DistributionTask(CompactionTask):
    """The postponed files of a partition, in the order of their records, become files of its real buckets."""

    real: tuple[LiveBucket, ...] = ()
    count: int = 1  # Number of buckets of the partition
    full: bool = False

    @property
    def is_whole_partition(self) -> bool:
        return True

    @property
    def files_read(self) -> Sequence[LiveFile]:
        return [*self.files, *(file for bucket in self.real for file in bucket.files)]

    def lean(self) -> DistributionTask:
        return self


class PostponedTaskPicker(TaskPicker):
    """The `TaskPicker` of a table with postponed buckets.

    A partition with postponed files is one task. Its real buckets are compacted in the same commit: an older record of
    a key must not be read after a newer one, and what streams get of a partition is the changelog of that commit.
    """

    def __init__(self, table: PaimonTable, reader: FileReader, now: Callable[[], datetime]) -> None:
        self._table = table
        self._reader = reader
        self._now = now
        self._distributors: dict[int, Distributor] = {}

    def by_time(self, *, full: bool) -> bool:
        return self._of(1).picker.by_time(full=full)

    def tasks(self, buckets: Iterable[LiveBucket], *, full: bool) -> Iterator[CompactionTask]:
        for _, members in groupby(buckets, key=lambda bucket: bucket.row):
            partition = list(members)
            waiting = [bucket for bucket in partition if bucket.bucket == POSTPONE_BUCKET]
            real = tuple(bucket for bucket in partition if bucket.bucket != POSTPONE_BUCKET)
            if waiting:
                files = in_written_order(file for bucket in waiting for file in bucket.files)
                count = bucket_count(files, real, self._table.options)
                yield DistributionTask(waiting[0], files, real=real, count=count, full=full)
            else:
                for count, alike in groupby(real, key=lambda bucket: bucket.total_buckets):
                    yield from self._of(count).picker.tasks(alike, full=full)

    def execute(self, task: CompactionTask) -> list[CompactionResult]:
        if not isinstance(task, DistributionTask):
            return self._of(task.bucket.total_buckets).picker.execute(task)
        with bad_rows_as_damage(self._reader, task):
            records = self._reader.expecting(task.files).records(task.files, levels=False)
            distributor = self._of(task.count)
            results = distributor.distribute(records, task.bucket.partition, task.real, full=task.full)
            return [CompactionResult(task.bucket, task.files), *results]

    def _of(self, count: int) -> Distributor:
        found = self._distributors.get(count)
        if found is None:
            table = with_buckets(self._table, count)
            found = self._distributors[count] = Distributor(table, self._reader, self._now)
        return found
