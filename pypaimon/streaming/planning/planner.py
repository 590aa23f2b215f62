"""`Planner`: decides what a stream does next.

From a snapshot to its rows, in the order of the calls:

1. `Planner.step` (here) takes a `PlannerState` and returns a `Step`: the next state, and a plan if there is one. It
   finds the start (`start.py`, or `resume.py` at a saved position), then asks `SnapshotPrefetcher` for the next
   snapshots and has `HistoryCheck` prove that they follow what the stream has read.
2. `CatchUpScanner` decides whether several of them may be one plan. Otherwise `PlanBuilder` reads one snapshot. It
   picks the schema to read with, and the manifest list that counts.
3. `SnapshotPlans` reads that list and its manifests. `EntrySelection` prunes entries by filter and shard, `Units` puts
   them in canonical order, `PlannedUnits` cuts them where limits say so, and `SplitFactory` makes splits of them.
4. `StreamTableRead` (`spec/table_read.py`, over `reading/`) turns the splits of a plan into Arrow rows.

States are immutable values. A step that failed, or whose caller was cancelled, has changed nothing. It is taken again
from the same state, with the same result. The planner knows no threads and no clock but the one it is given. Follows
Java's `DataTableStreamScan` (docs/java-semantics.md#the-scan).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pypaimon.streaming.errors import PaimonStreamError, PositionExpiredError, TableChangedError
from pypaimon.streaming.filtering.filters import columns_of
from pypaimon.streaming.io.conditional_writes import is_local
from pypaimon.streaming.metadata.history import ReaderKind, SnapshotRangeValidator
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import Plan, PlanKind
from pypaimon.streaming.model.position import Position, of_table
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.stream_options import StreamOptions, needs_fixed_start
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.paimon.internals import TableSchema
from pypaimon.streaming.planning.between import RangeScanner
from pypaimon.streaming.planning.catch_up import CatchUpScanner, CaughtUp
from pypaimon.streaming.planning.follow_up import Bounds, CommitKind, FollowUp, follow_up_scanner
from pypaimon.streaming.planning.next_snapshots import HistoryCheck, SnapshotPrefetcher, Window
from pypaimon.streaming.planning.plan_builder import PlanBuilder
from pypaimon.streaming.planning.planned_units import KeptUnits
from pypaimon.streaming.planning.planner_log import PlannerLog
from pypaimon.streaming.planning.planner_state import (
    Following,
    PlannerState,
    ReadingFull,
    ReadingRange,
    SnapshotMark,
    Starting,
    Step,
)
from pypaimon.streaming.planning.schema_change import SchemaPolicy, read_field_ids
from pypaimon.streaming.planning.start import PositionResolver, StartingScanner, start_instead

_MAX_PASSED_OVER = 256
LATEST_COUNTS_SECONDS = 5.0
"""A latest snapshot that was read longer ago is read again before a stream begins with it."""


class Planner:
    """Plans of one stream.

    Args:
        schema: The schema to read with: the table's latest when the stream was built.
        read_columns: Names of the columns that are read (projection and filter), or None for all.
        now_millis: The wall clock, epoch milliseconds.
        kept_units: Shared with planners of the stream that have other limits.
        latest: The latest snapshot, if it was just read, before the table's schema. The first start uses it, unless it
            is the start of other snapshots.
        latest_age: Seconds since it was requested.
    """

    def __init__(
        self,
        directory: TableDirectory,
        schema: TableSchema,
        options: StreamOptions,
        read_columns: frozenset[str] | None,
        now_millis: Callable[[], int],
        kept_units: KeptUnits | None = None,
        latest: Snapshot | None = None,
        latest_age: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._directory = directory
        self._latest = latest
        self._latest_age = latest_age
        self._snapshots = directory.snapshots
        self._options = options
        self.traits = TableTraits.of(schema)
        names = read_columns
        if names is not None and options.predicate is not None:
            names = names | columns_of(options.predicate)
        schemas = SchemaPolicy(
            directory.reading_schema,
            schema,
            options.on_schema_change,
            read_field_ids(schema, names),
            options.keeps_state,
        )
        self._range: RangeScanner | None = None
        if options.between is not None:
            self._range = RangeScanner(directory, self.traits, schema.options, options.between)
        given = options.follow_up_scanner if self._range is None else self._range.follow_up
        self._follow_up = FollowUp(follow_up_scanner(self.traits, given), options)
        self._bounds = Bounds(options, now_millis)
        self._reader = ReaderKind.STREAM if options.slots is None else ReaderKind.GROUP
        if self._range is not None:
            self._reader = ReaderKind.BATCH
        self.checks = SnapshotRangeValidator(directory, self.traits.decoupled_changelog, self._range is not None)
        self.log = PlannerLog(directory.table)
        self._builder = PlanBuilder(
            directory, schemas, self._follow_up, self._bounds, self.checks, self.log, kept_units
        )
        self._chains = self._builder.chains
        self._catch_up = CatchUpScanner(directory, self._builder.plans(), schemas, options, self._bounds)
        # A local disk answers fast enough when a snapshot is asked for.
        remote = not is_local(str(directory.table.table_path))
        self._prefetcher = SnapshotPrefetcher(
            self._snapshots,
            self.checks,
            self._catch_up.widest,
            self._catch_up.eager,
            self._builder.prefetch if options.prefetch and remote else None,
        )
        self._history = HistoryCheck(self.checks, options.end)
        self.position_resolver = PositionResolver(directory, self.checks, self._bounds, options.start, self._chains)

    def forget(self) -> None:
        """Drop everything that a rollback may have changed. A seek begins with this."""
        self._directory.forget()
        self._builder.forget()
        self._prefetcher.forget()

    # ---- states ----

    def initial(self, saved: Position | None = None) -> Starting:
        """The state before the start.

        Args:
            saved: What a consumer has saved. It takes precedence over every start but a position.
        """
        if saved is not None and self._options.start.position is None:
            # Java's rule: a consumer at snapshot 0 has read nothing, so the stream begins at the earliest snapshot.
            return self.at(saved) if saved.snapshot else Starting(Start(StartMode.EARLIEST))
        start = self._options.start
        latest, self._latest = self._latest, None
        begins_near_latest = start.is_latest_state or start.position is not None
        is_used = begins_near_latest and self._range is None and self._chains is None
        return Starting(start, latest if is_used else None)

    def at(self, position: Position) -> Starting:
        """The state at a saved position. The first step checks it against the table."""
        return Starting.at(of_table(position, self._directory.identity))

    def position(self, state: PlannerState) -> Position | None:
        """The position of a state; None before the start is found."""
        return state.position(lambda: self._directory.identity)

    # ---- steps ----

    def step(self, state: PlannerState) -> Step:
        """The next outcome: a plan, nothing new, or the end (`state.ended`).

        Raises:
            PaimonStreamError: See the class of the error. The state that was given stays valid.
        """
        if state.ended:
            return Step(state)
        if isinstance(state, Starting) and state.latest is not None and self._latest_age() > LATEST_COUNTS_SECONDS:
            # The stream may have waited for its turn, and the snapshot may have expired.
            state = replace(state, latest=None)
        state = self._bounded(state)
        step = Step(state) if state.ended else self._next_step(state)
        self.log.stepped(step)
        return step

    def _next_step(self, state: PlannerState) -> Step:
        try:
            match state:
                case Starting():
                    return self._begin(state)
                case ReadingFull():
                    if state.is_unproven:
                        return self._full_of_unproven(state)
                    return self._history.checked_first(state, self._builder.full)
                case ReadingRange():
                    return self._history.checked_first(state, self._builder.span)
                case Following():
                    return self._follow(state)
        except PositionExpiredError as expired:
            # A stream that has not begun, or reads a full state, is at no snapshot from which it could follow.
            next_id = state.next_id if isinstance(state, (ReadingRange, Following)) else None
            return Step(self._start_after_expiry(state, expired, next_id, in_full=next_id is None))

    def known_idle(self, state: PlannerState) -> Step | None:
        """The poll after a full plan of the latest snapshot, which the request that found the start has answered.

        None: the store must be asked. The caller has to know when the start was found.
        """
        if not isinstance(state, Following) or not state.at_latest or state.ended or self._options.end is not None:
            return None
        return Step(self._missed(replace(state, at_latest=False)), idle=True)

    def begun(self, state: PlannerState) -> PlannerState:
        """The state after the start, if it can be found now. Hands out nothing. Sends requests."""
        return self.step(state).state if isinstance(state, Starting) and not state.ended else state

    def records_of(self, snapshot: Snapshot) -> int | None:
        """Records that a stream gets for a snapshot, before filter and shard; None if that is not recorded."""
        return self._follow_up.record_count(snapshot)

    def _bounded(self, state: PlannerState) -> PlannerState:
        """Find the end of a stream that ends at the snapshot that is the latest when it starts."""
        end = self._options.end
        if end is None or not end.latest or state.end_id is not None:
            return state
        start = state if isinstance(state, Starting) else None
        latest = self._snapshots.latest_id() if start is None or start.latest is None else start.latest.id
        if latest is None and self._chains is not None:
            # The other branch may hold a first plan.
            latest = 0
        position = None if start is None else start.start.position
        if latest is None and position is not None:
            # A saved position in an empty table: the stream must not end cleanly if the table was re-created.
            self.position_resolver.check_table(position)
            self.checks.check_missing(position)
        return replace(state, end_id=latest, ended=latest is None)

    def _begin(self, state: Starting) -> Step:
        start = state.start
        if self._range is not None:
            return self._begin_range(state, self._range)
        if start.position is not None:
            resumed = state.then(self.position_resolver.resumed(start.position, state.latest))
            self.log.resumed(start.position)
            return Step(resumed)
        ends = self._bounds.ends_when_caught_up()
        if self._chains is not None and start.of_chain:
            found: ReadingFull | Following | None = self._chains.find()
        else:
            must_stand = needs_fixed_start(self.traits, self._options)
            scanner = StartingScanner(self._directory, self.traits, start, must_stand)
            if state.latest is None:
                found = scanner.find(state.was_empty, state.misses)
            else:
                # The lag is measured by the snapshots that are known.
                self._snapshots.know(state.latest)
                found = scanner.find_at(state.latest)
        if found is None:
            self.log.waiting()
            self._history.check_still_empty(state.misses + 1)
            return Step(replace(state, was_empty=True, misses=state.misses + 1, ended=ends), idle=True)
        self.log.begun(start, found)
        return Step(self._after_start(state, found))

    def _after_start(self, state: Starting, found: ReadingFull | Following) -> ReadingFull | Following:
        if isinstance(found, ReadingFull):
            self._bounds.check_first_plan(found.snapshot)
            return replace(
                found,
                # A tag keeps a snapshot readable that is no longer in the range of the table's snapshots.
                verified=self._options.start.tag is None,
                restarted=state.restarted,
                is_unproven=state.latest is not None,
                # Not the configured start: after an expired one the first plan may be of the earliest snapshot.
                at_latest=state.start.is_latest_state and found.chain is None,
                # Another snapshot may have become the latest since the end was found.
                end_id=None if state.end_id is None else max(state.end_id, found.snapshot.id),
                schema_id=state.schema_id,
            )
        before = self.checks.check_before(found.next_id - 1, None)
        if found.ahead and before is None:
            # Before the first snapshot nothing was asked, and what is in `ahead` is read without another look.
            self.checks.check_identity()
        begun = replace(
            found,
            before=None if before is None else SnapshotMark.of(before),
            # The stream may have waited for a first snapshot that has expired by now.
            verified=self._options.start.after_latest and not state.was_empty,
            # A stream does not begin after its own end.
            ended=before is not None and self._bounds.is_beyond(before),
        )
        return state.then(begun)

    def _begin_range(self, state: Starting, scanner: RangeScanner) -> Step:
        position = state.start.position
        found = scanner.find(resumes=position is not None)
        if found is None:
            self.checks.check_identity()
            if position is not None:
                scanner.check_read(position, self.position_resolver)
            return Step(replace(state, ended=True))
        state = replace(state, end_id=found.last)
        if position is not None:
            resumed = state.then(scanner.resumed(found, position, self.position_resolver))
            self.log.resumed(position)
            return Step(resumed)
        # All snapshots of the range exist, so they are fetched together.
        first = Following(found.first, known_latest=found.last)
        self.log.begun(state.start, first)
        return Step(state.then(ReadingRange(found.span)) if found.span is not None else self._after_start(state, first))

    def _full_of_unproven(self, state: ReadingFull) -> Step:
        """The next part of a full plan of a snapshot that was read before the table's schema."""
        try:
            # The schema gives the identity, and the snapshot was read before it: it is of this table or of
            # one that was here before, whose manifests are gone. No two manifests have the same name, so no
            # second request is needed.
            return self._builder.full(state)
        except (PaimonStreamError, FileNotFoundError) as error:
            # Any other failure only means that the start has to be found in the usual way.
            if isinstance(error, PaimonStreamError) and error.retriable:
                raise
            # The end is dropped too, because it was that snapshot.
            return Step(Starting(self._options.start))

    def _follow(self, state: Following) -> Step:
        if state.at_latest:
            state = replace(state, at_latest=False)
        for _ in range(_MAX_PASSED_OVER):
            last = self._bounds.last_id(state.end_id)
            if last is not None and state.next_id > last:
                self._history.check_end(state, last)
                return Step(replace(state, ended=True))
            # Read the clock before the store: a snapshot that is committed in between is found by another poll.
            ends = self._bounds.ends_when_caught_up()
            # What an earlier step left in `ahead` was checked when its window was read.
            is_checked = bool(state.ahead)
            window = Window(state, None) if is_checked else self._prefetcher.fetch(state, last)
            state = window.state
            if not state.ahead:
                return Step(replace(self._missed(state), ended=ends), idle=True)
            if self._is_held_back(state.ahead[0]):
                # Drop what was found, because it may be rolled back before it is read.
                return Step(replace(state, ahead=()), idle=True)
            self._prefetcher.begin_next(window, last)
            state = self._prefetcher.grown(state)
            try:
                # The manifests of a prefetched window were prefetched with it.
                take = self._step_over_next if window.is_prefetched else self._prefetch_and_step
                if is_checked:
                    step = self._step_over_next(state)
                else:
                    step = self._history.checked(replace(window, state=state), take)
            except TableChangedError:
                if not is_checked:
                    raise
                # The window was found before a rollback. The snapshots that exist now may still follow what was read.
                state = replace(state, ahead=())
                continue
            if step.plan is not None or step.state.ended or not isinstance(step.state, Following):
                return step
            state = step.state
        return Step(state)

    def _is_held_back(self, snapshot: Snapshot) -> bool:
        """Whether the next snapshot is not read yet: by the delay, or because other readers of its slots come first."""
        if self._bounds.is_held_back(snapshot) and not self._bounds.is_beyond(snapshot):
            return True
        slots = self._options.slots
        if slots is None or not slots.rule.follows_buckets or snapshot.commit_kind != CommitKind.OVERWRITE:
            return False
        # An overwrite may have moved rows to other slots.
        return not slots.may_pass(snapshot.id)

    def _prefetch_and_step(self, state: Following) -> Step:
        self._builder.prefetch(state.ahead)
        return self._step_over_next(state)

    def _step_over_next(self, state: Following) -> Step:
        """A step to the next snapshot, or over several at once."""
        snapshot = state.ahead[0]
        if self._bounds.is_beyond(snapshot):
            return Step(replace(state, ended=True))
        found = self._catch_up.find(state)
        if isinstance(found, CaughtUp):
            return self._builder.caught_up(state, found)
        if found is not None:
            state = replace(state, replay_until=found.until)
        return self._builder.follow(state, snapshot)

    def _missed(self, state: Following) -> Following:
        self._history.check_missed(state)
        return replace(state, misses=state.misses + 1, verified=True, window=1, at_latest=False)

    # ---- expired positions ----

    def _start_after_expiry(
        self, state: PlannerState, expired: PositionExpiredError, next_id: int | None, in_full: bool
    ) -> Starting:
        policy, of_chain = self._options.on_expired, self._chains is not None
        with self._reader.advising():
            start = start_instead(policy, expired, next_id, in_full=in_full, of_chain=of_chain)
        self.log.expired(expired.wanted, start)
        return Starting(start, restarted=True, end_id=state.end_id, schema_id=state.schema_id)

    def expired_while_read(self, state: PlannerState, plan: Plan, expired: PositionExpiredError) -> PlannerState:
        """The state after a plan whose files expired before they were read.

        Args:
            state: The state after the plan.
            expired: The error of its reader.

        Raises:
            PositionExpiredError: The policy is to fail.
        """
        # A stream that begins at the plan's snapshot makes the same retractions only if that is an overwrite.
        next_id = plan.snapshot_id if plan.kind is PlanKind.OVERWRITE else None
        return self._start_after_expiry(state, expired, next_id, in_full=plan.kind is PlanKind.FULL)
