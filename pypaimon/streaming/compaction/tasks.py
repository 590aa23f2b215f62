"""The tasks of a compaction: which there are at a snapshot, how one is executed, and where they are executed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from queue import SimpleQueue
from typing import Protocol

import pyarrow as pa

from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.keyed_rewrite import KeyedRewriter
from pypaimon.streaming.compaction.live_files import CompactionResult, LiveBucket, LiveEntries, LiveFile, live_buckets
from pypaimon.streaming.compaction.record_expiry import Expired, RecordExpiry
from pypaimon.streaming.compaction.run_picking import ChangelogMode, Pick, level_runs, pick_full, pick_needed
from pypaimon.streaming.compaction.vector_index import VectorIndex
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.concurrency.signals import interruptible
from pypaimon.streaming.errors import BadRowError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import at_least
from pypaimon.streaming.paimon.write_internals import BucketMode
from pypaimon.streaming.reading.file_rows import check_source
from pypaimon.streaming.writing.files.file_options import BucketFiles, FileOptions
from pypaimon.streaming.writing.files.record_facts import AppendedFacts, Counter, TrackedFacts
from pypaimon.streaming.writing.files.rolling_files import RollingFiles

_TICK_SECONDS = 0.25
_FULL_FILES = 3
"""A full compaction of a bucket needs at least this many files."""

Pack = list[LiveFile]


def packs(files: Sequence[LiveFile], options: CompactionOptions, *, full: bool) -> list[Pack]:
    """Packs of small files of a partition without buckets, each up to about twice the target size.

    Files with deletion vectors are packed separately. They are due if they are small, or have too many deleted rows. If
    `full`, two small files are enough for a pack. Otherwise it needs `min_files`, or enough bytes.
    """
    due = [file for file in files if file.size < options.small_bytes or file.deleted_ratio > options.delete_ratio]
    with_vectors = [file for file in due if file.deletions is not None]
    others = [file for file in due if file.deletions is None]
    return _bins(with_vectors, options, 1) + _bins(others, options, _worth(options, full))


def _bins(files: Sequence[LiveFile], options: CompactionOptions, worth: int) -> list[Pack]:
    found: list[Pack] = []
    pack: Pack = []
    size = 0
    for file in sorted(files, key=lambda file: file.size):
        pack.append(file)
        size += file.size + options.open_bytes
        if len(pack) > 1 and size >= 2 * options.target_bytes:
            found.append(pack)
            pack, size = [], 0
    if len(pack) >= worth:
        found.append(pack)
    return found


def neighbours(files: Sequence[LiveFile], options: CompactionOptions, *, full: bool) -> list[Pack]:
    """Packs of consecutive files of a bucket, so that its rows stay in their order.

    They consist of `min_files` that are not too large together. If `full`, all files from the first one that is small
    or has deleted rows on become one pack, if most of them are small or rows were deleted.
    """
    ordered = sorted(files, key=lambda file: file.read.min_sequence_number)
    return _all_from_the_first_due(ordered, options) if full else _windows(ordered, options)


def _all_from_the_first_due(ordered: Sequence[LiveFile], options: CompactionOptions) -> list[Pack]:
    due = (file.size < options.small_bytes or file.deletions is not None for file in ordered)
    first = 0 if options.force_rewrite else next((place for place, each in enumerate(due) if each), len(ordered))
    pack = list(ordered[first:])
    small = sum(file.size < options.small_bytes for file in pack)
    worth = len(pack) >= _FULL_FILES and small > len(pack) - small
    # Java rewrites a bucket with deletion vectors each time. Here it is left alone if no row is deleted.
    deleted = any(file.deletions is not None for file in pack)
    return [pack] if pack and (worth or deleted or options.force_rewrite) else []


def _windows(ordered: Sequence[LiveFile], options: CompactionOptions) -> list[Pack]:
    found: list[Pack] = []
    window: Pack = []
    for file in ordered:
        window.append(file)
        size = sum(each.size for each in window)
        # Only if there are fewer files afterwards.
        if len(window) >= _worth(options, False) and size // max(1, options.target_bytes) + 1 < len(window):
            found.append(window)
            window = []
        elif size >= 2 * options.target_bytes:
            window = window[1:]
    return found


def _worth(options: CompactionOptions, full: bool) -> int:
    # Never one file, which every run would rewrite.
    return 2 if full else max(2, options.min_files)


Arrangement = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Gives the rows of a pack another order."""


class AppendRewriter:
    """Rewrites packs of one table."""

    def __init__(self, table: PaimonTable, reader: FileReader) -> None:
        self._table = table
        self._reader = reader
        self._tracked = option_keys.ROW_TRACKING_ENABLED.of(table.options)

    def compact(
        self, bucket: LiveBucket, files: Sequence[LiveFile], arranged: Arrangement = iter, level: int = 0
    ) -> CompactionResult:
        """Write the rows of files, in their order unless `arranged` gives them another. Sequence numbers start with the
        first one of the first file, unless the table tracks its rows, which then keep their numbers and ids.

        If it fails, the new files are deleted. Raises FileNotFoundError if a file is missing.
        """
        counter = Counter(files[0].read.min_sequence_number)
        facts = TrackedFacts if self._tracked else partial(AppendedFacts, counter)
        options = FileOptions.of_compacted(self._table, level)
        files_made = BucketFiles(self._table, options, bucket.partition, bucket.bucket)
        new = RollingFiles(files_made, options.data, facts)
        try:
            reader = self._reader.expecting(files)
            kept = (batch for file in files for batch in reader.rows(file, tracked=self._tracked))
            for batch in arranged(kept):
                new.add(pa.Table.from_batches([batch]))
            return CompactionResult(bucket, list(files), new.take())
        except BaseException:
            new.abort()
            raise


_MISSING = object()


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """A part of a compaction that can be executed and committed without the others."""

    bucket: LiveBucket
    files: list[LiveFile]
    pick: Pick | None = None  # What becomes of them; None: they become one file, in a table without a primary key

    @property
    def is_whole_partition(self) -> bool:
        """Whether it may change every bucket of its partition, so that no other job may do so meanwhile."""
        return False

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def files_read(self) -> Sequence[LiveFile]:
        """The files, and those that their records may be compared with."""
        return self.files if self.pick is None else self.bucket.files

    @property
    def before(self) -> list[CompactionResult]:
        """Its files by bucket, of which nothing has become yet."""
        return [CompactionResult(self.bucket, self.files)]

    def lean(self) -> CompactionTask:
        """The task without files that its execution does not need, to be sent to another process."""
        return self if self.pick is not None else replace(self, bucket=replace(self.bucket, files=()))


class TaskPicker(ABC):
    """Picks the tasks of one table, and executes them, on any thread."""

    def by_time(self, *, full: bool) -> bool:
        """Whether files may become due without a commit, as time passes."""
        return False

    @abstractmethod
    def tasks(self, buckets: Iterable[LiveBucket], *, full: bool) -> Iterator[CompactionTask]:
        """The tasks that are due, bucket by bucket."""

    def idle_tasks(self, others: Iterable[LiveBucket]) -> Iterator[CompactionTask]:
        """The tasks that are due in partitions that a caller has not chosen, because they have long had no new file."""
        return iter(())

    @abstractmethod
    def execute(self, task: CompactionTask) -> list[CompactionResult]:
        """Write the new files. If it fails, they are deleted. Returns what becomes of each bucket of the task."""


class BucketTaskPicker(TaskPicker):
    """A `TaskPicker` of a table with a primary key: one task for each bucket that is due."""

    def __init__(self, reader: FileReader) -> None:
        self._reader = reader

    def tasks(self, buckets: Iterable[LiveBucket], *, full: bool) -> Iterator[CompactionTask]:
        for bucket in buckets:
            pick = self.pick(bucket, full=full)
            if pick is not None:
                yield CompactionTask(bucket, pick.files, pick)

    def execute(self, task: CompactionTask) -> list[CompactionResult]:
        assert task.pick is not None
        with bad_rows_as_damage(self._reader, task):
            return [self.rewrite(task.bucket, task.pick)]

    def compact(self, bucket: LiveBucket, *, full: bool) -> CompactionResult:
        """Compact what is due in a bucket. If it fails, the new files are deleted."""
        pick = self.pick(bucket, full=full)
        return CompactionResult(bucket) if pick is None else self.rewrite(bucket, pick)

    @abstractmethod
    def pick(self, bucket: LiveBucket, *, full: bool) -> Pick | None:
        """What is due in a bucket; None: nothing."""

    @abstractmethod
    def rewrite(self, bucket: LiveBucket, pick: Pick) -> CompactionResult:
        """Write the new files. If it fails, they are deleted. Raises FileNotFoundError if a file is missing."""

    @abstractmethod
    def rows(self, bucket: LiveBucket) -> Iterator[pa.RecordBatch]:
        """The rows of a bucket: its merged records without deletes. Raises as `rewrite`."""


class KeyedTaskPicker(BucketTaskPicker):
    """The `TaskPicker` of a table whose files are sorted by the primary key.

    If full compactions make the changelog, every file below the highest level is due.
    """

    def __init__(self, table: PaimonTable, reader: FileReader, now: Callable[[], datetime]) -> None:
        super().__init__(reader)
        self._options = CompactionOptions.of(table)
        self._mode = ChangelogMode.of(table)
        self._expiry = RecordExpiry.of(table)
        self._rewriter = KeyedRewriter(table, reader, self._options)
        self._now = now
        self._by_snapshot = table.traits.snapshot_ordering

    def by_time(self, *, full: bool) -> bool:
        return self._options.by_time or (self._expiry is not None and (full or self._mode.full))

    def pick(self, bucket: LiveBucket, *, full: bool) -> Pick | None:
        if self._by_snapshot:
            for file in bucket.files:
                check_source(file.read)
        runs = level_runs(bucket.files)
        if full or self._mode.full:
            expired = self._expired()
            return pick_full(
                runs, self._options, lambda file: expired is not None and expired.in_file(file, self._reader.schema)
            )
        up = self._mode.looks_up or self._options.force_up_level_0
        return pick_needed(runs, self._options, self._now(), up_level_0=up)

    def rewrite(self, bucket: LiveBucket, pick: Pick) -> CompactionResult:
        return self._rewriter.compact(bucket, pick, self._expired())

    def rows(self, bucket: LiveBucket) -> Iterator[pa.RecordBatch]:
        return self._rewriter.rows(bucket)

    def _expired(self) -> Expired | None:
        return None if self._expiry is None else self._expiry.at(self._now())


class AppendTaskPicker(TaskPicker):
    """The `TaskPicker` of a table without a primary key: packs of small files."""

    def __init__(self, table: PaimonTable, reader: FileReader) -> None:
        self._options = CompactionOptions.of(table)
        self._reader = reader
        self._rewriter = AppendRewriter(table, reader)
        self._choose = packs if table.bucket_mode == BucketMode.BUCKET_UNAWARE else neighbours

    def tasks(self, buckets: Iterable[LiveBucket], *, full: bool) -> Iterator[CompactionTask]:
        for bucket in buckets:
            for pack in self._choose(bucket.files, self._options, full=full):
                yield CompactionTask(bucket, pack)

    def execute(self, task: CompactionTask) -> list[CompactionResult]:
        with bad_rows_as_damage(self._reader, task):
            return [self._rewriter.compact(task.bucket, task.files)]


@contextmanager
def bad_rows_as_damage(reader: FileReader, task: CompactionTask) -> Iterator[None]:
    """A row that was read and cannot be written again means that its file is damaged."""
    try:
        yield
    except BadRowError as error:
        # A row that was read and cannot be written again means that its file is damaged.
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


Done = Callable[[CompactionTask, Sequence[CompactionResult]], None]


class Workers(Protocol):
    """Execute tasks."""

    commit_bytes: int  # Bytes of compacted files after which a commit is made

    def execute(self, table: PaimonTable, picker: TaskPicker, tasks: Sequence[CompactionTask], done: Done) -> None:
        """Execute tasks. Raises FileNotFoundError if a file is missing. The files of its task are deleted.

        `done` is called, on this thread, with each task that is done. This includes those that end after another one
        has failed, because their files must be deleted too.
        """


class Threads:
    """`Workers` that are `count` threads of this process. Each holds a part of a bucket in memory."""

    commit_bytes = 2 << 30

    def __init__(self, count: int) -> None:
        self._count = at_least(1, "threads", count)

    def execute(self, table: PaimonTable, picker: TaskPicker, tasks: Sequence[CompactionTask], done: Done) -> None:
        if self._count == 1:
            for each in tasks:
                done(each, picker.execute(each))
            return
        with ThreadPoolExecutor(self._count, thread_name_prefix="paimon-compaction") as pool:
            with interruptible():
                running = {pool.submit(picker.execute, each): each for each in tasks}
            _gather(running, done)


def _gather(running: dict[Future[list[CompactionResult]], CompactionTask], done: Done) -> None:
    """Report each task that ends. After an error or an interrupt, only those that have started are waited for."""
    errors: list[BaseException] = []
    waiting = set(running)
    ended: SimpleQueue[None] = SimpleQueue()
    for each in running:
        each.add_done_callback(lambda _: ended.put(None))

    def next_one() -> None:
        try:
            while (future := next(filter(Future.done, waiting), None)) is None:
                Clock().wait(ended, _TICK_SECONDS)
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
