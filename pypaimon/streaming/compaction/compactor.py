"""`compact`: pick what is due at the latest snapshot of a table, rewrite it, and commit it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pyarrow as pa

from pypaimon.streaming.commit.idempotent_commit import new_compaction_user
from pypaimon.streaming.compaction.chosen_partitions import Choice, ChosenPartitions, MixedPartitions
from pypaimon.streaming.compaction.compacting_writers import CompactingWriters
from pypaimon.streaming.compaction.compaction_options import check_compactable, under_latest_schema, warn_about_ignored
from pypaimon.streaming.compaction.compaction_run import CompactionRun, Progress, described
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.live_files import LiveBucket, LiveEntries, live_buckets, of_known_schemas
from pypaimon.streaming.compaction.reports import CompactionReport, SkippedPartition
from pypaimon.streaming.compaction.sort_order import sort_request
from pypaimon.streaming.compaction.task_pickers import NewPicker, sort_picker, task_picker
from pypaimon.streaming.compaction.tasks import TaskPicker, Threads, Workers
from pypaimon.streaming.compaction.vector_index import VectorIndex
from pypaimon.streaming.maintenance.commit_maintenance import CommitMaintenance, When, is_automatic_maintenance
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.arguments import a_table
from pypaimon.streaming.paimon.handles import WritableTable
from pypaimon.streaming.writing.files.file_options import warn_about_files
from pypaimon.streaming.writing.writable_tables import warn_unsupported_maintenance


def compact(
    table: WritableTable,
    *,
    full: bool = False,
    partition: Mapping[str, Any] | None = None,
    where: str | None = None,
    partition_idle_time: float | timedelta | None = None,
    order_by: str | Sequence[str] | None = None,
    strategy: str = "auto",
    threads: int = 1,
    dry_run: bool = False,
    on_progress: Progress | None = None,
    maintain: When = "off",
) -> CompactionReport:
    """Compact what is due in a table according to its options. Blocks.

    Rows do not change, and readers only find fewer files, except for rows in postponed buckets (`bucket` = -2), which
    batch readers find from then on. Writers are never blocked: what they change meanwhile is left as it is, and
    reported as a conflict.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it.
        full: Compact all of each bucket, and any two small files, not only what is due.
        partition: Values of partition columns, all or some, as `with_overwrite` of a writer takes them. Only partitions
            with these values are compacted. None: all.
        where: A condition on partition columns, as `with_filter` takes it. Only partitions that meet it are compacted.
        partition_idle_time: Only partitions without a younger file are compacted, by the local clock. None: all.
        order_by: Columns by which all rows of each partition of an append table without buckets are sorted, so that
            filters on these columns read fewer files. None: what is due is compacted.
        strategy: How they are sorted by several columns: `"order"` (by the first one, then the next), `"zorder"`,
            `"hilbert"`; `"auto"`: `"zorder"`, and `"hilbert"` from five columns on.
        threads: Number of buckets, or parts of them, that are compacted at the same time; of partitions, if they have
            postponed rows.
        dry_run: Write nothing. The report says what would be compacted.
        on_progress: Called with the bytes that are done, and the total bytes to be done.
        maintain: `"auto"`: the compaction is followed by what `maintain` does, when that is due. Its errors are logged.

    Raises:
        UnsupportedTableError: Such a table cannot be compacted exactly; nothing was written.
        StreamConfigError: An option or an argument cannot be read, or names no partition column.
        CorruptTableError: A file is damaged or missing. Earlier commits stay; the rest was not committed.
        CommitFailedError: A commit did not get through (retriable).
        StoreError: The store failed (retriable).
    """
    given = PaimonTable(a_table("compact: table", table))
    chosen = ChosenPartitions(given, partition, where, partition_idle_time)
    maintains = is_automatic_maintenance("compact: maintain", maintain) and not dry_run
    maintenance = CommitMaintenance(given) if maintains else None
    new = sort_picker(sort_request("compact", order_by, strategy))
    compaction = Compaction(given, chosen, full=full, workers=Threads(threads), maintains=maintains, new_picker=new)
    report = compaction.run(dry_run=dry_run, on_progress=on_progress)
    if maintenance is not None and report.latest_id is not None:
        maintenance.after_commit(report.latest_id)
        maintenance.close()
    return report


class Compaction:
    """Compacts one table each time that `run` is called, under one commit user. Not for several threads.

    After the first run, the number of requests depends on what has changed since, and only buckets that have changed
    are examined.

    Args:
        workers: Execute the tasks; None: the thread that calls `run`.
        maintains: Whether the caller does maintenance after the runs.
        new_picker: Makes the picker of the tasks; None: what is due is compacted.
    """

    def __init__(
        self,
        table: PaimonTable,
        chosen: ChosenPartitions | None = None,
        *,
        full: bool = False,
        workers: Workers | None = None,
        now: Callable[[], datetime] | None = None,
        maintains: bool = False,
        new_picker: NewPicker | None = None,
    ) -> None:
        self._table = table
        self._new_picker = new_picker
        self._maintains = maintains
        self._now = now
        self._workers = workers or Threads(1)
        self._full = full
        self._chosen = chosen or ChosenPartitions(table)
        self._user = new_compaction_user(table.options)
        self._writers = CompactingWriters()
        self._identifiers = count(1)
        self._live = LiveEntries(by_partition=table.traits.postpone)
        self._schema: int | None = None
        self._skipped: tuple[SkippedPartition, ...] = ()

    def run(
        self, *, dry_run: bool = False, on_progress: Progress | None = None, check: Callable[[], None] = lambda: None
    ) -> CompactionReport:
        """Compact what is due at the latest snapshot. See `compact`. `check` is called often. An error that it raises
        ends the run, and files that were not committed are deleted.
        """
        skipped = self._skipped
        try:
            report = self._run(dry_run, on_progress, check)
        except BaseException:
            self._live.forget()
            raise
        # Files that were left, or have been left until now, may be due without another change.
        if dry_run or report.conflicts or report.skipped != skipped:
            self._live.forget()
        return report

    def _run(self, dry_run: bool, on_progress: Progress | None, check: Callable[[], None]) -> CompactionReport:
        directory = self._table.new_directory()
        # The snapshot first: then the schema, which is read later, is not older than its files.
        snapshot = directory.snapshots.get_latest_snapshot()
        table = under_latest_schema(self._table, directory)
        check_compactable(table)
        reader = FileReader(table, directory, check)
        new = self._new_picker
        picker = task_picker(table, reader, self._now) if new is None else new(table, reader)
        if not dry_run:
            warn_unsupported_maintenance(table, maintains=self._maintains)
            warn_about_ignored(table)
            warn_about_files(table, adds_rows=False)
        if snapshot is None:
            return CompactionReport(None)
        self._writers.look(table, directory, snapshot)
        index = VectorIndex.of(table, directory, snapshot)
        entries = self._entries(table, picker, directory, snapshot)
        mixed = self._mixed(table)

        def buckets(wanted: Choice) -> Iterator[LiveBucket]:
            return index.attached(of_known_schemas(live_buckets(table, entries, wanted), int(table.schema.id)))

        tasks = [
            *picker.tasks(self._chosen.idle(buckets(mixed.others)), full=self._full),
            *picker.idle_tasks(buckets(self._chosen.others)),
        ]
        if dry_run:
            compacted = tuple(found for each in tasks for found in described(table, each))
            return CompactionReport(snapshot.id, compacted=compacted, skipped=mixed.skipped)
        run = CompactionRun(table, directory, snapshot, index, self._user, self._identifiers, on_progress)
        return replace(run.execute(tasks, picker, self._workers), skipped=mixed.skipped)

    def _entries(
        self, table: PaimonTable, picker: TaskPicker, directory: TableDirectory, snapshot: Snapshot
    ) -> pa.Table:
        """The entries of the buckets that may be due: those that have changed since the last run, unless others may
        have become due without a change of their files.
        """
        # Without a primary key, a commit may change deletion vectors without any change of data files.
        by_vectors = table.traits.deletion_vectors and not table.is_primary_key_table
        by_time = picker.by_time(full=self._full) or self._chosen.by_time
        known, self._schema = self._schema, int(table.schema.id)
        if by_vectors or by_time or known != self._schema:
            self._live.forget()
        return self._live.look(directory, snapshot)

    def _mixed(self, table: PaimonTable) -> MixedPartitions:
        """The partitions of the whole table that are not compacted, which are logged if they are others than before."""
        living = self._chosen.living(table, (self._now or table.zone.now)())
        mixed = MixedPartitions(table, self._live.everything, living)
        if mixed.skipped != self._skipped:
            self._skipped = mixed.skipped
            mixed.log(table)
        return mixed
