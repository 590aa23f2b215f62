"""`HistoryCheck`: proves that the snapshots just found follow those that the stream has read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from pypaimon.streaming.errors import CorruptTableError, PaimonStreamError, StoreError
from pypaimon.streaming.metadata.history import RANGE_CHECK_INTERVAL, SnapshotRangeValidator, is_same_history
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.planning.planner_state import Begun, Following, ReadingFull, ReadingRange, SnapshotMark, Step
from pypaimon.streaming.planning.snapshot_prefetch import Window

P = TypeVar("P", ReadingFull, ReadingRange, Following)


class HistoryCheck:
    """Finds rollbacks, and tables that were dropped or re-created, between two snapshots.

    A snapshot id proves nothing, because ids are used again after a rollback, and record counts may agree by chance.
    But a committer reads the snapshot before its own. So after a snapshot was read, the one before it is requested once
    more. If that is still the one that the stream has read, the new snapshot is of the same history.

    The snapshots of a window are requested at the same time. Its last one is read before all others and requested once
    more after them. If it has not changed, there was no rollback while the others were read.

    If the snapshot before has expired, or there never was one, only the identity of the table can be checked.

    Args:
        checks: Checks of single snapshots.
    """

    def __init__(self, checks: SnapshotRangeValidator) -> None:
        self._checks = checks

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

        Sends requests only at the first poll after a seek and at every 16th in a row.

        Args:
            state: The state before the poll is counted.

        Raises:
            PositionExpiredError: The next snapshot is gone.
            PositionBeyondLatestError: The table ends before it.
            TableChangedError: The table was rolled back, dropped or re-created.
            CorruptTableError: A snapshot is missing in the middle of others, or cannot be decoded.
        """
        if (state.misses + 1) % RANGE_CHECK_INTERVAL == 0 or not state.verified:
            latest = self._checks.check_missing(state.next_id)
            if state.end_id is not None and state.end_id > (latest or 0):
                raise self._checks.another(state.end_id)
            if state.before is not None:
                self._checks.check_fingerprint(state.before.snapshot_id, state.before.fingerprint)

    def check_end(self, state: Following, last: int) -> None:
        """Check that the table still has the history at whose end the stream is.

        Args:
            state: The state after the last snapshot of the stream.
            last: Id of that snapshot.

        Raises:
            PositionBeyondLatestError: The table ends before.
            TableChangedError: The table was rolled back, dropped or re-created.
        """
        if state.end_id is None and not state.verified:
            self._checks.check_reached(state.next_id)
        elif state.end_id is not None and state.next_id > last + 1:
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
            return found is not None and found.fingerprint == last.fingerprint

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
