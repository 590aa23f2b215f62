"""`Feed`: a range of a table for several workers, and `FeedReader`, which reads the share of one."""

from __future__ import annotations

import os
import pickle
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.batches.read_ahead import ReadAhead
from pypaimon.streaming.concurrency.background_threads import spawn_detached
from pypaimon.streaming.concurrency.clock import until_done
from pypaimon.streaming.errors import EndOfScan, StreamConfigError
from pypaimon.streaming.feeds.feed_state import FeedIdentity, FeedState, Share
from pypaimon.streaming.feeds.shuffle import Shuffle, ShuffledReader
from pypaimon.streaming.metadata.history import ReaderKind
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.arrow_types import one_batch
from pypaimon.streaming.model.plan import Plan, StreamSplit
from pypaimon.streaming.model.position import Phase, Position
from pypaimon.streaming.options.between import End
from pypaimon.streaming.options.slot_rule import DividedBy
from pypaimon.streaming.options.stream_options import DEFAULT_READ_AHEAD_BYTES, CatchUp, OnExpired, StreamOptions
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.planning.planner import Planner
from pypaimon.streaming.planning.planner_state import PlannerState
from pypaimon.streaming.read_builder import StreamReadBuilder
from pypaimon.streaming.spec.openers import open_chunks
from pypaimon.streaming.spec.resolve import ResolvedStream
from pypaimon.streaming.spec.spec_builder import resolved

_CHUNK_BYTES = 16 << 20
"""Smaller than in other streams, so that the first rows come sooner. While a training loop runs Python code, each chunk
that is handed over waits for the interpreter several times: with half as many bytes a feed is a tenth slower.
"""


@dataclass(slots=True)
class _Piece:
    rows: pa.RecordBatch
    position: Position
    after: Position
    given: int
    ends_at: FeedState


class RowQueue:
    """Cuts the rows of plans into batches of one length. The cuts depend only on the plans.

    Callers take all complete batches before they add more rows.
    """

    def __init__(self, length: int, across_plans: bool, place: FeedState) -> None:
        self.length = length
        self._across_plans = across_plans
        self._pieces: deque[_Piece] = deque()
        self._waiting = 0
        self._complete = 0
        self._place = place
        self._given = place.rows

    @property
    def place(self) -> FeedState:
        """The state after the batch that was taken last and the plans without rows that follow it."""
        return self._place

    def add(self, rows: pa.Table, position: Position, after: Position, *, first: bool) -> None:
        if first:
            self._given = 0
        if self._pieces and rows.schema != self._pieces[-1].rows.schema:
            self.flush()
        for batch in filter(len, rows.to_batches()):
            ends_at = FeedState(position, after, self._given + batch.num_rows)
            self._pieces.append(_Piece(batch, position, after, self._given, ends_at))
            self._given += batch.num_rows
            self._waiting += batch.num_rows

    def end_plan(self, after: Position) -> None:
        place = FeedState(after)
        if self._pieces:
            self._pieces[-1].ends_at = place
        else:
            self._place = place
        if not self._across_plans:
            self.flush()

    def flush(self) -> bool:
        """Let the waiting rows be taken without waiting for more; returns whether there are any."""
        self._complete = self._waiting
        return self._waiting > 0

    def take(self) -> tuple[pa.RecordBatch, FeedState] | None:
        """The next batch and the state after it; None if more rows must be added first."""
        ready = self._complete or (self._waiting if self._waiting >= self.length else 0)
        left = wanted = min(self.length, ready)
        if not wanted:
            return None
        taken = []
        while left:
            taken.append(self._cut(left))
            left -= taken[-1].num_rows
        self._waiting -= wanted
        self._complete = max(0, self._complete - wanted)
        return one_batch(taken), self._place

    def _cut(self, most: int) -> pa.RecordBatch:
        piece = self._pieces[0]
        if piece.rows.num_rows <= most:
            self._pieces.popleft()
            self._place = piece.ends_at
            return piece.rows
        rows, piece.rows = piece.rows.slice(0, most), piece.rows.slice(most)
        piece.given += most
        self._place = FeedState(piece.position, piece.after, piece.given)
        return rows


class FeedReader(Iterator[tuple[pa.RecordBatch, FeedState]]):
    """Reads one share. Its rows and batches depend only on the table, the share and the state to begin with.

    Up to an end that exists it reads ahead on a thread. Without an end, whenever there is nothing new, it waits for a
    poll interval and gives an empty batch. An error loses nothing: the next call continues before it.

    Args:
        end: The position after the last row, None if that does not exist yet.
    """

    def __init__(
        self,
        stream: ResolvedStream,
        splits_of: Callable[[Plan], list[StreamSplit]],
        place: FeedState,
        end: Position | None,
        queue: RowQueue,
    ) -> None:
        _, self._driver, self._reader = open_chunks(stream, _CHUNK_BYTES, splits_of=splits_of)
        self._driver.seek(place.position)
        if place.after is not None:
            self._reader.resume_after(place.after, place.rows)
        self._end = end
        self._queue = queue
        self._ahead = None if end is None else ReadAhead(self._reader, DEFAULT_READ_AHEAD_BYTES)
        self._has_begun = False
        weakref.finalize(self, spawn_detached, (self._ahead or self._reader).close)

    @property
    def place(self) -> FeedState:
        """The state after the last batch and the plans without rows of this share that follow it."""
        return self._queue.place

    def __next__(self) -> tuple[pa.RecordBatch, FeedState]:
        while (taken := self._queue.take()) is None:
            if not self._has_read():
                time.sleep(self._driver.poll_seconds)
                return pa.RecordBatch.from_pylist([], schema=self._reader.schema), self.place
        return taken

    def close(self) -> None:
        """End at once. Idempotent."""
        (self._ahead or self._reader).close()

    def _has_read(self) -> bool:
        if not self._has_begun:
            self._check_end()
            self._has_begun = True
        try:
            with ReaderKind.FEED.advising():
                chunk = self._reader.look() if self._ahead is None else _next(self._ahead)
        except EndOfScan:
            if self._queue.flush():
                return True
            self._check_end()
            self._skip_empty_plans()
            raise StopIteration from None
        if chunk is None:
            self._skip_empty_plans()
            return False
        self._add(chunk)
        return True

    def _check_end(self) -> None:
        """Check that the last snapshot is the one of all workers and passes. A reader finds a rollback of what it has
        read itself, not of what it is about to read, of which others may have read what was there before.
        """
        if self._end is not None:
            self._driver.parts.get().planner.checks.check_fingerprint(self._end.last_read, self._end.fingerprint)

    def _add(self, chunk: BatchChunk) -> None:
        after = chunk.plan.position
        if chunk.data is not None:
            assert chunk.before is not None
            self._queue.add(chunk.data, chunk.before, after, first=chunk.first)
        if chunk.last:
            self._queue.end_plan(after)

    def _skip_empty_plans(self) -> None:
        position = self._end or self._driver.position
        # The state may be from a feed with a later end: it never moves back.
        if position is not None and self.place.position.order() < position.order():
            self._queue.end_plan(position)


def _next(ahead: ReadAhead) -> BatchChunk:
    while True:
        until_done(ahead.ready(), lambda: False)
        chunk = ahead.peek()
        if chunk is not None:
            ahead.drop(chunk)
            return chunk


@dataclass(frozen=True, slots=True)
class Feed:
    """A stream with a fixed start, and a fixed end if its last snapshot exists. Workers open it; can be pickled.

    Attributes:
        stream: The pickled `ResolvedStream`, because a forked worker cannot use a store of its parent.
        identity: What a saved state must have in common with this feed.
        end: The position after the last snapshot of the range; None if that does not exist yet, or without an end.
    """

    stream: bytes
    identity: FeedIdentity
    start: Position
    end: Position | None

    @staticmethod
    def of(builder: StreamReadBuilder, what: str) -> Feed:
        """Find the start and the end of a stream. Blocks."""
        stream = resolved(builder)
        _refuse(stream.options, what)
        parts = stream.scan_parts()
        state = parts.planner.begun(parts.planner.initial())
        start = _start(parts.planner, parts.directory, state, parts.options)
        last = _last(parts.directory, state, parts.options)
        end = None if last is None else _position_after(parts.directory, start, last)
        spec = replace(stream.spec, catch_up=CatchUp.REPLAY)
        if last is not None:
            spec = replace(spec, end=End(snapshot_id=last, exists=True))
        identity = FeedIdentity(start.table, {**settings_of(stream), "divided_by": _divided_by(stream.traits)})
        return Feed(pickle.dumps(stream.with_spec(spec)), identity, start, end)

    @property
    def begin(self) -> FeedState:
        return FeedState(self.start)

    def open(
        self, share: Share, place: FeedState, length: int, across_plans: bool, shuffle: Shuffle | None = None
    ) -> FeedReader | ShuffledReader:
        stream = _unpickled(self.stream, os.getpid())
        slots = share.slots(stream.traits, stream.schema)
        splits_of = share.splits_of if slots is None else Plan.splits
        begin = replace(place, block=0, given=0)
        # A block that was begun has the rows that it had then, even if the feed ends later now.
        queue = RowQueue(length if shuffle is None else place.block or shuffle.rows, across_plans, begin)
        reader = FeedReader(stream.with_spec(replace(stream.spec, slots=slots)), splits_of, begin, self.end, queue)
        return reader if shuffle is None else ShuffledReader(reader, queue, place, length, shuffle)


@lru_cache(maxsize=4)
def _unpickled(stream: bytes, process: int) -> ResolvedStream:
    """The stream of a feed, cached in each process, so that later passes use the manifests that were read before."""
    made: ResolvedStream = pickle.loads(stream)
    return made


def refuse_moving_ends(builder: StreamReadBuilder) -> None:
    """Refuse starts and ends that each rank would find for itself, at different times."""
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
    try:
        pickle.dumps(options.follow_up_scanner)
    except Exception as error:
        raise StreamConfigError(
            f"{what}: the scanner of with_follow_up_scanner(...) cannot be pickled, and each worker gets a copy of it: "
            f"define its class at the top of a module, with attributes that can be pickled. {error}"
        ) from error


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


def settings_of(stream: ResolvedStream) -> dict[str, str]:
    """The settings that decide which rows come, and in which order."""
    options = stream.options
    start = options.start
    return {
        # By the ids of fields, because columns may exchange their names.
        "filter": stream.scope.filter or "none",
        "unmatched": options.unmatched.value,
        "raw": str(options.raw),
        "overwrites": str(options.read_overwrite),
        "files_created_since": str(start.created_after(in_first_plan=True)),
        "order": f"{options.sort_partitions}, splits of {options.split_target_bytes}, {options.split_open_bytes}",
    }
