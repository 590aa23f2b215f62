"""`Shuffle`: rows of a feed in another order, block by block, and `ShuffledReader`, which reads them so."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pypaimon.streaming.feeds.feed_state import FeedState

if TYPE_CHECKING:
    from pypaimon.streaming.feeds.feed import FeedReader, RowQueue


@dataclass(frozen=True, slots=True)
class Shuffle:
    """How rows are shuffled: in blocks of consecutive rows, each by itself, so that a state is a place and a number.

    Attributes:
        rows: Rows of a block.
        seed: Another seed, or epoch, gives another order.
        epoch: The number of the pass.
    """

    rows: int
    seed: int
    epoch: int = 0

    def order(self, place: FeedState, count: int) -> pa.Array:
        """The order of the rows of a block. It depends only on the place of the block, its length and this object."""
        text = f"{self.seed} {self.epoch} {place.position.to_json()} {place.rows}"
        return pa.array(np.random.default_rng(zlib.crc32(text.encode())).permutation(count))


class ShuffledReader(Iterator[tuple[pa.RecordBatch, FeedState]]):
    """Reads one share block by block, and shuffles each.

    Args:
        reader: Reads whole blocks.
        queue: The queue of the reader.
        place: Where the first block begins.
        length: Rows of a batch.
    """

    def __init__(self, reader: FeedReader, queue: RowQueue, place: FeedState, length: int, shuffle: Shuffle) -> None:
        self._reader, self._queue = reader, queue
        self._length, self._shuffle = length, shuffle
        self._block: pa.RecordBatch | None = None
        self._place = place

    @property
    def place(self) -> FeedState:
        """As `FeedReader.place`; inside of a block the place of the block."""
        return self._place if self._place.block else self._reader.place

    def __next__(self) -> tuple[pa.RecordBatch, FeedState]:
        if self._block is None:
            # The place of the block is the one after the block before.
            place = self.place
            rows, _ = next(self._reader)
            if not rows.num_rows:
                return rows, self.place
            self._queue.length = self._shuffle.rows
            self._place = replace(place, block=rows.num_rows)
            self._block = rows.take(self._shuffle.order(place, rows.num_rows))
        batch = self._block.slice(self._place.given, self._length)
        self._place = replace(self._place, given=self._place.given + batch.num_rows)
        if self._place.given >= self._block.num_rows:
            self._block, self._place = None, self._reader.place
        return batch, self._place

    def close(self) -> None:
        self._reader.close()
