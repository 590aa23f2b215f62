"""Splits of a plan: which files are read together, in which order and in which way (J§4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.internals import DataFileMeta, DeletionFile, GenericRow, TableSchema
from pypaimon.streaming.metadata.data_file_meta import data_files, partitions
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.plan import SplitMode, StreamSplit
from pypaimon.streaming.planning.units import Units, column
from pypaimon.streaming.position import POSTPONE_BUCKET
from pypaimon.streaming.settings.table_traits import TableTraits

_Mask = npt.NDArray[np.bool_]
DeletionFiles = Mapping[tuple[bytes, int, str], DeletionFile]
_Key = tuple[bytes, int]


@dataclass(frozen=True, slots=True)
class SplitFactory:
    """Makes the splits of one table.

    One bucket of an ordered table (primary key, or fixed buckets) is one split, in canonical order, whatever its size;
    the merge of a first plan streams through it in bounded memory. Only unaware buckets and row-id groups are packed.

    Attributes:
        schema: The schema to read with.
        traits: The table's kind.
        paths: Where its files lie.
        target_bytes: Size up to which files are packed.
        open_bytes: Size that a file counts at least.
    """

    schema: TableSchema
    traits: TableTraits
    paths: FilePaths
    target_bytes: int
    open_bytes: int

    def splits(
        self, units: Units, chosen: _Mask, mode: SplitMode, snapshot_id: int, deletions: DeletionFiles | None = None
    ) -> list[StreamSplit]:
        """Splits of the chosen entries, in canonical order. Records of bucket -2 are never merged (J§3.7)."""
        files = _Files.of(units.entries.filter(pa.array(chosen)), self)
        groups = units.of_entry[chosen].tolist()
        result = []
        for start, stop in files.buckets():
            split_mode = mode
            if mode is SplitMode.MERGE and files.keys[start][1] == POSTPONE_BUCKET:
                split_mode = SplitMode.RECORDS
            for first, last in self._packed(files.sizes, groups, start, stop):
                found = files.deletion_files(first, last, deletions)
                result.append(
                    StreamSplit(
                        split_mode,
                        files.metas[first:last],
                        files.partitions[first],
                        files.keys[first][1],
                        snapshot_id=snapshot_id,
                        total_buckets=files.total_buckets[first],
                        deletion_files=found,
                    )
                )
        return result

    def joined(self, splits: list[StreamSplit], snapshot_id: int) -> list[StreamSplit]:
        """Splits of an append table put together: one per ordered bucket, unaware buckets packed by size."""
        buckets: dict[tuple[tuple[object, ...], int], list[DataFileMeta]] = {}
        firsts: dict[tuple[tuple[object, ...], int], StreamSplit] = {}
        for split in splits:
            key = tuple(split.partition.values), split.bucket
            firsts.setdefault(key, split)
            buckets.setdefault(key, []).extend(split.files)
        return [
            StreamSplit(
                firsts[key].mode,
                files[start:stop],
                firsts[key].partition,
                firsts[key].bucket,
                snapshot_id=snapshot_id,
                total_buckets=firsts[key].total_buckets,
            )
            for key, files in buckets.items()
            for start, stop in self._packed([file.file_size for file in files], range(len(files)), 0, len(files))
        ]

    def replaced(
        self,
        mode: SplitMode,
        before: pa.Table,
        after: pa.Table,
        snapshot_id: int,
        deletions_before: DeletionFiles | None,
        deletions_after: DeletionFiles | None,
    ) -> list[StreamSplit]:
        """One split per bucket: the files that were there before and those there after (modes OVERWRITE, NET).

        Files on both sides cancel out. Both tables are in canonical order.
        """
        old, new = _Files.of(before, self), _Files.of(after, self)
        ranges_old = {old.keys[start]: (start, stop) for start, stop in old.buckets()}
        ranges_new = {new.keys[start]: (start, stop) for start, stop in new.buckets()}
        result = []
        for key in dict.fromkeys((*ranges_old, *ranges_new)):
            low, high = ranges_old.get(key, (0, 0))
            first, last = ranges_new.get(key, (0, 0))
            source, place = (new, first) if last else (old, low)
            result.append(
                StreamSplit(
                    mode,
                    new.metas[first:last],
                    source.partitions[place],
                    key[1],
                    snapshot_id=snapshot_id,
                    total_buckets=source.total_buckets[place],
                    deletion_files=new.deletion_files(first, last, deletions_after),
                    before_files=old.metas[low:high],
                    before_deletion_files=old.deletion_files(low, high, deletions_before),
                )
            )
        return result

    def _packed(self, sizes: Sequence[int], groups: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Ranges of files that become one split: ordered packing by size, never inside a group."""
        if not (self.traits.unaware_bucket or self.traits.data_evolution):
            yield start, stop
            return
        first, weight = start, 0
        place = start
        while place < stop:
            group_end = place + 1
            while group_end < stop and groups[group_end] == groups[place]:
                group_end += 1
            size = max(sum(sizes[place:group_end]), self.open_bytes)
            if place > first and weight + size > self.target_bytes:
                yield first, place
                first, weight = place, 0
            weight += size
            place = group_end
        yield first, stop


@dataclass(frozen=True, slots=True)
class _Files:
    """Entries as value objects, in their order."""

    metas: list[DataFileMeta]
    partitions: Sequence[GenericRow]
    keys: list[_Key]
    sizes: list[int]
    total_buckets: list[int]

    @staticmethod
    def of(entries: pa.Table, factory: SplitFactory) -> _Files:
        fields = {field.name: field for field in factory.schema.fields}
        key_names = [name for name in factory.schema.primary_keys if name not in factory.schema.partition_keys]
        return _Files(
            data_files(entries, factory.paths, [fields[name] for name in key_names]),
            partitions(entries, [fields[name] for name in factory.schema.partition_keys]),
            list(zip(entries["partition"].to_pylist(), entries["bucket"].to_pylist(), strict=True)),
            column(entries, "file_size").tolist(),
            entries["total_buckets"].to_pylist(),
        )

    def buckets(self) -> Iterator[tuple[int, int]]:
        """Ranges of entries of one (partition, bucket)."""
        start = 0
        for place in range(1, len(self.keys) + 1):
            if place == len(self.keys) or self.keys[place] != self.keys[start]:
                yield start, place
                start = place

    def deletion_files(
        self, first: int, last: int, deletions: DeletionFiles | None
    ) -> list[DeletionFile | None] | None:
        if not deletions:
            return None
        found = [deletions.get((*self.keys[place], self.metas[place].file_name)) for place in range(first, last)]
        return found if any(found) else None
