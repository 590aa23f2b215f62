"""`PlannerState`: the state of a stream as an immutable value; `Step`: the outcome of one step of the planner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.model.position import ChainBase, Phase, Position, ReadUnit
from pypaimon.streaming.options.start import Start, StartMode


@dataclass(frozen=True, slots=True)
class SnapshotMark:
    """The last snapshot that was read or passed over."""

    snapshot_id: int
    fingerprint: str

    @staticmethod
    def of(snapshot: Snapshot) -> SnapshotMark:
        return SnapshotMark(snapshot.id, snapshot.fingerprint)


@dataclass(frozen=True, slots=True)
class Span:
    """Several snapshots that are read as one plan, which limits may cut.

    Attributes:
        since: The id of the snapshot before them.
        last: The last of them.
        is_diff: Whether the states before and after are compared; otherwise the added files are read.
        before: The state before, if states are compared; None: an empty table.
    """

    since: int
    last: Snapshot
    is_diff: bool
    before: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class ChainStart:
    """What the first plan of a chain table reads in addition to the delta branch.

    Attributes:
        snapshot: The snapshot of the snapshot branch; None: that branch was empty.
        merged: Whether the partitions of a chain are merged into the last one.
    """

    snapshot: Snapshot | None
    merged: bool

    @property
    def base(self) -> ChainBase:
        """The same as a position records it."""
        snapshot = self.snapshot
        return (
            ChainBase(0, None, self.merged)
            if snapshot is None
            else ChainBase(snapshot.id, snapshot.fingerprint, self.merged)
        )


@dataclass(frozen=True, slots=True)
class PlannerState:
    """The state of a stream between two steps.

    Attributes:
        start: Where to begin, until the start is found.
        next_id: The next snapshot, or the one that is being read; None until the start is found.
        full: The snapshot of a full plan, until its last part is handed out.
        unit: Last unit handed out of the snapshot that is being read.
        span: The range that is one plan, until its last part is handed out.
        chain: What the first full plan of a chain table reads in addition to `full`.
        before: The last snapshot read or passed over, if known.
        ahead: The next snapshots, from `next_id` on, as far as they were found together and follow `before`.
        created_after: Only files created at this time or later.
        verified: Whether the position is known to be in the table's range.
        misses: Polls in a row that found nothing.
        window: Snapshots requested at the same time.
        known_latest: A snapshot that is known to have been the latest.
        end_id: Snapshot that ends the stream, where `end.latest` found it.
        watermark: Of the last snapshot that was planned.
        schema_id: Schema that was followed to; None: the stream's first one.
        replay_until: No catch-up is tried before this snapshot, because it was not proven there.
        was_empty: Whether the table was empty when the stream was started.
        restarted: Whether a full state comes in the middle of the stream, because its next snapshot has expired or its
            changes do not name the rows that were removed.
        hinted: The latest snapshot, read before the schema that gives the table's identity, until the first full plan
            has been read from it; None: the start asks for it.
        at_latest: Whether `full` was the latest snapshot when the start was found, and nothing was requested since.
        ended: Whether the stream has reached its end.
    """

    start: Start | None
    next_id: int | None = None
    full: Snapshot | None = None
    unit: ReadUnit | None = None
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
    restarted: bool = False
    hinted: Snapshot | None = None
    at_latest: bool = False
    ended: bool = False

    @staticmethod
    def at(position: Position) -> PlannerState:
        """The state at a saved position. The first step checks it against the table."""
        return PlannerState(start=Start(StartMode.FROM_POSITION, position=position))

    def position(self, identity: Callable[[], str]) -> Position | None:
        """The position of this state; None before the start is found.

        Args:
            identity: Returns the table's identity. Called only if a position is made, because it may send a request.
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
        begins: The position before the plan.
        idle: Whether to poll again after a pause. A step that is not idle and has no plan is followed by the next one
            at once, unless the stream has ended.
    """

    state: PlannerState
    plan: Plan | None = None
    begins: Position | None = None
    idle: bool = False
