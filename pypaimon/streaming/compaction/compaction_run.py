"""`CompactionRun`: executes the tasks of a compaction, and commits what becomes of their buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pypaimon.streaming.commit.cleanup import discard
from pypaimon.streaming.commit.compaction_parts import commit_parts
from pypaimon.streaming.commit.idempotent_commit import commit_compaction
from pypaimon.streaming.commit.request import CommitRequest
from pypaimon.streaming.compaction.live_files import CompactionResult, Place
from pypaimon.streaming.compaction.reports import CompactedBucket, CompactionReport, counted
from pypaimon.streaming.compaction.tasks import CompactionTask, TaskPicker, Workers, find_stale
from pypaimon.streaming.compaction.vector_index import VectorIndex
from pypaimon.streaming.errors import CommitConflictError, CorruptTableError, StrictModeError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.paimon.write_internals import CommitMessage
from pypaimon.streaming.writing.files.merged_changelogs import merged_changelogs

_COMMIT_PARTS = 256
"""Commits are made after this many tasks, or after the bytes that the workers ask for."""

Progress = Callable[[int, int], None]
"""Called with the bytes that are done, and the total bytes to be done."""

Executed = list[tuple[CompactionTask, Sequence[CompactionResult]]]


@dataclass(slots=True)
class CompactionRun:
    """One run at one snapshot. Not for several threads."""

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

    def execute(self, tasks: Sequence[CompactionTask], picker: TaskPicker, workers: Workers) -> CompactionReport:
        """Execute and commit tasks, part by part. Files that were not committed are deleted on any error."""
        total, reached = sum(each.size for each in tasks), 0
        for part in _parts(tasks, workers.commit_bytes):
            done: Executed = []

            # `done` is bound now, because the next part has another list.
            def note(each: CompactionTask, results: Sequence[CompactionResult], done: Executed = done) -> None:
                nonlocal reached
                done.append((each, results))
                reached += each.size
                if self.on_progress is not None:
                    self.on_progress(reached, total)

            try:
                left = part
                while left:
                    left = self._left(left, done, partial(workers.execute, self.table, picker, done=note))
            except BaseException:
                self._discard(done)
                raise
            # Rows that get new ids have them in the order of the plan, not in that in which tasks end.
            place = {id(each): number for number, each in enumerate(part)}
            done.sort(key=lambda each: place[id(each[0])])
            self._commit_each(done)
        return CompactionReport(self.snapshot.id, tuple(self.snapshots), tuple(self.compacted), tuple(self.conflicts))

    def _left(
        self, tasks: list[CompactionTask], done: Executed, perform: Callable[[list[CompactionTask]], None]
    ) -> list[CompactionTask]:
        """Execute tasks. Returns the tasks that are left if other jobs have made some stale, which are conflicts."""
        try:
            perform(tasks)
        except FileNotFoundError as error:
            ended = {id(each) for each, _ in done}
            stale = self._stale(error, [each for each in tasks if id(each) not in ended])
            self.conflicts += [found for each in stale for found in described(self.table, each)]
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

    def _commit_each(self, done: Executed) -> None:
        """Commit tasks: those of a whole partition one by one, because such a commit is refused for changes that do not
        matter to the others.
        """
        together = [each for each in done if not each[0].is_whole_partition]
        alone = [[each] for each in done if each[0].is_whole_partition]
        left = [together, *alone] if together else alone
        try:
            while left:
                self._commit(left.pop(0))
        except BaseException:
            for commit in left:
                self._discard(commit)
            raise

    def _commit(self, done: Executed) -> None:
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
        parts: dict[Place | int, list[CommitMessage]] = {}
        for (task, _), message in zip(held, messages, strict=True):
            parts.setdefault(self._part(task), []).append(message)
        request = CommitRequest(self.table, self.user, next(self.identifiers), messages)
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
            self.raise_if_forbidden(error, is_strict=is_strict)
            left = set(parts)
        for task, found in done:
            report_of = self.conflicts if self._part(task) in left else self.compacted
            report_of += [compacted_bucket(self.table, result) for result in found]
        if report is None:
            return
        gone = {_place(each) for task, found in done if self._part(task) in left for each in found}
        for place, (before, after) in steps.items():
            if place not in gone:
                self.index = self.index.applying(before, after)
        if report.snapshot_id is not None:
            self.snapshots.append(report.snapshot_id)

    def raise_if_forbidden(self, error: CommitConflictError | StrictModeError, *, is_strict: bool = True) -> None:
        """Raise the error of a commit if it is not a conflict: if the table's own option refuses the commit."""
        if isinstance(error, StrictModeError) and not (is_strict and error.snapshot > self.snapshot.id):
            raise error

    def _part(self, task: CompactionTask) -> Place | int:
        """Tasks with the same one are committed together: those of a bucket change its deletion vectors together."""
        return (task.bucket.row, task.bucket.bucket) if self.table.traits.deletion_vectors else id(task)

    def _commit_without_stale(self, error: FileNotFoundError, done: Executed) -> None:
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
        self.conflicts += [compacted_bucket(self.table, result) for _, found in gone for result in found]
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

    def _discard(self, done: Executed) -> None:
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


def described(table: PaimonTable, task: CompactionTask) -> list[CompactedBucket]:
    """A task that was not executed, for a report."""
    return [compacted_bucket(table, each) for each in task.before]


def compacted_bucket(table: PaimonTable, result: CompactionResult) -> CompactedBucket:
    return CompactedBucket(
        dict(zip(table.partition_keys, result.bucket.partition, strict=True)),
        result.bucket.bucket,
        counted(file.read for file in result.before),
        counted(result.after),
    )
