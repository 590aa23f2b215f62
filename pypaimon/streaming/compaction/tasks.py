"""The tasks of a compaction: which there are at a snapshot, how one is executed, and where they are executed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pypaimon.streaming.compaction.append_compaction import AppendRewriter, neighbours, packs
from pypaimon.streaming.compaction.changelog_mode import ChangelogMode
from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.keyed_rewrite import KeyedRewriter
from pypaimon.streaming.compaction.live_entries import LiveEntries
from pypaimon.streaming.compaction.live_files import LiveBucket, LiveFile, live_buckets
from pypaimon.streaming.compaction.new_files import CompactionResult
from pypaimon.streaming.compaction.record_expiry import Expired, RecordExpiry
from pypaimon.streaming.compaction.run_picking import Pick, level_runs, pick_full, pick_needed
from pypaimon.streaming.compaction.vector_index import VectorIndex
from pypaimon.streaming.errors import BadRowError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options.arguments import at_least
from pypaimon.streaming.paimon.write_internals import BucketMode

_MISSING = object()


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """A part of a compaction that can be executed and committed without the others."""

    bucket: LiveBucket
    files: list[LiveFile]
    pick: Pick | None = None  # What becomes of them; None: they become one file, in a table without a primary key

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def files_read(self) -> Sequence[LiveFile]:
        """The files, and those that their records may be compared with."""
        return self.files if self.pick is None else self.bucket.files


class TaskPicker(Protocol):
    """Picks the tasks of one table, and executes them, on any thread."""

    def by_time(self, *, full: bool) -> bool:
        """Whether files may become due without a commit, as time passes."""

    def tasks(self, buckets: Iterable[LiveBucket], *, full: bool) -> Iterator[CompactionTask]:
        """The tasks that are due, bucket by bucket."""

    def execute(self, task: CompactionTask) -> CompactionResult:
        """Write the new files. If it fails, they are deleted."""


def task_picker(table: PaimonTable, reader: FileReader, now: Callable[[], datetime] | None = None) -> TaskPicker:
    """The task picker of a table that can be compacted.

    Args:
        now: The present in the table's time zone; None: by the clock of the computer.
    """
    if table.is_primary_key_table:
        return KeyedTaskPicker(table, reader, now or table.zone.now)
    return AppendTaskPicker(table, reader)


class KeyedTaskPicker:
    """The `TaskPicker` of a table with a primary key: one task for each bucket that is due.

    If full compactions make the changelog, every file below the highest level is due.
    """

    def __init__(self, table: PaimonTable, reader: FileReader, now: Callable[[], datetime]) -> None:
        self._options = CompactionOptions.of(table)
        self._mode = ChangelogMode.of(table)
        self._expiry = RecordExpiry.of(table)
        self._reader = reader
        self._rewriter = KeyedRewriter(table, reader, self._options)
        self._now = now

    def by_time(self, *, full: bool) -> bool:
        return self._options.by_time or (self._expiry is not None and (full or self._mode.full))

    def tasks(self, buckets: Iterable[LiveBucket], *, full: bool) -> Iterator[CompactionTask]:
        expired = self._expired()
        for bucket in buckets:
            runs = level_runs(bucket.files)
            if full or self._mode.full:
                pick = pick_full(
                    runs, self._options, lambda file: expired is not None and expired.in_file(file, self._reader.schema)
                )
            else:
                up = self._mode.looks_up or self._options.force_up_level_0
                pick = pick_needed(runs, self._options, self._now(), up_level_0=up)
            if pick is not None:
                yield CompactionTask(bucket, pick.files, pick)

    def execute(self, task: CompactionTask) -> CompactionResult:
        assert task.pick is not None
        with _bad_rows_as_damage(self._reader, task):
            return self._rewriter.compact(task.bucket, task.pick, self._expired())

    def _expired(self) -> Expired | None:
        return None if self._expiry is None else self._expiry.at(self._now())


class AppendTaskPicker:
    """The `TaskPicker` of a table without a primary key: packs of small files."""

    def __init__(self, table: PaimonTable, reader: FileReader) -> None:
        self._options = CompactionOptions.of(table)
        self._reader = reader
        self._rewriter = AppendRewriter(table, reader)
        self._choose = packs if table.bucket_mode == BucketMode.BUCKET_UNAWARE else neighbours

    def by_time(self, *, full: bool) -> bool:
        return False

    def tasks(self, buckets: Iterable[LiveBucket], *, full: bool) -> Iterator[CompactionTask]:
        for bucket in buckets:
            for pack in self._choose(bucket.files, self._options, full=full):
                yield CompactionTask(bucket, pack)

    def execute(self, task: CompactionTask) -> CompactionResult:
        with _bad_rows_as_damage(self._reader, task):
            return self._rewriter.compact(task.bucket, task.files)


@contextmanager
def _bad_rows_as_damage(reader: FileReader, task: CompactionTask) -> Iterator[None]:
    """A row that was read and cannot be written again means that its file is damaged."""
    try:
        yield
    except BadRowError as error:
        raise reader.damaged(task.files_read, error) from error


def find_stale(table: PaimonTable, tasks: Iterable[CompactionTask]) -> list[CompactionTask]:
    """The tasks that read a file, or a deletion vector, which is not in the latest snapshot any more.

    Reads all manifests of that snapshot.
    """
    directory = table.new_directory()
    snapshot = directory.snapshots.get_latest_snapshot()
    if snapshot is None:
        return list(tasks)
    buckets = live_buckets(table, LiveEntries().look(directory, snapshot))
    attached = VectorIndex.of(table, directory, snapshot).attached(buckets)
    there = {file.stored.identity: file.deletions for bucket in attached for file in bucket.files}
    return [
        each
        for each in tasks
        if any(there.get(file.stored.identity, _MISSING) != file.deletions for file in each.files_read)
    ]


Done = Callable[[CompactionTask, CompactionResult], None]


class Workers(Protocol):
    """Execute tasks."""

    commit_bytes: int  # Bytes of compacted files after which a commit is made

    def execute(self, table: PaimonTable, picker: TaskPicker, tasks: Sequence[CompactionTask], done: Done) -> None:
        """Execute tasks.

        Args:
            done: Called, on this thread, with each task that is done. This includes those that end after another one
                has failed, because their files must be deleted too.

        Raises:
            FileNotFoundError: A file is missing. The files of its task are deleted.
        """


class Threads:
    """`Workers` that are threads of this process.

    Args:
        count: Number of tasks that are executed at the same time. Each holds a part of a bucket in memory.
    """

    commit_bytes = 2 << 30

    def __init__(self, count: int) -> None:
        self._count = at_least(1, "threads", count)

    def execute(self, table: PaimonTable, picker: TaskPicker, tasks: Sequence[CompactionTask], done: Done) -> None:
        if self._count == 1:
            for each in tasks:
                done(each, picker.execute(each))
            return
        with ThreadPoolExecutor(self._count, thread_name_prefix="paimon-compaction") as pool:
            running = {pool.submit(picker.execute, each): each for each in tasks}
            _gather(running, done)


def _gather(running: dict[Future[CompactionResult], CompactionTask], done: Done) -> None:
    """Report each task that ends. After an error or an interrupt, only those that have started are waited for."""
    errors: list[BaseException] = []
    waiting = set(running)

    def next_one() -> None:
        try:
            future = next(as_completed(waiting))
            waiting.discard(future)
            if not future.cancelled():
                done(running[future], future.result())
        except BaseException as error:  # noqa: BLE001 - the others are waited for first
            errors.append(error)
            for each in waiting:
                each.cancel()

    while waiting:
        next_one()
    if errors:
        raise errors[0]
