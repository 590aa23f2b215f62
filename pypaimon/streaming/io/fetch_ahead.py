"""`FetchAhead`: pieces of files are requested before they are needed, several at once, with limits for the process.

A reader announces the order in which it will need pieces (`Lane.expect`), and takes each one when it needs it
(`FetchAhead.take`). The limits never block a piece that is needed now: the reader then requests it itself. So limits
cost time at worst, and no reader can stop another one.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakSet

from pypaimon.streaming.concurrency.cancel_scope import shielded
from pypaimon.streaming.concurrency.forking import ForkSafeLock, Origin
from pypaimon.streaming.errors import StoreError, StreamConfigError

BOUND = "PYPAIMON_STREAMING_FETCH_AHEAD"
"""The environment variable that limits the bytes of a process: a number, or one with `kb`, `mb` or `gb`; 0 is off."""

_PROCESS_BYTES, _PROCESS_REQUESTS = 256 << 20, 128
_READER_BYTES, _READER_REQUESTS, _READER_PIECES = 64 << 20, 60, 256
"""Most readers have 64 threads for requests, so that four are left for pieces that are needed now."""
_REQUESTS_PER_THREAD = 4
"""Where a reader has few threads, one that is needed now waits for no more than these before it."""

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file that is fetched by one request.

    Attributes:
        path: The file.
        start: The first byte; None for the whole file.
        length: Number of bytes; for a whole file the size in its manifest.
        within: A larger piece, which may be fetched instead of all pieces that it contains; None if there is none.
    """

    path: str
    start: int | None
    length: int
    within: Piece | None = field(default=None, compare=False)


class Answer(Protocol):
    """A request that was made; see `BegunCall`."""

    @property
    def requests(self) -> int:
        """Requests that were made for it: 0 if the request of another piece brings it."""

    def __call__(self) -> Any:
        """Wait for the result; raises the error of the request."""

    def cancel(self) -> None:
        """Cancel the request, if it was not started."""

    def when_answered(self, call: Callable[[], object]) -> None:
        """Call a function when it is answered, or cancelled."""


@dataclass(slots=True, eq=False)
class _Fetch:
    """A piece that was requested and not taken yet."""

    piece: Piece
    lane: Lane
    answer: Answer | None
    requests: int
    is_answered: bool = False
    is_left: bool = False

    def give(self) -> Answer:
        # It refers to this object, and the cycle would keep its bytes alive.
        answer, self.answer = self.answer, None
        assert answer is not None
        return answer


@dataclass(eq=False)
class FetchLimits:
    """Limits on the prefetched pieces of all readers of a process.

    Attributes:
        bytes: Of all pieces that were not taken yet.
        requests: That are not answered yet.
    """

    bytes: int
    requests: int
    readers: WeakSet[FetchAhead] = field(default_factory=WeakSet)
    lock: ForkSafeLock = field(default_factory=ForkSafeLock)

    def have_room(self, length: int) -> bool:
        """Whether there is room for one more piece; called with the lock held."""
        now = time.monotonic()
        readers = [each for each in self.readers if each.counts(now)]
        held = sum(each.held_bytes for each in readers)
        return held + length <= self.bytes and sum(each.in_flight for each in readers) < self.requests


def limits_of_environment() -> FetchLimits:
    """The limits of this process.

    Raises:
        StreamConfigError: The value of the environment variable is not a size.
    """
    text = os.environ.get(BOUND, "").strip().lower()
    if not text:
        return FetchLimits(_PROCESS_BYTES, _PROCESS_REQUESTS)
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text)
    if found is None or found[2] not in _UNITS:
        raise StreamConfigError(f"{BOUND}={text!r}: give a number of bytes, as 67108864 or '64 mb'; 0 turns it off")
    return FetchLimits(int(found[1]) * _UNITS[found[2]], _PROCESS_REQUESTS)


_of_process: dict[str, FetchLimits] = {}


def process_limits() -> FetchLimits:
    """The limits that all readers of this process share; raises as `limits_of_environment`."""
    known = _of_process.get("limits")
    return _of_process.setdefault("limits", limits_of_environment()) if known is None else known


class FetchAhead:
    """The prefetched pieces of one reader. Thread-safe; empty in a forked process.

    Args:
        timeout: Seconds that one request may take.
        threads: That make the requests of the reader.
        limits: Limits that are shared with other readers; None for those of the process.

    Attributes:
        held_bytes: Bytes of pieces that were requested and not taken yet.
        in_flight: Requests that are not answered yet.
    """

    def __init__(self, timeout: float, threads: int, limits: FetchLimits | None = None) -> None:
        self._timeout = timeout
        self._most_requests = min(_READER_REQUESTS, _REQUESTS_PER_THREAD * threads)
        self._limits = limits or process_limits()
        self._lock = ForkSafeLock()
        self._reset()
        with self._limits.lock.held:
            self._limits.readers.add(self)

    def _reset(self) -> None:
        self._origin = Origin()
        self._lanes: list[Lane] = []
        # The lanes that may expect a piece, so that others need not be checked again and again.
        self._waiting: list[Lane] = []
        self._fetches: dict[Piece, _Fetch] = {}
        self.held_bytes = 0
        self.in_flight = 0
        self._closed_at: float | None = None

    def counts(self, now: float) -> bool:
        """Whether its requests were made in this process, and may still be answered."""
        return self._origin.is_here and (self._closed_at is None or now - self._closed_at < self._timeout)

    def lane(self, begin: Callable[[Piece], Answer], rank: int) -> Lane:
        """A new sequence of pieces.

        Args:
            begin: Makes the request for a piece.
            rank: Lanes of a lower rank are served first.
        """
        return Lane(self, begin, rank)

    def take(self, piece: Piece) -> Answer | None:
        """A piece, if it was requested; None otherwise: the caller must request it itself. Never blocks."""
        with self._lock.held:
            self._check_process()
            fetch = self._fetches.pop(piece, None)
            if fetch is None:
                for lane in self._lanes:
                    lane.pass_by(piece)
            else:
                fetch.lane.begun.discard(piece)
                self.held_bytes -= piece.length
            self.pump()
        return None if fetch is None else fetch.give()

    def close(self) -> None:
        """Cancel all requests. Idempotent; the object stays usable."""
        with self._lock.held:
            if self._origin.is_here:
                for lane in list(self._lanes):
                    lane.close()
                self._closed_at = time.monotonic()

    def pump(self) -> None:
        """Make requests, lane by lane, as far as the limits allow."""
        with self._lock.held:
            self._check_process()
            while (lane := self._next_lane()) is not None:
                piece = lane.first
                if piece is None or piece in self._fetches:
                    lane.drop_first()
                elif not self._begin(lane, piece):
                    return

    def _next_lane(self) -> Lane | None:
        """Of the lanes of the lowest rank that expect a piece, the one with the fewest requests."""
        if not self._waiting:
            return None
        self._waiting = [lane for lane in self._waiting if lane.first is not None or lane.expects()]
        return min(self._waiting, key=lambda lane: (lane.rank, len(lane.begun)), default=None)

    def _begin(self, lane: Lane, piece: Piece) -> bool:
        with self._limits.lock.held:
            mine = self.held_bytes + piece.length <= _READER_BYTES and self.in_flight < self._most_requests
            if not (mine and len(self._fetches) < _READER_PIECES and self._limits.have_room(piece.length)):
                return False
            self.held_bytes += piece.length
            self.in_flight += 1
        lane.drop_first()
        try:
            with shielded():
                answer = lane.begin(piece)
        except (StoreError, CancelledError, RuntimeError):
            # Too many requests hang, or the reader is closed: the caller that needs the piece gets the error.
            self.held_bytes -= piece.length
            self.in_flight -= 1
            return False
        fetch = _Fetch(piece, lane, answer, answer.requests)
        self.in_flight -= 1 - fetch.requests
        self._fetches[piece] = fetch
        self._closed_at = None
        lane.begun.add(piece)
        origin = self._origin
        answer.when_answered(lambda: self._answered(origin, fetch))
        return True

    def _answered(self, origin: Origin, fetch: _Fetch) -> None:
        with self._lock.held:
            if origin is not self._origin:
                return
            self.in_flight -= fetch.requests
            fetch.is_answered = True
            if fetch.is_left:
                self.held_bytes -= fetch.piece.length
            self.pump()

    def leave(self, pieces: Iterable[Piece]) -> None:
        """Cancel pieces. Their bytes count until they are answered, because a running request cannot be stopped."""
        for fetch in [self._fetches.pop(piece) for piece in pieces if piece in self._fetches]:
            fetch.is_left = True
            answer = fetch.give()
            if fetch.is_answered:
                self.held_bytes -= fetch.piece.length
            else:
                answer.cancel()

    def _check_process(self) -> None:
        """Reset in a forked process: the answers to the parent's requests never arrive here."""
        if not self._origin.is_here:
            self._reset()


class Lane:
    """Pieces, roughly in the order in which they will be needed.

    Args:
        ahead: Fetches the pieces.
        begin: Makes the request for a piece.
        rank: Lanes of a lower rank are served first.

    Attributes:
        begun: Pieces that were requested.
    """

    def __init__(self, ahead: FetchAhead, begin: Callable[[Piece], Answer], rank: int) -> None:
        self._ahead = ahead
        self.begin = begin
        self.rank = rank
        self.begun: set[Piece] = set()
        self._passed: set[Piece] = set()
        self._rest: Iterator[Piece] | None = None
        self.first: Piece | None = None

    def expect(self, pieces: Iterable[Piece]) -> None:
        """Replace the pieces of the lane that were not requested yet.

        Args:
            pieces: Read lazily. An error of the iterator ends the lane; the reader meets it when it gets there.
        """
        with self._ahead._lock.held:
            self._ahead._check_process()
            self.first, self._rest = None, iter(pieces)
            for lanes in (self._ahead._lanes, self._ahead._waiting):
                if self not in lanes:
                    lanes.append(self)
            self._ahead.pump()

    def close(self) -> None:
        """Expect no more pieces, and cancel those that were requested. Idempotent."""
        with self._ahead._lock.held:
            # This comes first, because callbacks of cancelled requests may ask for more pieces.
            self.first, self._rest = None, None
            if self in self._ahead._lanes:
                self._ahead._lanes.remove(self)
                self._ahead.leave(self.begun)
            self.begun = set()

    def is_done(self) -> bool:
        """Whether all of its pieces were taken or cancelled."""
        return not self.begun and not self.expects()

    def expects(self) -> bool:
        """Whether there is a piece to request; sets `first` to it."""
        while self.first is None:
            if self._rest is None:
                return False
            try:
                piece = next(self._rest, None)
            except Exception:  # noqa: BLE001 - the reader meets it when it gets there
                piece = None
            if piece is None:
                self._rest = None
                return False
            if piece in self._passed:
                self._passed.discard(piece)
            else:
                self.first = piece
        return True

    def drop_first(self) -> None:
        """Continue with the next piece."""
        self.first = None

    def pass_by(self, piece: Piece) -> None:
        """Skip a piece that the reader requests itself."""
        if piece == self.first:
            self.first = None
        else:
            self._passed.add(piece)
