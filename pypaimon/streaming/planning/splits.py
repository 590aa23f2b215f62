"""Splits of a plan: which files are read together, in which order and how.

Java's rules: docs/java-semantics.md#splits-and-order.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.formats.binary_row import decode_rows
from pypaimon.streaming.metadata.data_file_meta import DataFiles, FileRange, bound_fields
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.model.plan import BranchFiles, SplitMode, StreamSplit
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.paimon.internals import DataFileMeta, DeletionFile, GenericRow, TableSchema
from pypaimon.streaming.planning.units import DeletionFiles, Units, column, on_each_side

_Numbers = npt.NDArray[np.int64]
_Key = tuple[bytes, int]
OF_BRANCH = "of_branch"
"""A column of entries: whether each belongs to another branch."""


@dataclass(frozen=True, slots=True)
class SplitFactory:
    """Makes the splits of one table.

    One bucket of an ordered table (primary key, or fixed buckets) is one split in canonical order, regardless of its
    size. The merge of a first plan streams through it in bounded memory. Only unaware buckets and row-id groups are
    packed.

    Attributes:
        target_bytes: Size up to which files are packed.
        open_bytes: The least size that a file counts as.
    """

    schema: TableSchema
    traits: TableTraits
    paths: FilePaths
    target_bytes: int
    open_bytes: int

    def splits(
        self,
        units: Units,
        chosen: _Numbers,
        mode: SplitMode,
        snapshot_id: int,
        deletions: DeletionFiles | None = None,
        branch: BranchFiles | None = None,
        files: Files | None = None,
    ) -> list[StreamSplit]:
        """Splits of the chosen entries, in canonical order. Records of bucket -2 are never merged.

        Args:
            chosen: Positions of the entries to read, ascending.
            mode: How rows come from the files.
            branch: The branch of the entries whose `OF_BRANCH` is true, without file names; None: no other branch.
            files: The chosen entries as files, if they were made before.
        """
        files = files or self.files(units.chosen(chosen))
        groups = units.of_entry[chosen]
        ranges = [each for start, stop in files.buckets for each in self._packed(files.sizes, groups, start, stop)]
        # All splits at once, because a plan may have a hundred thousand of them.
        firsts = np.array([first for first, _ in ranges], dtype=np.int64)
        columns = (files.partition_indices, files.bucket_numbers, files.total_buckets)
        result = []
        for (first, last), partition, bucket, total in zip(
            ranges, *(each[firsts].tolist() for each in columns), strict=True
        ):
            split = StreamSplit(
                SplitMode.RECORDS if mode is SplitMode.MERGE and bucket == POSTPONE_BUCKET else mode,
                files.some(first, last),
                files.partition_rows[partition],
                bucket,
                snapshot_id=snapshot_id,
                total_buckets=total,
                deletion_files=files.deletion_files(first, last, files.partition_keys[partition], bucket, deletions),
            )
            if branch is not None:
                split.of_branch = files.of_branch(first, last, branch, split.data_deletion_files)
            result.append(split)
        return result

    def files(self, entries: pa.Table) -> Files:
        """Entries in canonical order as files. Entries of several snapshots may follow each other."""
        return Files.of(entries, self)

    def joined(self, splits: list[StreamSplit], snapshot_id: int) -> list[StreamSplit]:
        """Joins splits of an append table: one per ordered bucket, unaware buckets packed by size."""
        # Dictionaries keep the order of insertion: buckets come out in the order in which the splits name them first.
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
            for start, stop in self._packed(
                np.array([file.file_size for file in files]), np.arange(len(files)), 0, len(files)
            )
        ]

    def compared(
        self,
        mode: SplitMode,
        units: Units,
        chosen: _Numbers,
        snapshot_id: int,
        deletions_before: DeletionFiles | None,
        deletions_after: DeletionFiles | None,
    ) -> list[StreamSplit]:
        """Splits of the chosen entries of two states (modes NET, DIFF) as in `replaced`. Unaware buckets are packed."""
        entries = units.chosen(chosen)
        files, groups = self.files(entries), units.of_entry[chosen]
        if not self.traits.unaware_bucket:
            order = [files.key(start) for start, _ in files.buckets]
            sides = on_each_side(entries)
            return self.replaced(mode, *sides, snapshot_id, deletions_before, deletions_after, order)
        ranges = (each for bucket in files.buckets for each in self._packed(files.sizes, groups, *bucket))
        parts = (on_each_side(entries.slice(start, stop - start)) for start, stop in ranges)
        return [
            split
            for sides in parts
            for split in self.replaced(mode, *sides, snapshot_id, deletions_before, deletions_after)
        ]

    def replaced(
        self,
        mode: SplitMode,
        before: pa.Table,
        after: pa.Table,
        snapshot_id: int,
        deletions_before: DeletionFiles | None,
        deletions_after: DeletionFiles | None,
        order: Sequence[_Key] = (),
    ) -> list[StreamSplit]:
        """One split per bucket with the files before and the files after (modes OVERWRITE, NET, DIFF).

        Both tables are in canonical order. The buckets come in the given order; without one, those of the files before
        come first.
        """
        old, new = self.files(before), self.files(after)
        # The serialised partition and the bucket match the two sides, because partition indices differ between tables.
        ranges_old = {old.key(start): (start, stop) for start, stop in old.buckets}
        ranges_new = {new.key(start): (start, stop) for start, stop in new.buckets}
        result = []
        for key in order or dict.fromkeys((*ranges_old, *ranges_new)):
            low, high = ranges_old.get(key, (0, 0))
            first, last = ranges_new.get(key, (0, 0))
            source, entry = (new, first) if last else (old, low)
            result.append(
                StreamSplit(
                    mode,
                    new.some(first, last),
                    source.partition(entry),
                    key[1],
                    snapshot_id=snapshot_id,
                    total_buckets=int(source.total_buckets[entry]),
                    deletion_files=new.deletion_files(first, last, *key, deletions_after),
                    before_files=old.some(low, high),
                    before_deletion_files=old.deletion_files(low, high, *key, deletions_before),
                )
            )
        return result

    def _packed(self, sizes: _Numbers, groups: _Numbers, start: int, stop: int) -> Iterable[tuple[int, int]]:
        """Ranges of files that become one split: packed in order by size, without cutting a group."""
        if stop - start == 1 or not (self.traits.unaware_bucket or self.traits.data_evolution):
            return ((start, stop),)
        return self._packed_by_size(sizes, groups, start, stop)

    def _packed_by_size(self, sizes: _Numbers, groups: _Numbers, start: int, stop: int) -> Iterator[tuple[int, int]]:
        # `firsts` is where each group begins, `weights` its bytes. `sums` ascends, so a binary search finds how many
        # whole groups fit. A group larger than the target is a split of its own.
        firsts = start + _run_starts(groups[start:stop])
        weights = np.maximum(np.add.reduceat(sizes[:stop], firsts), self.open_bytes)
        sums = np.cumsum(weights)
        ends = [*firsts[1:].tolist(), stop]
        first = 0
        while first < len(firsts):
            before = sums[first] - weights[first]
            last = max(first + 1, int(np.searchsorted(sums, before + self.target_bytes, side="right")))
            yield int(firsts[first]), ends[last - 1]
            first = last


@dataclass(frozen=True, slots=True)
class Files:
    """Entries as files, in their order.

    Attributes:
        metas: Their value objects, which are made when they are used.
        starts: Where each (partition, bucket) begins.
        total_buckets: Number of buckets when each file was written.
        partition_indices: Index of the distinct partition of each file.
        partition_keys: The distinct partitions, serialised.
        partition_rows: The distinct partitions.
        first: Index of the first of these files among the entries and value objects.
    """

    entries: pa.Table
    metas: DataFiles
    starts: _Numbers
    sizes: _Numbers
    total_buckets: _Numbers
    bucket_numbers: _Numbers
    partition_indices: _Numbers
    partition_keys: list[bytes]
    partition_rows: list[GenericRow]
    first: int = 0

    @staticmethod
    def of(entries: pa.Table, factory: SplitFactory) -> Files:
        """The entries as files of the factory's table."""
        fields = {each.name: each for each in factory.schema.fields}
        # Many files share few partitions, so each distinct one is decoded once and files hold an index.
        encoded = entries["partition"].combine_chunks().dictionary_encode()
        indices = encoded.indices.to_numpy().astype(np.int64)
        buckets = column(entries, "bucket")
        # In canonical order the files of a bucket are adjacent, so the next bucket begins where either number changes.
        starts = _run_starts(indices, buckets)
        return Files(
            entries,
            DataFiles(entries, factory.paths, bound_fields(factory.schema)),
            starts,
            column(entries, "file_size"),
            column(entries, "total_buckets"),
            buckets,
            indices,
            encoded.dictionary.to_pylist(),
            decode_rows(encoded.dictionary, [fields[name] for name in factory.schema.partition_keys]),
        )

    def part(self, start: int, stop: int) -> Files:
        """The files from one place up to another."""
        low, high = np.searchsorted(self.starts, (start, stop)).tolist()
        cut = low == len(self.starts) or self.starts[low] != start
        inside = slice(start, stop)
        return Files(
            self.entries,
            self.metas,
            np.concatenate([[0] if cut and start < stop else [], self.starts[low:high] - start]).astype(np.int64),
            self.sizes[inside],
            self.total_buckets[inside],
            self.bucket_numbers[inside],
            self.partition_indices[inside],
            self.partition_keys,
            self.partition_rows,
            self.first + start,
        )

    @property
    def buckets(self) -> list[tuple[int, int]]:
        """Ranges of files of one (partition, bucket)."""
        starts = self.starts.tolist()
        return list(zip(starts, [*starts[1:], len(self.sizes)], strict=False))

    def some(self, start: int, stop: int) -> FileRange:
        """The files from one place up to another, as a split holds them."""
        return self.metas.some(self.first + start, self.first + stop)

    def partition(self, index: int) -> GenericRow:
        """The partition of a file, typed."""
        row: GenericRow = self.partition_rows[self.partition_indices[index]]
        return row

    def key(self, index: int) -> _Key:
        """Partition (serialised) and bucket of a file."""
        return self.partition_keys[self.partition_indices[index]], int(self.bucket_numbers[index])

    def of_branch(
        self, first: int, last: int, branch: BranchFiles, deletions: Sequence[DeletionFile | None] | None
    ) -> BranchFiles | None:
        """The files of a range that belong to another branch, with their deletion vectors; None if there are none."""
        part = self.entries.select(["file_name", OF_BRANCH]).slice(self.first + first, last - first)
        there = part[OF_BRANCH].to_pylist()
        names = set(part.filter(part[OF_BRANCH])["file_name"].to_pylist())
        if not names:
            return None
        vectors = (file for file, is_there in zip(deletions or (), there, strict=False) if is_there and file)
        names.update(posixpath.basename(file.dv_index_path) for file in vectors)
        return replace(branch, names=frozenset(names))

    def deletion_files(
        self, first: int, last: int, partition: bytes, bucket: int, deletions: DeletionFiles | None
    ) -> list[DeletionFile | None] | None:
        """The deletion files of a range of files in one bucket; None if nothing is deleted."""
        if not deletions:
            return None
        names = self.entries["file_name"].slice(self.first + first, last - first).to_pylist()
        found = [deletions.get((partition, bucket, name)) for name in names]
        return found if any(found) else None


def _run_starts(*columns: _Numbers) -> _Numbers:
    """Positions of the rows that differ from the row before."""
    begins = np.ones(len(columns[0]), dtype=bool)
    begins[1:] = np.logical_or.reduce([values[1:] != values[:-1] for values in columns])
    return np.flatnonzero(begins)
