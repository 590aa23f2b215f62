"""`RowQueue`: rows of plans cut into batches of one length, each with the place behind it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import pyarrow as pa

from pypaimon.streaming.feeds.place import FeedPlace
from pypaimon.streaming.model.position import Position


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
    ends_at: FeedPlace


class RowQueue:
    """Rows that wait to be handed out. Where batches are cut depends on the plans alone.

    What can be taken is taken before more is added.

    Args:
        length: Rows of a batch.
        across_plans: Batches may hold rows of several plans; else the last one of a plan is shorter.
        place: Where the reader stands before the first row.
    """

    def __init__(self, length: int, across_plans: bool, place: FeedPlace) -> None:
        self._length = length
        self._across_plans = across_plans
        self._pieces: deque[_Piece] = deque()
        self._waiting = 0
        self._complete = 0
        self._place = place
        self._given = place.rows

    @property
    def place(self) -> FeedPlace:
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
            ends_at = FeedPlace(position, behind, self._given + batch.num_rows)
            self._pieces.append(_Piece(batch, position, behind, self._given, ends_at))
            self._given += batch.num_rows
            self._waiting += batch.num_rows

    def end_plan(self, behind: Position) -> None:
        """No more rows of a plan come."""
        place = FeedPlace(behind)
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

    def take(self) -> tuple[pa.RecordBatch, FeedPlace] | None:
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
        self._place = FeedPlace(piece.position, piece.behind, piece.given)
        return rows
