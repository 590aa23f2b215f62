"""`FeedReader`: the rows of one share of a table, as record batches with the place behind each."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import wait

import pyarrow as pa

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.batches.read_ahead import ReadAhead
from pypaimon.streaming.builder.builder import StreamReadBuilder
from pypaimon.streaming.builder.opened import opened_chunks
from pypaimon.streaming.errors import EndOfScan
from pypaimon.streaming.feeds.place import FeedPlace
from pypaimon.streaming.feeds.row_queue import RowQueue
from pypaimon.streaming.io.io_pool import spawn_detached
from pypaimon.streaming.model.plan import Plan, StreamSplit
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.stream_options import DEFAULT_READ_AHEAD_BYTES

_CHUNK_BYTES = 8 << 20
"""Of small files, several are handed over at once; the first rows do not wait for as many as a stream gives."""


class FeedReader(Iterator[tuple[pa.RecordBatch, FeedPlace]]):
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
        place: FeedPlace,
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
    def place(self) -> FeedPlace:
        """Behind the last batch, and what had no rows of this share after it."""
        return self._queue.place

    def __next__(self) -> tuple[pa.RecordBatch, FeedPlace]:
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
