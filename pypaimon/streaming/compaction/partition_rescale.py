"""`rescale`: divides the rows of a table into another number of buckets.

As Flink's `RescaleAction` does. Java's rules: docs/java-semantics.md#compaction.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.commit.cleanup import discard
from pypaimon.streaming.commit.idempotent_commit import commit_replacement, new_compaction_user
from pypaimon.streaming.commit.request import CommitRequest
from pypaimon.streaming.compaction.chosen_partitions import ChosenPartitions
from pypaimon.streaming.compaction.compaction_options import (
    CompactionOptions,
    check_compactable,
    under_latest_schema,
    with_buckets,
)
from pypaimon.streaming.compaction.compaction_run import CompactionRun, Executed, compacted_bucket, described
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.distribution import Distributor
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.keyed_clustering import keyed_task_picker
from pypaimon.streaming.compaction.live_files import (
    CompactionResult,
    LiveBucket,
    LiveEntries,
    live_buckets,
    of_known_schemas,
)
from pypaimon.streaming.compaction.reports import CompactedBucket, CompactionReport, SkippedPartition
from pypaimon.streaming.compaction.run_picking import ChangelogMode
from pypaimon.streaming.compaction.tasks import CompactionTask, TaskPicker, Threads, Workers, bad_rows_as_damage
from pypaimon.streaming.compaction.vector_index import VectorIndex
from pypaimon.streaming.errors import CommitConflictError, StrictModeError, UnsupportedTableError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.row_kinds import INSERT
from pypaimon.streaming.model.system_columns import VALUE_KIND
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import a_table, at_least
from pypaimon.streaming.options.option_key import OptionKey
from pypaimon.streaming.paimon.handles import WritableTable
from pypaimon.streaming.paimon.internals import DataFileMeta
from pypaimon.streaming.paimon.write_internals import BucketMode, CommitMessage
from pypaimon.streaming.planning.units import bucket_counts
from pypaimon.streaming.writing.blob_forms import blob_forms
from pypaimon.streaming.writing.files.file_options import APPENDED
from pypaimon.streaming.writing.record_writer import RecordWriter
from pypaimon.streaming.writing.write_state import WriteState

# The rows are those that were there, so there are no changes to look for, and nothing to mark.
WITHOUT_CHANGES: Mapping[OptionKey[Any, Any], str | None] = {
    option_keys.CHANGELOG_PRODUCER: "none",
    option_keys.DELETION_VECTORS_ENABLED: "false",
    option_keys.FORCE_LOOKUP: "false",
    option_keys.RECORD_LEVEL_EXPIRE_TIME: None,
    option_keys.SEQUENCE_SNAPSHOT_ORDERING: None,
}


def rescale(
    table: WritableTable,
    buckets: int,
    *,
    partition: Mapping[str, Any] | None = None,
    where: str | None = None,
    partition_idle_time: float | timedelta | None = None,
    dry_run: bool = False,
) -> CompactionReport:
    """Divide the rows of partitions into another number of buckets. Blocks.

    Each partition with another number is replaced by its own rows in one commit (OVERWRITE), which streams pass over
    unless they read overwrites. It is compacted before if it has postponed rows, or changes that its changelog does not
    have yet. Rows that are postponed meanwhile stay so. The table's option `bucket` decides about new partitions, and
    writers refuse a partition with another number: alter the option, then rescale, while nobody writes.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it, with fixed or postponed buckets.
        buckets: The number of buckets.
        partition: As `compact` takes it.
        where: As `compact` takes it.
        partition_idle_time: As `compact` takes it.
        dry_run: Write nothing. The report says which buckets would be replaced.

    Returns:
        What was replaced. Partitions that others have changed meanwhile are conflicts, and stay as they were. If files
        of a partition have several numbers of buckets, and it is not known which of its rows count, it is skipped.

    Raises:
        UnsupportedTableError: The table has no such buckets, or cannot be compacted exactly; nothing was written.
        StreamConfigError: An option or an argument cannot be read, or names no partition column.
        StrictModeError: The table's `commit.strict-mode.last-safe-snapshot` forbids it. Earlier commits stay.
        CorruptTableError: A file is damaged or missing. Earlier commits stay; the rest was not committed.
        CommitFailedError: A commit did not get through (retriable).
        StoreError: The store failed (retriable).
    """
    given = PaimonTable(a_table("rescale: table", table))
    chosen = ChosenPartitions(given, partition, where, partition_idle_time)
    return rescale_partitions(given, at_least(1, "buckets", buckets), chosen, dry_run=dry_run)


def rescale_partitions(
    given: PaimonTable,
    count: int,
    chosen: ChosenPartitions,
    *,
    dry_run: bool,
    compacting: Workers | None = None,
    dividing: Workers | None = None,
) -> CompactionReport:
    """As `rescale`. `compacting`, `dividing`: Execute the tasks of the compaction before, and those of
    `RescaleTaskPicker`; None: this thread.
    """
    latest = under_latest_schema(given, given.new_directory())
    check_compactable(latest)
    if latest.bucket_mode not in (BucketMode.HASH_FIXED, BucketMode.POSTPONE_MODE):
        raise UnsupportedTableError(
            f"{latest.name} has no fixed number of buckets: its option 'bucket' is {latest.total_buckets}, and rescale "
            "changes the number of fixed buckets."
        )
    if option_keys.CHAIN_TABLE_ENABLED.of(latest.options):
        raise UnsupportedTableError(
            f"{latest.name} is a chain table: its deletes, which delete rows of its other branch, would be lost."
        )
    # Raises if a column holds blobs, whose rows can be compacted and not be written.
    blob_forms(latest.schema)
    directory = given.new_directory()
    snapshot = directory.snapshots.get_latest_snapshot()
    if snapshot is None:
        return CompactionReport(None)
    entries = LiveEntries().look(directory, snapshot)
    # Chosen before compaction gives the partitions younger files.
    rows = _rows_chosen(latest, entries, chosen)
    conflicts: tuple[CompactedBucket, ...] = ()
    waiting = _uncompacted(
        entries.filter(pc.is_in(entries["partition"], value_set=rows)), count, _examined_from(latest)
    )
    if len(waiting) and not dry_run:
        mode = _mode(latest)
        only = ChosenPartitions(given, only=waiting)
        compaction = Compaction(given, only, full=mode is not None and mode.full, workers=compacting)
        conflicts = compaction.run().conflicts
    return _rescaled(given, count, rows, conflicts, dividing or Threads(1), dry_run=dry_run)


def _rows_chosen(table: PaimonTable, entries: pa.Table, chosen: ChosenPartitions) -> pa.Array:
    """The partitions, as serialised rows."""
    if not chosen.by_time:
        return chosen.among(pc.unique(entries["partition"].combine_chunks()))
    buckets = chosen.idle(live_buckets(table, entries, chosen.among))
    return pa.array(list(dict.fromkeys(bucket.row for bucket in buckets)), pa.binary())


def _uncompacted(entries: pa.Table, count: int, examined_from: int) -> pa.Array:
    """The partitions to be rescaled that must be compacted first: they have postponed rows, or changes on lower levels
    than `examined_from` that only a compaction finds out.
    """
    is_real = pc.greater_equal(entries["bucket"], 0)
    is_other = pc.and_(is_real, pc.not_equal(entries["total_buckets"], count))
    is_waiting = pc.or_(pc.invert(is_real), pc.less(entries["level"], examined_from))
    real, others, waiting = (pc.unique(entries["partition"].filter(mask)) for mask in (is_real, is_other, is_waiting))
    is_done = pc.and_(pc.is_in(waiting, value_set=real), pc.invert(pc.is_in(waiting, value_set=others)))
    is_mixed = pc.is_in(waiting, value_set=pa.array(list(bucket_counts(entries)), pa.binary()))
    return waiting.filter(pc.invert(pc.or_(is_done, is_mixed)))


def _rescaled(
    given: PaimonTable,
    count: int,
    rows: pa.Array,
    conflicts: Sequence[CompactedBucket],
    workers: Workers,
    *,
    dry_run: bool,
) -> CompactionReport:
    directory = given.new_directory()
    # The snapshot first: then the schema, which is read later, is not older than its files.
    snapshot = directory.snapshots.get_latest_snapshot()
    if snapshot is None:
        return CompactionReport(None)
    table = under_latest_schema(given, directory)
    index = VectorIndex.of(table, directory, snapshot)
    entries = LiveEntries().look(directory, snapshot)
    buckets = live_buckets(table, entries, lambda found: found.filter(pc.is_in(found, value_set=rows)))
    buckets = index.attached(of_known_schemas(buckets, int(table.schema.id)))
    run = _RescaleRun(table, directory, snapshot, index, new_compaction_user(table.options), itertools.count(1), None)
    tasks = list(run.tasks(buckets, count, dry_run=dry_run))
    if dry_run:
        compacted = tuple(found for each in tasks for found in described(table, each))
        return CompactionReport(snapshot.id, compacted=compacted)
    picker = RescaleTaskPicker(table, FileReader(table, directory, lambda: None), count)
    report = run.execute(tasks, picker, workers)
    # What the compaction before has left is one only if the partition was not rescaled all the same.
    named = [each.partition for each in (*report.compacted, *report.conflicts)]
    left = [each for each in conflicts if each.partition not in named]
    return replace(report, conflicts=(*left, *report.conflicts), skipped=tuple(run.skipped))


def _examined_from(table: PaimonTable) -> int:
    """The lowest level whose changes are in the changelog, or need not be."""
    mode = _mode(table)
    if mode is not None and mode.full:
        return CompactionOptions.of(table).top_level
    return 1 if mode is not None and mode.looks_up else 0


def _mode(table: PaimonTable) -> ChangelogMode | None:
    return ChangelogMode.of(table) if table.is_primary_key_table else None


_REPEATED = (
    "Its files are divided into several numbers of buckets, and a key has rows in files of more than one, so which row "
    "is the newer one is not known. Overwrite the partition with the right rows (INSERT OVERWRITE)."
)
_UNREPORTED = (
    "Its files are divided into several numbers of buckets, and streams have not received all changes that they hold, "
    "which no compaction can find out any more. Overwrite the partition with its own rows (INSERT OVERWRITE), and "
    "start its streams again."
)


@dataclass(frozen=True, slots=True)
class RescaleTask(CompactionTask):
    """The rows of a partition go to another number of buckets."""

    former: tuple[LiveBucket, ...] = ()  # All its real buckets; `bucket` is the first one

    @staticmethod
    def of(former: Sequence[LiveBucket]) -> RescaleTask:
        files = [file for bucket in former for file in bucket.files]
        return RescaleTask(former[0], files, former=tuple(former))

    @property
    def is_whole_partition(self) -> bool:
        return True

    @property
    def before(self) -> list[CompactionResult]:
        return [CompactionResult(bucket, list(bucket.files)) for bucket in self.former]

    def lean(self) -> RescaleTask:
        return self


class RescaleTaskPicker(TaskPicker):
    """Divides partitions into a number of buckets. Its tasks are given by the caller."""

    def __init__(self, table: PaimonTable, reader: FileReader, count: int) -> None:
        self._table = table
        self._reader = reader
        self._count = count

    def tasks(self, buckets: Iterable[LiveBucket], *, full: bool) -> Iterator[CompactionTask]:
        return iter(())

    def execute(self, task: CompactionTask) -> list[CompactionResult]:
        """Returns the former buckets and the new ones. Nothing is returned, and no file is left, if a key has rows in
        files of several numbers of buckets: which of them is the newer one is not known.
        """
        assert isinstance(task, RescaleTask)
        with bad_rows_as_damage(self._reader, task):
            files = self._divided(task.former)
        if files is None:
            return []
        partition = task.bucket.partition
        new = [(LiveBucket(partition, number, self._count, ()), after) for number, after in files.items()]
        return [*task.before, *(CompactionResult(bucket, after=after) for bucket, after in new)]

    def _divided(self, former: Sequence[LiveBucket]) -> dict[int, list[DataFileMeta]] | None:
        target = with_buckets(self._table, self._count, WITHOUT_CHANGES)
        if not self._table.is_primary_key_table:
            return {int(each.bucket): each.new_files for each in self._appended(target, former)}
        distributor = Distributor(target, self._reader, self._table.zone.now)
        read = [0]
        results = distributor.distribute(self._rows(former, read), former[0].partition, (), full=True)
        files = {result.bucket.bucket: result.after for result in results}
        if sum(int(file.row_count) for new in files.values() for file in new) != read[0]:
            # Each bucket has one row per key, and so has the result: a key was in several buckets.
            discard(self._table, [result.message() for result in results])
            return None
        if self._table.traits.snapshot_ordering:
            # The records are those of the snapshot that the commit makes.
            files = {number: [replace(file, file_source=APPENDED) for file in new] for number, new in files.items()}
        return files

    def _rows(self, former: Sequence[LiveBucket], read: list[int]) -> Iterator[pa.RecordBatch]:
        """The rows of buckets. Their number is added to the first element of `read`."""
        picker = keyed_task_picker(self._table, self._reader, self._table.zone.now)
        for bucket in former:
            for batch in picker.rows(bucket):
                # Java's are inserts too, whatever they were when they were written.
                read[0] += batch.num_rows
                kinds = pa.repeat(pa.scalar(INSERT, pa.int8()), batch.num_rows)
                yield batch.set_column(batch.schema.get_field_index(VALUE_KIND), VALUE_KIND, kinds)

    def _appended(self, target: PaimonTable, former: Sequence[LiveBucket]) -> list[CommitMessage]:
        """Rows of an append table, those of each former bucket in their order."""
        writer = RecordWriter(target, "", True, WriteState())
        try:
            for bucket in former:
                reader = self._reader.expecting(bucket.files)
                for file in sorted(bucket.files, key=lambda file: file.read.min_sequence_number):
                    for batch in reader.rows(file):
                        writer.write(batch)
            return writer.prepare()
        except BaseException:
            writer.abort()
            raise


@dataclass(slots=True)
class _RescaleRun(CompactionRun):
    """Replaces each partition in a commit of its own."""

    skipped: list[SkippedPartition] = field(default_factory=list)

    def tasks(self, buckets: Iterable[LiveBucket], count: int, *, dry_run: bool) -> Iterator[RescaleTask]:
        """The partitions with another number of buckets, without those that cannot be rescaled now, which are noted."""
        mode = _mode(self.table)
        examined_from = _examined_from(self.table)
        # Whether compactions find out what streams receive
        is_reported = mode is not None and (mode.writes or mode.engine.keeps_oldest)
        for _, members in itertools.groupby(buckets, key=lambda bucket: bucket.row):
            former = [bucket for bucket in members if bucket.bucket >= 0]
            counts = {bucket.total_buckets for bucket in former}
            if counts <= {count}:
                continue
            task = RescaleTask.of(former)
            if dry_run or all(file.level >= examined_from for file in task.files):
                yield task
            elif len(counts) == 1:
                # Written since the compaction, which has yet to find out what changes.
                self.conflicts += described(self.table, task)
            elif is_reported:
                self._skip(task, _UNREPORTED)
            else:
                yield task

    def _commit(self, done: Executed) -> None:
        ((task, results),) = done
        assert isinstance(task, RescaleTask)
        if not results:
            self._skip(task, _REPEATED)
            return
        messages = [*self._removed(task), *(_added(each) for each in results if not each.before)]
        try:
            request = CommitRequest(self.table, self.user, next(self.identifiers), messages)
            report = commit_replacement(request, self.snapshot.id)
        except (CommitConflictError, StrictModeError) as error:
            self.raise_if_forbidden(error)
            self.conflicts += described(self.table, task)
            return
        self.compacted += [compacted_bucket(self.table, each) for each in results]
        if report.snapshot_id is not None:
            self.snapshots.append(report.snapshot_id)

    def _removed(self, task: RescaleTask) -> Iterator[CommitMessage]:
        numbers = set[int]()
        for bucket in task.former:
            # Buckets of one number share their index files.
            deleted = [] if bucket.bucket in numbers else self.index.of_bucket(bucket)
            numbers.add(bucket.bucket)
            files = [file.replaced() for file in bucket.files]
            message = CommitMessage(bucket.partition, bucket.bucket, [], total_buckets=bucket.total_buckets)
            yield replace(message, deleted_files=files, index_deletes=deleted)

    def _skip(self, task: RescaleTask, reason: str) -> None:
        values = dict(zip(self.table.partition_keys, task.bucket.partition, strict=True))
        self.skipped.append(SkippedPartition(values, reason))


def _added(result: CompactionResult) -> CommitMessage:
    bucket = result.bucket
    return CommitMessage(bucket.partition, bucket.bucket, result.after, total_buckets=bucket.total_buckets)
