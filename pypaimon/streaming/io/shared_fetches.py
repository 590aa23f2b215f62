"""`SharedFetches`: adjacent pieces of a file are fetched by one request, and taken one by one."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakValueDictionary

from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.io.fetch_ahead import Answer, Piece
from pypaimon.streaming.io.object_client import Part
from pypaimon.streaming.io.remote_files import begin_fetch
from pypaimon.streaming.io.store import Store


class SharedFetches:
    """Makes requests for pieces. Not thread-safe: `FetchAhead` calls it with its lock held.

    Args:
        store: The store of the files.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # Each as long as one of its pieces is wanted.
        self._under_way: WeakValueDictionary[Piece, _Whole] = WeakValueDictionary()

    def begin(self, piece: Piece) -> Answer:
        """Request a piece, or the larger piece that contains it.

        Only the first piece of a larger one requests all of it. A piece that comes after the others were taken is
        requested alone, so that the larger piece is not fetched again for each of them.
        """
        within = piece.within
        if within is None:
            return begin_fetch(self._store, piece)
        whole = self._under_way.get(within)
        is_new = whole is None or not whole.can_be_joined
        if is_new:
            if piece.start != within.start:
                return begin_fetch(self._store, piece)
            whole = self._under_way[within] = _Whole(begin_fetch(self._store, within))
        assert whole is not None
        return _Share(piece, whole, int(is_new))


class _Whole:
    """A request for several pieces.

    Attributes:
        wanted: How many of the pieces are still wanted.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._origin = Origin()
        self._part: Part | None = None
        self._is_over = False
        self.wanted = 0

    @property
    def can_be_joined(self) -> bool:
        """Whether one more piece may be taken from it: it was not cancelled, and did not fail."""
        return self._origin.is_here and not self._is_over

    def __call__(self) -> Part:
        # The result is kept, since each call of a failed answer would repeat the request.
        if self._part is None:
            try:
                self._part = self._answer()
            except BaseException:
                self._is_over = True
                raise
        return self._part

    def leave(self) -> None:
        """Give up one piece; the last one cancels the request."""
        self.wanted -= 1
        if not self.wanted:
            self._is_over = True
            self._answer.cancel()

    def when_answered(self, call: Callable[[], object]) -> None:
        self._answer.when_answered(call)


class _Share:
    """One piece of a shared request.

    Attributes:
        requests: Requests that were made for it: 0 if another piece made the request.
    """

    def __init__(self, piece: Piece, whole: _Whole, requests: int) -> None:
        self._piece = piece
        self._whole = whole
        self.requests = requests
        whole.wanted += 1

    def __call__(self) -> Part:
        part = self._whole()
        start = self._piece.start or 0
        first = start - part.start
        return Part(part.data[first : first + self._piece.length], start, part.size)

    def cancel(self) -> None:
        self._whole.leave()

    def when_answered(self, call: Callable[[], object]) -> None:
        self._whole.when_answered(call)
