"""`SharedFetches`: pieces of a file that lie side by side are brought by one request, each to be taken by itself."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakValueDictionary

from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.io.fetch_ahead import Answer, Piece
from pypaimon.streaming.io.object_client import Part
from pypaimon.streaming.io.remote_files import begin_fetch
from pypaimon.streaming.io.store import Store


class SharedFetches:
    """Makes requests for pieces; not thread-safe, `FetchAhead` calls it with its lock held.

    Args:
        store: Where the files lie.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # As long as somebody wants one of its pieces.
        self._under_way: WeakValueDictionary[Piece, _Whole] = WeakValueDictionary()

    def begin(self, piece: Piece) -> Answer:
        """Ask for a piece, or for all that lies within the same one, of which it is a share.

        Only the first piece of those has all of them asked for: one that comes when the others were taken asks for
        itself, so that no byte is fetched once for each of them.
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
        wanted: How many of them somebody waits for.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._origin = Origin()
        self._part: Part | None = None
        self._is_over = False
        self.wanted = 0

    @property
    def can_be_joined(self) -> bool:
        """Whether one more piece may be taken of it: it was neither cancelled nor seen to fail."""
        return self._origin.is_here and not self._is_over

    def __call__(self) -> Part:
        # Kept: of a request that failed each call would ask once more.
        if self._part is None:
            try:
                self._part = self._answer()
            except BaseException:
                self._is_over = True
                raise
        return self._part

    def leave(self) -> None:
        """One fewer waits for it."""
        self.wanted -= 1
        if not self.wanted:
            self._is_over = True
            self._answer.cancel()

    def when_answered(self, call: Callable[[], object]) -> None:
        self._answer.when_answered(call)


class _Share:
    """A piece of what one request brings.

    Attributes:
        requests: How many requests were made for it.
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
