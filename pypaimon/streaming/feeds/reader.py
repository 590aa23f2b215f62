"""`FeedReader`: the rows of one share of a table, as record batches with the place behind each."""

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
from pypaimon.streaming.builder.builder import StreamReadBuilder
from pypaimon.streaming.builder.opened import opened_chunks
from pypaimon.streaming.errors import EndOfScan
from pypaimon.streaming.feeds.feed_state import FeedState
from pypaimon.streaming.io.io_pool import spawn_detached
from pypaimon.streaming.model.plan import Plan, StreamSplit
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.stream_options import DEFAULT_READ_AHEAD_BYTES

_CHUNK_BYTES = 8 << 20
"""Of small files, several are handed over at once; the first rows do not wait for as many as a stream gives."""


@dataclass(slots=True)
class _Piece:
    """Rows that follow each other in one plan.

    Attributes:
        rows: What is left of them.
        position: Where their plan begins.
        behind: Position behind it.
        given: Rows of the plan before them.
        ends_at: The place behind the last of them.
    """

    rows: pa.RecordBatch
    position: Position
    behind: Position
    given: int
    ends_at: FeedState


class RowQueue:
    """Rows that wait to be handed out. Where batches are cut depends on the plans alone.

    What can be taken is taken before more is added.

    Args:
        length: Rows of a batch.
        across_plans: Batches may hold rows of several plans; else the last one of a plan is shorter.
        place: Where the reader stands before the first row.
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
        """Behind what was taken last, and the plans without rows after it."""
        return self._place

    def add(self, rows: pa.Table, position: Position, behind: Position, *, first: bool) -> None:
        """Rows of a plan have come.

        Args:
            rows: They.
            position: Where the plan begins.
            behind: Position behind it.
            first: Nothing of the plan came before, nor was handed out by another reader.
        """
        if first:
            self._given = 0
        if self._pieces and rows.schema != self._pieces[-1].rows.schema:
            self.flush()
        for batch in filter(len, rows.to_batches()):
            ends_at = FeedState(position, behind, self._given + batch.num_rows)
            self._pieces.append(_Piece(batch, position, behind, self._given, ends_at))
            self._given += batch.num_rows
            self._waiting += batch.num_rows

    def end_plan(self, behind: Position) -> None:
        """No more rows of a plan come."""
        place = FeedState(behind)
        if self._pieces:
            self._pieces[-1].ends_at = place
        else:
            self._place = place
        if not self._across_plans:
            self.flush()

    def flush(self) -> bool:
        """What waits does not wait for more; says whether there is any."""
        self._complete = self._waiting
        return self._waiting > 0

    def take(self) -> tuple[pa.RecordBatch, FeedState] | None:
        """The next batch and the place behind it; None: more rows have to come first."""
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
        """The next rows of one piece."""
        piece = self._pieces[0]
        if piece.rows.num_rows <= most:
            self._pieces.popleft()
            self._place = piece.ends_at
            return piece.rows
        rows, piece.rows = piece.rows.slice(0, most), piece.rows.slice(most)
        piece.given += most
        self._place = FeedState(piece.position, piece.behind, piece.given)
        return rows


class FeedReader(Iterator[tuple[pa.RecordBatch, FeedState]]):
    """Reads one share. Its rows, and where they are cut, depend on the table, the share and the place alone.

    Up to an end that is there it reads ahead on a thread. Without one, whenever nothing new is there, it waits for a
    poll interval and gives a batch without rows. An error loses nothing: the next call goes on before it.

    Args:
        builder: The stream, of the partitions and buckets of the share.
        splits_of: What of each plan is of the share.
        place: Where it begins.
        end: Position behind the last row; None: that is not there yet.
        queue: Cuts the rows.
    """

    def __init__(
        self,
        builder: StreamReadBuilder,
        splits_of: Callable[[Plan], list[StreamSplit]],
        place: FeedState,
        end: Position | None,
        queue: RowQueue,
    ) -> None:
        _, self._driver, self._reader = opened_chunks(builder, _CHUNK_BYTES, splits_of=splits_of)
        self._driver.seek(place.position)
        if place.behind is not None:
            self._reader.resume_after(place.behind, place.rows)
        self._end = end
        self._queue = queue
        self._ahead = None if end is None else ReadAhead(self._reader, DEFAULT_READ_AHEAD_BYTES)
        weakref.finalize(self, spawn_detached, (self._ahead or self._reader).close)

    @property
    def place(self) -> FeedState:
        """Behind the last batch, and what had no rows of this share after it."""
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
        """Have more rows wait, or those that are there not wait for more; False: nothing new is there."""
        try:
            chunk = self._reader.look() if self._ahead is None else _next(self._ahead)
        except EndOfScan:
            if self._queue.flush():
                return True
            self._pass_over()
            raise StopIteration from None
        if chunk is None:
            self._pass_over()
            return False
        self._add(chunk)
        return True

    def _add(self, chunk: BatchChunk) -> None:
        behind = chunk.plan.position
        if chunk.data is not None:
            assert chunk.before is not None
            self._queue.add(chunk.data, chunk.before, behind, first=chunk.first)
        if chunk.last:
            self._queue.end_plan(behind)

    def _pass_over(self) -> None:
        """What was looked at since had no rows of this share."""
        position = self._end or self._driver.position
        # A state of a feed with a later end stays where it is.
        if position is not None and self.place.position.order() < position.order():
            self._queue.end_plan(position)


def _next(ahead: ReadAhead) -> BatchChunk:
    """The next chunk that was read ahead."""
    while True:
        wait((ahead.ready(),))
        chunk = ahead.peek()
        if chunk is not None:
            ahead.drop(chunk)
            return chunk
