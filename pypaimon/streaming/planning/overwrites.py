"""What an OVERWRITE snapshot did, for streams that read overwrites: the rows before it are needed too.

Java's rules: docs/java-semantics.md#overwrites.
"""

from __future__ import annotations

from pypaimon.streaming.errors import PositionExpiredError
from pypaimon.streaming.metadata.history import RangeCheck
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.planning.planner_state import PlannerState
from pypaimon.streaming.planning.snapshot_plans import PlannedSplits, SnapshotPlans


def overwritten(plans: SnapshotPlans, checks: RangeCheck, state: PlannerState, snapshot: Snapshot) -> PlannedSplits:
    """Plan an OVERWRITE snapshot: what it took away, then what it brought; of append tables the latter alone.

    Raises:
        PositionExpiredError: It took rows away, and the snapshot that tells which of them were deleted already is gone.
        TableChangedError: That snapshot is another one by now.
        FileNotFoundError: A manifest is gone.
    """
    if not plans.traits.primary_key:
        return plans.delta(snapshot, state.unit)
    before = _before(checks, state, snapshot)
    planned = plans.overwrite(before, snapshot, state.unit)
    if before is None and any(split.before_files for split in planned.splits):
        detail = f"Snapshot {snapshot.id} overwrites rows of it, which are gone too. "
        raise PositionExpiredError(snapshot.id - 1, checks.earliest_id(), checks.latest_id(), detail)
    return planned


def _before(checks: RangeCheck, state: PlannerState, snapshot: Snapshot) -> Snapshot | None:
    """The snapshot before: the one that the stream has read, not one that was cached for another purpose."""
    if snapshot.id == 1:
        return None
    known = checks.available(snapshot.id - 1)
    mark = state.before
    if known is None or mark is None or mark.snapshot_id != known.id or mark.fingerprint == known.fingerprint:
        return known
    return checks.check_fingerprint(known.id, mark.fingerprint)
