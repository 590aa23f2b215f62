"""Looking ahead: while a stream is behind, the metadata of many snapshots is fetched at the same time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from pypaimon.streaming.errors import CorruptTableError, StoreError
from pypaimon.streaming.metadata.snapshots import Snapshot, SnapshotManager
from pypaimon.streaming.planning.planner_state import PlannerState

_MAX_WINDOW = 64
_SINGLE_UNTIL = 2


class LookAhead:
    """Fetches a window of snapshots and what they hold, one round of requests for all of them.

    The window is one snapshot while the stream is caught up, so that an idle poll is one request. Once a later snapshot
    is known, by what was read at the start or by the hint LATEST, it reaches up to that one, 64 at most; where there is
    no hint it doubles while snapshots keep coming. Nothing is asked for twice, and what is not there yet is not asked
    for.

    Args:
        snapshots: The table's snapshots.
        warm: Reads the manifests of snapshots ahead of time.
    """

    def __init__(self, snapshots: SnapshotManager, warm: Callable[[list[Snapshot]], None]) -> None:
        self._snapshots = snapshots
        self._warm = warm

    def fetch(self, state: PlannerState, last_id: int | None) -> PlannerState:
        """Fetch the next window if it is due.

        Args:
            state: Where the stream stands.
            last_id: The last snapshot of the stream, None if it has none.

        Returns:
            The state, with what was learned about the latest snapshot.
        """
        number = state.next_id
        assert number is not None
        if self._snapshots.is_cached(number):
            return state
        known = state.known_latest
        if known is None or known <= number:
            later = None if state.misses else self._snapshots.greatest_known_id()
            if later is not None and later > number:
                known = later
            elif state.window <= _SINGLE_UNTIL or known in (number - 1, number):
                return state
            else:
                known = self._snapshots.hinted_latest_id()
        state = replace(state, known_latest=known)
        window = state.window if known is None else _MAX_WINDOW
        ends = [each for each in (known, last_id) if each is not None]
        stop = min([number + window, *(end + 1 for end in ends)])
        found = self._snapshots.look_ahead(range(number, stop))
        # What is wrong with a file ahead is an error when its turn comes, after the rows before it.
        with contextlib.suppress(FileNotFoundError, CorruptTableError, StoreError):
            self._warm(found)
        return state

    @staticmethod
    def grown(state: PlannerState) -> PlannerState:
        """The state after a snapshot was found: the window is twice as large, unless a poll had found nothing."""
        window = min(state.window * 2, _MAX_WINDOW) if state.misses == 0 else 1
        return replace(state, misses=0, verified=True, window=window)
