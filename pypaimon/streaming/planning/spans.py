"""The splits of several snapshots as one plan: what they added, or what the states around them differ in."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from pypaimon.streaming.errors import PositionExpiredError
from pypaimon.streaming.metadata.history import RangeCheck
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.model.position import Unit
from pypaimon.streaming.planning.planner_state import Span
from pypaimon.streaming.planning.snapshot_plans import PlannedSplits, SnapshotPlans


def planned_span(
    plans: SnapshotPlans,
    checks: RangeCheck,
    span: Span,
    after: Unit | None,
    *,
    kinds: bool,
    is_read: Callable[[Snapshot], bool],
) -> tuple[PlanKind, PlannedSplits]:
    """The next part of a range that is one plan.

    Args:
        plans: Plans of single snapshots.
        checks: Tell a file that has expired from one that a damaged table lacks.
        span: The range.
        after: Last unit that was handed out.
        kinds: Whether rows come with kinds, where states are compared.
        is_read: Which snapshots are read, where states are not compared.

    Raises:
        PaimonStreamError: A snapshot or a file is gone, or the table was rolled back.
    """
    if span.is_diff:
        # Its files are on both sides; the earlier state is the first to expire, but that of a tag.
        with checks.reading(*(state for state in (span.before, span.last) if state is not None)):
            planned = plans.diff(span.before, span.last, after, kinds=kinds)
        return (PlanKind.NET if kinds else PlanKind.DIFF), planned

    def added() -> pa.Table:
        found = plans.directory.snapshots.get_snapshots_batch(range(span.since + 1, span.last.id + 1))
        # If the last one is the same after the others were read, they are of its history.
        checks.check_fingerprint(span.last.id, span.last.fingerprint)
        entries = [plans.entry_schema.empty_table()]
        for snapshot_id, snapshot in found.items():
            if snapshot is None:
                raise PositionExpiredError(snapshot_id, checks.earliest_id(), checks.latest_id())
            if is_read(snapshot):
                with checks.reading(snapshot):
                    entries.append(plans.entries_added(snapshot))
        return pa.concat_tables(entries)

    return PlanKind.COLLAPSED, plans.added_files(added, span.last, after)
