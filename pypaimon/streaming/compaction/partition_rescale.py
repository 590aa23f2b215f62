"""`rescale`: divides the rows of a table into another number of buckets.

As Flink's `RescaleAction` does. Java's rules: docs/java-semantics.md#compaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.commit.idempotent_commit import commit_replacement, new_compaction_user
from pypaimon.streaming.commit.request import CommitRequest
from pypaimon.streaming.compaction.compaction_options import (
    CompactionOptions,
    check_compactable,
    under_latest_schema,
    with_buckets,
)
from pypaimon.streaming.compaction.compactor import Compaction, of_known_schemas
from pypaimon.streaming.compaction.distribution import Distributor
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.keyed_rewrite import KeyedRewriter
from pypaimon.streaming.compaction.live_files import ChosenPartitions, LiveBucket, LiveEntries, live_buckets
from pypaimon.streaming.compaction.reports import CompactedBucket, CompactionReport, counted
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
from pypaimon.streaming.writing.record_writer import RecordWriter
from pypaimon.streaming.writing.write_state import WriteState

# The rows are those that were there, so there are no changes to look for, and nothing to mark.
_WITHOUT_CHANGES: Mapping[OptionKey[Any, Any], str] = {
    option_keys.CHANGELOG_PRODUCER: "none",
    option_keys.DELETION_VECTORS_ENABLED: "false",
    option_keys.FORCE_LOOKUP: "false",
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

    Each partition is compacted, which distributes its postponed rows, then replaced by its own rows in one commit
    (OVERWRITE), which streams pass over unless they read overwrites. Rows that are postponed meanwhile stay so. The
    table's option `bucket` decides about new partitions, and writers refuse a partition with another number: alter the
    option, then rescale, while nobody writes.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it, with fixed or postponed buckets.
        buckets: The number of buckets.
        partition: As `compact` takes it.
        where: As `compact` takes it.
        partition_idle_time: As `compact` takes it.
        dry_run: Write nothing. The report says which buckets would be replaced.

    Returns:
        What was replaced. Partitions that others have changed meanwhile are conflicts, and stay as they were.

    Raises:
        UnsupportedTableError: The table has no such buckets, or cannot be compacted exactly; nothing was written.
        StreamConfigError: An option or an argument cannot be read, or names no partition column.
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
    rows = _rows_chosen(latest, chosen)
    if not dry_run:
        # What compaction finds out about changes (changelogs, deletion vectors) is lost with the files of level 0.
        mode = _mode(latest)
        Compaction(given, chosen, full=mode is not None and mode.full).run()
    return _rescaled(given, count, rows, dry_run=dry_run)


def _rows_chosen(table: PaimonTable, chosen: ChosenPartitions) -> pa.Array:
    """The partitions, as serialised rows, before compaction gives them younger files."""
    directory = table.new_directory()
    snapshot = directory.snapshots.get_latest_snapshot()
    if snapshot is None:
        return pa.array([], pa.binary())
    entries = LiveEntries().look(directory, snapshot)
    if not chosen.by_time:
        return chosen.among(pc.unique(entries["partition"].combine_chunks()))
    buckets = chosen.idle(live_buckets(table, entries, chosen.among))
    return pa.array(list(dict.fromkeys(bucket.row for bucket in buckets)), pa.binary())


def _rescaled(given: PaimonTable, count: int, rows: pa.Array, *, dry_run: bool) -> CompactionReport:
    directory = given.new_directory()
    # The snapshot first: then the schema, which is read later, is not older than its files.
    snapshot = directory.snapshots.get_latest_snapshot()
    if snapshot is None:
        return CompactionReport(None)
    return _Rescaling(under_latest_schema(given, directory), directory, snapshot, count).run(rows, dry_run=dry_run)


def _mode(table: PaimonTable) -> ChangelogMode | None:
    return ChangelogMode.of(table) if table.is_primary_key_table else None


class _StaleError(Exception):
    pass


class _Rescaling:
    def __init__(self, table: PaimonTable, directory: TableDirectory, snapshot: Snapshot, count: int) -> None:
        self._table = table
        self._directory = directory
        self._snapshot = snapshot
        self._count = count
        self._user = new_compaction_user(table.options)
        mode = _mode(table)
        looked_up = 1 if mode is not None and mode.looks_up else 0
        self._examined_from = CompactionOptions.of(table).top_level if mode is not None and mode.full else looked_up
        self._reader = FileReader(table, directory, lambda: None)

    def run(self, rows: pa.Array, *, dry_run: bool) -> CompactionReport:
        """Rescale partitions, which are given as serialised rows."""
        snapshot = self._snapshot
        index = VectorIndex.of(self._table, self._directory, snapshot)
        entries = LiveEntries().look(self._directory, snapshot)
        buckets = live_buckets(self._table, entries, lambda found: found.filter(pc.is_in(found, value_set=rows)))
        buckets = of_known_schemas(buckets, int(self._table.schema.id))
        snapshots, done, conflicts = list[int](), list[CompactedBucket](), list[CompactedBucket]()
        for number, (_, members) in enumerate(groupby(index.attached(buckets), key=lambda bucket: bucket.row), 1):
            former = [bucket for bucket in members if bucket.bucket >= 0]
            if all(bucket.total_buckets == self._count for bucket in former):
                continue
            removed = [self._removed(bucket, index) for bucket in former]
            if dry_run:
                done += map(self._described, removed)
                continue
            if any(file.level < self._examined_from for bucket in former for file in bucket.files):
                # Written since the compaction, which has yet to find out what changes.
                conflicts += map(self._described, removed)
                continue
            try:
                messages = removed + self._written(former)
                report = commit_replacement(CommitRequest(self._table, self._user, number, messages), snapshot.id)
            except (CommitConflictError, StrictModeError, _StaleError):
                conflicts += map(self._described, removed)
                continue
            done += map(self._described, messages)
            if report.snapshot_id is not None:
                snapshots.append(report.snapshot_id)
        return CompactionReport(snapshot.id, tuple(snapshots), tuple(done), tuple(conflicts))

    def _written(self, former: Sequence[LiveBucket]) -> list[CommitMessage]:
        """The rows of a partition in new files. If it fails, they are deleted. Raises _StaleError if another job has
        replaced the partition's files.
        """
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
            results = distributor.distribute(self._rows(former), partition, (), full=True)
            files = {result.bucket.bucket: result.after for result in results}
        else:
            files = {int(each.bucket): each.new_files for each in self._appended(target, former)}
        return [CommitMessage(partition, number, new, total_buckets=self._count) for number, new in files.items()]

    def _rows(self, former: Sequence[LiveBucket]) -> Iterator[pa.RecordBatch]:
        rewriter = KeyedRewriter(self._table, self._reader, CompactionOptions.of(self._table))
        for bucket in former:
            for batch in rewriter.rows(bucket):
                # Java's are inserts too, whatever they were when they were written.
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
    def _removed(bucket: LiveBucket, index: VectorIndex) -> CommitMessage:
        return CommitMessage(
            bucket.partition,
            bucket.bucket,
            [],
            total_buckets=bucket.total_buckets,
            deleted_files=[file.replaced() for file in bucket.files],
            index_deletes=index.of_bucket(bucket),
        )

    def _described(self, message: CommitMessage) -> CompactedBucket:
        return CompactedBucket(
            dict(zip(self._table.partition_keys, message.partition, strict=True)),
            message.bucket,
            counted(message.deleted_files),
            counted(message.new_files),
        )
