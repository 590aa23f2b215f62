"""`GroupEnd`: where the stream of one member of a group ends."""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.errors import EndOfScan, StreamConfigError
from pypaimon.streaming.model.position import Phase, Position
from pypaimon.streaming.options.end import End
from pypaimon.streaming.scanning.parts import ScanParts


@dataclass(frozen=True, slots=True)
class GroupEnd:
    """Where the stream of one member ends: once all slots of the group have come behind a snapshot.

    It is the member's own. Others may have another one, or none.

    Attributes:
        last: Id of that snapshot; 0: all are later.
        is_given: It was asked for by its id: it is an error if the group begins with a later state, which is read else.
    """

    last: int
    is_given: bool

    @staticmethod
    def of(parts: ScanParts, clock: Clock) -> GroupEnd | None:
        """The end that a stream is told; None: it has none. Asks the store.

        Raises:
            EndOfScan: It is here: the table has no snapshot.
            StreamConfigError: It is a time that has not passed.
        """
        end = parts.options.end
        if end is None:
            return None
        if end.snapshot_id is not None:
            return GroupEnd(end.snapshot_id, is_given=True)
        return GroupEnd(_found(end, parts, clock), is_given=False)

    def of_cursor(self, start: Position) -> int:
        """The snapshot after which the slots of a group that begins at a position are not read on."""
        return self.last if self.is_given else self._last(start)

    def behind(self, start: Position) -> Position:
        """Where all slots stand once a group that begins at a position has come to the end."""
        return Position(start.table, self._last(start) + 1)

    def _last(self, start: Position) -> int:
        # As for a stream alone: the latest may have become another one since the end was found.
        return max(self.last, start.snapshot) if start.phase is Phase.FULL else self.last


def _found(end: End, parts: ScanParts, clock: Clock) -> int:
    snapshots = parts.directory.snapshots
    if end.millis is not None and end.millis >= clock.time_millis():
        raise StreamConfigError(
            "with_group: the end is a time that has not passed, of which no member knows when the last commit before "
            "it is there. Give a time that has passed, latest=True, or a snapshot_id."
        )
    latest = snapshots.latest_id()
    if latest is None:
        raise EndOfScan("the table has no snapshot")
    if end.millis is None:
        return latest
    found = snapshots.earlier_than_time_millis(end.millis + 1, parts.planner.traits.decoupled_changelog)
    return 0 if found is None else found.id
