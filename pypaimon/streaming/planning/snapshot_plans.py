"""`SnapshotPlans`: the manifests of one snapshot, read, pruned, sharded, cut by limits and made into splits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.filtering.pruning import Scan
from pypaimon.streaming.metadata import index_manifests
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.metadata.manifest_tables import BOUNDED_SCHEMA, ENTRY_SCHEMA, FILE_SCHEMA, MANIFEST_SCHEMA
from pypaimon.streaming.metadata.manifests import live, without
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import SplitMode, StreamSplit
from pypaimon.streaming.model.position import ReadUnit
from pypaimon.streaming.options.stream_options import StreamOptions
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.paimon.internals import TableSchema
from pypaimon.streaming.planning.planned_units import KeptUnits, PlannedUnits, UnitPrefetcher, without_statistics
from pypaimon.streaming.planning.selection import AnyScan, EntrySelection, filtered, partition_texts
from pypaimon.streaming.planning.splits import SplitFactory
from pypaimon.streaming.planning.units import (
    DeletionFiles,
    Units,
    check_same_buckets,
    column,
    differing_units,
    differing_vectors,
    each_file,
    each_name,
    in_canonical_order,
    keys_move,
    lone_files,
    on_each_side,
    sides,
    whole_buckets,
    whole_row_id_groups,
    whole_snapshot,
)

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PlannedSplits:
    """The splits of a snapshot, or of the next part of it.

    Attributes:
        splits: In canonical order; empty if nothing is left after pruning.
        last: Last unit handed out if a limit cut the snapshot, else None.
    """

    splits: list[StreamSplit]
    last: ReadUnit | None = None


class SnapshotPlans:
    """Plans of single snapshots of one table, for one stream's filter, shard and limits.

    Args:
        created_after: Only files created at this time or later (`from-file-creation-time`), epoch milliseconds.
        kept_units: Shared with plans of the stream that have other limits.
    """

    def __init__(
        self,
        directory: TableDirectory,
        schema: TableSchema,
        options: StreamOptions,
        created_after: int | None = None,
        kept_units: KeptUnits | None = None,
    ) -> None:
        self.directory = directory
        self._options = options
        self.schema = schema
        self.traits = TableTraits.of(schema)
        self.selection = EntrySelection(directory, schema, self.traits, options, created_after)
        without_predicate = BOUNDED_SCHEMA if self.selection.needs_bounds else FILE_SCHEMA
        self.entry_schema = without_predicate if options.predicate is None else ENTRY_SCHEMA
        self._paths = FilePaths.of(directory.table.table_path, schema)
        self.factory = SplitFactory(
            schema, self.traits, self._paths, options.split_target_bytes, options.split_open_bytes
        )
        self._prefetcher = UnitPrefetcher(
            directory.manifests,
            self.selection,
            self.factory,
            lambda entries, group: self.ordered(entries, each_file, group=group),
        )
        self._kept_units = kept_units or KeptUnits()
        self._created_after = created_after
        fields = {field.name: field for field in schema.fields}
        self.partition_fields = [fields[name] for name in schema.partition_keys]

    def of_branch(self, directory: TableDirectory, options: Mapping[str, str]) -> SnapshotPlans:
        """Plans of another branch of the table, with its own options, under the same schema and settings."""
        return SnapshotPlans(directory, self.schema.copy(new_options=dict(options)), self._options)

    def full(self, snapshot: Snapshot, after: ReadUnit | None = None) -> PlannedSplits:
        """The state of the table at a snapshot, without the levels that come as changelog later.

        Which levels are left out: docs/java-semantics.md#first-plans.

        Args:
            after: Last unit of it that was handed out.

        Raises:
            FileNotFoundError: A manifest is gone.
        """
        mode = self._merge_mode()
        return self._next_splits_of(
            snapshot, "full", mode, after, lambda: self._state_of_places(snapshot), deletions_of=snapshot
        )

    def delta(self, snapshot: Snapshot, after: ReadUnit | None = None) -> PlannedSplits:
        """The files that a snapshot added. Raises FileNotFoundError if a manifest is gone."""
        # Follow-ups of a primary-key table are records as they were written: Java never merges them.
        mode = SplitMode.RECORDS if self.traits.primary_key else self._merge_mode()
        return self._added(snapshot, "delta", snapshot.delta_manifest_list, mode, after)

    def entries_added(self, snapshot: Snapshot) -> pa.Table:
        """Entries of the files that a snapshot added. Raises FileNotFoundError if a manifest is gone."""
        return self._entries_added(snapshot.delta_manifest_list)

    def removes_files(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot removed files of partitions that may be read. Raises FileNotFoundError."""
        (manifests,) = self.directory.manifests.manifest_lists([snapshot.delta_manifest_list])
        if not sum(manifests["num_deleted_files"].to_pylist()):
            return False
        removed = _of_kind(self._entries(snapshot.delta_manifest_list), EntryKind.DELETE)
        return bool(self.selection.of_partitions(removed, "delta").any())

    def changelog(self, snapshot: Snapshot, after: ReadUnit | None = None) -> PlannedSplits:
        """The changelog files of a snapshot. Raises FileNotFoundError if a manifest is gone."""
        return self._added(snapshot, "changelog", snapshot.changelog_manifest_list, SplitMode.CHANGELOG, after)

    def _added(
        self, snapshot: Snapshot, scan: Scan, manifest_list: str | None, mode: SplitMode, after: ReadUnit | None
    ) -> PlannedSplits:
        def plan() -> PlannedUnits:
            prefetched = self._prefetcher.take((manifest_list or "", scan))
            return prefetched or self._units_of_part(self._entries_added(manifest_list), scan, mode, None)

        return self._next_splits(snapshot, scan, mode, after, plan)

    def _entries_added(self, manifest_list: str | None) -> pa.Table:
        return _of_kind(self._entries(manifest_list), EntryKind.ADD)

    def overwrite(self, before: Snapshot | None, snapshot: Snapshot, after: ReadUnit | None = None) -> PlannedSplits:
        """What an OVERWRITE snapshot replaced: the rows of the files before are retracted, then the new ones come.

        In a bucket of which other files stay, such as after a rollback by a new snapshot, a removed file may have
        hidden rows of those that stay, and so may a deletion vector. So all rows of such a bucket are retracted, and
        those that it has now come.

        Deletion vectors count on both sides, so that rows that were deleted before are not retracted. If a key may be
        in another bucket afterwards, limits do not cut the snapshot, because a later plan would retract rows that an
        earlier one has brought. Java's rules: docs/java-semantics.md#overwrites.

        Args:
            after: Last bucket that was handed out.

        Raises:
            FileNotFoundError: A manifest is gone.
        """

        def plan() -> PlannedUnits:
            deletions, deletions_before = self.deletions(snapshot), self.deletions(before)
            entries = self._entries(snapshot.delta_manifest_list)
            old, new = _of_kind(entries, EntryKind.DELETE), _of_kind(entries, EntryKind.ADD)
            # A file on both sides was only moved to another level.
            old, new = without(old, new), without(new, old)
            vectors = differing_vectors(deletions_before, deletions)
            places = [{"partition": partition, "bucket": bucket} for partition, bucket, _ in vectors]
            changed = pa.concat_tables([old, new, pa.Table.from_pylist(places, self.entry_schema)])
            # If keys move, a bucket of this shard may stay as it is and have rows that another shard retracts.
            moves = keys_move(changed)
            is_read = (self.selection.of_partitions if moves else self.selection.of_places)(changed, "delta")
            changed = filtered(changed, is_read)
            same_buckets = _in_buckets_of(changed, whole_partitions=moves)
            base = self.directory.manifests.entries(
                self._manifests_left(snapshot, old, changed), self.entry_schema, same_buckets
            )
            staying = without(live(pa.concat_tables([base, same_buckets(entries)])), new)
            both = sides(pa.concat_tables([staying, old]), pa.concat_tables([staying, new]))
            units = self.ordered(both, whole_snapshot if keys_move(both) else whole_buckets)
            kept = self.selection.kept(units.entries, "delta")
            return PlannedUnits(self._lean(units), kept, deletions, deletions_before)

        planned, chosen, last = self.next_part(snapshot, "overwrite", after, plan)
        old, new = on_each_side(planned.units.chosen(chosen))
        splits = self.factory.replaced(
            SplitMode.OVERWRITE, old, new, snapshot.id, planned.deletions_before, planned.deletions
        )
        moves = keys_move(planned.units.entries)
        for split in splits:
            split.keys_move = moves
            # Also if that snapshot is gone, because a tag may keep its files.
            split.before_snapshot_id = snapshot.id - 1
        return PlannedSplits(self.sorted_by_partition(splits), last)

    def _manifests_left(self, snapshot: Snapshot, removed: pa.Table, changed: pa.Table) -> pa.Table:
        """Manifests that can name files that an OVERWRITE left in place in the partitions of changed files."""
        if not changed.num_rows:
            return MANIFEST_SCHEMA.empty_table()
        manifests = self._manifests(snapshot.base_manifest_list)
        # The files before. Records are not counted, because a repair may have changed the total of the snapshot.
        count = column(manifests, "num_added_files").sum() - column(manifests, "num_deleted_files").sum()
        if count == removed.num_rows:
            return manifests.slice(0, 0)
        manifests = manifests.filter(self.selection.manifests(manifests))
        return manifests.filter(self.selection.manifests_beside(manifests, changed))

    def net(self, before: Snapshot | None, snapshot: Snapshot) -> PlannedSplits:
        """One change per key between the first plans of two snapshots, for the buckets that differ.

        With a changelog producer the first plans hold only compacted rows: the rest is still to come as changelog.
        Raises FileNotFoundError if a manifest is gone.

        Args:
            before: The earlier snapshot; None: an empty table.
        """
        return self._compared(SplitMode.NET, self.state, before, snapshot)

    def diff(
        self, before: Snapshot | None, snapshot: Snapshot, after: ReadUnit | None = None, *, kinds: bool
    ) -> PlannedSplits:
        """The difference of two states, all levels included.

        Without kinds this is the mode `diff` of docs/java-semantics.md#batch-ranges, which reads the files that only
        one state has: with a primary key the files of both states are merged and compared, otherwise the rows of the
        later files come out. With kinds the plan holds the changes that turn the earlier state into the later one.

        Args:
            before: The earlier snapshot; None: an empty table.
            kinds: Whether rows come with kinds.

        Raises:
            FileNotFoundError: A manifest is gone.
            UnsupportedTableError: The number of buckets of a partition has changed, so that keys are in other buckets.
        """
        if self.traits.primary_key or (kinds and before is not None):
            mode = SplitMode.NET if kinds else SplitMode.DIFF
            return self._compared(mode, self._committed, before, snapshot, after)

        def added() -> pa.Table:
            new = self._committed(snapshot)
            return new if before is None else without(new, self._committed(before))

        return self._next_splits_of(snapshot, "added", self._merge_mode(), after, added, deletions_of=snapshot)

    def _compared(
        self,
        mode: SplitMode,
        state: Callable[[Snapshot], pa.Table],
        before: Snapshot | None,
        snapshot: Snapshot,
        after: ReadUnit | None = None,
    ) -> PlannedSplits:
        def plan() -> PlannedUnits:
            both = sides(None if before is None else state(before), state(snapshot))
            if before is not None and self.traits.primary_key:
                check_same_buckets(both, before, snapshot)
            units = self.ordered(both, whole_buckets if self.traits.primary_key else each_name)
            kept = self.selection.kept(units.entries, "compared")
            old, new = self.deletions(before), self.deletions(snapshot)
            if mode is SplitMode.DIFF:
                kept &= lone_files(units)
            else:
                kept &= differing_units(units, old, new)
            return PlannedUnits(self._lean(units), kept, new, old, of_range=True)

        scan = f"{mode.value} since {None if before is None else before.fingerprint}"
        planned, chosen, last = self.next_part(snapshot, scan, after, plan)
        splits = self.factory.compared(
            mode, planned.units, chosen, snapshot.id, planned.deletions_before, planned.deletions
        )
        for split in splits:
            split.before_snapshot_id = None if before is None else before.id
        return PlannedSplits(self.sorted_by_partition(splits), last)

    def added_files(
        self, entries: Callable[[], pa.Table], snapshot: Snapshot, after: ReadUnit | None = None
    ) -> PlannedSplits:
        """Splits of data files that several snapshots of an append table added, as those of one snapshot."""
        return self._next_splits_of(snapshot, "added", self._merge_mode(), after, entries)

    def joined(self, splits: list[StreamSplit], snapshot_id: int) -> list[StreamSplit]:
        """Splits of consecutive snapshots of an append table as one plan, in the same order per bucket."""
        return self.sorted_by_partition(self.factory.joined(splits, snapshot_id))

    def prefetch(self, lists: list[str], scan: Scan) -> None:
        """Read manifest lists and their manifests before `delta` or `changelog` needs them, in two round trips.

        Args:
            scan: Whether they are of a `delta` or a `changelog`.
        """
        self._prefetcher.fetch(lists, scan, self.entry_schema)

    def _committed(self, snapshot: Snapshot, kept: Callable[[pa.Table], pa.Table] | None = None) -> pa.Table:
        return live(self._entries(*snapshot.state_lists, kept=kept))

    def state(self, snapshot: Snapshot) -> pa.Table:
        """Entries of the first plan of a snapshot, before pruning. Raises FileNotFoundError if a manifest is gone."""
        return self._committed(snapshot, lambda entries: filtered(entries, self.selection.of_first_plan(entries)))

    def _state_of_places(self, snapshot: Snapshot) -> pa.Table:
        def kept(entries: pa.Table) -> pa.Table:
            # What may be read may be a small part of a large table, so other entries are dropped at once.
            return filtered(entries, self.selection.of_first_plan(entries) & self.selection.of_places(entries, "full"))

        return self._committed(snapshot, kept)

    def _entries(self, *lists: str | None, kept: Callable[[pa.Table], pa.Table] | None = None) -> pa.Table:
        manifests = self._manifests(*lists)
        manifests = manifests.filter(self.selection.manifests(manifests))
        return self.directory.manifests.entries(manifests, self.entry_schema, kept)

    def _manifests(self, *lists: str | None) -> pa.Table:
        return pa.concat_tables(self.directory.manifests.manifest_lists([name for name in lists if name]))

    def _merge_mode(self) -> SplitMode:
        if self.traits.primary_key:
            return SplitMode.MERGE
        return SplitMode.EVOLUTION if self.traits.data_evolution else SplitMode.ROWS

    def _next_splits_of(
        self,
        snapshot: Snapshot,
        scan: AnyScan,
        mode: SplitMode,
        after: ReadUnit | None,
        entries: Callable[[], pa.Table],
        *,
        deletions_of: Snapshot | None = None,
    ) -> PlannedSplits:
        def plan() -> PlannedUnits:
            return self._units_of_part(entries(), scan, mode, deletions_of)

        return self._next_splits(snapshot, scan, mode, after, plan)

    def _units_of_part(
        self, entries: pa.Table, scan: AnyScan, mode: SplitMode, deletions_of: Snapshot | None
    ) -> PlannedUnits:
        unit = whole_buckets if mode is SplitMode.MERGE else each_file
        unit = whole_row_id_groups if mode is SplitMode.EVOLUTION else unit
        units = self.ordered(entries, unit, by_sequence=scan == "full" and not self.traits.primary_key)
        return self._pruned(units, scan, deletions_of)

    def _next_splits(
        self,
        snapshot: Snapshot,
        scan: AnyScan,
        mode: SplitMode,
        after: ReadUnit | None,
        plan: Callable[[], PlannedUnits],
    ) -> PlannedSplits:
        planned, chosen, last = self.next_part(snapshot, scan, after, plan)
        if not len(chosen):
            return PlannedSplits([])
        files = planned.files_of(chosen)
        splits = self.factory.splits(planned.units, chosen, mode, snapshot.id, planned.deletions, files=files)
        return PlannedSplits(self.sorted_by_partition(splits), last)

    def next_part(
        self, snapshot: Snapshot, scan: str, after: ReadUnit | None, plan: Callable[[], PlannedUnits]
    ) -> tuple[PlannedUnits, _Numbers, ReadUnit | None]:
        """The next part of a snapshot: its units, the chosen entries, and the last unit if more are left.

        Args:
            scan: What of it is read.
            plan: Plans its units if they are not kept from the part before.
        """
        key = (snapshot.id, snapshot.fingerprint, scan, self.schema.id, self._created_after)
        return self._kept_units.part(key, after, self._options.limits, plan)

    def ordered(
        self,
        entries: pa.Table,
        unit: Callable[[Units], _Numbers],
        *,
        by_sequence: bool = False,
        group: _Numbers | None = None,
    ) -> Units:
        """Entries in canonical order, cut into units; those of several snapshots (`group`) one after the other."""
        by_sequence = by_sequence or self.traits.unaware_bucket
        texts = partial(partition_texts, fields=self.partition_fields)
        return in_canonical_order(entries, texts, by_sequence=by_sequence, unit=unit, group=group)

    def _pruned(self, units: Units, scan: AnyScan, snapshot: Snapshot | None) -> PlannedUnits:
        """The units that the filter, the shard and the buckets keep, with the deletion vectors of the snapshot."""
        kept = self.selection.kept(units.entries, scan)
        deletions = self.deletions(snapshot) if kept.any() else None
        return PlannedUnits(self._lean(units), kept, deletions, of_range=scan == "added")

    def _lean(self, units: Units) -> Units:
        return without_statistics(units, self.selection.needs_bounds)

    def sorted_by_partition(self, splits: list[StreamSplit]) -> list[StreamSplit]:
        """The splits ordered by typed partition value, null first, if `scan.plan-sort-partition` is set."""
        if not self._options.sort_partitions:
            return splits
        return sorted(splits, key=lambda split: [(value is not None, value) for value in split.partition.values])

    def deletions(self, snapshot: Snapshot | None) -> DeletionFiles | None:
        """Where the deletion vectors of a snapshot are; None if it has none, or they do not count."""
        if snapshot is None or not self.traits.deletion_vectors or not snapshot.index_manifest:
            return None
        found = self.directory.manifests.index_entries(snapshot.index_manifest)
        return index_manifests.deletion_files(found, self._paths)


def _of_kind(entries: pa.Table, kind: EntryKind) -> pa.Table:
    return entries.filter(pc.equal(entries["kind"], kind))


def _in_buckets_of(changed: pa.Table, *, whole_partitions: bool) -> Callable[[pa.Table], pa.Table]:
    """Keeps entries of the buckets, or else of the partitions, of other entries."""
    partitions = changed["partition"].combine_chunks().unique()

    def places(entries: pa.Table) -> _Numbers:
        # One number for each (partition, bucket); a bucket may be negative.
        codes: _Numbers = pc.index_in(entries["partition"], value_set=partitions).to_numpy().astype(np.int64)
        return codes << 32 | column(entries, "bucket") & 0xFFFFFFFF

    def kept(entries: pa.Table) -> pa.Table:
        entries = entries.filter(pc.is_in(entries["partition"], value_set=partitions))
        return entries if whole_partitions else filtered(entries, np.isin(places(entries), places(changed)))

    return kept
