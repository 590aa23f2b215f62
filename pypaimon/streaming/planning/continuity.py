"""Is what was just found of the history that the stream has read, or did a rollback, or another table, come between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pypaimon.streaming.errors import CorruptTableError, PaimonStreamError, StoreError
from pypaimon.streaming.metadata.history import RANGE_CHECK_INTERVAL, RangeCheck, is_same_history, rolled_back
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.planning.look_ahead import FoundAhead
from pypaimon.streaming.planning.planner_state import PlannerState, SnapshotMark, Step


class Continuity:
    """Holds what was found against the snapshot before it, which is asked for once more.

    Ids are given again after a rollback, so that an id proves nothing, and record counts may agree. But who writes a
    snapshot has the one before it under his eyes. So if that one still is the one that the stream has read, *after* its
    successor was read, then the successor is of the same history. Of a window of snapshots, which are asked for at the
    same time, the last one was read before all the others and is asked for once more as well: if it has not changed,
    then there was no rollback while the others were read.

    Where the snapshot before has expired, or was never there, the identity of the table is all that can be asked.

    Args:
        checks: Checks of single snapshots.
    """

    def __init__(self, checks: RangeCheck) -> None:
        self._checks = checks

    def checked(self, found: FoundAhead, take: Callable[[PlannerState], Step]) -> Step:
        """A step to what was found (`state.ahead`), taken while it is checked, so that nobody waits for that.

        Args:
            found: Where the stream stands, and what was found.
            take: Takes a step.

        Returns:
            A step that uses only what is proven; of the rest `ahead` holds nothing any more. Of what was found before
            it was asked for, and has changed, nothing is proven.

        Raises:
            TableChangedError: The table was rolled back, dropped, or made anew.
            CorruptTableError: The snapshot before cannot be decoded, or may not be read.
            StoreError: The store kept failing (retriable).
        """
        state = found.state
        follows, is_unchanged = self._follows(state.before, state.ahead[0]), self._is_unchanged(found.last)
        try:
            step = _taken(state, take, follows)
        except (PaimonStreamError, FileNotFoundError):
            if found.is_older and not is_unchanged():
                return Step(replace(state, ahead=()))
            raise
        if is_unchanged():
            return step
        if found.is_older:
            return Step(replace(state, ahead=()))
        first = state.ahead[0]
        if step.state.next_id is not None and step.state.next_id > first.id + 1:
            return take(replace(state, ahead=(first,)))
        left = (first,) if step.state.next_id == first.id else ()
        return replace(step, state=replace(step.state, ahead=left))

    def checked_anew(self, state: PlannerState, take: Callable[[PlannerState], Step]) -> Step:
        """A step in a state or a range; the first one is taken while the table is held against that of the stream.

        Raises:
            TableChangedError: The table was dropped, or made anew.
        """
        if state.unit is not None:
            return take(state)
        return _taken(state, take, self._checks.begin_identity())

    def check_missed(self, state: PlannerState) -> None:
        """Check, at a poll that found nothing, that the next snapshot is still to come.

        At the first one after a seek, and at every 16th in a row; else nothing is asked.

        Args:
            state: Where the stream stands, before the poll is counted.

        Raises:
            PositionExpiredError: The next snapshot is gone.
            PositionBeyondLatestError: The table ends before it.
            TableChangedError: The table was rolled back, dropped, or made anew.
            CorruptTableError: A snapshot is missing in the middle of others, or cannot be decoded.
        """
        misses = state.misses + 1
        is_due = misses % RANGE_CHECK_INTERVAL == 0
        if state.next_id is None:
            if misses == 1 or is_due:
                self._checks.check_identity()
        elif is_due or not state.verified:
            latest = self._checks.check_missing(state.next_id)
            if state.end_id is not None and state.end_id > (latest or 0):
                raise rolled_back(state.end_id)
            if state.before is not None:
                self._checks.check_fingerprint(state.before.snapshot_id, state.before.fingerprint)

    def check_end(self, state: PlannerState, last: int) -> None:
        """Check that a stream has come to its end in the history that the table has now.

        Args:
            state: Where the stream stands, after its last snapshot.
            last: That snapshot.

        Raises:
            PositionBeyondLatestError: The table ends before.
            TableChangedError: The table was rolled back, dropped, or made anew.
        """
        assert state.next_id is not None
        if state.end_id is None and not state.verified:
            self._checks.check_reached(state.next_id)
        elif state.end_id is not None and state.next_id > last + 1:
            # It is beyond the table, or beyond what was its latest snapshot a moment ago.
            self.check_missed(state)

    def _follows(self, before: SnapshotMark | None, snapshot: Snapshot) -> Callable[[], None]:
        if before is not None and before.snapshot_id == snapshot.id:
            # It had been cut by a limit.
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
                # That is for the one who comes to it.
                return False
            return found is not None and found.fingerprint == last.fingerprint

        return unchanged


def _taken(state: PlannerState, take: Callable[[PlannerState], Step], check: Callable[[], None]) -> Step:
    try:
        step = take(state)
    except (PaimonStreamError, FileNotFoundError):
        # Whatever is wrong: if the table has changed, that is why.
        check()
        raise
    check()
    return step
