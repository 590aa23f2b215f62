"""`PlannerState`: the state of a stream as an immutable value; `Step`: the outcome of one step of the planner.

A stream is in one of four phases. It is `Starting` until its start is found. It reads a full state (`ReadingFull`), a
range as one plan (`ReadingRange`), or snapshot by snapshot (`Following`). A value that only one phase has is a field of
that phase. Every phase can be the last one: `ended` is a fact about the stream, which still has a position, and in
Spark continues from there with a later end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.model.position import ChainBase, Phase, Position, ReadUnit
from pypaimon.streaming.options.start import Start, StartMode

P = TypeVar("P", bound="_Phase")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Phase(ABC):
    """What a stream carries from phase to phase.

    Attributes:
        end_id: Snapshot that ends the stream, where `end.latest` or a range found it.
        schema_id: Schema that was followed to; None: the stream's first one.
        watermark: Of the last snapshot that was planned.
        ended: Whether the stream has reached its end.
    """

    end_id: int | None = None
    schema_id: int | None = None
    watermark: int | None = None
    ended: bool = False

    @abstractmethod
    def position(self, identity: Callable[[], str]) -> Position | None:
        """The position of this state; None before the start is found.

        Args:
            identity: Returns the table's identity. Called only if a position is made, because it may send a request.
        """

    def then(self, phase: P) -> P:
        """The next phase, with what every phase carries."""
        return replace(phase, end_id=self.end_id, schema_id=self.schema_id, watermark=self.watermark)


@dataclass(frozen=True, slots=True)
class Starting(_Phase):
    """The start is not found yet.

    Attributes:
        start: Where to begin.
        latest: The latest snapshot, if it was read before the schema that gives the table's identity.
        was_empty: Whether the table was empty when the stream was started.
        misses: Polls in a row that found it empty.
        restarted: Whether the stream begins again in its middle, because its next snapshot has expired.
    """

    start: Start
    latest: Snapshot | None = None
    was_empty: bool = False
    misses: int = 0
    restarted: bool = False

    @staticmethod
    def at(position: Position) -> Starting:
        """The state at a saved position. The first step checks it against the table."""
        return Starting(Start(StartMode.FROM_POSITION, position=position))

    def position(self, identity: Callable[[], str]) -> Position | None:
        return self.start.position


@dataclass(frozen=True, slots=True)
class ReadingFull(_Phase):
    """The full state of the table at a snapshot is handed out.

    Attributes:
        snapshot: That snapshot.
        unit: Last unit of it that was handed out.
        chain: Of a chain table: what is read in addition to the snapshot.
        created_after: Only files created at this time or later.
        verified: See `Following.verified`.
        restarted: Whether the state comes in the middle of the stream, because its next snapshot has expired or its
            changes do not name the rows that were removed.
        is_unproven: Whether the snapshot was read before the schema that gives the table's identity, and nothing of it
            was read since.
        at_latest: Whether it was the latest snapshot when the start was found, and nothing was requested since.
    """

    snapshot: Snapshot
    unit: ReadUnit | None = None
    chain: ChainStart | None = None
    created_after: int | None = None
    verified: bool = False
    restarted: bool = False
    is_unproven: bool = False
    at_latest: bool = False

    @property
    def next_id(self) -> int:
        """The first snapshot after the state."""
        return self.snapshot.id + 1

    def position(self, identity: Callable[[], str]) -> Position:
        snapshot, base = self.snapshot, None if self.chain is None else self.chain.base
        return Position(identity(), snapshot.id, snapshot.fingerprint, Phase.FULL, self.unit, base=base)


@dataclass(frozen=True, slots=True)
class ReadingRange(_Phase):
    """A range is handed out as one plan, with which the stream ends.

    Attributes:
        span: The range.
        unit: Last unit of it that was handed out.
    """

    span: Span
    unit: ReadUnit | None = None

    @property
    def next_id(self) -> int:
        """The snapshot that is being read: the last one of the range."""
        return self.span.last.id

    def position(self, identity: Callable[[], str]) -> Position:
        last = self.span.last
        return Position(identity(), last.id, last.fingerprint, Phase.RANGE, self.unit, self.span.since)


@dataclass(frozen=True, slots=True)
class Following(_Phase):
    """Snapshots are read one after the other, or several as one plan.

    Attributes:
        next_id: The next snapshot, or the one that is being read.
        unit: Last unit handed out of the snapshot that is being read.
        before: The last snapshot read or passed over, if known.
        ahead: The next snapshots, from `next_id` on, as far as they were found together and follow `before`.
        created_after: Only files created at this time or later.
        verified: Whether the position is known to be in the table's range.
        misses: Polls in a row that found nothing.
        window: Snapshots requested at the same time.
        known_latest: A snapshot that is known to have been the latest.
        replay_until: No catch-up is tried before this snapshot, because it was not proven there.
        at_latest: See `ReadingFull.at_latest`; without a full state for `before`.
    """

    next_id: int
    unit: ReadUnit | None = None
    before: SnapshotMark | None = None
    ahead: tuple[Snapshot, ...] = ()
    created_after: int | None = None
    verified: bool = False
    misses: int = 0
    window: int = 1
    known_latest: int | None = None
    replay_until: int = 0
    at_latest: bool = False

    def position(self, identity: Callable[[], str]) -> Position:
        position = Position(identity(), self.next_id, unit=self.unit)
        if self.before is None or self.before.snapshot_id != position.last_read:
            return position
        return replace(position, fingerprint=self.before.fingerprint)

    def after(self, snapshot: Snapshot) -> Following:
        """The state after this snapshot was read or passed over."""
        ahead = tuple(each for each in self.ahead if each.id > snapshot.id)
        return replace(self, next_id=snapshot.id + 1, unit=None, before=SnapshotMark.of(snapshot), ahead=ahead)


Begun = ReadingFull | ReadingRange | Following
PlannerState = Starting | Begun
"""The state of a stream between two steps."""


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
