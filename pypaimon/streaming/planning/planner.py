"""The planner: a state machine, and the only place that decides what a stream does next.

A step takes a state and returns an outcome and the next state. States are immutable values, so a step that failed, or
whose caller was cancelled, has changed nothing: it is taken again from the same state, with the same result. Nothing
here knows about threads, clocks of its own, or who drives it. Follows `DataTableStreamScan`
(docs/java-semantics.md#the-scan).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from pypaimon.streaming.errors import PaimonStreamError, PositionExpiredError, TableChangedError
from pypaimon.streaming.filtering.filters import columns_of
from pypaimon.streaming.filtering.pruning import Scan
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.io.conditional_writes import is_local
from pypaimon.streaming.io.store import asked_ahead
from pypaimon.streaming.metadata.history import RangeCheck
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import Plan, PlanKind
from pypaimon.streaming.model.position import Position, of_table
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.stream_options import StreamOptions, needs_fixed_start
from pypaimon.streaming.planning.between import RangeScanner
from pypaimon.streaming.planning.catch_up import CatchUpScanner, CaughtUp
from pypaimon.streaming.planning.chain_start import ChainStarts
from pypaimon.streaming.planning.continuity import Continuity
from pypaimon.streaming.planning.end import Bounds
from pypaimon.streaming.planning.follow_up import CommitKind, FollowUp, follow_up_scanner
from pypaimon.streaming.planning.look_ahead import FoundAhead, LookAhead
from pypaimon.streaming.planning.overwrites import overwritten
from pypaimon.streaming.planning.planner_log import PlannerLog
from pypaimon.streaming.planning.planner_state import PlannerState, SnapshotMark, Step
from pypaimon.streaming.planning.plans_by_schema import PlansBySchema
from pypaimon.streaming.planning.prepared import LastPrepared
from pypaimon.streaming.planning.resume import PositionResolver, start_instead
from pypaimon.streaming.planning.schema_change import SchemaPolicy, read_field_ids
from pypaimon.streaming.planning.snapshot_plans import PlannedSplits
from pypaimon.streaming.planning.spans import planned_span
from pypaimon.streaming.planning.start import ResolvedStart, StartingScanner
from pypaimon.streaming.planning.state_restarts import StateRestarts

_MAX_PASSED_OVER = 256
_SCANS: dict[PlanKind, Scan] = {PlanKind.CHANGELOG: "changelog", PlanKind.DELTA: "delta"}


class Planner:
    """Plans of one stream.

    Args:
        directory: The table.
        schema: The schema to read with: the table's latest when the stream was built.
        options: The stream's settings.
        read_columns: Names of the columns that are read (projection and filter), or None for all.
        now_millis: The wall clock, epoch milliseconds.
        last_prepared: What was prepared last, where planners with other limits go on with it.
        latest: The latest snapshot, if it was read just now and before the table's schema; the first start uses it.
    """

    def __init__(
        self,
        directory: TableDirectory,
        schema: TableSchema,
        options: StreamOptions,
        read_columns: frozenset[str] | None,
        now_millis: Callable[[], int],
        last_prepared: LastPrepared | None = None,
        latest: Snapshot | None = None,
    ) -> None:
        self._directory = directory
        self._latest = latest
        self._snapshots = directory.snapshots
        self._options = options
        names = read_columns
        if names is not None and options.predicate is not None:
            names = names | columns_of(options.predicate)
        self._schemas = SchemaPolicy(
            directory.reading_schema, schema, options.on_schema_change, read_field_ids(schema, names)
        )
        self._bounds = Bounds(options, now_millis)
        self.log = PlannerLog(directory.table)
        self._plans = PlansBySchema(directory, self._schemas, options, last_prepared, self.log)
        first_plans = self._plans.of()
        self.traits = first_plans.traits
        self._must_stand = needs_fixed_start(self.traits, options)
        self._range: RangeScanner | None = None
        if options.between is not None:
            self._range = RangeScanner(directory, self.traits, OptionValues(schema.options), options.between)
        given = options.follow_up_scanner if self._range is None else self._range.follow_up
        self._follow_up = FollowUp(follow_up_scanner(self.traits, given), options)
        self.checks = RangeCheck(directory, self.traits.decoupled_changelog)
        self._catch_up = CatchUpScanner(directory, first_plans, self._schemas, options, self._bounds)
        widest, eager = self._catch_up.widest, self._catch_up.eager
        # From a local disk it would come as soon when it is asked for.
        in_store = not is_local(str(directory.table.table_path))
        warm = self._warm if options.prefetch and in_store else None
        self._look_ahead = LookAhead(self._snapshots, self.checks, widest, eager, warm)
        self._continuity = Continuity(self.checks)
        self._restarts: StateRestarts | None = None
        if options.keeps_state:
            self._restarts = StateRestarts(self._snapshots, self.traits, options, self.checks, self._bounds)
        self._chains = None if options.chain is None else ChainStarts(directory, options.chain, schema)
        self.position_resolver = PositionResolver(directory, self.checks, self._bounds, options.start, self._chains)

    def forget(self) -> None:
        """Ask anew for what a rollback may have changed; a seek begins with it."""
        self._directory.forget()
        self._plans.forget()
        self._look_ahead.forget()

    def release(self) -> None:
        """Let the threads end; they come back when they are needed."""
        self._look_ahead.release()

    # ---- states ----

    def initial(self, saved: Position | None = None) -> PlannerState:
        """The state before the start.

        Args:
            saved: What a consumer has saved; beats every start but a position.
        """
        if saved is not None and self._options.start.position is None:
            # A file at 0 has seen nothing, as in Java.
            return self.at(saved) if saved.snapshot else PlannerState(start=Start(StartMode.EARLIEST))
        start = self._options.start
        latest, self._latest = self._latest, None
        is_used = latest is not None and start.mode is StartMode.LATEST_FULL and start.position is None
        is_used = is_used and self._range is None and self._chains is None
        return PlannerState(start=start, hinted=latest if is_used else None)

    def at_snapshot(self, snapshot_id: int) -> PlannerState:
        """The state at a saved snapshot id; as `at`, of a position that does not know what came before."""
        return self.at(Position(self._directory.identity, snapshot_id))

    def at(self, position: Position) -> PlannerState:
        """The state at a saved position; it is held against the table by the first step."""
        return PlannerState.at(of_table(position, self._directory.identity))

    def position(self, state: PlannerState) -> Position | None:
        """The position of a state; None before the start is found."""
        return state.position(lambda: self._directory.identity)

    # ---- steps ----

    def step(self, state: PlannerState) -> Step:
        """The next outcome: a plan, nothing new, or the end (`state.ended`).

        Raises:
            PaimonStreamError: See the class of the error; the state it was called with stays good.
        """
        if state.ended:
            return Step(state)
        state = self._bounded(state)
        step = Step(state) if state.ended else self._taken(state)
        self.log.stepped(step)
        return step

    def _taken(self, state: PlannerState) -> Step:
        try:
            if state.start is not None or state.next_id is None:
                return self._begin(state)
            if state.hinted is not None:
                return self._full_of_hinted(state)
            if state.full is not None:
                return self._continuity.checked_anew(state, self._full)
            if state.span is not None:
                return self._continuity.checked_anew(state, self._span)
            return self._follow(state)
        except PositionExpiredError as expired:
            return self._on_expired(state, expired)

    def known_idle(self, state: PlannerState) -> Step | None:
        """The poll after a first full plan of the latest snapshot, as the request that found the start answers it.

        None: the store must be asked. Whoever uses it must know when the start was found.
        """
        if not state.at_latest or state.full is not None or state.ended or self._options.end is not None:
            return None
        return Step(self._missed(replace(state, at_latest=False)), idle=True)

    def begun(self, state: PlannerState) -> PlannerState:
        """The state after finding the start, if it can be found now; nothing is handed out. Asks the store."""
        if state.start is None or state.ended:
            return state
        return self.step(state).state

    def records_of(self, snapshot: Snapshot) -> int | None:
        """Records that a stream is given for a snapshot, before filter and shard; None if that is not recorded."""
        return self._follow_up.record_count(snapshot)

    def _bounded(self, state: PlannerState) -> PlannerState:
        """Find the end of a stream that ends at the snapshot that is the latest when it starts."""
        end = self._options.end
        if end is None or not end.latest or state.end_id is not None:
            return state
        latest = self._snapshots.latest_id() if state.hinted is None else state.hinted.id
        if latest is None and self._chains is not None:
            # The other branch may hold a first plan all the same.
            latest = 0
        position = None if state.start is None else state.start.position
        if latest is None and position is not None:
            self.position_resolver.check_table(position)
            self.checks.check_missing(position.snapshot)
        return replace(state, end_id=latest, ended=latest is None)

    def _begin(self, state: PlannerState) -> Step:
        start = state.start
        assert start is not None
        if self._range is not None:
            return self._begin_range(state, start, self._range)
        if start.position is not None:
            resumed = self.position_resolver.resumed(state, start.position)
            self.log.resumed(start.position)
            return Step(resumed)
        ends = self._bounds.ends_when_caught_up()
        if self._chains is not None and start.mode is StartMode.LATEST_FULL:
            found: ResolvedStart | None = self._chains.find()
        else:
            scanner = StartingScanner(self._directory, self.traits, start, self._must_stand)
            if state.hinted is None:
                found = scanner.find(state.was_empty, state.misses)
            else:
                # The lag is measured by the snapshots that are known.
                self._snapshots.know(state.hinted)
                found = scanner.find_at(state.hinted)
        if found is None:
            self.log.waiting()
            return Step(self._missed(replace(state, was_empty=True, ended=ends)), idle=True)
        self.log.begun(start, found)
        return Step(self._begun(state, found))

    def _begun(self, state: PlannerState, found: ResolvedStart) -> PlannerState:
        state = replace(state, start=None, next_id=found.next_id, created_after=found.created_after, misses=0)
        if (full := found.full) is not None:
            self._bounds.check_first_plan(full)
            # The latest may have become another one since the end was found.
            end_id = None if state.end_id is None else max(state.end_id, full.id)
            start = self._options.start
            at_latest = start.mode is StartMode.LATEST_FULL and found.chain is None
            verified = start.tag is None
            return replace(state, full=full, chain=found.chain, end_id=end_id, verified=verified, at_latest=at_latest)
        # The first snapshots of a table that was waited for may have expired by now.
        state = replace(state, verified=self._options.start.mode is StartMode.LATEST and not state.was_empty)
        before = self.checks.check_before(found.next_id - 1, None)
        if found.first is not None:
            if before is None:
                self.checks.check_identity()
            state = replace(state, ahead=(found.first,))
        if before is None:
            return state
        # A stream does not begin behind its own end.
        return replace(state, before=SnapshotMark.of(before), ended=self._bounds.is_beyond(before))

    def _begin_range(self, state: PlannerState, start: Start, scanner: RangeScanner) -> Step:
        position = start.position
        found = scanner.find(goes_on=position is not None)
        if found is None:
            if position is not None:
                scanner.check_read(position, self.position_resolver)
            return Step(replace(state, ended=True))
        if position is not None:
            resumed = scanner.resumed(state, found, position, self.position_resolver)
            self.log.resumed(position)
            return Step(resumed)
        beginning = ResolvedStart(found.first)
        self.log.begun(start, beginning)
        if found.span is not None:
            return Step(scanner.begun(state, found))
        # All of them are there, so that they are looked for together.
        return Step(self._begun(replace(state, end_id=found.last, known_latest=found.last), beginning))

    def _span(self, state: PlannerState) -> Step:
        """The next part of a range that is one plan."""
        span, between = state.span, self._options.between
        assert span is not None and between is not None
        with self.checks.reading(span.last):
            plans, state = self._plans.reading(state, span.last)
        is_read = self._follow_up.must_read
        kind, planned = planned_span(plans, self.checks, span, state.unit, kinds=between.kinds, is_read=is_read)
        after = replace(state, unit=planned.last, watermark=span.last.watermark)
        if planned.last is None:
            after = replace(after, span=None, next_id=span.last.id + 1, before=SnapshotMark.of(span.last), ended=True)
        return self._handed_out(state, after, span.last, kind, planned)

    def _full_of_hinted(self, state: PlannerState) -> Step:
        """The next part of a first full plan of a snapshot that was read before the table's schema.

        The schema tells the identity. Because it was read later, the snapshot is of this table, or of one that was
        here before; the manifests of that one are gone, since a manifest's name is never given twice. So the identity
        need not be asked for again, and a failure only says that the start must be found in the usual way.
        """
        try:
            return self._full(state)
        except (PaimonStreamError, FileNotFoundError) as error:
            if isinstance(error, PaimonStreamError) and error.retriable:
                raise
            return Step(PlannerState(start=self._options.start, end_id=state.end_id))

    def _full(self, state: PlannerState) -> Step:
        """The next part of a first full plan."""
        snapshot = state.full
        assert snapshot is not None
        with self.checks.reading(snapshot):
            plans, state = self._plans.reading(state, snapshot)
            if state.chain is not None and self._chains is not None:
                # Only here, for it compares keys, with all that merges rows.
                from pypaimon.streaming.planning.chain_plans import first_plan

                planned = first_plan(self._chains, plans, snapshot, state.chain, state.unit)
            else:
                planned = plans.full(snapshot, state.unit)
        if planned.last is not None:
            after = replace(state, unit=planned.last, hinted=None)
        else:
            after = replace(
                state,
                full=None,
                hinted=None,
                chain=None,
                unit=None,
                next_id=snapshot.id + 1,
                before=SnapshotMark.of(snapshot) if snapshot.id else None,
                ended=self._bounds.is_beyond(snapshot),
            )
        after = replace(after, watermark=snapshot.watermark, anew=False)
        if state.anew and not planned.splits:
            # That there is nothing left is news to whoever holds what came before.
            return self._planned(state, after, snapshot, PlanKind.FULL, planned)
        return self._handed_out(state, after, snapshot, PlanKind.FULL, planned)

    def _follow(self, state: PlannerState) -> Step:
        for _ in range(_MAX_PASSED_OVER):
            assert state.next_id is not None
            last = self._bounds.last_id(state.end_id)
            if last is not None and state.next_id > last:
                self._continuity.check_end(state, last)
                return Step(replace(state, ended=True))
            # Asked before the store is: what is committed in between is found by another poll.
            ends = self._bounds.ends_when_caught_up()
            found = FoundAhead(state, None) if state.ahead else None
            is_checked = found is not None
            found = found or self._look_ahead.fetch(state, last)
            state = found.state
            if not state.ahead:
                return Step(replace(self._missed(state), ended=ends), idle=True)
            if self._bounds.is_held_back(state.ahead[0]) and not self._bounds.is_beyond(state.ahead[0]):
                # It may be rolled back while it waits.
                return Step(replace(state, ahead=()), idle=True)
            if self._waits_for_others(state.ahead[0]):
                return Step(replace(state, ahead=()), idle=True)
            self._look_ahead.begin_behind(found, last)
            found = replace(found, state=self._look_ahead.grown(state))
            state = found.state
            try:
                # What was found before it was asked for has its manifests at hand.
                take = self._next if found.is_older else self._found
                step = self._next(state) if is_checked else self._continuity.checked(found, take)
            except TableChangedError:
                if not is_checked:
                    raise
                # It was found before a rollback: what is there now may still follow what was read.
                state = replace(state, ahead=())
                continue
            if step.plan is not None or step.state.ended:
                return step
            state = step.state
        return Step(state)

    def _waits_for_others(self, snapshot: Snapshot) -> bool:
        """Whether a reader of slots waits before a snapshot that may have brought their rows to other slots."""
        slots = self._options.slots
        if slots is None or not slots.rule.follows_buckets or snapshot.commit_kind != CommitKind.OVERWRITE:
            return False
        return not slots.may_pass(snapshot.id)

    def _found(self, state: PlannerState) -> Step:
        """A step to the first of several snapshots that were just found."""
        self._warm(state.ahead)
        return self._next(state)

    def _next(self, state: PlannerState) -> Step:
        """A step to the next snapshot, or over several at once."""
        snapshot = state.ahead[0]
        if self._bounds.is_beyond(snapshot):
            return Step(replace(state, ended=True))
        found = self._catch_up.find(state)
        if found is not None and found.planned is not None:
            return self._caught_up(state, found, found.planned)
        if found is not None:
            state = replace(state, replay_until=found.snapshots[-1].id + 1)
        return self._followed(state, snapshot)

    def _caught_up(self, state: PlannerState, found: CaughtUp, planned: PlannedSplits) -> Step:
        """Hand out several snapshots as one plan."""
        last = found.snapshots[-1]
        read = [snapshot for snapshot in found.snapshots if self._follow_up.is_read(snapshot)]
        watermark = read[-1].watermark if read else state.watermark
        after = replace(self._after(state, last), watermark=watermark)
        return self._handed_out(state, after, last, found.kind, planned)

    def _missed(self, state: PlannerState) -> PlannerState:
        """Count a poll that found nothing."""
        self._continuity.check_missed(state)
        return replace(state, misses=state.misses + 1, verified=True, window=1, at_latest=False)

    def _warm(self, snapshots: Sequence[Snapshot]) -> None:
        """Read the manifests of several snapshots ahead of time; what is wrong with them is told in their turn."""
        if len(snapshots) < 2:
            return
        # A scanner of the user's own may raise anything.
        with suppress(Exception), asked_ahead():
            read = [snapshot for snapshot in snapshots if self._follow_up.is_read(snapshot)]
            files = [self._follow_up.files(snapshot) for snapshot in read]
            for kind, scan in _SCANS.items():
                lists = [each.manifest_list for each in files if each.kind is kind]
                self._plans.of().prefetch([each for each in lists if each], scan)

    def _followed(self, state: PlannerState, snapshot: Snapshot) -> Step:
        """Read a snapshot, or pass over it."""
        overwrite = snapshot.commit_kind == CommitKind.OVERWRITE
        is_read = self._follow_up.must_read(snapshot)
        if self._restarts is not None and state.unit is None and self._restarts.may_be_due(snapshot):
            with self.checks.reading(snapshot):
                plans, state = self._plans.reading(state, snapshot)
                is_due = self._restarts.is_due(plans, snapshot)
            if is_due:
                return self._restarted(state, self._restarts.begins_at(snapshot, state.end_id))
        if not is_read:
            self.log.passed_over(snapshot, self._options.on_overwrite)
            return Step(self._after(state, snapshot))
        with self.checks.reading(snapshot):
            plans, state = self._plans.reading(state, snapshot)
            if overwrite and self._options.read_overwrite:
                kind = PlanKind.OVERWRITE
                planned = overwritten(plans, self.checks, state, snapshot)
            else:
                files = self._follow_up.files(snapshot)
                kind = files.kind
                planned = PlannedSplits([])
                if files.manifest_list is not None and kind is PlanKind.CHANGELOG:
                    with self.checks.reading(snapshot, changelog=True):
                        planned = plans.changelog(snapshot, state.unit)
                elif files.manifest_list is not None:
                    planned = plans.delta(snapshot, state.unit)
        watermark = state.watermark if kind is PlanKind.OVERWRITE else snapshot.watermark
        if planned.last is not None:
            after = replace(state, unit=planned.last, before=SnapshotMark.of(snapshot), watermark=watermark)
        else:
            after = replace(self._after(state, snapshot), watermark=watermark)
        return self._handed_out(state, after, snapshot, kind, planned)

    def _restarted(self, state: PlannerState, snapshot: Snapshot) -> Step:
        """The first part of the full state of a snapshot, in the middle of the stream."""
        self.log.restarted(snapshot)
        mark = SnapshotMark.of(snapshot)
        # In the same step: a position in between would not say that rows which are held are void.
        return self._full(
            replace(state, full=snapshot, next_id=snapshot.id + 1, unit=None, before=mark, ahead=(), anew=True)
        )

    def _handed_out(
        self, begin: PlannerState, after: PlannerState, snapshot: Snapshot, kind: PlanKind, planned: PlannedSplits
    ) -> Step:
        return self._planned(begin, after, snapshot, kind, planned) if planned.splits else Step(after)

    def _planned(
        self, begin: PlannerState, after: PlannerState, snapshot: Snapshot, kind: PlanKind, planned: PlannedSplits
    ) -> Step:
        position = self.position(after)
        assert position is not None
        plan = self._plans.plan(planned.splits, kind, snapshot, position, after.schema_id)
        return Step(after, plan, self.position(begin))

    @staticmethod
    def _after(state: PlannerState, snapshot: Snapshot) -> PlannerState:
        ahead = tuple(each for each in state.ahead if each.id > snapshot.id)
        mark = SnapshotMark.of(snapshot)
        return replace(state, next_id=snapshot.id + 1, unit=None, before=mark, ahead=ahead, at_latest=False)

    # ---- what may be wrong ----

    def _on_expired(self, state: PlannerState, expired: PositionExpiredError) -> Step:
        start = start_instead(self._options.on_expired, state, expired, of_chain=self._chains is not None)
        self.log.expired(expired.wanted, start)
        return Step(PlannerState(start=start, end_id=state.end_id, schema_id=state.schema_id, anew=True))

    def expired_while_read(self, state: PlannerState, plan: Plan, expired: PositionExpiredError) -> PlannerState:
        """Where the stream goes on after a plan whose files expired before they were read.

        Args:
            state: After the plan.
            plan: It.
            expired: What its reader found.

        Raises:
            PositionExpiredError: That one, if the policy is to fail.
        """
        start = self._options.start if plan.kind is PlanKind.FULL else None
        # Begun at its snapshot, a stream comes to the same retractions only where they are those of an overwrite.
        next_id = plan.snapshot_id if plan.kind is PlanKind.OVERWRITE else None
        return self._on_expired(replace(state, start=start, next_id=next_id), expired).state
