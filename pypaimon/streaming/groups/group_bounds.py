"""`GroupStart` and `GroupEnd`: where a group begins, and where the stream of one member ends."""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.consumers.consumer_manager import Consumer, consumers_of
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.consumers.shared_start_coordinator import PreviousShardings
from pypaimon.streaming.errors import (
    EndOfScan,
    NoSnapshotYetError,
    PaimonStreamError,
    PositionExpiredError,
    StreamConfigError,
    TableChangedError,
)
from pypaimon.streaming.groups.group_files import GroupState
from pypaimon.streaming.metadata.history import ReaderKind
from pypaimon.streaming.model.position import UNKNOWN_TABLE, Phase, Position, of_table
from pypaimon.streaming.options.between import End
from pypaimon.streaming.planning.planner_state import ReadingFull
from pypaimon.streaming.scanning.parts import ScanParts


class GroupStart:
    """Where a group begins: after what an earlier reader of its id has confirmed, or where its settings say."""

    def __init__(self, parts: ScanParts, group_id: str) -> None:
        self._planner = parts.planner
        self._manager = consumers_of(parts.directory)
        self._identity = parts.directory.identity
        self._start = parts.options.start
        self._group_id = group_id

    @ReaderKind.GROUP.advising()
    def find(self) -> Position:
        """The position where a stream would begin now.

        Raises:
            NoSnapshotYetError: The table is empty.
            TableChangedError: The table was rolled back since an earlier reader of the id has saved its progress.
        """
        previous = self._previous_progress()
        if previous is not None and previous.next_snapshot:
            return self._checked(previous.position)
        return self._begun(None if previous is None else previous.position)

    @ReaderKind.GROUP.advising()
    def before_snapshot(self, snapshot_id: int) -> Position:
        """The position before a snapshot; 0: before the earliest one.

        Raises:
            NoSnapshotYetError: The table is empty, and the earliest snapshot was wanted.
            PositionExpiredError: The snapshot has expired.
            PositionBeyondLatestError: The table ends before it.
        """
        position = Position(UNKNOWN_TABLE, snapshot_id)
        return self._checked(position) if snapshot_id else self._begun(position)

    def diagnosed(self, error: PaimonStreamError, *, had_snapshots: bool) -> PaimonStreamError:
        """The error for a deleted file: see `SnapshotRangeValidator.diagnosed`."""
        return self._planner.checks.diagnosed(error, had_snapshots=had_snapshots)

    def check_history(self, state: GroupState) -> None:
        """Check that the table still has the history that the group has read, for members that get no slots too.

        Raises:
            TableChangedError: The table was rolled back, or dropped and recreated.
        """
        starts = [ownership.start for ownership in state.owned if ownership.start.phase is Phase.FOLLOW]
        if state.begun and starts:
            last = max(starts)
            self._planner.position_resolver.resumed(last)
            self._planner.checks.check_reached(last)
            # One slot may have read a snapshot before a rollback, and another one its successor of the same id.
            read = dict.fromkeys((start.last_read, start.fingerprint) for start in starts)
            del read[last.last_read, last.fingerprint]
            for snapshot_id, fingerprint in read:
                if fingerprint is not None:
                    self._planner.checks.check_fingerprint(snapshot_id, fingerprint)

    def check_empty(self, has_begun: bool) -> None:
        """Check that a table without snapshots has not lost those that the group has read, or begins after.

        Args:
            has_begun: Whether the group has begun in any of its lifetimes, which takes a snapshot.

        Raises:
            TableChangedError: It has: the table is being dropped, or was emptied.
            PositionBeyondLatestError: The position does not show that anything was read.
        """
        if has_begun:
            raise self._planner.checks.emptied()
        previous = self._previous_progress()
        position = previous.position if previous is not None and previous.next_snapshot else self._start.position
        if position is not None:
            self._checked(position)

    def can_start(self, position: Position) -> bool:
        try:
            state = self._planner.position_resolver.resumed(position)
            if not isinstance(state, ReadingFull):
                self._planner.checks.check_missing(position)
                return True
        except (PositionExpiredError, TableChangedError):
            return False
        return self._start.tag is not None or self._planner.checks.stands(state.snapshot)

    def _begun(self, saved: Position | None) -> Position:
        position = self._planner.position(self._planner.begun(self._planner.initial(saved)))
        if position is None:
            raise NoSnapshotYetError("the table has no snapshot yet")
        return position

    def _checked(self, saved: Position) -> Position:
        position = of_table(saved, self._identity)
        self._planner.position_resolver.resumed(position)
        self._planner.checks.check_missing(position)
        return position

    def _previous_progress(self) -> Consumer | None:
        """What a reader, or all shards, of the same id have confirmed without a group; None if there were none."""
        names = set(self._manager.names(self._group_id))
        return PreviousShardings(self._manager, ConsumerName(self._group_id, group=True)).position(
            names, lambda _: True
        )


@dataclass(frozen=True, slots=True)
class GroupEnd:
    """Where the stream of one member ends: once all slots of the group have reached the end of a snapshot.

    Each member has its own. Others of the group may end elsewhere, or never.

    Attributes:
        last: Id of that snapshot; 0 if all are later.
        is_given: The end was given as a snapshot id. Then a group that begins with a later state is an error; for any
            other end that state is read.
    """

    last: int
    is_given: bool

    @staticmethod
    def of(parts: ScanParts, clock: Clock) -> GroupEnd | None:
        """The end of a member's stream; None if it has none. Reads snapshots.

        Raises:
            EndOfScan: The table has no snapshot, so the stream has ended: see `GroupStart.check_empty`.
            StreamConfigError: The end is a time in the future.
        """
        end = parts.options.end
        if end is None:
            return None
        if end.snapshot_id is not None:
            return GroupEnd(end.snapshot_id, is_given=True)
        return GroupEnd(_last_snapshot(end, parts, clock), is_given=False)

    def of_cursor(self, start: Position) -> End:
        return End(snapshot_id=self.last) if self.is_given else End(snapshot_id=self._last(start), exists=True)

    def position_after(self, start: Position) -> Position:
        """Where all slots of a group that began at a position are once this end is reached."""
        return Position(start.table, self._last(start) + 1)

    def _last(self, start: Position) -> int:
        # As for a single stream: another snapshot may have become the latest since the end was found.
        return max(self.last, start.snapshot) if start.phase is Phase.FULL else self.last


def _last_snapshot(end: End, parts: ScanParts, clock: Clock) -> int:
    snapshots = parts.directory.snapshots
    if end.millis is not None and end.millis >= clock.time_millis():
        raise StreamConfigError(
            "new_group: the end is a time in the future, and no member knows when the last commit before it has "
            "arrived. Use a time in the past, latest=True, or a snapshot_id."
        )
    latest = snapshots.latest_id()
    if latest is None:
        raise EndOfScan("the table has no snapshot")
    if end.millis is None:
        return latest
    found = snapshots.earlier_than_time_millis(end.millis + 1, parts.planner.traits.decoupled_changelog)
    return 0 if found is None else found.id
