"""`FilesAhead`: the data files of splits, and of the plans behind them, on their way before they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING
from weakref import WeakSet

from pypaimon.streaming.concurrency.forking import ForkSafeLock
from pypaimon.streaming.io.conditional_writes import is_local
from pypaimon.streaming.io.fetch_ahead import Lane
from pypaimon.streaming.io.shared_fetches import SharedFetches
from pypaimon.streaming.model.plan import StreamSplit, last_split, plans_behind
from pypaimon.streaming.reading.read_pieces import ReadPieces

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory

_MOST_PLANS = 64
"""Plans behind the one that is read whose files are asked for: of more there is no room."""


class FilesAhead:
    """Tells the store of a reader which pieces of files it will read, in their order.

    Where the table lies on a local disk nothing is fetched.

    Args:
        directory: The table.
        pieces: Tells the pieces of splits.
    """

    def __init__(self, directory: TableDirectory, pieces: ReadPieces) -> None:
        self._store = directory.store
        self._begin = SharedFetches(directory.store).begin
        self._pieces = pieces
        self._is_local = is_local(str(directory.table.table_path))
        self._lock = ForkSafeLock()
        # Lanes of plans that were not read yet, with their splits, and plans that were begun, each by its last split.
        self._behind: dict[StreamSplit, tuple[Lane, int]] = {}
        self._begun: WeakSet[StreamSplit] = WeakSet()
        # That of a plan whose last split was begun alone, for the splits that are read after it.
        self._others: Lane | None = None
        self._rank = 0

    @contextmanager
    def reading(self, splits: Sequence[StreamSplit]) -> Iterator[None]:
        """Within, these splits are read, one after the other; what of their files was not read is let go behind.

        If the last one ends its plan, files of the plans behind it that are made by then follow.
        """
        if self._is_local or not splits:
            yield
            return
        self._pieces.know_schemas(splits)
        lane = self._begin_reading(splits)
        try:
            yield
        finally:
            lane.close()
            with self._lock.held:
                if self._others is not None and self._others.is_done():
                    self._leave_others()

    def close(self) -> None:
        """Let go of everything that is on its way; may be used again."""
        with self._lock.held:
            self._behind.clear()
            self._others = None
            self._store.ahead.close()

    def _begin_reading(self, splits: Sequence[StreamSplit]) -> Lane:
        last = splits[-1]
        with self._lock.held:
            self._begun.add(last)
            expected, count = self._behind.pop(last, (None, 0))
            is_whole = expected is None or len(splits) >= count
            lane = expected if expected is not None and is_whole else self._store.ahead.lane(self._begin, 0)
            lane.rank = 0
            lane.expect(self._pieces.of(splits))
            plans = {last_split(plan): plan for plan in islice(plans_behind(last), _MOST_PLANS)}
            # Who reads a plan in pieces knows what is behind it with the last of them; until then all stays as it is.
            if plans or expected:
                self._leave_others()
                for gone in self._behind.keys() - plans.keys():
                    self._behind.pop(gone)[0].close()
            if not is_whole:
                self._others = expected
            for end, plan in plans.items():
                if end is not None and end not in self._behind and end not in self._begun:
                    self._rank += 1
                    self._behind[end] = self._store.ahead.lane(self._begin, self._rank), len(plan.splits())
                    self._behind[end][0].expect(self._pieces.of(plan.splits()))
        return lane

    def _leave_others(self) -> None:
        if self._others is not None:
            self._others.close()
            self._others = None
