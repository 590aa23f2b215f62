"""`PostponedTaskPicker`: distributes the records of postponed buckets over real ones, and compacts those.

As Flink's compaction of such tables does. Java's rules: docs/java-semantics.md#compaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

import pyarrow as pa

from pypaimon.streaming.commit.changes import data_changes
from pypaimon.streaming.commit.cleanup import discard
from pypaimon.streaming.compaction.compaction_options import with_buckets
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.live_files import CompactionResult, LiveBucket, LiveFile
from pypaimon.streaming.compaction.tasks import CompactionTask, KeyedTaskPicker, bad_rows_as_damage
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats.binary_row import decode_rows
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.arrow_types import arrow_schema
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.model.system_columns import SYSTEM_TYPES, VALUE_KIND
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.paimon.internals import DataFileMeta
from pypaimon.streaming.paimon.write_internals import CommitMessage
from pypaimon.streaming.writing.record_writer import RecordWriter
from pypaimon.streaming.writing.write_state import NO_SEQUENCE, WriteState

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
    """The number of buckets of a partition: that of its files in real buckets, or else what the options say. Raises
    UnsupportedTableError if its files have several.
    """
    counts = {bucket.total_buckets for bucket in real}
    if len(counts) > 1:
        raise UnsupportedTableError(
            f"Files of one partition are divided into {' and '.join(map(str, sorted(counts)))} buckets. Overwrite the "
            "partition with its own rows first (INSERT OVERWRITE)."
        )
    if counts:
        return counts.pop()
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


class PostponedTaskPicker:
    """The `TaskPicker` of a table with postponed buckets.

    A partition with postponed files is one task. Its real buckets are compacted in the same commit: an older record of
    a key must not be read after a newer one, and what streams get of a partition is the changelog of that commit.
    """

    def __init__(self, table: PaimonTable, reader: FileReader, now: Callable[[], datetime]) -> None:
        self._table = table
        self._reader = reader
        self._now = now
        self._of_counts: dict[int, KeyedTaskPicker] = {}
        self._schema = arrow_schema(table.fields).append(pa.field(VALUE_KIND, SYSTEM_TYPES[VALUE_KIND], nullable=False))

    def by_time(self, *, full: bool) -> bool:
        return self._of(1).by_time(full=full)

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
                    yield from self._of(count).tasks(alike, full=full)

    def execute(self, task: CompactionTask) -> list[CompactionResult]:
        if not isinstance(task, DistributionTask):
            return self._of(task.bucket.total_buckets).execute(task)
        with bad_rows_as_damage(self._reader, task):
            return self._distributed(task)

    def _of(self, count: int) -> KeyedTaskPicker:
        found = self._of_counts.get(count)
        if found is None:
            table = with_buckets(self._table, count)
            found = self._of_counts[count] = KeyedTaskPicker(table, self._reader, self._now)
        return found

    def _distributed(self, task: DistributionTask) -> list[CompactionResult]:
        table, picker = with_buckets(self._table, task.count), self._of(task.count)
        messages = self._written(table, task)
        results = [CompactionResult(task.bucket, task.files)]
        try:
            for bucket, message in _buckets(table, task, messages):
                result = picker.compact(bucket, full=task.full)
                results.append(_with_new_files(result, message))
                discard(table, [_intermediate(result, message)])
        except BaseException:
            discard(table, [*messages, *(result.message() for result in results)])
            raise
        return [result for result in results if not result.is_empty]

    def _written(self, table: PaimonTable, task: DistributionTask) -> list[CommitMessage]:
        """Write the postponed records to new files of level 0, numbered after all records of the partition."""
        numbers = [file.read.max_sequence_number for bucket in task.real for file in bucket.files]
        writer = RecordWriter(table, "", False, WriteState(max(numbers, default=NO_SEQUENCE)))
        try:
            for batch in self._reader.expecting(task.files).records(task.files, levels=False):
                columns = [batch.column(name) for name in self._schema.names]
                writer.write(pa.RecordBatch.from_arrays(columns, schema=self._schema))
            return writer.prepare()
        except BaseException:
            writer.abort()
            raise


def _buckets(
    table: PaimonTable, task: DistributionTask, messages: Sequence[CommitMessage]
) -> Iterator[tuple[LiveBucket, CommitMessage]]:
    """The real buckets of a partition with their new files."""
    there = {bucket.bucket: bucket for bucket in task.real}
    new = {int(message.bucket): message for message in messages}
    for number in sorted(there.keys() | new.keys()):
        bucket = there.get(number) or LiveBucket(task.bucket.partition, number, task.count, ())
        message = new.get(number) or CommitMessage(task.bucket.partition, number, [])
        yield replace(bucket, files=(*bucket.files, *_live(table, message))), message


def _live(table: PaimonTable, message: CommitMessage) -> Iterator[LiveFile]:
    for file, change in zip(message.new_files, data_changes(table, [message]).files, strict=True):
        bounds = pa.array([change.file["_MIN_KEY"], change.file["_MAX_KEY"]], pa.binary())
        least, greatest = decode_rows(bounds, table.key_fields)
        yield LiveFile(replace(file, min_key=least, max_key=greatest), change)


def _with_new_files(result: CompactionResult, message: CommitMessage) -> CompactionResult:
    """What becomes of the files that were there before: new files that were compacted at once never existed."""
    new = _names(message.new_files)
    compacted = {file.name for file in result.before}
    return replace(
        result,
        before=[file for file in result.before if file.name not in new],
        after=[*(file for file in message.new_files if file.file_name not in compacted), *result.after],
        changelog=[*message.changelog_files, *result.changelog],
    )


def _intermediate(result: CompactionResult, message: CommitMessage) -> CommitMessage:
    """The new files that were compacted at once."""
    gone = [each for each in message.new_files if each.file_name in result.rewritten]
    return replace(message, new_files=gone, changelog_files=[])


def _names(files: Iterable[DataFileMeta]) -> set[str]:
    return {str(file.file_name) for file in files}
