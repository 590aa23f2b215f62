"""The next snapshots of a stream: fetched together while it is behind, and proven to follow what it has read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.errors import CorruptTableError, IOTimeoutError, PaimonStreamError, StoreError
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.io.retried_requests import asked_ahead
from pypaimon.streaming.metadata.fingerprints import is_same_history
from pypaimon.streaming.metadata.history import RANGE_CHECK_INTERVAL, SnapshotRangeValidator
from pypaimon.streaming.metadata.snapshots import Snapshot, SnapshotManager
from pypaimon.streaming.model.position import UNKNOWN_TABLE, Position
from pypaimon.streaming.options.between import End
from pypaimon.streaming.planning.planner_state import Begun, Following, ReadingFull, ReadingRange, SnapshotMark, Step

_MAX_WINDOW = 64
_SINGLE_UNTIL = 2


@dataclass(frozen=True, slots=True)
class Window:
    """The next snapshots of a stream.

    Attributes:
        state: The state with these snapshots as `ahead`.
        last: The last snapshot as it was before all others were read; None if no more than one was found.
        is_prefetched: It was fetched before it was needed. What has changed since then is to be fetched again.
        after: The window after it, whose snapshots are fetched already, but not its manifests; None: it is not.
    """

    state: Following
    last: Snapshot | None
    is_prefetched: bool = False
    after: _NextWindow | None = None


@dataclass(frozen=True, slots=True)
class _NextWindow:
    """A window that is fetched before it is needed.

    Attributes:
        last_id: The last snapshot of the stream, None if it has none.
    """

    first: int
    last_id: int | None
    pool: IOPool
    future: Future[Window]
    origin: Origin = field(default_factory=Origin)

    def result(self) -> Window | None:
        """The window; None: it could not be fetched, and fetching it again meets the error."""
        was_done = self.future.done()
        try:
            return self.pool.result(self.future)
        except IOTimeoutError:
            # It hung while it was waited for here. Fetching it again would wait as long once more.
            if not was_done:
                raise
        except (PaimonStreamError, FileNotFoundError, CancelledError):
            pass
        return None


class SnapshotPrefetcher:
    """Fetches a window of snapshots, one round of requests for all of them.

    While the stream is caught up the window is one snapshot, so that an idle poll is one request. Once a later snapshot
    is known, from the start or from the hint file LATEST, the window reaches up to that one. Without a hint it doubles
    while snapshots keep coming. Only then the last snapshot of a window may be requested before it exists.

    Snapshots are read as they are in the store now: a cached one may be of another history.

    While the plans of a window are made, the next window is fetched on a thread, and while its manifests are fetched,
    the snapshots of the window after it are. That changes no result: when the stream reaches a window, it is checked
    against the table (see `HistoryCheck`), and fetched again if it has changed.

    A prefetch that hangs is requested once. It counts as the first attempt of the caller that needs it, and a caller
    that waits for such a window gets its error.

    Args:
        widest: Snapshots in a window at most.
        eager: Look for a later snapshot at once, not only while snapshots keep coming.
        prefetch_manifests: Called on that thread with the snapshots of the next window; None: windows are not
            prefetched.
    """

    def __init__(
        self,
        snapshots: SnapshotManager,
        checks: SnapshotRangeValidator,
        widest: int = _MAX_WINDOW,
        eager: bool = False,
        prefetch_manifests: Callable[[Sequence[Snapshot]], None] | None = None,
    ) -> None:
        self._snapshots = snapshots
        self._checks = checks
        self._widest = widest
        self._eager = eager
        self._prefetch_manifests = prefetch_manifests
        self._pool = IOPool(1, timeout=float("inf"), name="paimon-prefetch")
        # Its own pool, because the calls of the other one wait for its calls.
        self._snapshot_pool = IOPool(1, timeout=float("inf"), name="paimon-prefetch-snapshots")
        self._next: _NextWindow | None = None

    def forget(self) -> None:
        """Drop the prefetched window."""
        self._next = None

    def fetch(self, state: Following, last_id: int | None) -> Window:
        """The next window of a stream in this state, up to the last snapshot of the stream, if it has one."""
        return self._prefetched(state, last_id) or self._fetch(state, last_id)

    def _prefetched(self, state: Following, last_id: int | None) -> Window | None:
        following, self._next = self._next, None
        if following is None or not following.origin.is_here:
            return None
        if (following.first, following.last_id) != (state.next_id, last_id):
            return None
        fetched = following.result()
        if fetched is None or fetched.last is None:
            return None
        return replace(fetched, state=replace(state, ahead=fetched.state.ahead), is_prefetched=True)

    def begin_next(self, window: Window, last_id: int | None) -> None:
        """Begin to fetch the window after this one, if later snapshots are known."""
        prefetch_manifests = self._prefetch_manifests
        snapshots = window.after or self._begin_after(window, last_id)
        if prefetch_manifests is None or snapshots is None:
            return

        def fetch() -> Window:
            fetched = snapshots.pool.result(snapshots.future)
            if fetched.last is None:
                return fetched
            after = self._begin_after(fetched, last_id)
            prefetch_manifests(fetched.state.ahead)
            return replace(fetched, after=after)

        self._next = _NextWindow(snapshots.first, last_id, self._pool, self._pool.submit(fetch))

    def _begin_after(self, window: Window, last_id: int | None) -> _NextWindow | None:
        """Begin to fetch the snapshots after a window; None: no later ones are known, or no windows are prefetched."""
        state = window.state
        known, end = state.known_latest, state.ahead[-1].id
        if window.last is None or self._prefetch_manifests is None or known is None:
            return None
        if min(known, last_id or known) < end + 2:
            return None
        begin, pool = replace(state, next_id=end + 1, ahead=()), self._snapshot_pool
        return _NextWindow(end + 1, last_id, pool, pool.submit(self._fetch, begin, last_id))

    def _fetch(self, state: Following, last_id: int | None) -> Window:
        number = state.next_id
        single = None
        known, is_window = self._known(state, number)
        if not is_window:
            single = self._checks.found(number)
            if single is None or not self._eager:
                return _window(state, single)
            known = self._snapshots.hinted_latest_id()
        state = replace(state, known_latest=known)
        window = max(2, min(state.window, self._widest)) if known is None else self._widest
        # The first bound is named twice, because `min` of one number is an error.
        stop = min(number + window, *(each + 1 for each in (known, last_id) if each is not None), number + window)
        if stop - number > 1:
            last = self._last(stop - 1)
            found = () if last is None else self._before(number, last)
            if last is not None and found:
                return Window(replace(state, ahead=(*found, last) if found[-1].id == last.id - 1 else found), last)
            state = replace(state, known_latest=number, window=1)
        return _window(state, single or self._checks.found(number))

    def _known(self, state: Following, number: int) -> tuple[int | None, bool]:
        """A later snapshot that is known, and whether a window is fetched instead of the next snapshot alone."""
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
        # A damaged snapshot is an error when the stream reaches it, after the rows before it.
        with suppress(CorruptTableError, StoreError), asked_ahead():
            return self._snapshots.try_get(snapshot_id)
        return None

    def _before(self, number: int, last: Snapshot) -> tuple[Snapshot, ...]:
        """The snapshots of the window before its last one, up to the first that is missing."""
        # A snapshot that only lives on as a changelog is read alone, by `found`.
        if self._checks.with_changelogs and self._snapshots.refreshed(number) is None:
            return ()
        with asked_ahead():
            return tuple(self._snapshots.prefetch(range(number, last.id)))

    @staticmethod
    def grown(state: Following) -> Following:
        """The state after a snapshot was found: the window doubles, unless the poll before found nothing."""
        window = min(state.window * 2, _MAX_WINDOW) if state.misses == 0 else 1
        return replace(state, misses=0, verified=True, window=window)


def _position(state: Following) -> Position:
    """Where the state is, in a table that is checked apart."""
    return state.position(lambda: UNKNOWN_TABLE)


def _window(state: Following, snapshot: Snapshot | None) -> Window:
    return Window(replace(state, ahead=() if snapshot is None else (snapshot,)), None)


P = TypeVar("P", ReadingFull, ReadingRange, Following)


class HistoryCheck:
    """Finds rollbacks, and tables that were dropped or re-created, between two snapshots.

    A snapshot id proves nothing, because ids are used again after a rollback, and record counts may agree by chance.
    But a committer reads the snapshot before its own. So after a snapshot was read, the one before it is requested once
    more. If that is still the one that the stream has read, the new snapshot is of the same history.

    The snapshots of a window are requested at the same time. Its last one is read before all others and requested once
    more after them. If it has not changed, there was no rollback while the others were read.

    If the snapshot before has expired, or there never was one, only the identity of the table can be checked.
    """

    def __init__(self, checks: SnapshotRangeValidator, end: End | None) -> None:
        self._checks = checks
        self._found_end = end.snapshot_id if end is not None and end.exists else None

    def checked(self, window: Window, take: Callable[[Following], Step]) -> Step:
        """A step to the first snapshots of a window, taken while the requests of the check are under way.

        Args:
            window: The next snapshots, as `state.ahead`.

        Returns:
            A step that uses only proven snapshots; `ahead` keeps no others. If a prefetched window has changed, none of
            its snapshots is proven.

        Raises:
            TableChangedError: The table was rolled back, dropped or re-created.
            CorruptTableError: The snapshot before cannot be decoded, or may not be read.
            StoreError: The store kept failing (retriable).
        """
        state = window.state
        follows, is_unchanged = self._follows(state.before, state.ahead[0]), self._is_unchanged(window.last)
        try:
            step = _taken(state, take, follows)
        except (PaimonStreamError, FileNotFoundError):
            if window.is_prefetched and not is_unchanged():
                return Step(replace(state, ahead=()))
            raise
        if is_unchanged():
            return step
        if window.is_prefetched:
            return Step(replace(state, ahead=()))
        first, after = state.ahead[0], step.state
        if isinstance(after, Begun) and after.next_id > first.id + 1:
            return take(replace(state, ahead=(first,)))
        if not isinstance(after, Following):
            return step
        return replace(step, state=replace(after, ahead=(first,) if after.next_id == first.id else ()))

    def checked_first(self, state: P, take: Callable[[P], Step]) -> Step:
        """A step of a full plan or a range. The first one is taken while the table's identity is checked.

        Raises:
            TableChangedError: The table was dropped or re-created.
        """
        if state.unit is not None:
            return take(state)
        return _taken(state, take, self._checks.begin_identity())

    def check_still_empty(self, misses: int) -> None:
        """As `check_missed`, for a stream that waits for the first snapshot.

        Args:
            misses: Polls in a row that found none, with this one.

        Raises:
            TableChangedError: The table was dropped or re-created.
        """
        if misses == 1 or misses % RANGE_CHECK_INTERVAL == 0:
            self._checks.check_identity()

    def check_missed(self, state: Following) -> None:
        """Check, at a poll that found nothing, that the next snapshot is still to come.

        Sends requests only at the first poll after a seek, at every 16th in a row, and before a known end.

        Args:
            state: The state before the poll is counted.

        Raises:
            PositionExpiredError: The next snapshot is gone.
            PositionBeyondLatestError: The table ends before it.
            TableChangedError: The table was rolled back, dropped or re-created.
            CorruptTableError: A snapshot is missing in the middle of others, or cannot be decoded.
        """
        end = self._found_end if state.end_id is None else state.end_id
        is_lost = end is not None and state.next_id <= end
        if is_lost or not state.verified or (state.misses + 1) % RANGE_CHECK_INTERVAL == 0:
            latest = self._checks.check_missing(_position(state))
            if end is not None and end > (latest or 0):
                raise self._checks.cut_off(end, latest)
            if state.before is not None:
                self._checks.check_fingerprint(state.before.snapshot_id, state.before.fingerprint)

    def check_end(self, state: Following, last: int) -> None:
        """Check that the table still has the history at whose end the stream is.

        Args:
            state: The state after the last snapshot of the stream.

        Raises:
            PositionBeyondLatestError: The table ends before.
            TableChangedError: The table was rolled back, dropped or re-created.
        """
        position = _position(state)
        if state.end_id is None and not state.verified:
            self._checks.check_reached(position)
        elif state.end_id is not None and position.last_read > last:
            # The position is beyond the table, or beyond the snapshot that was its latest a moment ago.
            self.check_missed(state)

    def _follows(self, before: SnapshotMark | None, snapshot: Snapshot) -> Callable[[], None]:
        if before is not None and before.snapshot_id == snapshot.id:
            # A limit cut this snapshot, so it is the one that was read last.
            return lambda: self._check_same(before, snapshot)
        if before is None or before.snapshot_id != snapshot.id - 1:
            return self._checks.begin_identity()
        return self._checks.begin_fingerprint(before.snapshot_id, before.fingerprint)

    def _check_same(self, before: SnapshotMark, snapshot: Snapshot) -> None:
        if not is_same_history(before.fingerprint, snapshot.fingerprint):
            raise self._checks.another(snapshot.id)

    def _is_unchanged(self, last: Snapshot | None) -> Callable[[], bool]:
        if last is None:
            return lambda: True
        answer = self._checks.begin_refresh(last.id)

        def unchanged() -> bool:
            try:
                found = answer()
            except (CorruptTableError, StoreError):
                # The error is raised when the stream reaches that snapshot.
                return False
            return found is not None and found.is_same_commit(last)

        return unchanged


def _taken(state: P, take: Callable[[P], Step], check: Callable[[], None]) -> Step:
    try:
        step = take(state)
    except (PaimonStreamError, FileNotFoundError):
        # If the table has changed, that is the cause of the error, and the better one to raise.
        check()
        raise
    check()
    return step
