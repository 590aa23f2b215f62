"""`ray_dataset` and `RayFeed`: a table as one dataset of Ray Data, or its stream as one dataset per plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import ray.data

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.feeds.feed import settings_of
from pypaimon.streaming.feeds.feed_state import FeedIdentity, FeedState
from pypaimon.streaming.feeds.ray.datasource import SplitsDatasource, dataset_of
from pypaimon.streaming.feeds.share import Share, independent_parts
from pypaimon.streaming.model.plan import StreamSplit
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import typed
from pypaimon.streaming.options.between import End
from pypaimon.streaming.planning.planner import Planner
from pypaimon.streaming.read_builder import StreamReadBuilder
from pypaimon.streaming.spec.read import new_read
from pypaimon.streaming.spec.resolve import ResolvedStream
from pypaimon.streaming.spec.scan import new_scan
from pypaimon.streaming.spec.spec_builder import resolved


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
    """The planned source of `ray_dataset`."""
    stream = _without_consumer(builder, "ray_dataset")
    if not stream.options.is_bounded:
        stream = stream.with_spec(replace(stream.spec, end=End(latest=True)))
    parts = stream.scan_parts()
    read = new_read(stream)
    try:
        splits = list(_planned(parts.planner))
    finally:
        parts.release()
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
        self._identity = FeedIdentity(self._stream.identity, settings_of(self._stream.options))
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
    """The splits of all plans up to the end."""
    state = planner.initial()
    while not state.ended:
        step = planner.step(state)
        if step.idle and not step.state.ended:
            raise StreamConfigError("ray_dataset: the end of the stream does not exist yet; use with_end(latest=True)")
        state = step.state
        if step.plan is not None:
            yield from step.plan.splits()
