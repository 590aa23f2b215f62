"""`Feed`: one range of a table for several workers, who all begin, and end, at the same snapshot."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from pypaimon.streaming.builder.assembly import group_parts, with_options
from pypaimon.streaming.builder.builder import StreamReadBuilder
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.feeds.feed_state import FeedIdentity, FeedState
from pypaimon.streaming.feeds.reader import FeedReader, RowQueue
from pypaimon.streaming.feeds.share import Share
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.model.position import Phase, Position
from pypaimon.streaming.options.end import End
from pypaimon.streaming.options.slot_rule import DividedBy
from pypaimon.streaming.options.start import StartMode
from pypaimon.streaming.options.stream_options import CatchUp, OnExpired, StreamOptions
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.planning.planner import Planner
from pypaimon.streaming.planning.planner_state import PlannerState

_OF_NEW_TABLES = (StartMode.LATEST_FULL, StartMode.LATEST, StartMode.EARLIEST)
_BY_CREATION = (StartMode.FROM_FILE_CREATION_TIME, StartMode.FROM_CREATION_TIMESTAMP)


@dataclass(frozen=True, slots=True)
class Feed:
    """A stream whose start is fixed, and its end if that is there. Opened by workers; pickles.

    Attributes:
        builder: The stream, pickled here: what a fork inherits of a store cannot be used.
        identity: What a saved state must have in common with it.
        start: Where all workers begin.
        end: Position behind the last snapshot of the range; None: that is not there yet, or there is no end.
    """

    builder: bytes
    identity: FeedIdentity
    start: Position
    end: Position | None

    @staticmethod
    def of(builder: StreamReadBuilder, what: str) -> Feed:
        """Find the start and the end of a stream. Blocks.

        Args:
            builder: The stream.
            what: What it is for, for errors.

        Raises:
            StreamConfigError: It has settings that a feed cannot have, or a start that is not there yet.
            PaimonStreamError: See `StreamReadBuilder.open`.
        """
        _refuse(builder._options(), what)
        parts, _ = group_parts(builder)
        try:
            state = parts.planner.begun(parts.planner.initial())
            start = _start(parts.planner, parts.directory, state, parts.options)
            last = _last(parts.directory, state, parts.options)
            end = None if last is None else _behind(parts.directory, start, last)
        finally:
            parts.release()
        frozen = with_options(builder, catch_up=CatchUp.REPLAY)
        if last is not None:
            frozen = with_options(frozen, end=End(snapshot_id=last))
        identity = FeedIdentity(start.table, {**settings_of(parts.options), "divided_by": _divided_by(builder._traits)})
        return Feed(pickle.dumps(frozen), identity, start, end)

    @property
    def begin(self) -> FeedState:
        """The place before the first row."""
        return FeedState(self.start)

    def open(self, share: Share, place: FeedState, length: int, across_plans: bool) -> FeedReader:
        """Read a share from a place on.

        Args:
            share: What.
            place: Where it begins.
            length: Rows of a batch.
            across_plans: Batches may hold rows of several snapshots.
        """
        builder = _unpickled(self.builder, os.getpid())
        slots = share.slots(builder._traits, builder._schema)
        splits_of = share.dealt if slots is None else Plan.splits
        queue = RowQueue(length, across_plans, place)
        return FeedReader(with_options(builder, slots=slots), splits_of, place, self.end, queue)


@lru_cache(maxsize=4)
def _unpickled(builder: bytes, process: int) -> StreamReadBuilder:
    """The stream of a feed, once in each process: later passes have the manifests that the first one has read."""
    made: StreamReadBuilder = pickle.loads(builder)
    return made


def refuse_moving_ends(builder: StreamReadBuilder) -> None:
    """Refuse what processes that do not know of each other would each find for themselves.

    Raises:
        StreamConfigError: The start, or the end, is another one at another time.
    """
    given = builder._given
    if given.start is None or not given.start.is_fixed:
        raise StreamConfigError(
            "Ranks that are given by hand each find the start for themselves: give one that stays, "
            "with_start(snapshot_id=..., full=True), tag= or position=; or initialise torch.distributed first."
        )
    if given.end is not None and given.end.latest:
        raise StreamConfigError(
            "Ranks that are given by hand each find the latest snapshot for themselves: give one that stays, "
            "with_end(snapshot_id=...); or initialise torch.distributed first."
        )


def _refuse(options: StreamOptions, what: str) -> None:
    """Refuse what would have workers read different rows, or lets others decide where they stand."""
    refused: Mapping[str, tuple[bool, str]] = {
        "with_shard": (options.shard is not None, "its workers share the table; more of them by rank and world_size"),
        "with_buckets": (options.bucket_filter is not None, "its workers share the buckets; give a with_filter(...)"),
        "with_consumer_id": (options.consumer is not None, "where it stands is its own state, state_dict()"),
        "with_limits": (bool(options.limits), "how many rows come at once, batch_rows says"),
        "with_catch_up": (options.catch_up is CatchUp.NET, "what a plan holds would depend on how far it is behind"),
        "with_on_expired": (
            options.on_expired is not OnExpired.FAIL,
            "each worker would go on elsewhere; after an error begin anew, for all of them",
        ),
        "between": (options.between is not None, "give a with_start(...) and a with_end(...)"),
    }
    for call, (is_given, why) in refused.items():
        if is_given:
            raise StreamConfigError(f"{what} has no {call}(...), nor an option of the table that means it: {why}.")


def _start(planner: Planner, directory: TableDirectory, state: PlannerState, options: StreamOptions) -> Position:
    position = planner.position(state)
    if position is not None:
        return position
    if options.start.mode in _OF_NEW_TABLES and directory.snapshots.latest_id() is None:
        return Position(directory.identity, 1)
    raise StreamConfigError(
        f"The start {options.start.text!r} is not there yet, and workers would each find one of their own. Begin once "
        "it is, or with another with_start(...)."
    )


def _last(directory: TableDirectory, state: PlannerState, options: StreamOptions) -> int | None:
    """The last snapshot of the range, if it is there; 0: an empty table's."""
    end = options.end
    if end is None or (not end.latest and end.snapshot_id is None):
        return None
    if end.latest:
        return state.end_id or 0
    latest = directory.snapshots.latest_id() or 0
    return end.snapshot_id if end.snapshot_id is not None and end.snapshot_id <= latest else None


def _divided_by(traits: TableTraits) -> str:
    """What of the table decides whose a file is: an option that was altered may have workers share it otherwise."""
    return DividedBy.FILE.value if traits.unaware_bucket else DividedBy.BUCKET.value


def _behind(directory: TableDirectory, start: Position, last: int) -> Position:
    if start.phase is Phase.FOLLOW and start.snapshot > last:
        return start
    snapshot = directory.snapshots.get_snapshot_by_id(last) if last else None
    return Position(start.table, last + 1, None if snapshot is None else snapshot.fingerprint)


def settings_of(options: StreamOptions) -> dict[str, str]:
    """What decides which rows come, and in which order."""
    start = options.start
    return {
        "filter": str(options.predicate),
        "unmatched": options.unmatched.value,
        "raw": str(options.raw),
        "overwrites": str(options.read_overwrite),
        "files_created_since": str(start.millis if start.mode in _BY_CREATION else None),
        "order": f"{options.sort_partitions}, splits of {options.split_target_bytes}, {options.split_open_bytes}",
    }
