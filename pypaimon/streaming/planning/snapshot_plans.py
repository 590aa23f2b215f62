"""What one snapshot holds for a stream: its manifests read, pruned, sharded, cut by limits and made into splits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.filtering.pruning import Pruner
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.metadata import binary_row, index_manifests
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.metadata.manifests import live
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.plan import SplitMode, StreamSplit
from pypaimon.streaming.planning.shards import ShardFilter
from pypaimon.streaming.planning.splits import DeletionFiles, SplitFactory
from pypaimon.streaming.planning.units import (
    Units,
    column,
    cut,
    each_file,
    in_canonical_order,
    row_id_groups,
    whole_buckets,
)
from pypaimon.streaming.position import POSTPONE_BUCKET, Unit
from pypaimon.streaming.settings.options import StreamOptions
from pypaimon.streaming.settings.table_traits import ChangelogProducer, TableTraits

_Mask = npt.NDArray[np.bool_]
_Scan = Literal["full", "delta", "changelog"]
_ADD, _DELETE = 0, 1
_YEAR_3000 = 32_503_680_000
_READ_AHEAD_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Planned:
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
    """

    def __init__(
        self,
        directory: TableDirectory,
        schema: TableSchema,
        options: StreamOptions,
        created_after: int | None = None,
    ) -> None:
        self._directory = directory
        self._options = options
        self._created_after = None if created_after is None else _wall_clock(created_after)
        self.schema = schema
        self.traits = TableTraits.of(schema)
        self._pruner = Pruner(schema, directory.schema, options.predicate)
        self._shards = ShardFilter(self.traits, options.shard, options.bucket_filter)
        self._paths = FilePaths.of(directory.table.table_path, schema)
        self._factory = SplitFactory(
            schema, self.traits, self._paths, options.split_target_bytes, options.split_open_bytes
        )
        fields = {field.name: field for field in schema.fields}
        self._partition_fields = [fields[name] for name in schema.partition_keys]

    def full(self, snapshot: Snapshot, after: Unit | None = None) -> Planned:
        """The state of the table at a snapshot, without what comes as changelog later (J§2, level filter).

        Args:
            snapshot: The snapshot.
            after: Last unit that was handed out of it already.

        Raises:
            FileNotFoundError: A manifest is gone.
        """
        return self._planned(snapshot, self._state(snapshot), "full", self._merge_mode(), after)

    def delta(self, snapshot: Snapshot, after: Unit | None = None) -> Planned:
        """The files that a snapshot added. Raises FileNotFoundError if a manifest is gone."""
        mode = SplitMode.RECORDS if self.traits.primary_key else self._merge_mode()
        added = _of_kind(self._entries(snapshot.delta_manifest_list), _ADD)
        return self._planned(snapshot, added, "delta", mode, after)

    def changelog(self, snapshot: Snapshot, after: Unit | None = None) -> Planned:
        """The changelog files of a snapshot. Raises FileNotFoundError if a manifest is gone."""
        added = _of_kind(self._entries(snapshot.changelog_manifest_list), _ADD)
        return self._planned(snapshot, added, "changelog", SplitMode.CHANGELOG, after)

    def overwrite(self, before: Snapshot | None, snapshot: Snapshot, after: Unit | None = None) -> Planned:
        """What an OVERWRITE snapshot replaced: before files retracted, then the new ones (J§3.4, `readChanges`).

        Deletion vectors count on both sides, so that rows that were deleted already are not retracted (B9).

        Args:
            before: The snapshot before, None if there is none.
            snapshot: The OVERWRITE snapshot.
            after: Last bucket that was handed out.

        Raises:
            FileNotFoundError: A manifest is gone.
        """
        entries = self._entries(snapshot.delta_manifest_list)
        added, removed = _of_kind(entries, _ADD), _of_kind(entries, _DELETE)
        both = pa.concat_tables([removed, added])
        units = self._ordered(both, whole_buckets)
        chosen, last = self._chosen(units, "delta", after)
        entries = units.entries.filter(pa.array(chosen))
        old, new = _of_kind(entries, _DELETE), _of_kind(entries, _ADD)
        old, new = _without(old, new), _without(new, old)
        deletions_before = None if before is None else self._deletions(before)
        splits = self._factory.replaced(
            SplitMode.OVERWRITE, old, new, snapshot.id, deletions_before, self._deletions(snapshot)
        )
        return Planned(self._presented(splits), last)

    def net(self, before: Snapshot | None, snapshot: Snapshot) -> Planned:
        """One change per key between the states of two snapshots, of the buckets that differ.

        States hold what first plans hold: with a changelog producer what was compacted, since the rest is still to come
        as changelog. Raises FileNotFoundError if a manifest is gone.

        Args:
            before: The earlier snapshot; None: an empty table.
            snapshot: The later one.
        """
        old = self._state(before) if before is not None else None
        new = self._state(snapshot)
        tables = [new] if old is None else [old, new]
        sides = pa.concat_tables(
            table.append_column("side", pa.array(np.full(table.num_rows, side, dtype=np.int8)))
            for side, table in zip(range(2 - len(tables), 2), tables, strict=True)
        )
        units = self._ordered(sides, whole_buckets)
        chosen, _ = self._chosen(units, "delta", None)
        deletions_before = None if before is None else self._deletions(before)
        deletions = self._deletions(snapshot)
        chosen &= _differing_units(units, deletions_before or {}, deletions or {})
        entries = units.entries.filter(pa.array(chosen))
        sides_of = entries["side"]
        splits = self._factory.replaced(
            SplitMode.NET,
            entries.filter(pc.equal(sides_of, 0)),
            entries.filter(pc.equal(sides_of, 1)),
            snapshot.id,
            deletions_before,
            deletions,
        )
        return Planned(self._presented(splits))

    def added_files(self, entries: pa.Table, snapshot: Snapshot) -> Planned:
        """Splits of data files of an append table that are left at a snapshot."""
        return self._planned(snapshot, entries, "delta", self._merge_mode(), None)

    def joined(self, splits: list[StreamSplit], snapshot_id: int) -> list[StreamSplit]:
        """Splits of consecutive snapshots of an append table as those of one plan, in the same order per bucket."""
        return self._presented(self._factory.joined(splits, snapshot_id))

    def warm(self, lists: list[str]) -> None:
        """Read these manifest lists, and the manifests they name, ahead of time: two round trips for all of them.

        Of manifests no more than the cache keeps until their turn comes, else they would be asked for twice.
        """
        manifests = self._directory.manifests.manifest_lists(lists)
        kept = [table.filter(self._pruner.manifests(table)) for table in manifests]
        if kept:
            ahead = pa.concat_tables(kept)
            fitting = np.searchsorted(np.cumsum(column(ahead, "file_size")), _READ_AHEAD_BYTES, side="right")
            self._directory.manifests.read_ahead(ahead.slice(0, int(fitting)))

    def _state(self, snapshot: Snapshot) -> pa.Table:
        entries = live(self._entries(snapshot.base_manifest_list, snapshot.delta_manifest_list))
        return entries.filter(pa.array(self._first_plan_mask(entries)))

    def _entries(self, *lists: str | None) -> pa.Table:
        names = [name for name in lists if name]
        manifests = pa.concat_tables(self._directory.manifests.manifest_lists(names))
        return self._directory.manifests.entries(manifests.filter(self._pruner.manifests(manifests)))

    def _merge_mode(self) -> SplitMode:
        if self.traits.primary_key:
            return SplitMode.MERGE
        return SplitMode.EVOLUTION if self.traits.data_evolution else SplitMode.ROWS

    def _first_plan_mask(self, entries: pa.Table) -> _Mask:
        """Levels whose rows no later changelog repeats (J§2): lookup above 0, full-compaction the top only."""
        lowest = 0
        if self.traits.producer is ChangelogProducer.LOOKUP:
            lowest = 1
        elif self.traits.producer is ChangelogProducer.FULL_COMPACTION:
            lowest = self.traits.num_levels - 1
        kept: _Mask = column(entries, "level") >= lowest
        return kept

    def _planned(
        self, snapshot: Snapshot, entries: pa.Table, scan: _Scan, mode: SplitMode, after: Unit | None
    ) -> Planned:
        unit = whole_buckets if mode is SplitMode.MERGE else each_file
        unit = row_id_groups if mode is SplitMode.EVOLUTION else unit
        units = self._ordered(entries, unit, by_sequence=scan == "full" and not self.traits.primary_key)
        chosen, last = self._chosen(units, scan, after)
        if not chosen.any():
            return Planned([])
        deletions = self._deletions(snapshot) if scan == "full" else None
        return Planned(self._presented(self._factory.splits(units, chosen, mode, snapshot.id, deletions)), last)

    def _ordered(
        self, entries: pa.Table, unit: Callable[[Units], npt.NDArray[np.int64]], *, by_sequence: bool = False
    ) -> Units:
        by_sequence = by_sequence or self.traits.unaware_bucket
        return in_canonical_order(entries, self._partition_text, by_sequence=by_sequence, unit=unit)

    def _chosen(self, units: Units, scan: _Scan, after: Unit | None) -> tuple[_Mask, Unit | None]:
        kept = self._shards.mask(units.entries)
        if self.traits.only_real_buckets:
            kept &= units.bucket != POSTPONE_BUCKET
        if self._created_after is not None:
            kept &= column(units.entries, "creation_time") >= self._created_after
        if kept.any():
            kept &= self._pruner.entries(units.entries, scan).to_numpy(zero_copy_only=False)
        if after is not None:
            units.check_holds(after, kept)
            kept &= units.after(after)
        return cut(units, kept, self._options.limits)

    def _presented(self, splits: list[StreamSplit]) -> list[StreamSplit]:
        """In the order of `scan.plan-sort-partition`, if asked for: by typed partition value, null first."""
        if not self._options.sort_partitions:
            return splits
        return sorted(splits, key=lambda split: [(value is not None, value) for value in split.partition.values])

    def _partition_text(self, partition: bytes) -> tuple[str | None, ...]:
        values = binary_row.decode(partition, self._partition_fields)
        return tuple(None if value is None else str(value) for value in values)

    def _deletions(self, snapshot: Snapshot) -> DeletionFiles | None:
        if not self.traits.deletion_vectors or not snapshot.index_manifest:
            return None
        found = self._directory.manifests.index_entries(snapshot.index_manifest)
        return index_manifests.deletion_files(found, self._paths)


def _of_kind(entries: pa.Table, kind: int) -> pa.Table:
    return entries.filter(pc.equal(entries["kind"], kind))


def _without(entries: pa.Table, others: pa.Table) -> pa.Table:
    """Entries whose file is not among the others."""
    return entries.filter(pc.invert(pc.is_in(entries["file_name"], value_set=others["file_name"].combine_chunks())))


def _differing_units(units: Units, deletions_before: DeletionFiles, deletions: DeletionFiles) -> _Mask:
    """Entries of units whose files, or the rows deleted from them, differ between the two sides."""
    names = units.entries["file_name"].combine_chunks()
    codes = names.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    pairs = np.unique(np.stack([units.of_entry, codes]), axis=1, return_counts=True)
    lone = np.unique(pairs[0][0][pairs[1] == 1])
    files = deletions_before.keys() | deletions.keys()
    changed = [file[2] for file in files if deletions_before.get(file) != deletions.get(file)]
    differing: _Mask = np.isin(units.of_entry, lone)
    touched = pc.is_in(names, value_set=pa.array(changed, pa.string())).to_numpy(zero_copy_only=False)
    return differing | np.isin(units.of_entry, units.of_entry[touched])


def _wall_clock(millis: int) -> int:
    """Epoch milliseconds as manifests record them: what the clock on this machine's wall shows then (as Java)."""
    seconds = min(max(millis // 1000, 0), _YEAR_3000)
    return millis + 1000 * time.localtime(seconds).tm_gmtoff
