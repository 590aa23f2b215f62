"""What one snapshot holds for a stream: its manifests read, pruned, sharded, cut by limits and made into splits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.filtering.pruning import Scan
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.metadata import index_manifests
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.metadata.manifest_tables import BOUNDED_SCHEMA, ENTRY_SCHEMA, FILE_SCHEMA
from pypaimon.streaming.metadata.manifests import live, without
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import SplitMode, StreamSplit
from pypaimon.streaming.model.position import Unit
from pypaimon.streaming.options.stream_options import StreamOptions
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.planning import comparison
from pypaimon.streaming.planning.partition_texts import texts_of
from pypaimon.streaming.planning.prepared import LastPrepared, Preparation, Prepared, without_statistics
from pypaimon.streaming.planning.prepared_ahead import PreparedAhead
from pypaimon.streaming.planning.selection import AnyScan, EntrySelection, filtered
from pypaimon.streaming.planning.splits import DeletionFiles, SplitFactory
from pypaimon.streaming.planning.units import (
    Units,
    each_file,
    each_name,
    in_canonical_order,
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
    last: Unit | None = None


class SnapshotPlans:
    """Plans of single snapshots of one table, for one stream's filter, shard and limits.

    Args:
        directory: The table.
        schema: The schema that the stream reads with.
        options: The stream's settings.
        created_after: Only files created at this time or later (`from-file-creation-time`), epoch milliseconds.
        last_prepared: What was prepared last, where plans with other limits go on with it.
    """

    def __init__(
        self,
        directory: TableDirectory,
        schema: TableSchema,
        options: StreamOptions,
        created_after: int | None = None,
        last_prepared: LastPrepared | None = None,
    ) -> None:
        self.directory = directory
        self._options = options
        self.schema = schema
        self.traits = TableTraits.of(schema)
        self.selection = EntrySelection(directory, schema, options, created_after)
        without_predicate = BOUNDED_SCHEMA if self.selection.needs_bounds else FILE_SCHEMA
        self.entry_schema = without_predicate if options.predicate is None else ENTRY_SCHEMA
        self._paths = FilePaths.of(directory.table.table_path, schema)
        self.factory = SplitFactory(
            schema, self.traits, self._paths, options.split_target_bytes, options.split_open_bytes
        )
        self._ahead = PreparedAhead(directory.manifests, self.selection, self.factory, self._files_in_order)
        self.preparation = Preparation(options.limits, (schema.id, created_after), last_prepared or LastPrepared())
        fields = {field.name: field for field in schema.fields}
        self.partition_fields = [fields[name] for name in schema.partition_keys]

    def of_branch(self, directory: TableDirectory, options: Mapping[str, str]) -> SnapshotPlans:
        """Plans of another branch of the table, with its own options, under the same schema and settings."""
        return SnapshotPlans(directory, self.schema.copy(new_options=dict(options)), self._options)

    def full(self, snapshot: Snapshot, after: Unit | None = None) -> PlannedSplits:
        """The state of the table at a snapshot, without what comes as changelog later.

        The levels that are left out: docs/java-semantics.md#first-plans.

        Args:
            snapshot: The snapshot.
            after: Last unit that was handed out of it already.

        Raises:
            FileNotFoundError: A manifest is gone.
        """
        mode = self._merge_mode()
        return self._part(snapshot, "full", mode, after, lambda: self._state_of_places(snapshot), deletions_of=snapshot)

    def delta(self, snapshot: Snapshot, after: Unit | None = None) -> PlannedSplits:
        """The files that a snapshot added. Raises FileNotFoundError if a manifest is gone."""
        mode = SplitMode.RECORDS if self.traits.primary_key else self._merge_mode()
        return self._added(snapshot, "delta", snapshot.delta_manifest_list, mode, after)

    def entries_added(self, snapshot: Snapshot) -> pa.Table:
        """Entries of the files that a snapshot added. Raises FileNotFoundError if a manifest is gone."""
        return self._entries_added(snapshot.delta_manifest_list)

    def removes_files(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot removed files of partitions that may be read. FileNotFoundError if a manifest is gone."""
        (manifests,) = self.directory.manifests.manifest_lists([snapshot.delta_manifest_list])
        if not sum(manifests["num_deleted_files"].to_pylist()):
            return False
        removed = _of_kind(self._entries(snapshot.delta_manifest_list), EntryKind.DELETE)
        return bool(self.selection.of_partitions(removed, "delta").any())

    def changelog(self, snapshot: Snapshot, after: Unit | None = None) -> PlannedSplits:
        """The changelog files of a snapshot. Raises FileNotFoundError if a manifest is gone."""
        return self._added(snapshot, "changelog", snapshot.changelog_manifest_list, SplitMode.CHANGELOG, after)

    def _added(
        self, snapshot: Snapshot, scan: Scan, manifest_list: str | None, mode: SplitMode, after: Unit | None
    ) -> PlannedSplits:
        def prepare() -> Prepared:
            ahead = self._ahead.take((manifest_list or "", scan))
            return ahead or self._prepared_part(self._entries_added(manifest_list), scan, mode, None)

        return self._cut(snapshot, scan, mode, after, prepare)

    def _entries_added(self, manifest_list: str | None) -> pa.Table:
        return _of_kind(self._entries(manifest_list), EntryKind.ADD)

    def overwrite(self, before: Snapshot | None, snapshot: Snapshot, after: Unit | None = None) -> PlannedSplits:
        """What an OVERWRITE snapshot replaced: before files retracted, then the new ones.

        Deletion vectors count on both sides, so that rows that were deleted already are not retracted. Limits do not
        cut it where a key may be in another bucket afterwards, for a later plan would retract what an earlier one has
        brought. Java's rules: docs/java-semantics.md#overwrites.

        Args:
            before: The snapshot before, None if there is none.
            snapshot: The OVERWRITE snapshot.
            after: Last bucket that was handed out.

        Raises:
            FileNotFoundError: A manifest is gone.
        """

        def prepare() -> Prepared:
            entries = self._entries(snapshot.delta_manifest_list)
            both = pa.concat_tables([_of_kind(entries, EntryKind.DELETE), _of_kind(entries, EntryKind.ADD)])
            units = self.ordered(both, whole_snapshot if comparison.keys_move(both) else whole_buckets)
            return self._prepared(units, "delta", snapshot, before)

        prepared, chosen, last = self.preparation.part(snapshot, "overwrite", after, prepare)
        entries = prepared.units.chosen(chosen)
        old, new = _of_kind(entries, EntryKind.DELETE), _of_kind(entries, EntryKind.ADD)
        old, new = without(old, new), without(new, old)
        splits = self.factory.replaced(
            SplitMode.OVERWRITE, old, new, snapshot.id, prepared.deletions_before, prepared.deletions
        )
        keys_move = comparison.keys_move(prepared.units.entries)
        for split in splits:
            split.keys_move = keys_move
            # Also where that one is gone, and a tag keeps what it had.
            split.before_snapshot_id = snapshot.id - 1
        return PlannedSplits(self.sorted_by_partition(splits), last)

    def net(self, before: Snapshot | None, snapshot: Snapshot) -> PlannedSplits:
        """One change per key between what first plans hold of two snapshots, of the buckets that differ.

        With a changelog producer that is what was compacted: the rest is still to come as changelog. Raises
        FileNotFoundError if a manifest is gone.

        Args:
            before: The earlier snapshot; None: an empty table.
            snapshot: The later one.
        """
        return self._compared(SplitMode.NET, self.state, before, snapshot)

    def diff(
        self, before: Snapshot | None, snapshot: Snapshot, after: Unit | None = None, *, kinds: bool
    ) -> PlannedSplits:
        """What two states differ in, all that is committed.

        Without kinds it is the mode `diff` of docs/java-semantics.md#batch-ranges, by the files that only one state
        has: with a primary key those of both are merged and compared, else the rows of the later ones come out. With
        kinds it is what turns the earlier state into the later one.

        Args:
            before: The earlier snapshot; None: an empty table.
            snapshot: The later one.
            after: Last unit that was handed out.
            kinds: Whether rows come with kinds.

        Raises:
            FileNotFoundError: A manifest is gone.
            UnsupportedTableError: The number of buckets of a partition has changed, so that keys lie in others.
        """
        if self.traits.primary_key or (kinds and before is not None):
            mode = SplitMode.NET if kinds else SplitMode.DIFF
            return self._compared(mode, self._committed, before, snapshot, after)

        def added() -> pa.Table:
            new = self._committed(snapshot)
            return new if before is None else without(new, self._committed(before))

        return self._part(snapshot, "added", self._merge_mode(), after, added, deletions_of=snapshot)

    def _compared(
        self,
        mode: SplitMode,
        state: Callable[[Snapshot], pa.Table],
        before: Snapshot | None,
        snapshot: Snapshot,
        after: Unit | None = None,
    ) -> PlannedSplits:
        def prepare() -> Prepared:
            both = sides(None if before is None else state(before), state(snapshot))
            if before is not None and self.traits.primary_key:
                comparison.check_same_buckets(both, before, snapshot)
            units = self.ordered(both, whole_buckets if self.traits.primary_key else each_name)
            kept = self.selection.kept(units.entries, "delta")
            old, new = self.deletions(before), self.deletions(snapshot)
            if mode is SplitMode.DIFF:
                kept &= comparison.lone_files(units)
            else:
                kept &= comparison.differing_units(units, old or {}, new or {})
            return Prepared(self._lean(units), kept, new, old, of_range=True)

        scan = f"{mode.value} since {None if before is None else before.fingerprint}"
        prepared, chosen, last = self.preparation.part(snapshot, scan, after, prepare)
        splits = self.factory.compared(
            mode, prepared.units, chosen, snapshot.id, prepared.deletions_before, prepared.deletions
        )
        return PlannedSplits(self.sorted_by_partition(_retracting(splits, before)), last)

    def added_files(
        self, entries: Callable[[], pa.Table], snapshot: Snapshot, after: Unit | None = None
    ) -> PlannedSplits:
        """Splits of data files of an append table, put together as those of one snapshot."""
        return self._part(snapshot, "added", self._merge_mode(), after, entries)

    def joined(self, splits: list[StreamSplit], snapshot_id: int) -> list[StreamSplit]:
        """Splits of consecutive snapshots of an append table as those of one plan, in the same order per bucket."""
        return self.sorted_by_partition(self.factory.joined(splits, snapshot_id))

    def prefetch(self, lists: list[str], scan: Scan) -> None:
        """Read these manifest lists, and the manifests they name, ahead of time: two round trips for all of them.

        Of manifests no more than the cache keeps until their turn comes, else they would be asked for twice. What
        `delta`, or `changelog`, will read of small ones is prepared, for all of them together.

        Args:
            lists: Their names.
            scan: Whether they are of a `delta` or a `changelog`.
        """
        self._ahead.fetch(lists, scan, self.entry_schema)

    def _committed(self, snapshot: Snapshot, kept: Callable[[pa.Table], pa.Table] | None = None) -> pa.Table:
        return live(self._entries(*snapshot.state_lists, kept=kept))

    def state(self, snapshot: Snapshot) -> pa.Table:
        """Entries of what a first plan holds of a snapshot, before pruning. FileNotFoundError if a manifest is gone."""
        return self._committed(snapshot, lambda entries: filtered(entries, self.selection.of_first_plan(entries)))

    def _state_of_places(self, snapshot: Snapshot) -> pa.Table:
        """As `state`, of the partitions and buckets that may be read: of a large table that may be a small part."""

        def kept(entries: pa.Table) -> pa.Table:
            return filtered(entries, self.selection.of_first_plan(entries) & self.selection.of_places(entries, "full"))

        return self._committed(snapshot, kept)

    def _entries(self, *lists: str | None, kept: Callable[[pa.Table], pa.Table] | None = None) -> pa.Table:
        names = [name for name in lists if name]
        manifests = pa.concat_tables(self.directory.manifests.manifest_lists(names))
        manifests = manifests.filter(self.selection.manifests(manifests))
        return self.directory.manifests.entries(manifests, self.entry_schema, kept)

    def _merge_mode(self) -> SplitMode:
        if self.traits.primary_key:
            return SplitMode.MERGE
        return SplitMode.EVOLUTION if self.traits.data_evolution else SplitMode.ROWS

    def _part(
        self,
        snapshot: Snapshot,
        scan: AnyScan,
        mode: SplitMode,
        after: Unit | None,
        entries: Callable[[], pa.Table],
        *,
        deletions_of: Snapshot | None = None,
    ) -> PlannedSplits:
        def prepare() -> Prepared:
            return self._prepared_part(entries(), scan, mode, deletions_of)

        return self._cut(snapshot, scan, mode, after, prepare)

    def _prepared_part(
        self, entries: pa.Table, scan: AnyScan, mode: SplitMode, deletions_of: Snapshot | None
    ) -> Prepared:
        unit = whole_buckets if mode is SplitMode.MERGE else each_file
        unit = whole_row_id_groups if mode is SplitMode.EVOLUTION else unit
        units = self.ordered(entries, unit, by_sequence=scan == "full" and not self.traits.primary_key)
        return self._prepared(units, scan, deletions_of)

    def _cut(
        self, snapshot: Snapshot, scan: AnyScan, mode: SplitMode, after: Unit | None, prepare: Callable[[], Prepared]
    ) -> PlannedSplits:
        prepared, chosen, last = self.preparation.part(snapshot, scan, after, prepare)
        if not len(chosen):
            return PlannedSplits([])
        files = prepared.files_of(chosen)
        splits = self.factory.splits(prepared.units, chosen, mode, snapshot.id, prepared.deletions, files=files)
        return PlannedSplits(self.sorted_by_partition(splits), last)

    def ordered(
        self,
        entries: pa.Table,
        unit: Callable[[Units], _Numbers],
        *,
        by_sequence: bool = False,
        group: _Numbers | None = None,
    ) -> Units:
        """Entries in canonical order, cut into units; of several snapshots (`group`) one after the other."""
        by_sequence = by_sequence or self.traits.unaware_bucket
        texts = partial(texts_of, fields=self.partition_fields)
        return in_canonical_order(entries, texts, by_sequence=by_sequence, unit=unit, group=group)

    def _files_in_order(self, entries: pa.Table, group: _Numbers) -> Units:
        """Files of several snapshots."""
        return self.ordered(entries, each_file, group=group)

    def _prepared(
        self, units: Units, scan: AnyScan, snapshot: Snapshot | None, before: Snapshot | None = None
    ) -> Prepared:
        """With the deletion vectors of these snapshots."""
        kept = self.selection.kept(units.entries, scan)
        if not kept.any():
            return Prepared(self._lean(units), kept)
        deletions, deletions_before = self.deletions(snapshot), self.deletions(before)
        return Prepared(self._lean(units), kept, deletions, deletions_before, of_range=scan == "added")

    def _lean(self, units: Units) -> Units:
        return without_statistics(units, self.selection.needs_bounds)

    def sorted_by_partition(self, splits: list[StreamSplit]) -> list[StreamSplit]:
        """In the order of `scan.plan-sort-partition`, if asked for: by typed partition value, null first."""
        if not self._options.sort_partitions:
            return splits
        return sorted(splits, key=lambda split: [(value is not None, value) for value in split.partition.values])

    def deletions(self, snapshot: Snapshot | None) -> DeletionFiles | None:
        """Where the deletion vectors of a snapshot are; None if there are none, or they do not count."""
        if snapshot is None or not self.traits.deletion_vectors or not snapshot.index_manifest:
            return None
        found = self.directory.manifests.index_entries(snapshot.index_manifest)
        return index_manifests.deletion_files(found, self._paths)


def _retracting(splits: list[StreamSplit], before: Snapshot | None) -> list[StreamSplit]:
    """The splits, which know the snapshot whose rows they retract."""
    for split in splits:
        split.before_snapshot_id = None if before is None else before.id
    return splits


def _of_kind(entries: pa.Table, kind: EntryKind) -> pa.Table:
    return entries.filter(pc.equal(entries["kind"], kind))
