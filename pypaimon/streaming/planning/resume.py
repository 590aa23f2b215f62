"""Resuming at a saved position, which is checked against the table before anything is read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pypaimon.streaming.errors import PositionExpiredError, StreamConfigError, TableChangedError
from pypaimon.streaming.metadata.history import SnapshotRangeValidator, is_same_history
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.position import Phase, Position
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.stream_options import OnExpired
from pypaimon.streaming.planning.chain_start import ChainStarts
from pypaimon.streaming.planning.follow_up import Bounds
from pypaimon.streaming.planning.planner_state import PlannerState, SnapshotMark


@dataclass(frozen=True, slots=True)
class PositionResolver:
    """Finds the state of a stream at a saved position, in the same table and after the same snapshot.

    Attributes:
        directory: The table.
        checks: Checks against the snapshots that are there.
        bounds: The ends of the stream.
        configured: The start that the stream was built with, which also decides what a resumed stream reads.
        chains: Of a chain table: finds what its first plan is made of.
    """

    directory: TableDirectory
    checks: SnapshotRangeValidator
    bounds: Bounds
    configured: Start
    chains: ChainStarts | None = None

    def resumed(self, state: PlannerState, position: Position) -> PlannerState:
        """The state at a position. Requests the snapshot before it (inside a snapshot: that one).

        Raises:
            TableChangedError: The position belongs to another table, or the table was rolled back.
            PositionExpiredError: The snapshot of the first full plan is gone.
            StreamConfigError: The position is inside a range that is one plan.
        """
        self.check_table(position)
        if position.phase is Phase.RANGE:
            raise StreamConfigError(
                f"The position is inside a range that is one plan: after snapshot {position.since}, up to snapshot "
                f"{position.snapshot}. Give the builder the range that it was made with, by the same ids, tags or "
                "times: with_range(...)."
            )
        created_after = self.configured.created_after(in_first_plan=position.phase is Phase.FULL)
        state = replace(state, start=None, next_id=position.snapshot, unit=position.unit, created_after=created_after)
        if position.phase is Phase.FULL:
            return self._resumed_in_full(state, position)
        inside = position.unit is not None
        last = position.snapshot if inside else position.snapshot - 1
        found = self.checks.check_before(last, position.fingerprint)
        if found is not None:
            # The stream had reached its end, by a first full plan beyond that end.
            ended = not inside and self.bounds.is_beyond(found)
            return replace(state, before=SnapshotMark.of(found), ahead=(found,) if inside else (), ended=ended)
        if position.fingerprint is not None:
            return replace(state, before=SnapshotMark(last, position.fingerprint))
        return state

    def check_table(self, position: Position) -> None:
        """Check that a position belongs to this table.

        Raises:
            TableChangedError: It belongs to another table.
        """
        if position.table != self.directory.identity:
            raise TableChangedError(
                f"The position belongs to another table or branch (identity {position.table}; this one is "
                f"{self.directory.identity}), or the table was re-created since.",
                advice="Choose another start with with_start(...).",
                option="with_start",
            )

    def _resumed_in_full(self, state: PlannerState, position: Position) -> PlannerState:
        if self.chains is not None:
            delta = self._inside_full(position) if position.snapshot else None
            full, chain = self.chains.again(position, delta)
            return replace(state, full=full, chain=chain)
        if position.base is not None:
            raise StreamConfigError(
                "The position is inside the first plan of a chain table, and this stream reads only one of its "
                "branches. Load the table without a branch to resume."
            )
        return replace(state, full=self._inside_full(position))

    def _inside_full(self, position: Position) -> Snapshot:
        snapshot = self.checks.check_before(position.snapshot, position.fingerprint)
        if snapshot is None and self.configured.tag is not None:
            snapshot = self.directory.tag(self.configured.tag)
        if snapshot is None or snapshot.id != position.snapshot:
            tag = self.configured.tag
            detail = "" if tag is None else f"Tag '{tag}' does not keep it: it is gone, or of another snapshot. "
            raise self.checks.expired(position.snapshot, detail)
        if not is_same_history(position.fingerprint, snapshot.fingerprint):
            raise self.checks.another(snapshot.id)
        return snapshot


def start_instead(
    policy: OnExpired, state: PlannerState, expired: PositionExpiredError, *, of_chain: bool = False
) -> Start:
    """Where a stream starts again whose position has expired.

    Args:
        of_chain: Whether the table is a chain table, whose full plans are always of the latest snapshots.

    Raises:
        PositionExpiredError: The policy is to fail, or there is no other start.
    """
    in_full = state.full is not None or state.start is not None
    # During a full plan `next_id` is the snapshot after it, which does not say where to begin.
    at_earliest = not in_full and state.next_id == expired.earliest
    if at_earliest and policy in (OnExpired.FAIL, OnExpired.EARLIEST):
        raise PositionExpiredError(expired.wanted, expired.earliest, expired.latest, expired.detail, True) from expired
    if policy is OnExpired.FAIL or expired.wanted < 1:
        raise expired
    if policy is OnExpired.EARLIEST and in_full and of_chain:
        return Start(StartMode.LATEST_FULL)
    if policy is OnExpired.EARLIEST and in_full and expired.earliest is not None:
        return Start(StartMode.FROM_SNAPSHOT_FULL, snapshot_id=expired.earliest)
    modes = {
        OnExpired.EARLIEST: StartMode.EARLIEST,
        OnExpired.LATEST: StartMode.LATEST,
        OnExpired.FULL: StartMode.LATEST_FULL,
    }
    return Start(modes[policy])
