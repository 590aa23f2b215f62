"""`compact`: one look at a table, and the compaction of what is due."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from pypaimon.streaming.commit.cleanup import discard
from pypaimon.streaming.commit.conflicts import CommitConflictError
from pypaimon.streaming.commit.idempotent_commit import commit_compaction
from pypaimon.streaming.commit.request import CommitRequest
from pypaimon.streaming.compaction.chosen_partitions import ChosenPartitions
from pypaimon.streaming.compaction.compactable_tables import check_compactable, under_latest_schema
from pypaimon.streaming.compaction.compaction_users import CompactingWriters, new_compaction_user
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.gone_work import gone
from pypaimon.streaming.compaction.live_entries import LiveEntries
from pypaimon.streaming.compaction.live_files import LiveBucket, live_buckets
from pypaimon.streaming.compaction.replaced import Replaced
from pypaimon.streaming.compaction.reports import CompactedBucket, CompactionReport, FileCount, counted
from pypaimon.streaming.compaction.vector_index import VectorIndex
from pypaimon.streaming.compaction.work import Work, planner
from pypaimon.streaming.compaction.workers import Done, Threads, Workers
from pypaimon.streaming.errors import CorruptTableError, TableChangedError
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.arguments import a_table
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.writing.files.local_timestamps import tell_of_time_zone
from pypaimon.streaming.writing.files.merged_changelogs import merged_changelogs
from pypaimon.streaming.writing.maintenance import warn_unsupported_maintenance

_COMMIT_PARTS = 256
"""A commit is made once so many parts have been compacted, or as many bytes as suit the workers."""

Progress = Callable[[int, int], None]


def compact(
    table: Any,
    *,
    full: bool = False,
    partition: Mapping[str, Any] | None = None,
    where: str | None = None,
    idle_seconds: float | None = None,
    threads: int = 1,
    dry_run: bool = False,
    on_progress: Progress | None = None,
) -> CompactionReport:
    """Compact what is due in a table, as its options say. Blocks.

    Rows and streams see nothing of it but fewer files. Writers are never held up: what they change meanwhile is left
    as it is, and told as a conflict.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it.
        full: All of each bucket, and small files however few, not only what is due.
        partition: Values of partition columns, all or some, as `with_overwrite` of a writer takes them: only partitions
            that have these. None: all.
        where: A condition on partition columns, in the words of `with_filter`: only partitions of which it is true.
        idle_seconds: Only partitions none of whose files is younger, by the local clock. None: all.
        threads: How many buckets, or parts of them, are compacted at the same time.
        dry_run: Write nothing; the report tells what would be compacted.
        on_progress: Called with the bytes that are done, and with those of all that is to be done.

    Raises:
        UnsupportedTableError: Such a table cannot be compacted exactly; nothing was written.
        StreamConfigError: An option or an argument cannot be read, or names no partition column.
        CorruptTableError: A file is damaged or missing. What was committed before stays; nothing of the rest was.
        CommitFailedError: A commit did not get through (retriable).
        StoreError: The store failed (retriable).
    """
    chosen = ChosenPartitions(a_table("compact: table", table), partition, where, idle_seconds)
    return Compaction(table, chosen, full=full, workers=Threads(threads)).run(dry_run=dry_run, on_progress=on_progress)


class Compaction:
    """Compacts one table, as often as `run` is called, under one commit user. Not for several threads.

    What it asks for the second time grows with what has changed, and buckets that have not are not looked at again.

    Args:
        table: pypaimon's table.
        chosen: Which of its partitions; None: all.
        full: As `compact` takes it.
        workers: Who carries it out; None: the thread that runs it.
        now: As `planner` takes it.
    """

    def __init__(
        self,
        table: Any,
        chosen: ChosenPartitions | None = None,
        *,
        full: bool = False,
        workers: Workers | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._table = table
        self._now = now
        self._workers = workers or Threads(1)
        self._full = full
        self._chosen = chosen or ChosenPartitions(table)
        self._user = new_compaction_user(OptionValues(table.options.options.to_map()))
        self._others = CompactingWriters()
        self._commits = 0
        self._live = LiveEntries()
        self._schema: int | None = None

    def run(
        self, *, dry_run: bool = False, on_progress: Progress | None = None, check: Callable[[], None] = lambda: None
    ) -> CompactionReport:
        """One look at the latest snapshot, and the compaction of what is due. See `compact`.

        Args:
            dry_run: Write nothing.
            on_progress: As `compact` takes it.
            check: Called often; what it raises ends the run, and what was not committed is deleted.
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
        directory = TableDirectory.of(self._table)
        # A schema that is asked for later is none that files of the snapshot are newer than.
        snapshot = directory.snapshots.get_latest_snapshot()
        table = under_latest_schema(self._table, directory)
        name = table.identifier.get_full_name()
        check_compactable(table, name)
        if not dry_run:
            warn_unsupported_maintenance(table, name)
        tell_of_time_zone(table, name)
        if snapshot is None:
            return CompactionReport(None)
        self._others.look(table, directory, snapshot)
        index = VectorIndex.of(table, directory, snapshot)
        # Without a primary key deletion vectors come without a change of the files.
        vectors = bool(table.options.deletion_vectors_enabled()) and not table.is_primary_key_table
        plans = planner(table, FileReader(table, directory, check), self._now)
        known, self._schema = self._schema, int(table.table_schema.id)
        if vectors or plans.by_time(full=self._full) or self._chosen.by_time or known != self._schema:
            self._live.forget()
        buckets = self._chosen.idle(live_buckets(table, self._live.look(directory, snapshot), self._chosen.among))
        buckets = index.attached(_of_known_schemas(buckets, self._schema))
        work = list(plans.work(buckets, full=self._full))
        if dry_run:
            return CompactionReport(snapshot.id, compacted=tuple(_told(table, each) for each in work))
        run = _Run(table, directory, snapshot, index, self._user, self._next_identifier, on_progress)
        return run.carry_out(work, partial(self._workers.carry_out, table, plans), self._workers.commit_bytes)

    def _next_identifier(self) -> int:
        self._commits += 1
        return self._commits


class _Run:
    """One list of work, carried out and committed part by part."""

    def __init__(
        self,
        table: Any,
        directory: TableDirectory,
        snapshot: Snapshot,
        index: VectorIndex,
        user: str,
        identifier: Callable[[], int],
        on_progress: Progress | None,
    ) -> None:
        self._table = table
        self._directory = directory
        self._snapshot = snapshot
        self._index = index
        self._user = user
        self._identifier = identifier
        self._on_progress = on_progress
        self._snapshots: list[int] = []
        self._compacted: list[CompactedBucket] = []
        self._conflicts: list[CompactedBucket] = []

    def carry_out(
        self, work: list[Work], perform: Callable[[list[Work], Done], None], commit_bytes: int
    ) -> CompactionReport:
        """See `Compaction.run`."""
        total, reached = sum(each.size for each in work), 0
        for part in _parts(work, commit_bytes):
            made: list[tuple[Work, Replaced]] = []

            def done(each: Work, replaced: Replaced, made: list[tuple[Work, Replaced]] = made) -> None:
                nonlocal reached
                made.append((each, replaced))
                reached += each.size
                if self._on_progress is not None:
                    self._on_progress(reached, total)

            try:
                left = part
                while left:
                    left = self._left(left, made, perform, done)
            except BaseException:
                self._discard(made)
                raise
            self._commit(made)
        return CompactionReport(
            self._snapshot.id, tuple(self._snapshots), tuple(self._compacted), tuple(self._conflicts)
        )

    def _left(
        self,
        work: list[Work],
        made: list[tuple[Work, Replaced]],
        perform: Callable[[list[Work], Done], None],
        done: Done,
    ) -> list[Work]:
        """Carry work out; what is left of it where others have made some void meanwhile, which is a conflict."""
        try:
            perform(work, done)
        except FileNotFoundError as error:
            ended = {id(each) for each, _ in made}
            void = self._void(error, [each for each in work if id(each) not in ended])
            self._conflicts += [_told(self._table, each) for each in void]
            ended |= {id(each) for each in void}
            return [each for each in work if id(each) not in ended]
        return []

    def _void(self, error: FileNotFoundError, work: list[Work]) -> list[Work]:
        """The work that explains why a file is missing: others have replaced files of it, which have expired then."""
        void = gone(self._table, work)
        if not void:
            raise CorruptTableError(str(error.filename or error), "is missing, though the table needs it") from error
        return void

    def _commit(self, made: list[tuple[Work, Replaced]]) -> None:
        told = [_told(self._table, each, replaced) for each, replaced in made]
        try:
            index = self._with_vectors(made)
            messages = [replaced.message(each.bucket) for each, replaced in made if replaced.before]
            messages = merged_changelogs(self._table, messages)
        except FileNotFoundError as error:
            self._discard(made)
            self._void(error, [each for each, _ in made])
            self._conflicts += told
            return
        except BaseException:
            self._discard(made)
            raise
        if not messages:
            return
        try:
            schema_id = self._directory.latest_schema().id
            request = CommitRequest(self._table, self._user, self._identifier(), messages, schema_id=schema_id)
            report = commit_compaction(request, self._snapshot.id, again=False)
        except CommitConflictError:
            self._conflicts += told
            return
        self._index = index
        self._compacted += told
        if report.snapshot is not None:
            self._snapshots.append(report.snapshot)

    def _with_vectors(self, made: list[tuple[Work, Replaced]]) -> VectorIndex:
        """Have the index files change with the data files; all parts of a bucket change them together."""
        index = self._index
        of_bucket: dict[tuple[bytes, int], list[tuple[Work, Replaced]]] = {}
        for each, replaced in made:
            of_bucket.setdefault((each.bucket.row, each.bucket.bucket), []).append((each, replaced))
        for parts in of_bucket.values():
            work, first = parts[0]
            gone = {name for _, replaced in parts for name in replaced.rewritten}
            marked = {name: rows for _, replaced in parts for name, rows in replaced.superseded.items()}
            changed = index.changed(work.bucket, gone, marked)
            first.index_added, first.index_deleted = changed.added, changed.deleted
            index = changed.after
        return index

    def _discard(self, made: list[tuple[Work, Replaced]]) -> None:
        discard(self._table, [replaced.message(each.bucket) for each, replaced in made])


def _parts(work: Iterable[Work], commit_bytes: int) -> Iterator[list[Work]]:
    """Work that is committed together."""
    part: list[Work] = []
    for each in work:
        part.append(each)
        if len(part) >= _COMMIT_PARTS or sum(one.size for one in part) >= commit_bytes:
            yield part
            part = []
    if part:
        yield part


def _of_known_schemas(buckets: Iterable[LiveBucket], schema_id: int) -> Iterator[LiveBucket]:
    for bucket in buckets:
        newest = max(file.read.schema_id for file in bucket.files)
        if newest > schema_id:
            raise TableChangedError(
                f"Files of schema {newest} came while the table was looked at under schema {schema_id}.",
                "Compact it again.",
            )
        yield bucket


def _told(table: Any, work: Work, replaced: Replaced | None = None) -> CompactedBucket:
    taken = work.files if replaced is None else replaced.before
    return CompactedBucket(
        dict(zip(table.partition_keys, work.bucket.partition, strict=True)),
        work.bucket.bucket,
        counted(file.read for file in taken),
        FileCount() if replaced is None else counted(replaced.after),
    )
