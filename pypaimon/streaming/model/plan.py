"""`Plan` and `StreamSplit`: the results of planning, as plain values."""

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
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.model.row_selection import RowSelection
from pypaimon.streaming.paimon.internals import (
    DataFileMeta,
    DataSplit,
    DeletionFile,
    GenericRow,
    PaimonPlan,
    TableSchema,
)

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
    """The rows that one OVERWRITE snapshot removed and added."""
    COLLAPSED = "collapsed"
    """The files that several APPEND snapshots added, in replay order."""
    NET = "net"
    """The changes from the state at one snapshot to that at a later one: with a primary key, one change per key."""
    DIFF = "diff"
    """The rows that are new or changed in the later of two states."""


class SplitMode(str, Enum):
    """How the rows of a split come from its files."""

    ROWS = "rows"
    """Append files one after the other; every row is +I."""
    RECORDS = "records"
    """Primary-key data files as they were written: not merged, with their row kinds."""
    CHANGELOG = "changelog"
    """Changelog files: not merged, with their row kinds."""
    MERGE = "merge"
    """Primary-key data files merged on read; deletes are dropped."""
    OVERWRITE = "overwrite"
    """The merged rows of `before_files` as -D, then the merged rows of `files`."""
    CHAIN = "chain"
    """As MERGE, but rows keep their stored row kind. Files may be of several partitions, older ones first; all rows
    belong to the partition of the split."""
    EVOLUTION = "evolution"
    """Files of row-id groups, joined column by column."""
    NET = "net"
    """`files` compared with `before_files`: one change per key if they are merged, else removed and added rows."""
    DIFF = "diff"
    """As NET, but without the rows before: rows of `files` that are new or changed, as stored, and removed keys."""


class FileColumns(Protocol):
    """Files of a split as columns, whose rows and bytes are known without an object per file."""

    @property
    def row_count(self) -> int: ...

    @property
    def file_size(self) -> int:
        """Bytes of the files."""

    def __len__(self) -> int: ...

    def make(self) -> list[DataFileMeta]:
        """The value objects of the files, in their order."""


@dataclass(frozen=True, slots=True)
class BranchFiles:
    """The files of a split that belong to another branch."""

    branch: str
    names: frozenset[str]
    snapshot_id: int
    fingerprint: str


class StreamSplit(DataSplit):
    """Files of one bucket that are read together, in order, in one way.

    A subclass of pypaimon's `DataSplit`; pickles. The objects in `files` and `before_files` are made at the first
    access; `row_count` and `file_size` do not need them.

    Attributes:
        mode: How rows come from the files.
        before_deletion_files: Deletion files of `before_files`, one each or None.
        schema: The schema to read with if it is not that of the reader (`on_schema_change="follow"`).
        fingerprint: Fingerprint of the snapshot, if a stream planned the split.
        before_snapshot_id: The snapshot of `before_files`, if known. It may expire before the split's own snapshot.
        keys_move: Whether keys may be in other buckets afterwards (mode OVERWRITE).
        of_branch: The files that belong to another branch, whose schemas describe them; or None.
        planned_for: The filter and columns that the split was planned with; None: all rows and columns.
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
    _source: list[DataFileMeta] | FileColumns
    _before: list[DataFileMeta] | FileColumns

    def __init__(
        self,
        mode: SplitMode,
        files: list[DataFileMeta] | FileColumns,
        partition: GenericRow,
        bucket: int,
        *,
        snapshot_id: int,
        total_buckets: int | None = None,
        deletion_files: list[DeletionFile | None] | None = None,
        before_files: list[DataFileMeta] | FileColumns | None = None,
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
        """The attribute in which the base class keeps its files."""
        if not isinstance(self._source, list):
            self._source = self._source.make()
        return self._source

    @_files.setter
    def _files(self, files: list[DataFileMeta] | FileColumns) -> None:
        self._source = files

    @property
    def before_files(self) -> list[DataFileMeta]:
        """Files whose rows are retracted (modes OVERWRITE, NET and DIFF), else empty."""
        if not isinstance(self._before, list):
            self._before = self._before.make()
        return self._before

    @property
    def retracts(self) -> bool:
        """Whether `before_files` holds a file."""
        return bool(len(self._before))

    def without_files(self) -> StreamSplit:
        """A split that only retracts `before_files` (mode OVERWRITE, in which rows are not compared)."""
        assert self.mode is SplitMode.OVERWRITE
        part = copy(self)
        part._source, part.data_deletion_files, part._next_plan = [], None, None
        return part

    def without_before_files(self) -> StreamSplit:
        """A split that only adds `files` (mode OVERWRITE, in which rows are not compared)."""
        assert self.mode is SplitMode.OVERWRITE
        part = copy(self)
        part._before, part.before_deletion_files = [], None
        return part

    def needed_by(self, path: str) -> int:
        """The snapshot that names a data file, or a file of deletion vectors, of the split."""
        before = {file.file_name for file in self.before_files}
        before |= {posixpath.basename(file.dv_index_path) for file in self.before_deletion_files or () if file}
        after = {file.file_name for file in self.files}
        after |= {posixpath.basename(file.dv_index_path) for file in self.data_deletion_files or () if file}
        if self.before_snapshot_id is not None and posixpath.basename(path) in before - after:
            return self.before_snapshot_id
        return int(self.snapshot_id)

    def of_files(self, indexes: Sequence[int]) -> StreamSplit:
        """A split of some of the files.

        Only of mode ROWS, in which files are independent, or EVOLUTION, if no other file holds columns of their rows.
        """
        assert self.mode in (SplitMode.ROWS, SplitMode.EVOLUTION)
        part = copy(self)
        part._source = [self.files[index] for index in indexes]
        # Another process may read the other parts of the plan.
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
        """Leave out the columns of the whole plan and the plans after it."""
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
    """The splits of one step of a stream, and the position after it. Immutable.

    A subclass of pypaimon's `Plan`. In a plan that a program makes itself, as `Plan([])` in a test, properties that
    were not given raise `StreamConfigError`, except `snapshot_id` and `watermark`, which are None.
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
        """The splits in the order to read them; a bucket of an ordered table is one split."""
        return list(self.__dict__["_stream_splits"])

    @property
    def snapshot_id(self) -> int:
        """The planned snapshot; the last one in a collapsed or net plan."""
        snapshot: int = self.__dict__["_snapshot"]
        return snapshot

    @property
    def position(self) -> Position:
        """The position of the stream after this plan."""
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
        schema: TableSchema = self._of_stream("_schema")
        return schema

    @property
    def watermark(self) -> int | None:
        """The snapshot's watermark in epoch milliseconds, or None."""
        watermark: int | None = self.__dict__["_watermark"]
        return watermark

    @property
    def commit_time(self) -> datetime:
        """The commit time of the snapshot (aware, UTC)."""
        return _EPOCH + timedelta(milliseconds=self._of_stream("_commit_time_millis"))

    @property
    def row_count(self) -> int:
        """Physical records in the files of the plan, before merging and filtering."""
        return sum(split.row_count for split in self.splits())

    def _of_stream(self, name: str) -> Any:
        value = self.__dict__[name]
        if value is None:
            raise StreamConfigError(
                f"This plan has no {name.removeprefix('_').removesuffix('_millis')}: it was made by a program without "
                "one, not by a stream."
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
    """The last split of a plan, or None."""
    splits: tuple[StreamSplit, ...] = plan.__dict__["_stream_splits"]
    return splits[-1] if splits else None


def file_count(plan: Plan) -> int:
    """The number of files of a plan, including those whose rows it retracts."""
    splits: tuple[StreamSplit, ...] = plan.__dict__["_stream_splits"]
    return sum(len(split._source) + len(split._before) for split in splits)


def plan_selection(plan: Plan) -> RowSelection | None:
    """The filter and columns that a plan was made with; None: all rows and columns."""
    found: RowSelection | None = plan.__dict__["_planned_for"]
    return found


def set_next_plan(split: StreamSplit, plan: Plan) -> None:
    """Link the last split of a plan to the next plan, as long as that plan is alive. The link is not pickled."""
    split._next_plan = weakref.ref(plan)


def next_plans(split: StreamSplit) -> Iterator[Plan]:
    """The prefetched plans after the plan with this last split."""
    last: StreamSplit | None = split
    while last is not None and last._next_plan is not None and (plan := last._next_plan()) is not None:
        yield plan
        last = last_split(plan)
