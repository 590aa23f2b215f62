"""`PlanBuilder`: one snapshot, a range or several snapshots at once become a plan and the state after it.

`Planner` decides what comes next and calls this class for it. For each snapshot `PlanBuilder` picks the schema to read
with (`SchemaPolicy`) and the files that count (`FollowUp`), and has `SnapshotPlans` of that schema make splits of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pyarrow as pa

from pypaimon.streaming.filtering.field_paths import rebound_filter
from pypaimon.streaming.filtering.pruning import Scan
from pypaimon.streaming.io.retried_requests import asked_ahead
from pypaimon.streaming.metadata.fingerprints import is_same_history
from pypaimon.streaming.metadata.history import SnapshotRangeValidator
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import Plan, PlanKind
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.planning.catch_up import CaughtUp
from pypaimon.streaming.planning.chain_plans import ChainStarts, first_plan
from pypaimon.streaming.planning.follow_up import Bounds, CommitKind, FollowUp, StateRestarts
from pypaimon.streaming.planning.planned_units import KeptUnits
from pypaimon.streaming.planning.planner_log import PlannerLog
from pypaimon.streaming.planning.planner_state import (
    Begun,
    Following,
    P,
    ReadingFull,
    ReadingRange,
    SnapshotMark,
    Span,
    Step,
)
from pypaimon.streaming.planning.schema_change import SchemaPolicy
from pypaimon.streaming.planning.snapshot_plans import PlannedSplits, SnapshotPlans

_SCANS: dict[PlanKind, Scan] = {PlanKind.CHANGELOG: "changelog", PlanKind.DELTA: "delta"}


class PlanBuilder:
    """Makes the steps of one stream that read snapshots.

    Args:
        follow_up: Which snapshots are read after the start, and which files of them.
        bounds: The ends of the stream, and its settings; the filter uses the names of the stream's first schema.
        checks: Distinguishes a file that has expired from one that a damaged table lacks.
        kept_units: Shared with planners of the stream that have other limits.

    Attributes:
        chains: Of a chain table: finds what its first plan is made of.
    """

    def __init__(
        self,
        directory: TableDirectory,
        schemas: SchemaPolicy,
        follow_up: FollowUp,
        bounds: Bounds,
        checks: SnapshotRangeValidator,
        log: PlannerLog,
        kept_units: KeptUnits | None,
    ) -> None:
        options, schema = bounds.options, schemas.first
        self._directory = directory
        self._schemas = schemas
        self._follow_up = follow_up
        self._options = options
        self._bounds = bounds
        self._checks = checks
        self._log = log
        self._kept_units = kept_units or KeptUnits()
        self._plans: dict[tuple[int, int | None], SnapshotPlans] = {}
        self._restarts: StateRestarts | None = None
        if options.keeps_state:
            self._restarts = StateRestarts(directory.snapshots, schemas, TableTraits.of(schema), checks, bounds)
        self.chains = None if options.chain is None else ChainStarts(directory, options.chain, schema)

    def forget(self) -> None:
        """Drop everything that depends on schemas, because a rollback may have changed them."""
        self._plans.clear()
        self._kept_units.clear()

    def plans(self, schema_id: int | None = None, created_after: int | None = None) -> SnapshotPlans:
        """Plans of single snapshots under a schema.

        Args:
            schema_id: The schema; None: the stream's first one.
            created_after: Only files created at this time or later, epoch milliseconds; None: all.

        Raises:
            SchemaChangedError: A field that the filter uses was dropped.
        """
        schema = self._schemas.of(schema_id)
        key = schema.id, created_after
        if key not in self._plans:
            predicate = rebound_filter(self._options.predicate, self._schemas.first, schema)
            options = replace(self._options, predicate=predicate)
            self._plans[key] = SnapshotPlans(self._directory, schema, options, created_after, self._kept_units)
        return self._plans[key]

    def _reading(self, state: P, snapshot: Snapshot, created_after: int | None = None) -> tuple[SnapshotPlans, P]:
        """Plans under the schema to read a snapshot with, and the state, which has followed to that schema."""
        schema_id = self._schemas.for_snapshot(state.schema_id, snapshot.schema_id)
        if schema_id is not None and schema_id != state.schema_id:
            self._log.schema_followed(self._schemas.of(state.schema_id).id, schema_id, snapshot)
            state = replace(state, schema_id=schema_id)
        return self.plans(state.schema_id, created_after), state

    # ---- steps ----

    def full(self, state: ReadingFull) -> Step:
        """The next part of a full plan."""
        snapshot = state.snapshot
        with self._checks.reading(snapshot):
            plans, state = self._reading(state, snapshot, state.created_after)
            if state.chain is not None and self.chains is not None:
                planned = first_plan(self.chains, plans, snapshot, state.chain, state.unit)
            else:
                planned = plans.full(snapshot, state.unit)
        after: ReadingFull | Following
        if planned.last is not None:
            after = replace(state, unit=planned.last, is_unproven=False, restarted=False, watermark=snapshot.watermark)
        else:
            following = Following(
                state.next_id,
                # Of a chain table whose delta branch is empty, the snapshot is a made-up one, of id 0.
                before=SnapshotMark.of(snapshot) if snapshot.id else None,
                created_after=state.created_after,
                verified=state.verified,
                at_latest=state.at_latest,
                ended=self._bounds.is_beyond(snapshot),
            )
            after = replace(state.then(following), watermark=snapshot.watermark)
        if state.restarted and not planned.splits:
            # An empty state is a plan too: a caller that holds the rows before the restart has to drop them.
            return self._step_with_plan(state, after, snapshot, PlanKind.FULL, planned)
        return self._step_to(state, after, snapshot, PlanKind.FULL, planned)

    def span(self, state: ReadingRange) -> Step:
        """The next part of a range that is one plan."""
        span = state.span
        with self._checks.reading(span.last):
            plans, state = self._reading(state, span.last)
        if span.is_diff:
            kinds = self._options.between is not None and self._options.between.kinds
            kind = PlanKind.NET if kinds else PlanKind.DIFF
            # Its files are on both sides. The earlier state is the first to expire, unless a tag keeps it.
            with self._checks.reading(*(each for each in (span.before, span.last) if each is not None)):
                planned = plans.diff(span.before, span.last, state.unit, kinds=kinds)
        else:
            kind = PlanKind.COLLAPSED
            planned = plans.added_files(partial(self._entries_added, plans, span), span.last, state.unit)
        after: ReadingRange | Following = replace(state, unit=planned.last)
        if planned.last is None:
            after = state.then(Following(span.last.id + 1, before=SnapshotMark.of(span.last), ended=True))
        after = replace(after, watermark=span.last.watermark)
        return self._step_to(state, after, span.last, kind, planned)

    def follow(self, state: Following, snapshot: Snapshot) -> Step:
        """Read the next snapshot, pass over it, or begin the full state again because its changes are not enough."""
        is_read = self._follow_up.must_read(snapshot)
        restarts = self._restarts
        if restarts is not None and state.unit is None and restarts.may_be_due(snapshot):
            with self._checks.reading(snapshot):
                plans, state = self._reading(state, snapshot, state.created_after)
                is_due = restarts.is_due(plans, snapshot)
            if is_due:
                return self._full_again(state, restarts.begins_at(snapshot, state.end_id))
        if not is_read:
            self._schemas.check_producer(snapshot.schema_id)
            self._log.passed_over(snapshot, self._options.on_overwrite)
            return Step(state.after(snapshot))
        with self._checks.reading(snapshot):
            plans, state = self._reading(state, snapshot, state.created_after)
            if snapshot.commit_kind == CommitKind.OVERWRITE and self._options.read_overwrite:
                kind = PlanKind.OVERWRITE
                planned = self._overwrite(plans, state, snapshot)
            else:
                files = self._follow_up.files(snapshot)
                kind = files.kind
                planned = PlannedSplits([])
                if files.manifest_list is not None and kind is PlanKind.CHANGELOG:
                    with self._checks.reading(snapshot, changelog=True):
                        planned = plans.changelog(snapshot, state.unit)
                elif files.manifest_list is not None:
                    planned = plans.delta(snapshot, state.unit)
        # An overwrite leaves the watermark as it is, as in Java.
        watermark = state.watermark if kind is PlanKind.OVERWRITE else snapshot.watermark
        if planned.last is not None:
            after = replace(state, unit=planned.last, before=SnapshotMark.of(snapshot), watermark=watermark)
        else:
            after = replace(state.after(snapshot), watermark=watermark)
        return self._step_to(state, after, snapshot, kind, planned)

    def caught_up(self, state: Following, found: CaughtUp) -> Step:
        """Hand out several snapshots as one plan."""
        last = found.snapshots[-1]
        read = [snapshot for snapshot in found.snapshots if self._follow_up.is_read(snapshot)]
        watermark = read[-1].watermark if read else state.watermark
        after = replace(state.after(last), watermark=watermark)
        return self._step_to(state, after, last, found.kind, found.planned)

    def _full_again(self, state: Following, snapshot: Snapshot) -> Step:
        self._log.restarted(snapshot)
        # In the same step, because a position in between would not say that the rows before it are void.
        begin = ReadingFull(snapshot, created_after=state.created_after, verified=state.verified, restarted=True)
        return self.full(state.then(begin))

    def _entries_added(self, plans: SnapshotPlans, span: Span) -> pa.Table:
        found = plans.directory.snapshots.get_snapshots_batch(range(span.since + 1, span.last.id + 1))
        # If the last one is the same after the others were read, they are of its history.
        self._checks.check_fingerprint(span.last.id, span.last.fingerprint)
        entries = [plans.entry_schema.empty_table()]
        for snapshot_id, snapshot in found.items():
            if snapshot is None:
                raise self._checks.absent(snapshot_id)
            if self._follow_up.must_read(snapshot):
                with self._checks.reading(snapshot):
                    entries.append(plans.entries_added(snapshot))
        return pa.concat_tables(entries)

    def _step_to(self, begin: Begun, after: Begun, snapshot: Snapshot, kind: PlanKind, planned: PlannedSplits) -> Step:
        """A step with a plan of these splits; without splits, one that only moves the state."""
        return self._step_with_plan(begin, after, snapshot, kind, planned) if planned.splits else Step(after)

    def _step_with_plan(
        self, begin: Begun, after: Begun, snapshot: Snapshot, kind: PlanKind, planned: PlannedSplits
    ) -> Step:
        schema = self._schemas.of(after.schema_id)
        for split in planned.splits:
            split.fingerprint = snapshot.fingerprint
            split.planned_for = self._options.planned_for
            # A read has the stream's first schema, so that splits need to carry only one that was followed to.
            split.schema = split.schema if after.schema_id is None else schema
        plan = Plan(
            planned.splits,
            kind=kind,
            snapshot_id=snapshot.id,
            position=after.position(lambda: self._directory.identity),
            schema=schema,
            watermark=snapshot.watermark,
            planned_for=self._options.planned_for,
            commit_time_millis=snapshot.time_millis,
        )
        return Step(after, plan, begin.position(lambda: self._directory.identity))

    # ---- overwrites ----

    def _overwrite(self, plans: SnapshotPlans, state: Following, snapshot: Snapshot) -> PlannedSplits:
        """What an OVERWRITE removed, then what it added (docs/java-semantics.md#overwrites)."""
        if not plans.traits.primary_key:
            return plans.delta(snapshot, state.unit)
        before = self._before(state, snapshot)
        planned = plans.overwrite(before, snapshot, state.unit)
        if before is None and snapshot.id > 1 and self._needs_before(plans, planned):
            detail = f"Snapshot {snapshot.id} overwrites rows of it, which are gone too. "
            raise self._checks.expired(snapshot.id - 1, detail)
        return planned

    def _before(self, state: Following, snapshot: Snapshot) -> Snapshot | None:
        if snapshot.id == 1:
            return None
        # The one that the stream has read counts, not one that was cached for another purpose.
        known = self._checks.available(snapshot.id - 1)
        mark = state.before
        read = mark.fingerprint if mark is not None and mark.snapshot_id == snapshot.id - 1 else None
        if known is None:
            # It has expired, but a tag may keep it.
            known = self._directory.tagged(snapshot.id - 1)
            return known if known is not None and is_same_history(read, known.fingerprint) else None
        return known if is_same_history(read, known.fingerprint) else self._checks.check_fingerprint(known.id, read)

    def _needs_before(self, plans: SnapshotPlans, planned: PlannedSplits) -> bool:
        """Whether an OVERWRITE cannot be read without the snapshot before, which has expired."""
        if plans.traits.deletion_vectors:
            # Only that snapshot says which rows its vectors hid, also in files that stay.
            return True
        before = {file.file_name for split in planned.splits for file in split.before_files}
        after = {file.file_name for split in planned.splits for file in split.files}
        # A tag may still keep what was removed, so Java continues, and so does this: if a file is gone, its reader
        # raises the error.
        return bool(before - after) and not self._directory.tag_names()

    # ---- prefetch ----

    def prefetch(self, snapshots: Sequence[Snapshot]) -> None:
        """Read the manifests of several snapshots. Errors are raised when each snapshot is reached."""
        if len(snapshots) < 2:
            return
        # A follow-up scanner of the user may raise anything.
        with suppress(Exception), asked_ahead():
            files = [self._follow_up.files(snapshot) for snapshot in snapshots if self._follow_up.is_read(snapshot)]
            for kind, scan in _SCANS.items():
                lists = [each.manifest_list for each in files if each.kind is kind]
                self.plans().prefetch([each for each in lists if each], scan)
