"""What planning hands out: `Plan` and `StreamSplit`, plain values."""

from __future__ import annotations

import posixpath
import weakref
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any, Protocol

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.internals import (
    DataFileMeta,
    DataSplit,
    DeletionFile,
    GenericRow,
    PaimonPlan,
    TableSchema,
)
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.model.row_selection import RowSelection

_EPOCH = datetime.fromtimestamp(0, tz=timezone.utc)
_FILES_SHOWN = 3


class PlanKind(str, Enum):
    """Where the rows of a plan come from."""

    FULL = "full"
    """The state of the table at one snapshot."""
    DELTA = "delta"
    """The files that one APPEND snapshot added."""
    CHANGELOG = "changelog"
    """The changelog files of one snapshot."""
    OVERWRITE = "overwrite"
    """What one OVERWRITE snapshot replaced."""
    COLLAPSED = "collapsed"
    """The files that several APPEND snapshots added, in replay order."""
    NET = "net"
    """What turns the state at one snapshot into that at a later one: with a primary key, one change per key."""
    DIFF = "diff"
    """The rows that are new or changed in the later of two states."""


class SplitMode(str, Enum):
    """How the rows of a split come from its files."""

    ROWS = "rows"
    """Append files one after the other; every row is +I."""
    RECORDS = "records"
    """Primary-key data files as they were written: nothing merged, kinds kept."""
    CHANGELOG = "changelog"
    """Changelog files: nothing merged, kinds kept."""
    MERGE = "merge"
    """Primary-key data files merged on read; deletes are dropped."""
    OVERWRITE = "overwrite"
    """`before_files` merged come out as -D, then `files` merged."""
    CHAIN = "chain"
    """As MERGE, but rows keep the kind that they are stored with; files may be of several partitions, older ones first,
    and the rows of all are of the partition of the split."""
    EVOLUTION = "evolution"
    """Files of row-id groups, joined column by column."""
    NET = "net"
    """`files` against `before_files`: one change per key where they are merged, else rows that are gone and came."""
    DIFF = "diff"
    """As NET, but of what was there before only that it is gone: rows of `files` that are new or changed, as stored."""


class SplitFiles(Protocol):
    """Files of a split that are still columns: how many rows and bytes they hold is known without their objects."""

    @property
    def row_count(self) -> int:
        """Physical records in them."""

    @property
    def file_size(self) -> int:
        """Their bytes."""

    def __len__(self) -> int: ...

    def make(self) -> list[DataFileMeta]:
        """Their value objects, in their order."""


@dataclass(frozen=True, slots=True)
class BranchFiles:
    """Files of a split that are those of another branch.

    Attributes:
        branch: Its name.
        names: Names of the files, and of the files with their deletion vectors.
        snapshot_id: The snapshot of that branch that they are of.
        fingerprint: Tells it from another one with its id.
    """

    branch: str
    names: frozenset[str]
    snapshot_id: int
    fingerprint: str


class StreamSplit(DataSplit):
    """Files of one bucket that are read together, in order, in one way.

    A subclass of pypaimon's `DataSplit`; pickles. The objects in `files` and `before_files` are made when they are
    first asked for; `row_count` and `file_size` need none.

    Attributes:
        mode: How rows come from the files.
        before_deletion_files: Deletion files of `before_files`, one each or None.
        schema: The schema to read with, where it is not the one of the reader (`on_schema_change="follow"`).
        fingerprint: Tells the snapshot from another one with its id, where a stream planned it.
        before_snapshot_id: The snapshot that `before_files` are of, where it is known: it may expire before this one.
        keys_move: Of mode OVERWRITE: keys may be in other buckets afterwards.
        of_branch: Those of `files` that are of another branch, whose schemas tell how they were written; None: none is.
        planned_for: The filter and the columns that it was planned with; None: every row and column.
    """

    mode: SplitMode
    before_deletion_files: list[DeletionFile | None] | None
    schema: TableSchema | None
    fingerprint: str | None = None
    before_snapshot_id: int | None = None
    of_branch: BranchFiles | None = None
    keys_move: bool = False
    planned_for: RowSelection | None = None
    _next_plan: weakref.ref[Plan] | None = None
    _source: list[DataFileMeta] | SplitFiles
    _before: list[DataFileMeta] | SplitFiles

    def __init__(
        self,
        mode: SplitMode,
        files: list[DataFileMeta] | SplitFiles,
        partition: GenericRow,
        bucket: int,
        *,
        snapshot_id: int,
        total_buckets: int | None = None,
        deletion_files: list[DeletionFile | None] | None = None,
        before_files: list[DataFileMeta] | SplitFiles | None = None,
        before_deletion_files: list[DeletionFile | None] | None = None,
        schema: TableSchema | None = None,
    ) -> None:
        super().__init__(
            files=files,
            partition=partition,
            bucket=bucket,
            raw_convertible=mode is SplitMode.ROWS,
            data_deletion_files=deletion_files,
            snapshot_id=snapshot_id,
            is_streaming=mode not in (SplitMode.MERGE, SplitMode.CHAIN, SplitMode.EVOLUTION),
            total_buckets=total_buckets,
        )
        self.mode = mode
        self._before = before_files or []
        self.before_deletion_files = before_deletion_files
        self.schema = schema

    @property
    def _files(self) -> list[DataFileMeta]:
        """Where the base class keeps its files."""
        if not isinstance(self._source, list):
            self._source = self._source.make()
        return self._source

    @_files.setter
    def _files(self, files: list[DataFileMeta] | SplitFiles) -> None:
        self._source = files

    @property
    def before_files(self) -> list[DataFileMeta]:
        """Files whose rows are retracted (modes OVERWRITE, NET and DIFF), else empty."""
        if not isinstance(self._before, list):
            self._before = self._before.make()
        return self._before

    @property
    def retracts(self) -> bool:
        """Whether there is something in `before_files`."""
        return bool(len(self._before))

    def without_files(self) -> StreamSplit:
        """What was there before alone, which is retracted. Of mode OVERWRITE, in which rows are not compared."""
        assert self.mode is SplitMode.OVERWRITE
        part = copy(self)
        part._source, part.data_deletion_files, part._next_plan = [], None, None
        return part

    def without_before_files(self) -> StreamSplit:
        """What is there now alone. Of mode OVERWRITE, in which rows are not compared."""
        assert self.mode is SplitMode.OVERWRITE
        part = copy(self)
        part._before, part.before_deletion_files = [], None
        return part

    def needed_by(self, path: str) -> int:
        """The snapshot that one of its files belongs to: a file of data, or one of deletion vectors."""
        before = {file.file_name for file in self.before_files}
        before |= {posixpath.basename(file.dv_index_path) for file in self.before_deletion_files or () if file}
        after = {file.file_name for file in self.files}
        after |= {posixpath.basename(file.dv_index_path) for file in self.data_deletion_files or () if file}
        if self.before_snapshot_id is not None and posixpath.basename(path) in before - after:
            return self.before_snapshot_id
        return int(self.snapshot_id)

    def of_files(self, indexes: Sequence[int]) -> StreamSplit:
        """The split of these of its files alone.

        Of mode ROWS, in which files do not depend on each other; or EVOLUTION, where no other one may hold columns of
        their rows.
        """
        assert self.mode in (SplitMode.ROWS, SplitMode.EVOLUTION)
        part = copy(self)
        part._source = [self.files[index] for index in indexes]
        # Other parts of the plan may be read by others.
        part._next_plan = None
        if self.data_deletion_files is not None:
            part.data_deletion_files = [self.data_deletion_files[index] for index in indexes]
        return part

    @property
    def row_count(self) -> int:
        """Physical records in `files`."""
        return int(super().row_count) if isinstance(self._source, list) else self._source.row_count

    @property
    def file_size(self) -> int:
        """Bytes of `files`."""
        return int(super().file_size) if isinstance(self._source, list) else self._source.file_size

    def __getstate__(self) -> dict[str, Any]:
        """Elsewhere the columns of the whole plan are not wanted, nor the plans behind it."""
        state = self.__dict__ | {"_source": self._files, "_before": self.before_files}
        state.pop("_next_plan", None)
        return state

    def __repr__(self) -> str:
        files = self.files
        more = f", and {len(files) - _FILES_SHOWN} more" if len(files) > _FILES_SHOWN else ""
        names = ", ".join(file.file_name for file in files[:_FILES_SHOWN])
        return (
            f"StreamSplit({self.mode.value} of snapshot {self.snapshot_id}, partition {self.partition.to_dict()}, "
            f"bucket {self.bucket}, {self.row_count} records, {self.file_size} bytes, files [{names}{more}])"
        )


class Plan(PaimonPlan):
    """The splits of one step of a stream, and where the stream stands after it. Immutable.

    A subclass of pypaimon's `Plan`. One that a program makes itself, as `Plan([])` in a test, has what it was given:
    the other properties raise `StreamConfigError`, but for `snapshot_id` and `watermark`, which are None.
    """

    def __init__(
        self,
        splits: Sequence[StreamSplit],
        snapshot_id: int | None = None,
        *,
        kind: PlanKind | None = None,
        position: Position | None = None,
        schema: TableSchema | None = None,
        watermark: int | None = None,
        commit_time_millis: int | None = None,
        planned_for: RowSelection | None = None,
    ) -> None:
        values = {
            "_stream_splits": tuple(splits),
            "_kind": kind,
            "_snapshot": snapshot_id,
            "_position": position,
            "_schema": schema,
            "_watermark": watermark,
            "_commit_time_millis": commit_time_millis,
            "_planned_for": planned_for,
        }
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a plan is immutable; cannot set {name!r}")

    def splits(self) -> list[StreamSplit]:
        """The splits, in the order in which they should be read; a bucket of an ordered table is one split."""
        return list(self.__dict__["_stream_splits"])

    @property
    def snapshot_id(self) -> int:
        """The snapshot that was planned; of a collapsed or net plan the last one."""
        snapshot: int = self.__dict__["_snapshot"]
        return snapshot

    @property
    def position(self) -> Position:
        """Where the stream goes on after this plan."""
        position: Position = self._of_stream("_position")
        return position

    @property
    def kind(self) -> PlanKind:
        """Where the rows come from."""
        kind: PlanKind = self._of_stream("_kind")
        return kind

    @property
    def schema(self) -> TableSchema:
        """The schema that the rows are read with."""
        return self._of_stream("_schema")

    @property
    def watermark(self) -> int | None:
        """The snapshot's watermark in epoch milliseconds, None if it has none."""
        watermark: int | None = self.__dict__["_watermark"]
        return watermark

    @property
    def commit_time(self) -> datetime:
        """When the snapshot was committed (aware, UTC)."""
        return _EPOCH + timedelta(milliseconds=self._of_stream("_commit_time_millis"))

    @property
    def row_count(self) -> int:
        """Physical records in the files of the plan, before merging and filtering."""
        return sum(split.row_count for split in self.splits())

    def _of_stream(self, name: str) -> Any:
        value = self.__dict__[name]
        if value is None:
            raise StreamConfigError(
                f"This plan has no {name.removeprefix('_').removesuffix('_millis')}: it was made without one, and not "
                "by a stream."
            )
        return value

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        if self.__dict__["_kind"] is None or self.__dict__["_position"] is None:
            return f"Plan({len(self.splits())} splits, of no stream)"
        what = f"{self.kind.value} of snapshot {self.snapshot_id}, {len(self.splits())} splits"
        return f"Plan({what}, next {self.position.snapshot})"


def last_split(plan: Plan) -> StreamSplit | None:
    """The last one of the splits of a plan; None if there are none."""
    splits: tuple[StreamSplit, ...] = plan.__dict__["_stream_splits"]
    return splits[-1] if splits else None


def plan_selection(plan: Plan) -> RowSelection | None:
    """The filter and the columns that a plan was made with; None: every row and column."""
    found: RowSelection | None = plan.__dict__["_planned_for"]
    return found


def put_behind(split: StreamSplit, plan: Plan) -> None:
    """Have the last split of a plan know the plan behind it, as long as that one is waited for. It does not travel."""
    split._next_plan = weakref.ref(plan)


def plans_behind(split: StreamSplit) -> Iterator[Plan]:
    """The plans that were made ahead by now, behind the plan whose last split this is."""
    last: StreamSplit | None = split
    while last is not None and last._next_plan is not None and (plan := last._next_plan()) is not None:
        yield plan
        last = last_split(plan)
