"""`ray_dataset` and `RayFeed`: what there is of a table as one dataset of Ray Data, and what comes, plan by plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ray.data

from pypaimon.streaming.builder.assembly import group_parts, identity_of, with_options
from pypaimon.streaming.builder.builder import StreamReadBuilder
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.feeds.feed import settings_of
from pypaimon.streaming.feeds.feed_state import FeedIdentity, FeedState
from pypaimon.streaming.feeds.ray.datasource import SplitsDatasource, dataset_of
from pypaimon.streaming.feeds.share import Share, independent_parts
from pypaimon.streaming.model.plan import StreamSplit
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import typed
from pypaimon.streaming.options.end import End
from pypaimon.streaming.planning.planner import Planner


def ray_dataset(builder: StreamReadBuilder) -> ray.data.Dataset:
    """What a stream reads up to its end, as a dataset of Ray Data (extra `ray`).

    It is planned here, once; the tasks of Ray get splits, and read them when the dataset is used. The rows are those of
    the stream, with `_row_kind` where it has that: by default the state of the table. Files of a table without buckets
    are read in any order; those of a bucket by one task, in order. Files that have expired before they are read are an
    error of the task.

    Args:
        builder: The stream. Without an end it ends at the latest snapshot. It has no consumer id.

    Raises:
        StreamConfigError: A setting cannot be, or its end is not there yet.
        PaimonStreamError: See `StreamReadBuilder.open`.
    """
    return dataset_of(bounded_source(builder))


def bounded_source(builder: StreamReadBuilder) -> SplitsDatasource:
    """What `ray_dataset` reads, planned."""
    _refuse_consumer(builder, "ray_dataset")
    options = builder._options()
    bounded = builder if options.is_bounded else with_options(builder, end=End(latest=True))
    parts, _ = group_parts(bounded)
    read = builder.new_read()
    try:
        splits = list(_planned(parts.planner))
    finally:
        parts.release()
    return SplitsDatasource(read, independent_parts(splits, builder._traits), read.schema)


class RayFeed:
    """The plans of a stream one after the other, each as a dataset of Ray Data with the position behind it.

    It needs the extra `ray`.

    A plan is what one snapshot brought, of an append table that is far behind that of several; `with_limits(...)` cuts
    it. Asking for the next one says that this one is done. `state_dict()` is behind the last one that is, and a feed
    that goes on there gives the others again: each at least once. Who keeps the position together with what came of its
    dataset, and begins there with `with_start(position=...)`, has each exactly once.

    Args:
        builder: The stream. It has no consumer id.

    Raises:
        StreamConfigError: A setting cannot be.
        PaimonStreamError: See `StreamReadBuilder.open`.
    """

    def __init__(self, builder: StreamReadBuilder) -> None:
        typed(StreamReadBuilder, "RayFeed: builder", builder)
        _refuse_consumer(builder, "RayFeed")
        self._builder = builder.copy()
        self._identity = FeedIdentity(identity_of(builder), settings_of(builder._options()))
        self._done: Position | None = None

    def __iter__(self) -> Iterator[tuple[ray.data.Dataset, Position]]:
        read = self._builder.new_read()
        with self._builder.new_streaming_scan() as scan:
            scan.restore(self._done)
            for plan in scan.stream_sync():
                parts = independent_parts(plan.splits(), self._builder._traits)
                yield dataset_of(SplitsDatasource(read, parts, read.schema_of(plan))), plan.position
                self._done = plan.position

    def for_each(self, function: Callable[[ray.data.Dataset, Position], object]) -> None:
        """Call a function with each dataset and the position behind it; for ever, unless the stream has an end.

        What the function raises ends it; the next call begins with the same rows.
        """
        for dataset, position in self:
            function(dataset, position)

    def state_dict(self) -> dict[str, Any]:
        """Behind the last dataset that is done, of what JSON can hold; empty before the first."""
        return {} if self._done is None else self._identity.state(Share(), FeedState(self._done))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state says; an empty one is the start.

        Raises:
            StreamConfigError: It is no state, or that of a feed with other settings.
            TableChangedError: It is of another table.
        """
        self._done = self._identity.place(Share(), state).position if state else None


def _refuse_consumer(builder: StreamReadBuilder, what: str) -> None:
    typed(StreamReadBuilder, f"{what}: builder", builder)
    if builder._options().consumer is not None:
        raise StreamConfigError(
            f"{what}: nothing is confirmed under a consumer id: leave with_consumer_id(...), or the option "
            "'consumer-id', out."
        )


def _planned(planner: Planner) -> Iterator[StreamSplit]:
    """The splits of all plans up to the end."""
    state = planner.initial()
    while not state.ended:
        step = planner.step(state)
        if step.idle and not step.state.ended:
            raise StreamConfigError("ray_dataset: the end of the stream is not there yet; give with_end(latest=True)")
        state = step.state
        if step.plan is not None:
            yield from step.plan.splits()
