"""`FeedReader`: the rows of one share of a table, as record batches with the state after each."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from dataclasses import dataclass

import pyarrow as pa

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.batches.read_ahead import ReadAhead
from pypaimon.streaming.concurrency.background_threads import spawn_detached
from pypaimon.streaming.errors import EndOfScan
from pypaimon.streaming.feeds.feed_state import FeedState
from pypaimon.streaming.model.plan import Plan, StreamSplit
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.stream_options import DEFAULT_READ_AHEAD_BYTES
from pypaimon.streaming.spec.openers import open_chunks
from pypaimon.streaming.spec.resolve import ResolvedStream

_CHUNK_BYTES = 8 << 20
"""Small files are read several at a time; smaller than in other streams, so that the first rows come sooner."""


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
        self._length = length
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
        ready = self._complete or (self._waiting if self._waiting >= self._length else 0)
        left = wanted = min(self._length, ready)
        if not wanted:
            return None
        taken = []
        while left:
            taken.append(self._cut(left))
            left -= taken[-1].num_rows
        self._waiting -= wanted
        self._complete = max(0, self._complete - wanted)
        rows = taken[0] if len(taken) == 1 else pa.Table.from_batches(taken).combine_chunks().to_batches()[0]
        return rows, self._place

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
        try:
            chunk = self._reader.look() if self._ahead is None else _next(self._ahead)
        except EndOfScan:
            if self._queue.flush():
                return True
            self._skip_empty_plans()
            raise StopIteration from None
        if chunk is None:
            self._skip_empty_plans()
            return False
        self._add(chunk)
        return True

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
        wait((ahead.ready(),))
        chunk = ahead.peek()
        if chunk is not None:
            ahead.drop(chunk)
            return chunk
