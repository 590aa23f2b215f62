"""`Feed`: a range of a table for several workers, which all begin and end at the same snapshot."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.feeds.feed_state import FeedIdentity, FeedState
from pypaimon.streaming.feeds.reader import FeedReader, RowQueue
from pypaimon.streaming.feeds.share import Share
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.model.position import Phase, Position
from pypaimon.streaming.options.end import End
from pypaimon.streaming.options.slot_rule import DividedBy
from pypaimon.streaming.options.stream_options import CatchUp, OnExpired, StreamOptions
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.planning.planner import Planner
from pypaimon.streaming.planning.planner_state import PlannerState
from pypaimon.streaming.read_builder import StreamReadBuilder
from pypaimon.streaming.spec.resolve import ResolvedStream
from pypaimon.streaming.spec.spec_builder import resolved


@dataclass(frozen=True, slots=True)
class Feed:
    """A stream with a fixed start, and a fixed end if its last snapshot exists. Workers open it; can be pickled.

    Attributes:
        stream: The pickled `ResolvedStream`, because a forked worker cannot use a store of its parent.
        identity: What a saved state must have in common with this feed.
        start: Where all workers begin.
        end: The position after the last snapshot of the range; None if that does not exist yet, or without an end.
    """

    stream: bytes
    identity: FeedIdentity
    start: Position
    end: Position | None

    @staticmethod
    def of(builder: StreamReadBuilder, what: str) -> Feed:
        """Find the start and the end of a stream. Blocks.

        Args:
            builder: The builder of the stream.
            what: The caller, for errors.

        Raises:
            StreamConfigError: The stream has settings that a feed cannot have, or its start does not exist yet.
            PaimonStreamError: See `StreamReadBuilder.open`.
        """
        stream = resolved(builder)
        _refuse(stream.options, what)
        parts = stream.scan_parts()
        try:
            state = parts.planner.begun(parts.planner.initial())
            start = _start(parts.planner, parts.directory, state, parts.options)
            last = _last(parts.directory, state, parts.options)
            end = None if last is None else _position_after(parts.directory, start, last)
        finally:
            parts.release()
        spec = replace(stream.spec, catch_up=CatchUp.REPLAY)
        if last is not None:
            spec = replace(spec, end=End(snapshot_id=last))
        identity = FeedIdentity(start.table, {**settings_of(parts.options), "divided_by": _divided_by(stream.traits)})
        return Feed(pickle.dumps(stream.with_spec(spec)), identity, start, end)

    @property
    def begin(self) -> FeedState:
        """The state before the first row."""
        return FeedState(self.start)

    def open(self, share: Share, place: FeedState, length: int, across_plans: bool) -> FeedReader:
        """Read a share.

        Args:
            share: The share of this worker.
            place: The state to begin with.
            length: Rows of a batch.
            across_plans: Whether a batch may have rows of several snapshots.
        """
        stream = _unpickled(self.stream, os.getpid())
        slots = share.slots(stream.traits, stream.schema)
        splits_of = share.splits_of if slots is None else Plan.splits
        queue = RowQueue(length, across_plans, place)
        return FeedReader(stream.with_spec(replace(stream.spec, slots=slots)), splits_of, place, self.end, queue)


@lru_cache(maxsize=4)
def _unpickled(stream: bytes, process: int) -> ResolvedStream:
    """The stream of a feed, cached in each process, so that later passes use the manifests that were read before."""
    made: ResolvedStream = pickle.loads(stream)
    return made


def refuse_moving_ends(builder: StreamReadBuilder) -> None:
    """Refuse starts and ends that each rank would find for itself, at different times.

    Raises:
        StreamConfigError: The start or the end depends on when the stream is opened.
    """
    spec = resolved(builder).spec
    if spec.start is None or not spec.start.is_fixed:
        raise StreamConfigError(
            "With rank and world_size, each rank finds the start for itself: set a fixed one, "
            "with_start(snapshot_id=..., full=True), tag= or position=; or initialise torch.distributed first."
        )
    if spec.end is not None and spec.end.latest:
        raise StreamConfigError(
            "With rank and world_size, each rank finds the latest snapshot for itself: set a fixed end, "
            "with_end(snapshot_id=...); or initialise torch.distributed first."
        )


def _refuse(options: StreamOptions, what: str) -> None:
    """Refuse settings that divide the rows in another way, or keep progress in another place."""
    refused: Mapping[str, tuple[bool, str]] = {
        "with_shard": (
            options.shard is not None,
            "its workers share the table; for more workers use rank and world_size",
        ),
        "with_buckets": (options.bucket_filter is not None, "its workers share the buckets; use with_filter(...)"),
        "with_consumer_id": (options.consumer is not None, "its progress is in its own state, state_dict()"),
        "with_limits": (bool(options.limits), "batch_rows sets the number of rows of a batch"),
        "with_catch_up": (options.catch_up is CatchUp.NET, "the rows of a plan would depend on the lag"),
        "with_on_expired": (
            options.on_expired is not OnExpired.FAIL,
            "each worker would continue somewhere else; after an error, restart all of them",
        ),
        "with_range": (options.between is not None, "use with_start(...) and with_end(...)"),
    }
    for call, (is_given, why) in refused.items():
        if is_given:
            raise StreamConfigError(
                f"{what} does not support {call}(...), or an option of the table that means the same: {why}."
            )


def _start(planner: Planner, directory: TableDirectory, state: PlannerState, options: StreamOptions) -> Position:
    position = planner.position(state)
    if position is not None:
        return position
    if options.start.stands_when_empty and directory.snapshots.latest_id() is None:
        return Position(directory.identity, 1)
    raise StreamConfigError(
        f"The start {options.start.text!r} does not exist yet, and each worker would find a different one. Wait until "
        "it exists, or use another with_start(...)."
    )


def _last(directory: TableDirectory, state: PlannerState, options: StreamOptions) -> int | None:
    """The last snapshot of the range if it exists; 0 for an empty table."""
    end = options.end
    if end is None or (not end.latest and end.snapshot_id is None):
        return None
    if end.latest:
        return state.end_id or 0
    latest = directory.snapshots.latest_id() or 0
    return end.snapshot_id if end.snapshot_id is not None and end.snapshot_id <= latest else None


def _divided_by(traits: TableTraits) -> str:
    """How files are divided. It is part of the identity, because an altered option would divide them differently."""
    return DividedBy.FILE.value if traits.unaware_bucket else DividedBy.BUCKET.value


def _position_after(directory: TableDirectory, start: Position, last: int) -> Position:
    if start.phase is Phase.FOLLOW and start.snapshot > last:
        return start
    snapshot = directory.snapshots.get_snapshot_by_id(last) if last else None
    return Position(start.table, last + 1, None if snapshot is None else snapshot.fingerprint)


def settings_of(options: StreamOptions) -> dict[str, str]:
    """The settings that decide which rows come, and in which order."""
    start = options.start
    return {
        "filter": str(options.predicate),
        "unmatched": options.unmatched.value,
        "raw": str(options.raw),
        "overwrites": str(options.read_overwrite),
        "files_created_since": str(start.created_after(in_first_plan=True)),
        "order": f"{options.sort_partitions}, splits of {options.split_target_bytes}, {options.split_open_bytes}",
    }
