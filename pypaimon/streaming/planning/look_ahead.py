"""Looking ahead: while a stream is behind, the metadata of many snapshots is fetched at the same time."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from pypaimon.streaming.errors import CorruptTableError, StoreError
from pypaimon.streaming.metadata.history import RangeCheck
from pypaimon.streaming.metadata.snapshots import Snapshot, SnapshotManager
from pypaimon.streaming.planning.planner_state import PlannerState

_MAX_WINDOW = 64
_SINGLE_UNTIL = 2


class LookAhead:
    """Fetches a window of snapshots, one round of requests for all of them.

    The window is one snapshot while the stream is caught up, so that an idle poll is one request. Once a later snapshot
    is known, by what was read at the start or by the hint LATEST, it reaches up to that one; where there is no hint it
    doubles while snapshots keep coming. What is not there yet is not asked for, but for the last one of a window
    without a hint.

    Snapshots are read as they are in the store now: what was read for another purpose may be of another history.

    Args:
        snapshots: The table's snapshots.
        checks: Finds a single snapshot.
        widest: Snapshots in a window at most.
        eager: Look for a later snapshot at once, not only while snapshots keep coming.
    """

    def __init__(
        self, snapshots: SnapshotManager, checks: RangeCheck, widest: int = _MAX_WINDOW, eager: bool = False
    ) -> None:
        self._snapshots = snapshots
        self._checks = checks
        self._widest = widest
        self._eager = eager

    def fetch(self, state: PlannerState, last_id: int | None) -> tuple[PlannerState, Snapshot | None]:
        """Fetch the next window.

        Args:
            state: Where the stream stands.
            last_id: The last snapshot of the stream, None if it has none.

        Returns:
            The state with what was found, and the last snapshot of the window as it was before all others were read;
            None if no more than one was found.
        """
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
        with suppress(CorruptTableError, StoreError):
            return self._snapshots.try_get(snapshot_id)
        return None

    def _before(self, number: int, last: Snapshot) -> tuple[Snapshot, ...]:
        """The snapshots of the window before its last one, up to one that is not there."""
        if self._checks.with_changelogs and self._snapshots.refreshed(number) is None:
            return ()
        return tuple(self._snapshots.look_ahead(range(number, last.id)))

    @staticmethod
    def grown(state: PlannerState) -> PlannerState:
        """The state after a snapshot was found: the window is twice as large, unless a poll had found nothing."""
        window = min(state.window * 2, _MAX_WINDOW) if state.misses == 0 else 1
        return replace(state, misses=0, verified=True, window=window)


def _with(state: PlannerState, snapshot: Snapshot | None) -> PlannerState:
    return replace(state, ahead=() if snapshot is None else (snapshot,))
