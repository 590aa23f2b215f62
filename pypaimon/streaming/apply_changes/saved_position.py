"""Whether a plan is still to be applied to a target that has saved how far it is."""

from __future__ import annotations

from pypaimon.streaming.apply_changes.changes import AnyBatch
from pypaimon.streaming.errors import StreamConfigError, TableChangedError
from pypaimon.streaming.metadata.history import is_same_history
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.model.position import Phase, Position
from pypaimon.streaming.options.arguments import a_batch, needed

_OF_SEVERAL_SNAPSHOTS = (PlanKind.COLLAPSED, PlanKind.NET, PlanKind.DIFF)


def is_to_apply(batch: AnyBatch, saved: Position | None) -> bool:
    """Whether the plan that a batch begins is still to be applied to a target; False: the target holds all of it.

    It is what a target of your own asks at `batch.is_first`; the answer is that of the whole plan.

    Args:
        batch: The first one of its plan.
        saved: The target's position: it holds what lies before; None: it holds nothing.

    Raises:
        StreamConfigError: The plan is of another table, holds only in part what is new, or is a part of a full state
            whose beginning the target does not hold.
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
            f"The batch is of table {after.table!r}, and what the target holds is of table {saved.table!r}: give each "
            "table a target of its own. If the table was made anew, empty the target and its saved position."
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
            advice="Open the stream with with_start(position=target.position()).",
            option="with_start: position",
        )
    _check_history(begin, saved)
    _refuse_a_part(batch, inside=saved)
    if _leaves_a_gap(batch.plan_before, begin, saved):
        raise StreamConfigError(
            f"The stream goes on with changes of snapshot {begin.snapshot}, and the target stands before snapshot "
            f"{saved.snapshot}: what lies between would be missing.",
            advice="Open a stream with with_start(position=target.position()).",
            option="with_start: position",
        )
    return True


def _leaves_a_gap(before: Position | None, begin: Position, saved: Position) -> bool:
    """Whether a stream that stood `before` this plan has passed over what the target lacks.

    Only one that began where the target stands, or before, tells that the snapshots in between hold nothing.
    """
    return begin.snapshot > saved.snapshot if before is None else before > saved


def _begin(batch: AnyBatch) -> Position | None:
    """Where the plan of a batch begins; None if that is not known."""
    before = batch.plan_before
    if batch.kind in _OF_SEVERAL_SNAPSHOTS or (before is not None and before.snapshot >= batch.snapshot_id):
        return before
    # The snapshots in between held nothing for the stream.
    return Position(batch.plan_after.table, batch.snapshot_id)


def _check_history(found: Position, saved: Position) -> None:
    if found.order() == saved.order() and not is_same_history(saved.fingerprint, found.fingerprint):
        raise TableChangedError(
            f"The table was rolled back: what lies before snapshot {saved.snapshot} is not what the target holds. "
            "Empty the target and its saved position, and begin anew."
        )


def _refuse_a_part(batch: AnyBatch, inside: Position | None) -> None:
    """A part of a full state is of use only to a target that holds the parts before it."""
    if batch.kind is not PlanKind.FULL or batch.begins_state:
        return
    if inside is None or inside.phase is not Phase.FULL or inside.snapshot != batch.snapshot_id:
        raise StreamConfigError(
            f"The batch is a part of the full state of snapshot {batch.snapshot_id}, whose beginning the target does "
            "not hold.",
            advice="Open the stream where the target stands, with_start(position=target.position()), or at its "
            "configured start if that is None.",
            option="with_start: position",
        )
