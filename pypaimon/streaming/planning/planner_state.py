"""`PlannerState`: where a stream stands, as an immutable value; `Step`: what one step of the planner gave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.model.position import ChainBase, Phase, Position, Unit
from pypaimon.streaming.options.start import Start, StartMode


@dataclass(frozen=True, slots=True)
class SnapshotMark:
    """What is remembered of the last snapshot that was read or passed over."""

    snapshot_id: int
    fingerprint: str

    @staticmethod
    def of(snapshot: Snapshot) -> SnapshotMark:
        """The mark of a snapshot."""
        return SnapshotMark(snapshot.id, snapshot.fingerprint)


@dataclass(frozen=True, slots=True)
class Span:
    """Several snapshots that are read as one plan, however limits cut it.

    Attributes:
        since: The id of the snapshot before them.
        last: The last of them.
        is_diff: What the states before and after differ in is read, else what the snapshots added.
        before: The state before, where states are compared; None: an empty table.
    """

    since: int
    last: Snapshot
    is_diff: bool
    before: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class ChainStart:
    """What the first plan of a chain table reads beside the delta branch.

    Attributes:
        snapshot: The snapshot of the snapshot branch; None: that branch was empty.
        merged: Whether the partitions of a chain are merged into the last one.
    """

    snapshot: Snapshot | None
    merged: bool

    @property
    def base(self) -> ChainBase:
        """It as a position has it."""
        snapshot = self.snapshot
        return (
            ChainBase(0, None, self.merged)
            if snapshot is None
            else ChainBase(snapshot.id, snapshot.fingerprint, self.merged)
        )


@dataclass(frozen=True, slots=True)
class PlannerState:
    """Where a stream stands.

    Attributes:
        start: Where to begin, while that is not found yet.
        next_id: The next snapshot, or the one that is being read; None before the start is found.
        full: The snapshot of the first full plan while that is not handed out wholly.
        unit: Last unit handed out of the snapshot that is being read.
        span: The range that is one plan while that is not handed out wholly.
        chain: What the first full plan of a chain table reads beside `full`.
        before: The last snapshot read or passed over, where known.
        ahead: The next snapshots, from `next_id` on, as far as they were found together and follow `before`.
        created_after: Only files created at this time or later.
        verified: The position is known to be in the table's range.
        misses: Polls in a row that found nothing.
        window: Snapshots asked for at the same time.
        known_latest: A snapshot that is known to have been the latest.
        end_id: Snapshot that ends the stream, where `end.latest` found it.
        watermark: Of the last snapshot that was planned.
        schema_id: Schema that was followed to, where it is not the stream's first one.
        replay_until: No catch-up is tried before this snapshot: it was not proven there.
        was_empty: The table was empty when the stream was started.
        anew: A full state comes in the midst of the stream, for what was to be read next has expired.
        hinted: The latest snapshot, which was read before the schema that tells the table's identity, until the first
            full plan has been read from it; None: the start asks for it.
        at_latest: `full` was the latest snapshot when the start was found, and nothing was asked for since.
        ended: The stream has reached its bound.
    """

    start: Start | None
    next_id: int | None = None
    full: Snapshot | None = None
    unit: Unit | None = None
    span: Span | None = None
    chain: ChainStart | None = None
    before: SnapshotMark | None = None
    ahead: tuple[Snapshot, ...] = ()
    created_after: int | None = None
    verified: bool = False
    misses: int = 0
    window: int = 1
    known_latest: int | None = None
    end_id: int | None = None
    watermark: int | None = None
    schema_id: int | None = None
    replay_until: int = 0
    was_empty: bool = False
    anew: bool = False
    hinted: Snapshot | None = None
    at_latest: bool = False
    ended: bool = False

    @staticmethod
    def at(position: Position) -> PlannerState:
        """The state at a saved position; it is held against the table by the first step."""
        return PlannerState(start=Start(StartMode.FROM_POSITION, position=position))

    def position(self, identity: Callable[[], str]) -> Position | None:
        """The position of this state; None before the start is found.

        Args:
            identity: Gives the table's identity; called only where a position is made, since it may ask the store.
        """
        if self.start is not None and self.start.position is not None:
            return self.start.position
        if self.next_id is None:
            return None
        if self.full is not None:
            base = None if self.chain is None else self.chain.base
            return Position(identity(), self.full.id, self.full.fingerprint, Phase.FULL, self.unit, base=base)
        if self.span is not None:
            last, since = self.span.last, self.span.since
            return Position(identity(), last.id, last.fingerprint, Phase.RANGE, self.unit, since)
        inside = self.unit is not None
        known = self.before is not None and self.before.snapshot_id == self.next_id - (0 if inside else 1)
        fingerprint = self.before.fingerprint if known and self.before else None
        return Position(identity(), self.next_id, fingerprint, Phase.FOLLOW, self.unit)


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of one step.

    Attributes:
        state: The next state.
        plan: What to hand out, or None.
        begins: Where the plan begins.
        idle: Nothing new is there; ask again after a pause. Else, without a plan, step again at once (or it has ended).
    """

    state: PlannerState
    plan: Plan | None = None
    begins: Position | None = None
    idle: bool = False
