"""How far a stream is behind its table (B32)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pypaimon.streaming.clock import Clock
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.planning.planner import Planner
from pypaimon.streaming.planning.planner_state import PlannerState


@dataclass(frozen=True, slots=True)
class Lag:
    """Distance from a position to the latest snapshot. None is "unknown", never zero.

    Attributes:
        snapshots: Snapshots from the next one to the latest, both included.
        rows: Records that a stream would be given for them, before filter and shard.
        bytes: Bytes of their files; unknown until they are planned.
        seconds: Age of the first snapshot that was not read yet; 0 when caught up.
        earliest: Id of the earliest snapshot, None if there is none.
        latest: Id of the latest snapshot, None if there is none.
        committed: Next snapshot that was saved under the consumer id, None without one.
    """

    snapshots: int | None
    rows: int | None
    bytes: int | None
    seconds: float | None
    earliest: int | None
    latest: int | None
    committed: int | None


class LagMeter:
    """Measures lag; asks the store for the ends of the range and for snapshots that are not known yet.

    Args:
        directory: The table.
        planner: Tells which snapshots a stream reads.
        clock: Where the time comes from.
    """

    def __init__(self, directory: TableDirectory, planner: Planner, clock: Clock) -> None:
        self._snapshots = directory.snapshots
        self._planner = planner
        self._clock = clock

    def measure(self, state: PlannerState, committed: int | None) -> Lag:
        """The lag of a state; before the start, of where it would begin now."""
        earliest, latest = self._snapshots.earliest_id(), self._snapshots.latest_id()
        if latest is None:
            return Lag(0, 0, 0, 0.0, earliest, None, committed)
        state = self._planner.begun(state)
        if state.next_id is None:
            return Lag(None, None, None, None, earliest, latest, committed)
        first = state.next_id if state.full is None else state.full.id
        if first > latest:
            return Lag(0, 0, 0, 0.0, earliest, latest, committed)
        unread = list(self._snapshots.get_snapshots_batch(range(state.next_id, latest + 1)).values())
        oldest = state.full if state.full is not None else next(iter(unread), None)
        seconds = None if oldest is None else max(0.0, (self._clock.time_millis() - oldest.time_millis) / 1000)
        rows = self._rows(unread)
        if state.full is not None:
            total = state.full.total_record_count
            rows = None if rows is None or total is None or state.unit is not None else rows + total
        return Lag(latest - first + 1, rows, None, seconds, earliest, latest, committed)

    def _rows(self, snapshots: Iterable[Snapshot | None]) -> int | None:
        rows = 0
        for snapshot in snapshots:
            count = None if snapshot is None else self._planner.records_of(snapshot)
            if count is None:
                return None
            rows += count
        return rows
