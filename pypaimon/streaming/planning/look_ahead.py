"""Looking ahead: while a stream is behind, the metadata of many snapshots is fetched at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.errors import CorruptTableError, IOTimeoutError, PaimonStreamError, StoreError
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.io.retried_requests import asked_ahead
from pypaimon.streaming.metadata.history import RangeCheck
from pypaimon.streaming.metadata.snapshots import Snapshot, SnapshotManager
from pypaimon.streaming.planning.planner_state import PlannerState

_Window = tuple[tuple[Snapshot, ...], Snapshot | None]
"""Snapshots that follow each other, and the last one as it was before the others were read; None: only one."""

_MAX_WINDOW = 64
_SINGLE_UNTIL = 2


@dataclass(frozen=True, slots=True)
class FoundAhead:
    """What a look ahead has found.

    Attributes:
        state: The state with what was found.
        last: The last snapshot of the window as it was before all others were read; None if no more than one was found.
        is_older: It was found before it was asked for: what has changed since then is to be found anew.
    """

    state: PlannerState
    last: Snapshot | None
    is_older: bool = False


@dataclass(frozen=True, slots=True)
class _Behind:
    """A window that is fetched before it is asked for.

    Attributes:
        first: Its first snapshot.
        last_id: The last snapshot of the stream, None if it has none.
        pool: Fetches it.
        future: It.
    """

    first: int
    last_id: int | None
    pool: IOPool
    future: Future[_Window]
    origin: Origin = field(default_factory=Origin)

    def window(self) -> _Window | None:
        """It; None if it could not be fetched: what was wrong is met by who fetches it again. Blocks.

        Raises:
            IOTimeoutError: It hung while it was waited for here. Who fetched it again would wait as long once more.
        """
        is_there = self.future.done()
        try:
            return self.pool.result(self.future)
        except IOTimeoutError:
            if not is_there:
                raise
        except (PaimonStreamError, FileNotFoundError, CancelledError):
            pass
        return None


class LookAhead:
    """Fetches a window of snapshots, one round of requests for all of them.

    The window is one snapshot while the stream is caught up, so that an idle poll is one request. Once a later snapshot
    is known, by what was read at the start or by the hint LATEST, it reaches up to that one; where there is no hint it
    doubles while snapshots keep coming. What is not there yet is not asked for, but for the last one of a window
    without a hint.

    Snapshots are read as they are in the store now: what was read for another purpose may be of another history.

    While the plans of a window are made, the window behind it is fetched on a thread. That changes no answer: in its
    turn it is held against the table (see `Continuity`), and one that has changed since is fetched again.

    What hangs is asked for once ahead, which counts as the first attempt of whoever asks for it in its turn, and who
    waits for a window that hangs gets its error.

    Args:
        snapshots: The table's snapshots.
        checks: Finds a single snapshot.
        widest: Snapshots in a window at most.
        eager: Look for a later snapshot at once, not only while snapshots keep coming.
        warm: Called on that thread with the snapshots of the window behind, whose manifests will be needed; None: no
            window is fetched before it is asked for.
    """

    def __init__(
        self,
        snapshots: SnapshotManager,
        checks: RangeCheck,
        widest: int = _MAX_WINDOW,
        eager: bool = False,
        warm: Callable[[Sequence[Snapshot]], None] | None = None,
    ) -> None:
        self._snapshots = snapshots
        self._checks = checks
        self._widest = widest
        self._eager = eager
        self._warm = warm
        self._pool = IOPool(1, timeout=float("inf"), name="paimon-look-ahead")
        self._behind: _Behind | None = None

    def forget(self) -> None:
        """Fetch anew what was fetched of later windows."""
        self._behind = None

    def release(self) -> None:
        """Let the thread end; it comes back when it is needed."""
        self._pool.release()

    def fetch(self, state: PlannerState, last_id: int | None) -> FoundAhead:
        """The next window.

        Args:
            state: Where the stream stands.
            last_id: The last snapshot of the stream, None if it has none.
        """
        return self._taken_behind(state, last_id) or FoundAhead(*self._fetch(state, last_id))

    def _taken_behind(self, state: PlannerState, last_id: int | None) -> FoundAhead | None:
        """The window that was fetched before it is asked for, if it is the one that is asked for."""
        behind, self._behind = self._behind, None
        if behind is None or not behind.origin.is_here or (behind.first, behind.last_id) != (state.next_id, last_id):
            return None
        window = behind.window()
        if window is None or window[1] is None:
            return None
        return FoundAhead(replace(state, ahead=window[0]), window[1], is_older=True)

    def begin_behind(self, found: FoundAhead, last_id: int | None) -> None:
        """Fetch the window behind one that was found, before it is asked for, if later snapshots are known."""
        state = found.state
        warm, known, end = self._warm, state.known_latest, state.ahead[-1].id
        if found.last is None or warm is None or known is None or min(known, last_id or known) < end + 2:
            return
        begin = replace(state, next_id=end + 1, ahead=())

        def fetch() -> _Window:
            fetched, last = self._fetch(begin, last_id)
            if last is not None:
                warm(fetched.ahead)
            return fetched.ahead, last

        self._behind = _Behind(end + 1, last_id, self._pool, self._pool.submit(fetch))

    def _fetch(self, state: PlannerState, last_id: int | None) -> tuple[PlannerState, Snapshot | None]:
        number = state.next_id
        assert number is not None
        single = None
        known, due = self._known(state, number)
        if not due:
            single = self._checks.found(number)
            if single is None or not self._eager:
                return _with(state, single), None
            known = self._snapshots.hinted_latest_id()
        state = replace(state, known_latest=known)
        window = max(2, min(state.window, self._widest)) if known is None else self._widest
        stop = min(number + window, *(each + 1 for each in (known, last_id) if each is not None), number + window)
        if stop - number > 1:
            last = self._last(stop - 1)
            found = () if last is None else self._before(number, last)
            if last is not None and found:
                return replace(state, ahead=(*found, last) if found[-1].id == last.id - 1 else found), last
            state = replace(state, known_latest=number, window=1)
        return _with(state, single or self._checks.found(number)), None

    def _known(self, state: PlannerState, number: int) -> tuple[int | None, bool]:
        """A later snapshot that is known, and whether a window is due: else only the next snapshot is asked for."""
        known = state.known_latest
        if known is not None and known > number:
            return known, True
        if state.misses:
            return known, False
        later = self._snapshots.greatest_known_id()
        if later is not None and later > number:
            return later, True
        if state.window <= _SINGLE_UNTIL or known in (number - 1, number):
            return known, False
        return self._snapshots.hinted_latest_id(), True

    def _last(self, snapshot_id: int) -> Snapshot | None:
        # What is wrong with it is an error when its turn comes, after the rows before it.
        with suppress(CorruptTableError, StoreError), asked_ahead():
            return self._snapshots.try_get(snapshot_id)
        return None

    def _before(self, number: int, last: Snapshot) -> tuple[Snapshot, ...]:
        """The snapshots of the window before its last one, up to one that is not there."""
        if self._checks.with_changelogs and self._snapshots.refreshed(number) is None:
            return ()
        with asked_ahead():
            return tuple(self._snapshots.look_ahead(range(number, last.id)))

    @staticmethod
    def grown(state: PlannerState) -> PlannerState:
        """The state after a snapshot was found: the window is twice as large, unless a poll had found nothing."""
        window = min(state.window * 2, _MAX_WINDOW) if state.misses == 0 else 1
        return replace(state, misses=0, verified=True, window=window)


def _with(state: PlannerState, snapshot: Snapshot | None) -> PlannerState:
    return replace(state, ahead=() if snapshot is None else (snapshot,))
