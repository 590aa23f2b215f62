"""`ray_dataset` and `RayFeed`: a table as one dataset of Ray Data, or its stream as one dataset per plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import ray.data
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.feeds.feed import settings_of
from pypaimon.streaming.feeds.feed_state import FeedIdentity, FeedState, Share, independent_parts
from pypaimon.streaming.model.plan import StreamSplit
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import typed
from pypaimon.streaming.options.between import End
from pypaimon.streaming.planning.planner import Planner
from pypaimon.streaming.planning.planner_state import PlannerState
from pypaimon.streaming.read_builder import StreamReadBuilder
from pypaimon.streaming.reading.read import StreamRead
from pypaimon.streaming.spec.openers import new_scan
from pypaimon.streaming.spec.resolve import ResolvedStream
from pypaimon.streaming.spec.spec_builder import resolved
from pypaimon.streaming.spec.table_read import new_read

_BYTES_IN_MEMORY = 3
"""Approximate ratio of the size of rows in memory to the size of their files."""


class SplitsDatasource(Datasource):  # type: ignore[misc, unused-ignore]
    """The rows of splits. The tasks get splits, and plan nothing.

    Args:
        read: Reads the splits.
        parts: Groups of splits. A group is read in order by one task; groups are read in any order.
        schema: The schema of the rows.
    """

    def __init__(self, read: StreamRead, parts: Sequence[Sequence[StreamSplit]], schema: pa.Schema) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self._read = read
        self._parts = parts
        self._schema = schema

    def get_name(self) -> str:
        return "Paimon"

    def estimate_inmemory_data_size(self) -> int:
        return sum(map(_bytes, self._parts))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """At most as many tasks as Ray asks for, of about equal size."""
        packed: list[list[Sequence[StreamSplit]]] = [[] for _ in range(max(1, min(parallelism, len(self._parts))))]
        loads = [0] * len(packed)
        for part in self._parts:
            task = loads.index(min(loads))
            packed[task].append(part)
            loads[task] += _bytes(part)
        return [self._task([split for part in parts for split in part], per_task_row_limit) for parts in packed]

    def _task(self, splits: list[StreamSplit], limit: int | None) -> ReadTask:
        # The number of rows is known only after they are merged and filtered.
        metadata = BlockMetadata(num_rows=None, size_bytes=_bytes(splits), exec_stats=None, input_files=None)
        make = partial(_tables, self._read, splits, self._schema)
        # Older releases of Ray do not know the limit.
        limited: dict[str, Any] = {} if limit is None else {"per_task_row_limit": limit}
        return ReadTask(make, metadata, schema=self._schema, **limited)


def dataset_of(source: SplitsDatasource) -> ray.data.Dataset:
    dataset: ray.data.Dataset = ray.data.read_datasource(source)
    return dataset


def _tables(read: StreamRead, splits: list[StreamSplit], schema: pa.Schema) -> Iterator[pa.Table]:
    given = False
    for batch in read.iter_batches(splits):
        yield pa.Table.from_batches([batch])
        given = True
    if not given:
        yield schema.empty_table()


def _bytes(splits: Sequence[StreamSplit]) -> int:
    return _BYTES_IN_MEMORY * sum(split.file_size for split in splits)


def ray_dataset(builder: StreamReadBuilder) -> ray.data.Dataset:
    """All rows of a stream up to its end, as a dataset of Ray Data (extra `ray`).

    The stream is planned once, by this call. Tasks of Ray get the splits and read them when the dataset is used. The
    rows are those of the stream, by default the state of the table, with `_row_kind` if the stream has it. Files of a
    table without buckets are read in any order, files of a bucket by one task in order. A task fails if its files have
    expired.

    Args:
        builder: The stream. Without an end it ends at the latest snapshot. It must not have a consumer id.

    Raises:
        StreamConfigError: Invalid setting, or the end of the stream does not exist yet.
        PaimonStreamError: See `StreamReadBuilder.open`.
    """
    return dataset_of(bounded_source(builder))


def bounded_source(builder: StreamReadBuilder) -> SplitsDatasource:
    stream = _without_consumer(builder, "ray_dataset")
    if not stream.options.is_bounded:
        stream = stream.with_spec(replace(stream.spec, end=End(latest=True)))
    read = new_read(stream)
    splits = list(_planned(stream.scan_parts().planner))
    return SplitsDatasource(read, independent_parts(splits, stream.traits), read.schema)


class RayFeed:
    """The plans of a stream in order, each as a dataset of Ray Data with the position after it (extra `ray`).

    A plan has the rows of one snapshot. With a large backlog of an append table it has those of several;
    `with_limits(...)` cuts it. Asking for the next dataset confirms the previous one. `state_dict()` is the state after
    the last confirmed dataset. A feed that continues there gives the others again: at least once. For exactly once,
    save each position together with the results of its dataset and start with `with_start(position=...)`.

    Args:
        builder: The stream. It must not have a consumer id.

    Raises:
        StreamConfigError: Invalid setting.
        PaimonStreamError: See `StreamReadBuilder.open`.
    """

    def __init__(self, builder: StreamReadBuilder) -> None:
        self._stream = _without_consumer(builder, "RayFeed")
        self._identity = FeedIdentity(self._stream.identity, settings_of(self._stream))
        self._done: Position | None = None

    def __iter__(self) -> Iterator[tuple[ray.data.Dataset, Position]]:
        read = new_read(self._stream)
        with new_scan(self._stream) as scan:
            scan.restore(self._done)
            for plan in scan.stream_sync():
                parts = independent_parts(plan.splits(), self._stream.traits)
                yield dataset_of(SplitsDatasource(read, parts, read.schema_of(plan))), plan.position
                self._done = plan.position

    def for_each(self, function: Callable[[ray.data.Dataset, Position], object]) -> None:
        """Call a function with each dataset and the position after it, until the end of the stream if it has one.

        An error of the function is raised; the next call begins with the same rows.
        """
        for dataset, position in self:
            function(dataset, position)

    def state_dict(self) -> dict[str, Any]:
        """The state after the last confirmed dataset, as values for JSON; empty before the first."""
        return {} if self._done is None else self._identity.state(Share(), FeedState(self._done))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state; an empty one is the start.

        Raises:
            StreamConfigError: The state is invalid, or belongs to a feed with other settings.
            TableChangedError: The state belongs to another table.
        """
        self._done = self._identity.place(Share(), state).position if state else None


def _without_consumer(builder: StreamReadBuilder, what: str) -> ResolvedStream:
    stream = resolved(typed(StreamReadBuilder, f"{what}: builder", builder))
    if stream.options.consumer is not None:
        raise StreamConfigError(
            f"{what} does not save progress under a consumer id: leave out with_consumer_id(...) or the option "
            "'consumer-id'."
        )
    return stream


def _planned(planner: Planner) -> Iterator[StreamSplit]:
    state: PlannerState = planner.initial()
    while not state.ended:
        step = planner.step(state)
        if step.idle and not step.state.ended:
            raise StreamConfigError("ray_dataset: the end of the stream does not exist yet; use with_end(latest=True)")
        state = step.state
        if step.plan is not None:
            yield from step.plan.splits()
