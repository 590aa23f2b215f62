"""`Target`: the protocol of targets; and `is_to_apply`, by which a target skips plans that it holds already."""

from __future__ import annotations

from typing import Protocol

from pypaimon.streaming.errors import StreamConfigError, TableChangedError
from pypaimon.streaming.metadata.fingerprints import is_same_history
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.model.position import Phase, Position
from pypaimon.streaming.options.arguments import a_batch, needed
from pypaimon.streaming.targets.changes import AnyBatch

_OF_SEVERAL_SNAPSHOTS = (PlanKind.COLLAPSED, PlanKind.NET, PlanKind.DIFF)


class Target(Protocol):
    """A target of your own is a class with these two methods. docs/targets.md has one in 30 lines.

    After the last batch of each plan it holds what the table held at one of its snapshots.
    """

    def load_position(self) -> Position | None:
        """The position up to which it holds the table. None: it holds nothing, and needs the whole state."""

    def apply(self, batch: AnyBatch) -> None:
        """Apply a batch. One that begins a full state (`Batch.begins_state`) replaces all that the target holds.

        A target that outlives its program saves `batch.plan_after` as its position together with the rows, in one
        transaction, at the last batch of a plan (`Batch.is_last`). At the first one (`Batch.is_first`) it takes back
        what is left of an unfinished plan, and skips the plan if it holds it already: `is_to_apply`.

        Args:
            batch: The next one of its stream, or the first one of a plan.
        """


def is_to_apply(batch: AnyBatch, saved: Position | None) -> bool:
    """Whether the plan that a batch begins is still to be applied to a target. False: the target holds it already.

    A target of your own asks at `batch.is_first`. The answer is for the whole plan.

    Args:
        batch: The first batch of the plan.
        saved: The position up to which the target holds the table, or None.

    Raises:
        StreamConfigError: The plan is of another table, the target holds a part of its changes already, or it is a part
            of a full state whose beginning the target does not hold.
        TableChangedError: The table was rolled back since the position was saved.
    """
    a_batch("is_to_apply: batch", batch)
    if saved is None:
        _refuse_a_part(batch, inside=None)
        return True
    needed("is_to_apply: saved", saved, "a position, or None", "table", "snapshot")
    after = batch.plan_after
    if after.table != saved.table:
        raise StreamConfigError(
            f"The batch is of table {after.table!r}, and the target holds rows of table {saved.table!r}.",
            advice="Give each table a target of its own. If the table was dropped and recreated, empty the target and "
            "its saved position.",
        )
    if after <= saved:
        _check_history(after, saved)
        return False
    if batch.begins_state:
        return True
    begin = _begin(batch)
    if begin is None or begin < saved:
        raise StreamConfigError(
            f"The batch holds changes up to snapshot {batch.snapshot_id}, some of which the target may hold already: "
            f"it stands before snapshot {saved.snapshot}.",
            advice="Open the stream with with_start(position=target.load_position()).",
            option="with_start: position",
        )
    _check_history(begin, saved)
    _refuse_a_part(batch, inside=saved)
    if _leaves_a_gap(batch.plan_before, begin, saved):
        raise StreamConfigError(
            f"The stream continues with changes of snapshot {begin.snapshot}, and the target stands before snapshot "
            f"{saved.snapshot}: the changes in between would be missing.",
            advice="Open a stream with with_start(position=target.load_position()).",
            option="with_start: position",
        )
    return True


def _leaves_a_gap(before: Position | None, begin: Position, saved: Position) -> bool:
    """Whether a stream that stood `before` this plan has skipped changes that the target lacks.

    Only a stream that began where the target stands, or earlier, knows that the snapshots in between hold nothing.
    """
    return begin.snapshot > saved.snapshot if before is None else before > saved


def _begin(batch: AnyBatch) -> Position | None:
    before = batch.plan_before
    if batch.kind in _OF_SEVERAL_SNAPSHOTS or (before is not None and before.snapshot >= batch.snapshot_id):
        return before
    # The snapshots in between held nothing for the stream.
    return Position(batch.plan_after.table, batch.snapshot_id)


def _check_history(found: Position, saved: Position) -> None:
    if found.order() == saved.order() and not is_same_history(saved.fingerprint, found.fingerprint):
        raise TableChangedError(
            f"The table was rolled back: its history before snapshot {saved.snapshot} is not that of the target. Empty "
            "the target and its saved position, and begin again."
        )


def _refuse_a_part(batch: AnyBatch, inside: Position | None) -> None:
    if batch.kind is not PlanKind.FULL or batch.begins_state:
        return
    if inside is None or inside.phase is not Phase.FULL or inside.snapshot != batch.snapshot_id:
        raise StreamConfigError(
            f"The batch is a part of the full state of snapshot {batch.snapshot_id}, whose beginning the target does "
            "not hold.",
            advice="Open the stream where the target stands, with_start(position=target.load_position()), or at its "
            "configured start if that is None.",
            option="with_start: position",
        )
