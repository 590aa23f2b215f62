"""What an OVERWRITE snapshot did, for streams that read overwrites: the rows before it are needed too.

Java's rules: docs/java-semantics.md#overwrites.
"""

from __future__ import annotations

from pypaimon.streaming.errors import PositionExpiredError
from pypaimon.streaming.metadata.history import RangeCheck, is_same_history
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.planning.planner_state import PlannerState
from pypaimon.streaming.planning.snapshot_plans import PlannedSplits, SnapshotPlans


def overwritten(plans: SnapshotPlans, checks: RangeCheck, state: PlannerState, snapshot: Snapshot) -> PlannedSplits:
    """Plan an OVERWRITE snapshot: what it took away, then what it brought; of append tables the latter alone.

    Raises:
        PositionExpiredError: It took rows away, and the snapshot that had them is gone, with all that may keep them.
        TableChangedError: That snapshot is another one by now.
        FileNotFoundError: A manifest is gone.
    """
    if not plans.traits.primary_key:
        return plans.delta(snapshot, state.unit)
    before = _before(checks, plans.directory, state, snapshot)
    planned = plans.overwrite(before, snapshot, state.unit)
    if before is None and any(split.before_files for split in planned.splits) and not _may_be_kept(plans):
        detail = f"Snapshot {snapshot.id} overwrites rows of it, which are gone too. "
        raise PositionExpiredError(snapshot.id - 1, checks.earliest_id(), checks.latest_id(), detail)
    return planned


def _before(checks: RangeCheck, directory: TableDirectory, state: PlannerState, snapshot: Snapshot) -> Snapshot | None:
    """The snapshot before: the one that the stream has read, not one that was cached for another purpose.

    One that has expired may be that of a tag.
    """
    if snapshot.id == 1:
        return None
    known = checks.available(snapshot.id - 1)
    mark = state.before
    read = mark.fingerprint if mark is not None and mark.snapshot_id == snapshot.id - 1 else None
    if known is None:
        known = directory.tagged(snapshot.id - 1)
        return known if known is not None and is_same_history(read, known.fingerprint) else None
    return known if is_same_history(read, known.fingerprint) else checks.check_fingerprint(known.id, read)


def _may_be_kept(plans: SnapshotPlans) -> bool:
    """Whether files that the snapshot before named may still be there, though it is gone: a tag may keep them.

    Only deletion vectors are found by that snapshot alone. Java continues without it where there are none. So does
    this, and a file that is gone after all is a `PositionExpiredError` of its reader.
    """
    return not plans.traits.deletion_vectors and bool(plans.directory.tag_names())
