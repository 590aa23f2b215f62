"""`rescale`: divides the rows of a table into another number of buckets.

As Flink's `RescaleAction` does. Java's rules: docs/java-semantics.md#compaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import groupby
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
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.distribution import Distributor
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.keyed_rewrite import KeyedRewriter
from pypaimon.streaming.compaction.live_files import LiveBucket, LiveEntries, live_buckets, of_known_schemas
from pypaimon.streaming.compaction.reports import CompactedBucket, CompactionReport, SkippedPartition, counted
from pypaimon.streaming.compaction.run_picking import ChangelogMode
from pypaimon.streaming.compaction.tasks import CompactionTask, bad_rows_as_damage, find_stale
from pypaimon.streaming.compaction.vector_index import VectorIndex
from pypaimon.streaming.errors import CommitConflictError, CorruptTableError, StrictModeError, UnsupportedTableError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.row_kinds import INSERT
from pypaimon.streaming.model.system_columns import VALUE_KIND
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import a_table, at_least
from pypaimon.streaming.options.option_key import OptionKey
from pypaimon.streaming.paimon.handles import WritableTable
from pypaimon.streaming.paimon.write_internals import BucketMode, CommitMessage
from pypaimon.streaming.planning.units import bucket_counts
from pypaimon.streaming.writing.blob_forms import blob_forms
from pypaimon.streaming.writing.files.file_options import APPENDED
from pypaimon.streaming.writing.record_writer import RecordWriter
from pypaimon.streaming.writing.write_state import WriteState

# The rows are those that were there, so there are no changes to look for, and nothing to mark.
_WITHOUT_CHANGES: Mapping[OptionKey[Any, Any], str | None] = {
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
    count = at_least(1, "buckets", buckets)
    chosen = ChosenPartitions(given, partition, where, partition_idle_time)
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
        conflicts = Compaction(given, only, full=mode is not None and mode.full).run().conflicts
    return _rescaled(given, count, rows, conflicts, dry_run=dry_run)


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
    given: PaimonTable, count: int, rows: pa.Array, conflicts: Sequence[CompactedBucket], *, dry_run: bool
) -> CompactionReport:
    directory = given.new_directory()
    # The snapshot first: then the schema, which is read later, is not older than its files.
    snapshot = directory.snapshots.get_latest_snapshot()
    if snapshot is None:
        return CompactionReport(None)
    rescaling = _Rescaling(under_latest_schema(given, directory), directory, snapshot, count)
    report = rescaling.run(rows, dry_run=dry_run)
    # What the compaction before has left is one only if the partition was not rescaled all the same.
    named = [each.partition for each in (*report.compacted, *report.conflicts)]
    left = [each for each in conflicts if each.partition not in named]
    return replace(report, conflicts=(*left, *report.conflicts))


def _examined_from(table: PaimonTable) -> int:
    """The lowest level whose changes are in the changelog, or need not be."""
    mode = _mode(table)
    if mode is not None and mode.full:
        return CompactionOptions.of(table).top_level
    return 1 if mode is not None and mode.looks_up else 0


def _mode(table: PaimonTable) -> ChangelogMode | None:
    return ChangelogMode.of(table) if table.is_primary_key_table else None


class _StaleError(Exception):
    """Another job has replaced files of the partition."""


class _RepeatedKeyError(Exception):
    """A key has rows in files of several numbers of buckets, whose order is not known."""


_REPEATED = (
    "Its files are divided into several numbers of buckets, and a key has rows in files of more than one, so which row "
    "is the newer one is not known. Overwrite the partition with the right rows (INSERT OVERWRITE)."
)
_UNREPORTED = (
    "Its files are divided into several numbers of buckets, and streams have not received all changes that they hold, "
    "which no compaction can find out any more. Overwrite the partition with its own rows (INSERT OVERWRITE), and "
    "start its streams again."
)


class _Rescaling:
    def __init__(self, table: PaimonTable, directory: TableDirectory, snapshot: Snapshot, count: int) -> None:
        self._table = table
        self._directory = directory
        self._snapshot = snapshot
        self._count = count
        self._user = new_compaction_user(table.options)
        mode = _mode(table)
        self._examined_from = _examined_from(table)
        # Whether compactions find out what streams receive
        self._is_reported = mode is not None and (mode.writes or mode.engine.keeps_oldest)
        self._reader = FileReader(table, directory, lambda: None)

    def run(self, rows: pa.Array, *, dry_run: bool) -> CompactionReport:
        """Rescale partitions, which are given as serialised rows."""
        snapshot = self._snapshot
        index = VectorIndex.of(self._table, self._directory, snapshot)
        entries = LiveEntries().look(self._directory, snapshot)
        buckets = live_buckets(self._table, entries, lambda found: found.filter(pc.is_in(found, value_set=rows)))
        buckets = of_known_schemas(buckets, int(self._table.schema.id))
        snapshots, done, conflicts = list[int](), list[CompactedBucket](), list[CompactedBucket]()
        skipped = list[SkippedPartition]()
        for number, (_, members) in enumerate(groupby(index.attached(buckets), key=lambda bucket: bucket.row), 1):
            former = [bucket for bucket in members if bucket.bucket >= 0]
            if all(bucket.total_buckets == self._count for bucket in former):
                continue
            is_mixed = len({bucket.total_buckets for bucket in former}) > 1
            removed = self._removed(former, index)
            if dry_run:
                done += map(self._described, removed)
                continue
            if any(file.level < self._examined_from for bucket in former for file in bucket.files):
                if not is_mixed:
                    # Written since the compaction, which has yet to find out what changes.
                    conflicts += map(self._described, removed)
                    continue
                if self._is_reported:
                    skipped.append(self._skipped(former, _UNREPORTED))
                    continue
            try:
                messages = removed + self._written(former)
                report = commit_replacement(CommitRequest(self._table, self._user, number, messages), snapshot.id)
            except (CommitConflictError, StrictModeError, _StaleError) as error:
                if isinstance(error, StrictModeError) and error.snapshot <= snapshot.id:
                    # The table's own option refuses the commit.
                    raise
                conflicts += map(self._described, removed)
                continue
            except _RepeatedKeyError:
                skipped.append(self._skipped(former, _REPEATED))
                continue
            done += map(self._described, messages)
            if report.snapshot_id is not None:
                snapshots.append(report.snapshot_id)
        return CompactionReport(snapshot.id, tuple(snapshots), tuple(done), tuple(conflicts), tuple(skipped))

    def _written(self, former: Sequence[LiveBucket]) -> list[CommitMessage]:
        """The rows of a partition in new files, which are deleted on any error (_StaleError, _RepeatedKeyError)."""
        task = CompactionTask(former[0], [file for bucket in former for file in bucket.files])
        try:
            with bad_rows_as_damage(self._reader, task):
                return self._divided(former)
        except FileNotFoundError as error:
            if find_stale(self._table, [task]):
                raise _StaleError from error
            raise CorruptTableError(str(error.filename or error), "is missing, though the table needs it") from error

    def _divided(self, former: Sequence[LiveBucket]) -> list[CommitMessage]:
        target = with_buckets(self._table, self._count, _WITHOUT_CHANGES)
        partition = former[0].partition
        if self._table.is_primary_key_table:
            distributor = Distributor(target, self._reader, self._table.zone.now)
            read = [0]
            results = distributor.distribute(self._rows(former, read), partition, (), full=True)
            files = {result.bucket.bucket: result.after for result in results}
            if sum(int(file.row_count) for new in files.values() for file in new) != read[0]:
                # Each bucket has one row per key, and so has the result: a key was in several buckets.
                discard(self._table, [result.message() for result in results])
                raise _RepeatedKeyError
            if self._table.traits.snapshot_ordering:
                # The records are those of the snapshot that the commit makes.
                files = {number: [replace(file, file_source=APPENDED) for file in new] for number, new in files.items()}
        else:
            files = {int(each.bucket): each.new_files for each in self._appended(target, former)}
        return [CommitMessage(partition, number, new, total_buckets=self._count) for number, new in files.items()]

    def _rows(self, former: Sequence[LiveBucket], read: list[int]) -> Iterator[pa.RecordBatch]:
        """The rows of buckets. Their number is added to the first element of `read`."""
        rewriter = KeyedRewriter(self._table, self._reader, CompactionOptions.of(self._table))
        for bucket in former:
            for batch in rewriter.rows(bucket):
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

    @staticmethod
    def _removed(former: Sequence[LiveBucket], index: VectorIndex) -> list[CommitMessage]:
        messages: list[CommitMessage] = []
        numbers = set[int]()
        for bucket in former:
            # Buckets of one number share their index files.
            deleted = [] if bucket.bucket in numbers else index.of_bucket(bucket)
            numbers.add(bucket.bucket)
            files = [file.replaced() for file in bucket.files]
            message = CommitMessage(bucket.partition, bucket.bucket, [], total_buckets=bucket.total_buckets)
            messages.append(replace(message, deleted_files=files, index_deletes=deleted))
        return messages

    def _skipped(self, former: Sequence[LiveBucket], reason: str) -> SkippedPartition:
        return SkippedPartition(self._values(former[0].partition), reason)

    def _values(self, partition: Any) -> Mapping[str, Any]:
        return dict(zip(self._table.partition_keys, partition, strict=True))

    def _described(self, message: CommitMessage) -> CompactedBucket:
        return CompactedBucket(
            self._values(message.partition),
            message.bucket,
            counted(message.deleted_files),
            counted(message.new_files),
        )
