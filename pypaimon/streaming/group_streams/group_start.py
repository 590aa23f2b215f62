"""`GroupStart`: where a group begins, by the planner of its table."""

from __future__ import annotations

from pypaimon.streaming.consumers.consumer_manager import Consumer, consumers_of
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from pypaimon.streaming.consumers.former_layouts import FormerLayouts
from pypaimon.streaming.consumers.groups.group_state import GroupState
from pypaimon.streaming.errors import NothingThereError, PositionExpiredError, TableChangedError
from pypaimon.streaming.model.position import UNKNOWN_TABLE, Phase, Position, of_table
from pypaimon.streaming.planning.planner_state import PlannerState
from pypaimon.streaming.scanning.parts import ScanParts


class GroupStart:
    """Where a group begins: after what a reader of its id has confirmed before, else as its streams are told.

    Args:
        parts: Of a scan with the settings of the group's streams.
        group_id: Of the group.
    """

    def __init__(self, parts: ScanParts, group_id: str) -> None:
        self._planner = parts.planner
        self._manager = consumers_of(parts.directory)
        self._identity = parts.directory.identity
        self._tag = parts.options.start.tag
        self._group_id = group_id

    def find(self) -> Position:
        """The position at which a stream would begin now.

        Raises:
            NothingThereError: There is none yet.
            TableChangedError: The table was rolled back since a reader of the id has saved where it stood.
        """
        former = self._former()
        if former is not None and former.next_snapshot:
            return self._before(former.position)
        position = self._planner.position(self._planner.begun(self._planner.initial()))
        if position is None:
            raise NothingThereError("the table has no snapshot yet")
        return position

    def before_snapshot(self, snapshot_id: int) -> Position:
        """The position before a snapshot, or before the first one.

        Raises:
            PositionExpiredError: It is not there any more.
            PositionBeyondLatestError: The table ends before it.
        """
        return self._before(Position(UNKNOWN_TABLE, max(snapshot_id, 1)))

    def _before(self, saved: Position) -> Position:
        position = of_table(saved, self._identity)
        self._planner.position_resolver.resumed(PlannerState(None), position)
        self._planner.checks.check_missing(position.snapshot)
        return position

    def check_table(self) -> None:
        """Check that the table is there; raises TableChangedError."""
        self._planner.checks.check_identity()

    def check_history(self, state: GroupState) -> None:
        """Check that the table still has the history that a group has read, also for a member that gets no slots.

        Raises:
            TableChangedError: The table was rolled back, dropped, or made anew.
            PositionBeyondLatestError: The table ends before.
        """
        starts = [tenure.start for tenure in state.owned if tenure.start.phase is Phase.FOLLOW]
        if state.begun and starts:
            last = max(starts)
            self._planner.position_resolver.resumed(PlannerState(None), last)
            self._planner.checks.check_reached(last.snapshot)

    def stands(self, position: Position) -> bool:
        """Whether a stream could still begin at a position."""
        try:
            full = self._planner.position_resolver.resumed(PlannerState(None), position).full
            if full is None:
                self._planner.checks.check_missing(position.snapshot)
        except (PositionExpiredError, TableChangedError):
            return False
        return full is None or self._tag is not None or self._planner.checks.stands(full)

    def _former(self) -> Consumer | None:
        """What a reader, or all shards, of the same id without a group have confirmed; None: there are none."""
        names = set(self._manager.names(self._group_id))
        return FormerLayouts(self._manager, ConsumerName(self._group_id, group=True)).position(names, lambda _: True)
