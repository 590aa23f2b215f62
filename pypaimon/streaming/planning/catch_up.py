"""Several snapshots as one plan: which of the next ones a stream may hand out so, and the difference of any two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import (
    CorruptTableError,
    SchemaChangedError,
    StreamConfigError,
    TableChangedError,
    UnsupportedTableError,
)
from pypaimon.streaming.filtering.partition_spec import chosen_partitions
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.data_file_meta import manifest_entries
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.metadata.fingerprints import is_same_history
from pypaimon.streaming.metadata.manifest_tables import ENTRY_SCHEMA
from pypaimon.streaming.metadata.manifests import live, signs, without
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import Plan, PlanKind
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.stream_options import CatchUp, StreamOptions, options_of_table
from pypaimon.streaming.options.table_kinds import BetweenMode
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.paimon.internals import ManifestEntry
from pypaimon.streaming.planning.follow_up import Bounds, CommitKind, may_delete_rows
from pypaimon.streaming.planning.planner_state import Following
from pypaimon.streaming.planning.schema_change import SchemaPolicy
from pypaimon.streaming.planning.snapshot_plans import PlannedSplits, SnapshotPlans

_FAR_BEHIND, _FEWEST = 8, 2
_WIDEST, _WIDEST_OF_REPLAY = 256, 64
_WINDOW_TO_TRY = 8


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Several snapshots as one plan.

    Attributes:
        kind: COLLAPSED or NET.
        snapshots: All of them, passed-over ones included, in order.
    """

    kind: PlanKind
    snapshots: tuple[Snapshot, ...]
    planned: PlannedSplits


@dataclass(frozen=True, slots=True)
class Replay:
    """Equal rows are not proven: the snapshots before `until` are read one by one."""

    until: int


class CatchUpScanner:
    """Tries to hand out several snapshots as one plan. If the rows are not proven equal, the stream replays them.

    A stream with limits always replays, because a plan may end anywhere. So does a stream with a follow-up scanner of
    the user, because the proof is about the table's own rule.

    Args:
        plans: Plans of single snapshots under the stream's first schema.

    Attributes:
        widest: Snapshots to prefetch at most.
        eager: Whether to look for a second snapshot at once.
    """

    def __init__(
        self,
        directory: TableDirectory,
        plans: SnapshotPlans,
        schemas: SchemaPolicy,
        options: StreamOptions,
        bounds: Bounds,
    ) -> None:
        self._directory = directory
        self._plans = plans
        self._schemas = schemas
        self._options = options
        self._bounds = bounds
        self._diff = IncrementalDiffScanner(directory.table, plans)
        traits = plans.traits
        # Records in the postponed bucket come unmerged, so there is no net change of a key.
        self._net = options.catch_up is CatchUp.NET and traits.primary_key and not traits.postpone
        collapses = options.catch_up is not CatchUp.REPLAY and not traits.primary_key and not traits.data_evolution
        if options.between is not None:
            # A collapsed plan holds the added files of an append table, not its changelog.
            collapses &= options.between.mode is not BetweenMode.CHANGELOG
        replays = bool(options.limits) or options.follow_up_scanner is not None
        self._enabled = not replays and (self._net or collapses)
        self._log = StreamLog.of(__name__, directory.table)
        self._after = max(options.catch_up_after or (0 if self._net else _FAR_BEHIND), _FEWEST)
        self.eager = self._enabled and (self._net or self._after < _WINDOW_TO_TRY)
        self.widest = _WIDEST if self._enabled else _WIDEST_OF_REPLAY
        self._far_behind = 0
        self._replay_logged = False

    def find(self, state: Following) -> CaughtUp | Replay | None:
        """One plan for the snapshots from `state.next_id` on, or None: replay the next one.

        Takes as many of `state.ahead` as need no other decision in between.

        A stream that reads only files created since a certain time replays, because the proof is about all files. A
        missing file is not an error here: a replay raises it when it reaches the file, after the rows before it.
        """
        if state.next_id < state.replay_until:
            return None
        # The window doubles as long as snapshots exist, so its width shows how far the stream is behind.
        self._far_behind = self._far_behind + 1 if state.window >= _WINDOW_TO_TRY else 0
        if not self._enabled and self._far_behind == _FAR_BEHIND:
            self._log_replay(state.next_id)
        if not self._enabled or state.unit is not None or state.created_after is not None:
            return None
        if not self.eager and state.window < _WINDOW_TO_TRY:
            return None
        before = None
        if state.next_id > 1:
            before = self._directory.snapshots.try_get(state.next_id - 1)
            known = None if state.before is None else state.before.fingerprint
            if before is None or not is_same_history(known, before.fingerprint):
                return None
            if self._net and self._options.keeps_state and self._may_begin_again(before):
                return None
        ahead = tuple(takewhile(partial(self._fits, state), state.ahead))
        try:
            return self._net_changes(before, ahead) if self._net else self._collapsed(before, ahead)
        except (FileNotFoundError, CorruptTableError, UnsupportedTableError) as error:
            return self._replayed(ahead, str(error))

    def _fits(self, state: Following, snapshot: Snapshot) -> bool:
        last = self._bounds.last_id(state.end_id)
        if last is not None and snapshot.id > last:
            return False
        if self._bounds.is_beyond(snapshot) or self._bounds.is_held_back(snapshot):
            return False
        if snapshot.commit_kind == CommitKind.OVERWRITE or (
            self._options.keeps_state and self._may_begin_again(snapshot)
        ):
            return False
        try:
            return self._schemas.for_snapshot(state.schema_id, snapshot.schema_id) is None
        except (SchemaChangedError, TableChangedError, FileNotFoundError):
            return False

    def _may_begin_again(self, snapshot: Snapshot) -> bool:
        """Whether a copy may have to read the state again, by `StateRestarts`, which looks at single snapshots."""
        # Under another schema the table may have had another producer.
        is_former = self._net and snapshot.schema_id != self._schemas.first.id
        return is_former or may_delete_rows(self._plans.traits, snapshot)

    def _net_changes(self, before: Snapshot | None, ahead: tuple[Snapshot, ...]) -> CaughtUp | None:
        if len(ahead) < self._after:
            return None
        planned = self._plans.net(before, ahead[-1])
        self._log_choice("net", ahead, "are handed out as one plan with one change per key", "catch_up='net'")
        return CaughtUp(PlanKind.NET, ahead, planned)

    def _collapsed(self, before: Snapshot | None, ahead: tuple[Snapshot, ...]) -> CaughtUp | Replay | None:
        appends = [snapshot for snapshot in ahead if snapshot.commit_kind == CommitKind.APPEND]
        most = self._options.max_unconfirmed
        if most is not None and len(appends) > most:
            ahead = self._first_appends(ahead, most)
            appends = appends[:most]
        if len(appends) < self._after:
            return None
        reason = self._reason_not_collapsible(before, ahead[-1], appends)
        if reason is not None:
            return self._replayed(ahead, reason)
        self._plans.prefetch([snapshot.delta_manifest_list for snapshot in appends], "delta")
        splits = [split for snapshot in appends for split in self._plans.delta(snapshot).splits]
        self._log_choice("collapsed", ahead, "are handed out as one plan", "a replay would hand out the same files")
        return CaughtUp(PlanKind.COLLAPSED, ahead, PlannedSplits(self._plans.joined(splits, ahead[-1].id)))

    def _replayed(self, ahead: tuple[Snapshot, ...], reason: str) -> Replay:
        self._log_choice("replay", ahead, "are replayed", reason)
        return Replay(ahead[-1].id + 1)

    def _log_choice(self, choice: str, ahead: tuple[Snapshot, ...], what: str, reason: str) -> None:
        text = f"snapshots %(first)d to %(last)d {what}: %(reason)s"
        self._log.info("catch_up", text, choice=choice, first=ahead[0].id, last=ahead[-1].id, reason=reason)

    def _log_replay(self, next_id: int) -> None:
        if self._replay_logged:
            return
        self._replay_logged = True
        traits, options = self._plans.traits, self._options
        if options.limits:
            reason = "the stream has limits"
        elif options.follow_up_scanner is not None:
            reason = "it has a follow-up scanner of its own"
        elif options.catch_up is CatchUp.REPLAY:
            reason = "catch_up='replay'"
        elif traits.data_evolution:
            reason = "the table has data evolution"
        elif traits.postpone:
            reason = "the table has postponed buckets"
        else:
            reason = "the table has a primary key, and catch_up='net' was not chosen"
        text = "snapshots from %(first)d on are replayed: %(reason)s"
        self._log.info("catch_up", text, choice="replay", first=next_id, last=None, reason=reason)

    @staticmethod
    def _first_appends(ahead: tuple[Snapshot, ...], most: int) -> tuple[Snapshot, ...]:
        numbers = [index for index, snapshot in enumerate(ahead) if snapshot.commit_kind == CommitKind.APPEND]
        return ahead[: numbers[most - 1] + 1]

    def _reason_not_collapsible(self, before: Snapshot | None, last: Snapshot, appends: list[Snapshot]) -> str | None:
        """Why the files at the end may differ from those that a replay hands out; None if they are the same."""
        deltas = [snapshot.delta_record_count for snapshot in appends]
        wanted = sum(delta for delta in deltas if delta is not None)
        if None in deltas:
            return "a snapshot does not record how many records it added"
        lists = self._directory.manifests.manifest_lists([snapshot.delta_manifest_list for snapshot in appends])
        if pc.any(pc.greater(pa.concat_tables(lists)["num_deleted_files"].combine_chunks(), 0)).as_py():
            return "a commit removed files"
        appended = self._diff.rows_appended(before, last)
        if appended != wanted:
            return f"{wanted} rows were appended, but files with {appended} of them are left"
        return None


_FROM_APPEND = 0


class IncrementalDiffScanner:
    """Plans the difference of two snapshots. For append tables, manifests that both share are not read.

    Usable alone: `IncrementalDiffScanner(table).scan(5, 20)`. For a table without primary key the plan holds the data
    files that exist at the end and not at the start, also those that a compaction or an overwrite wrote (a stream
    collapses a range only if there are none). For a primary-key table it holds one change per key between the committed
    rows at both ends, also of those that no compaction has made changelog of yet. Snapshots are given as ids or as
    snapshot objects, ours or pypaimon's.

    Args:
        table: pypaimon's table.
    """

    def __init__(self, table: ReadableTable, plans: SnapshotPlans | None = None) -> None:
        if plans is None:
            directory = TableDirectory.of(table)
            schema = directory.reading_schema(directory.latest_schema().id)
            options = replace(options_of_table(schema), predicate=chosen_partitions(schema))
            plans = SnapshotPlans(directory, schema, options)
        self._plans, self._directory = plans, plans.directory

    def scan(self, start_snapshot: Snapshot | int, end_snapshot: Snapshot | int) -> Plan:
        """Plan the changes after `start_snapshot` up to and with `end_snapshot`.

        Raises:
            StreamConfigError: The start is not before the end.
            UnsupportedTableError: The table has data evolution, so files in between hold columns of earlier rows. Or
                buckets of a primary-key table were rescaled in between.
            CorruptTableError: A snapshot, or a file of it, is missing or damaged.
        """
        if self._plans.traits.data_evolution:
            raise UnsupportedTableError(
                "Two snapshots of a table with data evolution cannot be compared: files in between hold "
                "columns of earlier rows. Follow the table with a stream instead."
            )
        start, end = self._snapshot(start_snapshot), self._snapshot(end_snapshot)
        if start.id >= end.id:
            raise StreamConfigError(f"start snapshot {start.id} must be before end snapshot {end.id}")
        if self._plans.traits.primary_key:
            kind, planned = PlanKind.NET, self._plans.diff(start, end, kinds=True)
        else:
            kind, planned = PlanKind.COLLAPSED, self._plans.added_files(lambda: self.added(start, end), end)
        return Plan(
            planned.splits,
            kind=kind,
            snapshot_id=end.id,
            position=Position(self._directory.identity, end.id + 1, end.fingerprint),
            schema=self._plans.schema,
            watermark=end.watermark,
            commit_time_millis=end.time_millis,
        )

    def compute_diff(self, start_snapshot: Snapshot | int, end_snapshot: Snapshot | int) -> list[ManifestEntry]:
        """The data files that exist at the end and not at the start, as pypaimon's entries.

        Works for any table. The entries are in no order and without statistics.

        Raises:
            CorruptTableError: A snapshot, or a file of it, is missing or damaged.
        """
        entries = self.added(self._snapshot(start_snapshot), self._snapshot(end_snapshot))
        paths = FilePaths.of(self._directory.table.table_path, self._plans.schema)
        return manifest_entries(entries, paths, self._plans.schema)

    def added(self, start: Snapshot | None, end: Snapshot) -> pa.Table:
        """Entries of the data files that exist at the end and not at the start (None: an empty table). One that has got
        other indexes since exists at both.
        """
        return self._added(start, end, ENTRY_SCHEMA)

    def _added(self, start: Snapshot | None, end: Snapshot, schema: pa.Schema) -> pa.Table:
        reader = self._directory.manifests
        after = pa.concat_tables(reader.manifest_lists(end.state_lists))
        if start is None:
            return live(reader.entries(after, schema))
        before = pa.concat_tables(reader.manifest_lists(start.state_lists))
        # Each of a few hundred small manifests is a chunk, which makes every call on a column some milliseconds longer.
        entries_after = reader.entries(without(after, before), schema).combine_chunks()
        entries_before = reader.entries(without(before, after), schema).combine_chunks()
        sides = (entries_after, 1), (entries_before, -1)
        parts = [pa.table({"name": each["file_name"], "count": signs(each, factor)}) for each, factor in sides]
        counted = pa.concat_tables(parts).group_by("name", use_threads=False).aggregate([("count", "sum")])
        names = counted.filter(pc.greater(counted["count_sum"], 0))["name"].combine_chunks()
        found = live(entries_after)
        return found.filter(pc.is_in(found["file_name"], value_set=names))

    def rows_appended(self, start: Snapshot | None, end: Snapshot) -> int:
        """Rows of the files that `added` finds and an append wrote, not a compaction or an unknown source."""
        added = self._added(start, end, self._plans.entry_schema)
        appended = added.filter(pc.equal(added["file_source"], _FROM_APPEND))
        return int(pc.sum(appended["row_count"]).as_py() or 0)

    def _snapshot(self, snapshot: Any) -> Snapshot:
        """Our snapshot object for an id or a snapshot of pypaimon."""
        if isinstance(snapshot, Snapshot):
            return snapshot
        return self._directory.snapshots.get(snapshot if isinstance(snapshot, int) else snapshot.id)
