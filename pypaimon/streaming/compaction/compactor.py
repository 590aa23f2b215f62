"""`compact`: pick what is due at the latest snapshot of a table, rewrite it, and commit it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

from pypaimon.streaming.commit.cleanup import discard, discarded_on_error
from pypaimon.streaming.commit.compaction_parts import commit_parts
from pypaimon.streaming.commit.idempotent_commit import commit_compaction, new_compaction_user
from pypaimon.streaming.commit.request import CommitRequest
from pypaimon.streaming.compaction.clustering import ClusteringTaskPicker
from pypaimon.streaming.compaction.compacting_writers import CompactingWriters
from pypaimon.streaming.compaction.compaction_options import check_compactable, under_latest_schema
from pypaimon.streaming.compaction.expired_partitions import without_expired
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.ignored_options import warn_about_ignored
from pypaimon.streaming.compaction.live_files import (
    ChosenPartitions,
    CompactionResult,
    LiveBucket,
    LiveEntries,
    Place,
    live_buckets,
)
from pypaimon.streaming.compaction.mixed_partitions import MixedPartitions
from pypaimon.streaming.compaction.reports import CompactedBucket, CompactionReport, SkippedPartition, counted
from pypaimon.streaming.compaction.sort_order import SortOrder, sort_request
from pypaimon.streaming.compaction.task_pickers import task_picker
from pypaimon.streaming.compaction.tasks import CompactionTask, Done, Threads, Workers, find_stale
from pypaimon.streaming.compaction.vector_index import VectorIndex
from pypaimon.streaming.errors import CommitConflictError, CorruptTableError, StrictModeError, TableChangedError
from pypaimon.streaming.maintenance.commit_maintenance import CommitMaintenance, When, is_automatic_maintenance
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.arguments import a_table
from pypaimon.streaming.paimon.handles import WritableTable
from pypaimon.streaming.paimon.write_internals import CommitMessage
from pypaimon.streaming.writing.files.file_options import warn_about_orc_zone
from pypaimon.streaming.writing.files.merged_changelogs import merged_changelogs
from pypaimon.streaming.writing.writable_tables import warn_unsupported_maintenance

_COMMIT_PARTS = 256
"""Commits are made after this many tasks, or after the bytes that the workers ask for."""

Progress = Callable[[int, int], None]


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
    order = sort_request("compact", order_by, strategy)
    compaction = Compaction(given, chosen, full=full, workers=Threads(threads), maintains=maintains, order=order)
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
        order: As `sort_request` returns it; None: what is due is compacted.
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
        order: Callable[[PaimonTable], SortOrder] | None = None,
    ) -> None:
        self._table = table
        self._order = order
        self._maintains = maintains
        self._now = now
        self._workers = workers or Threads(1)
        self._full = full
        self._chosen = chosen or ChosenPartitions(table)
        self._user = new_compaction_user(table.options)
        self._others = CompactingWriters()
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
        try:
            report = self._run(dry_run, on_progress, check)
        except BaseException:
            self._live.forget()
            raise
        if dry_run or report.conflicts:
            self._live.forget()
        return report

    def _run(self, dry_run: bool, on_progress: Progress | None, check: Callable[[], None]) -> CompactionReport:
        directory = self._table.new_directory()
        # The snapshot first: then the schema, which is read later, is not older than its files.
        snapshot = directory.snapshots.get_latest_snapshot()
        table = under_latest_schema(self._table, directory)
        check_compactable(table)
        order = None if self._order is None else self._order(table)
        if not dry_run:
            warn_unsupported_maintenance(table, maintains=self._maintains)
            warn_about_ignored(table)
        warn_about_orc_zone(table)
        if snapshot is None:
            return CompactionReport(None)
        self._others.look(table, directory, snapshot)
        index = VectorIndex.of(table, directory, snapshot)
        # Without a primary key, a commit may change deletion vectors without any change of data files.
        vectors = table.traits.deletion_vectors and not table.is_primary_key_table
        picker = task_picker(table, FileReader(table, directory, check), self._now, order)
        known, self._schema = self._schema, int(table.schema.id)
        if vectors or picker.by_time(full=self._full) or self._chosen.by_time or known != self._schema:
            self._live.forget()
        entries = self._live.look(directory, snapshot)
        living = partial(without_expired, table, (self._now or table.zone.now)())
        mixed = MixedPartitions(table, self._live.everything, living(self._chosen.among))
        if mixed.skipped != self._skipped:
            self._skipped = mixed.skipped
            mixed.log(table)
        buckets = self._chosen.idle(live_buckets(table, entries, mixed.others))
        buckets = index.attached(of_known_schemas(buckets, self._schema))
        tasks = list(picker.tasks(buckets, full=self._full))
        if isinstance(picker, ClusteringTaskPicker):
            others = of_known_schemas(live_buckets(table, entries, living(self._chosen.others)), self._schema)
            tasks += picker.idle_tasks(index.attached(others))
        if dry_run:
            compacted = tuple(_described(table, each) for each in tasks)
            return CompactionReport(snapshot.id, compacted=compacted, skipped=mixed.skipped)
        run = _Run(table, directory, snapshot, index, self._user, self._identifiers, on_progress)
        report = run.execute(tasks, partial(self._workers.execute, table, picker), self._workers.commit_bytes)
        return replace(report, skipped=mixed.skipped)


_Done = list[tuple[CompactionTask, Sequence[CompactionResult]]]


@dataclass(slots=True)
class _Run:
    table: PaimonTable
    directory: TableDirectory
    snapshot: Snapshot
    index: VectorIndex
    user: str
    identifiers: Iterator[int]
    on_progress: Progress | None
    snapshots: list[int] = field(default_factory=list)
    compacted: list[CompactedBucket] = field(default_factory=list)
    conflicts: list[CompactedBucket] = field(default_factory=list)

    def execute(
        self, tasks: list[CompactionTask], perform: Callable[[list[CompactionTask], Done], None], commit_bytes: int
    ) -> CompactionReport:
        total, reached = sum(each.size for each in tasks), 0
        for part in _parts(tasks, commit_bytes):
            done: _Done = []

            # `done` is bound now, because the next part has another list.
            def note(each: CompactionTask, results: Sequence[CompactionResult], done: _Done = done) -> None:
                nonlocal reached
                done.append((each, results))
                reached += each.size
                if self.on_progress is not None:
                    self.on_progress(reached, total)

            try:
                left = part
                while left:
                    left = self._left(left, done, perform, note)
            except BaseException:
                self._discard(done)
                raise
            self._commit_each(done)
        return CompactionReport(self.snapshot.id, tuple(self.snapshots), tuple(self.compacted), tuple(self.conflicts))

    def _left(
        self,
        tasks: list[CompactionTask],
        done: _Done,
        perform: Callable[[list[CompactionTask], Done], None],
        note: Done,
    ) -> list[CompactionTask]:
        """Execute tasks. Returns the tasks that are left if other jobs have made some stale, which are conflicts."""
        try:
            perform(tasks, note)
        except FileNotFoundError as error:
            ended = {id(each) for each, _ in done}
            stale = self._stale(error, [each for each in tasks if id(each) not in ended])
            self.conflicts += [_described(self.table, each) for each in stale]
            ended |= {id(each) for each in stale}
            return [each for each in tasks if id(each) not in ended]
        return []

    def _stale(self, error: FileNotFoundError, tasks: list[CompactionTask]) -> list[CompactionTask]:
        # A stale task explains a missing file: another job has replaced it, and it has expired since.
        # Otherwise a file is missing that the table needs.
        stale = find_stale(self.table, tasks)
        if not stale:
            raise CorruptTableError(str(error.filename or error), "is missing, though the table needs it") from error
        return stale

    def _commit_each(self, done: _Done) -> None:
        """Commit tasks: those of a whole partition one by one, because such a commit is refused for changes that do not
        matter to the others.
        """
        together = [each for each in done if not each[0].is_whole_partition]
        left = [together, *([each] for each in done if each[0].is_whole_partition)]
        try:
            while left:
                self._commit(left.pop(0))
        except BaseException:
            for commit in left:
                self._discard(commit)
            raise

    def _commit(self, done: _Done) -> None:
        held = [(task, result) for task, found in done for result in found if not result.is_empty]
        try:
            steps = self._with_vectors([result for _, result in held])
            messages = merged_changelogs(self.table, [result.message() for _, result in held])
        except FileNotFoundError as error:
            self._commit_without_stale(error, done)
            return
        except BaseException:
            self._discard(done)
            raise
        if not messages:
            return
        with discarded_on_error(self.table, messages):
            schema_id = self.directory.latest_schema().id
        parts: dict[Place | int, list[CommitMessage]] = {}
        for (task, _), message in zip(held, messages, strict=True):
            parts.setdefault(self._part(task), []).append(message)
        request = CommitRequest(self.table, self.user, next(self.identifiers), messages, schema_id=schema_id)
        left, report = set[Place | int](), None
        is_strict = any(each.is_whole_partition for each, _ in done)
        try:
            # The user is new for each `Compaction`, so no earlier call can have committed these messages.
            if is_strict or len(parts) == 1:
                report = commit_compaction(request, self.snapshot.id, again=False, strict=is_strict)
            else:
                report, numbers = commit_parts(request, list(parts.values()), self.snapshot.id)
                left = {key for number, key in enumerate(parts) if number in numbers}
        except (CommitConflictError, StrictModeError) as error:
            if isinstance(error, StrictModeError) and not is_strict:
                # The table's own option refuses the commit.
                raise
            left = set(parts)
        for task, found in done:
            report_of = self.conflicts if self._part(task) in left else self.compacted
            report_of += [_compacted(self.table, result) for result in found]
        if report is None:
            return
        gone = {_place(each) for task, found in done if self._part(task) in left for each in found}
        for place, (before, after) in steps.items():
            if place not in gone:
                self.index = self.index.applying(before, after)
        if report.snapshot_id is not None:
            self.snapshots.append(report.snapshot_id)

    def _part(self, task: CompactionTask) -> Place | int:
        """Tasks with the same one are committed together: those of a bucket change its deletion vectors together."""
        return (task.bucket.row, task.bucket.bucket) if self.table.traits.deletion_vectors else id(task)

    def _commit_without_stale(self, error: FileNotFoundError, done: _Done) -> None:
        """Commit the tasks of which no file is gone, because another job has made the others stale."""
        indexes = [CommitMessage(each.bucket.partition, each.bucket.bucket, []) for _, found in done for each in found]
        results = [each for _, found in done for each in found]
        added = [each.index_added for each in results]
        discard(self.table, [replace(m, compact_index_adds=new) for m, new in zip(indexes, added, strict=True)])
        for each in results:
            each.index_added, each.index_deleted = [], []
        try:
            stale = {self._part(each) for each in self._stale(error, [each for each, _ in done])}
        except BaseException:
            self._discard(done)
            raise
        gone = [each for each in done if self._part(each[0]) in stale]
        self._discard(gone)
        self.conflicts += [_compacted(self.table, result) for _, found in gone for result in found]
        self._commit([each for each in done if self._part(each[0]) not in stale])

    def _with_vectors(self, results: Iterable[CompactionResult]) -> dict[Place, tuple[VectorIndex, VectorIndex]]:
        """Note the new index files in the results. Returns the index before and after the change of each bucket."""
        index = self.index
        of_bucket: dict[Place, list[CompactionResult]] = {}
        for each in results:
            of_bucket.setdefault(_place(each), []).append(each)
        steps: dict[Place, tuple[VectorIndex, VectorIndex]] = {}
        for place, parts in of_bucket.items():
            # All results of a bucket change its vectors together, and the message of the first one names the
            # new file.
            first = parts[0]
            gone = {name for result in parts for name in result.rewritten}
            marked = {name: rows for result in parts for name, rows in result.superseded.items()}
            changed = index.changed(first.bucket, gone, marked)
            first.index_added, first.index_deleted = changed.added, changed.deleted
            steps[place] = (index, changed.after)
            index = changed.after
        return steps

    def _discard(self, done: _Done) -> None:
        discard(self.table, [result.message() for _, results in done for result in results])


def _place(result: CompactionResult) -> Place:
    return result.bucket.row, result.bucket.bucket


def _parts(tasks: Iterable[CompactionTask], commit_bytes: int) -> Iterator[list[CompactionTask]]:
    part: list[CompactionTask] = []
    for each in tasks:
        part.append(each)
        if len(part) >= _COMMIT_PARTS or sum(one.size for one in part) >= commit_bytes:
            yield part
            part = []
    if part:
        yield part


def of_known_schemas(buckets: Iterable[LiveBucket], schema_id: int) -> Iterator[LiveBucket]:
    """The same buckets. Raises TableChangedError at a file that was written under a newer schema."""
    for bucket in buckets:
        newest = max(file.read.schema_id for file in bucket.files)
        if newest > schema_id:
            raise TableChangedError(
                f"Files of schema {newest} appeared while the table was read under schema {schema_id}.",
                advice="Compact it again.",
            )
        yield bucket


def _described(table: PaimonTable, task: CompactionTask) -> CompactedBucket:
    return _compacted(table, CompactionResult(task.bucket, task.files))


def _compacted(table: PaimonTable, result: CompactionResult) -> CompactedBucket:
    return CompactedBucket(
        dict(zip(table.partition_keys, result.bucket.partition, strict=True)),
        result.bucket.bucket,
        counted(file.read for file in result.before),
        counted(result.after),
    )
