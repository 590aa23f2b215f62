"""Going on at a saved position: it is held against the table before anything is read (B13)."""

from __future__ import annotations

from dataclasses import replace

from pypaimon.streaming.errors import PositionExpiredError, TableChangedError
from pypaimon.streaming.planner_state import Mark, PlannerState
from pypaimon.streaming.position import Phase, Position
from pypaimon.streaming.range_check import RangeCheck, rolled_back
from pypaimon.streaming.start_options import Start, StartMode
from pypaimon.streaming.table_directory import TableDirectory


def resumed(
    state: PlannerState, position: Position, directory: TableDirectory, checks: RangeCheck, configured: Start
) -> PlannerState:
    """The state at a saved position: of the same table, behind the same snapshot. Asks for that snapshot.

    Args:
        state: The state before.
        position: The saved position.
        directory: The table.
        checks: Checks against the snapshots that are there.
        configured: The start that the stream was built with; its tag may keep the snapshot of a first full plan.

    Raises:
        TableChangedError: The table is another one, or was rolled back.
        PositionExpiredError: The snapshot of the first full plan is gone.
    """
    if position.table != directory.identity:
        raise TableChangedError(
            f"The position is one of another table (identity {position.table}; this table is {directory.identity}), "
            "or the table was re-created since. Start anew with with_start(...)."
        )
    state = replace(state, start=None, next_id=position.snapshot, unit=position.unit)
    if position.phase is Phase.FULL:
        return _inside_full(state, position, directory, checks, configured)
    last = position.snapshot if position.unit is not None else position.snapshot - 1
    found = checks.check_fingerprint(last, position.fingerprint)
    if found is not None:
        return replace(state, before=Mark.of(found))
    if position.fingerprint is not None:
        return replace(state, before=Mark(last, position.fingerprint, None))
    return state


def _inside_full(
    state: PlannerState, position: Position, directory: TableDirectory, checks: RangeCheck, configured: Start
) -> PlannerState:
    snapshot = checks.check_fingerprint(position.snapshot, position.fingerprint)
    if snapshot is None and configured.tag is not None:
        snapshot = directory.tag(configured.tag)
    if snapshot is None or snapshot.id != position.snapshot:
        checks.check_identity()
        raise PositionExpiredError(position.snapshot, checks.earliest_id(), directory.snapshots.latest_id())
    if position.fingerprint not in (None, snapshot.fingerprint):
        raise rolled_back(snapshot.id)
    by_creation = configured.mode is StartMode.FROM_FILE_CREATION_TIME
    return replace(state, full=snapshot, created_after=configured.millis if by_creation else None)
