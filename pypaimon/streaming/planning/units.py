"""Units: the files of a snapshot in canonical order, how a plan resumes among them, and how two states differ.

Canonical order is that of partitions (by the text of their values, null first), buckets (-2 last), and within a
bucket of the manifest. It depends on the table alone: never on filters, shards, split sizes or limits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import TableChangedError, UnsupportedTableError
from pypaimon.streaming.filtering.pruning import row_ranges
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.model.position import POSTPONE_BUCKET, ReadUnit, bucket_order, partition_order
from pypaimon.streaming.paimon.internals import DeletionFile

PartitionTexts = Callable[[pa.Array], Sequence[tuple[str | None, ...]]]
_Numbers = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]
_SIDE = "side"


@dataclass(frozen=True)
class Units:
    """Manifest entries in canonical order, cut into units.

    Attributes:
        entries: Rows of `ENTRY_SCHEMA` in canonical order.
        of_entry: Number of the unit of each entry, ascending from 0.
        partitions: The values of each distinct partition as text.
        partition: Index into `partitions` of each entry.
        bucket: Bucket of each entry.
        index: Index of each entry in its bucket.
    """

    entries: pa.Table
    of_entry: _Numbers
    partitions: tuple[tuple[str | None, ...], ...]
    partition: _Numbers
    bucket: _Numbers
    index: _Numbers

    def of(self, entries: pa.Table) -> Units:
        """The same units with other columns of the entries."""
        return replace(self, entries=entries)

    def part(self, start: int, stop: int) -> Units:
        """The units from one entry up to another; no unit and no bucket may be cut there."""
        inside = slice(start, stop)
        return Units(
            self.entries.slice(start, stop - start),
            self.of_entry[inside] - (self.of_entry[start] if start < stop else 0),
            self.partitions,
            self.partition[inside],
            self.bucket[inside],
            self.index[inside],
        )

    def unit_at(self, entry: int) -> ReadUnit:
        """The unit that ends with this entry."""
        return ReadUnit(
            self.partitions[self.partition[entry]],
            int(self.bucket[entry]),
            self.entries["file_name"][entry].as_py(),
            int(self.index[entry]),
        )

    def first_after(self, last: ReadUnit) -> int:
        """The first entry that comes after a unit that was handed out."""
        first, end = self._ranks(last.partition)
        # A partition that is gone gets the rank of the first one after it.
        order: tuple[int, ...] = (first, *bucket_order(last.bucket), last.index) if end > first else (first,)
        return bisect_right(range(len(self.bucket)), order, key=self._order)

    def chosen(self, positions: _Numbers) -> pa.Table:
        """The entries at these ascending positions."""
        if not len(positions):
            return self.entries.slice(0, 0)
        # A plan that limits cut is a small part of all entries, so take from that part only.
        first, end = int(positions[0]), int(positions[-1]) + 1
        part = self.entries.slice(first, end - first)
        return part if len(positions) == end - first else part.take(pa.array(positions - first))

    def check_holds(self, last: ReadUnit, kept: _Mask) -> None:
        """Check that the unit that was handed out last is still in its place.

        Args:
            kept: Entries that are read. Where nothing is read, a manifest may be left out, so places prove nothing.

        Raises:
            TableChangedError: Another file has its place, so the position was made from another snapshot.
        """
        if any(kept[entry] and self.unit_at(entry).file_name != last.file_name for entry in self._in_place(last)):
            raise TableChangedError(
                f"The position names file {last.file_name}, which is not in this snapshot: the table was "
                "rolled back or re-created since the position was saved.",
                advice="Choose another start with with_start(...).",
                option="with_start",
            )

    def check_in_place(self, last: ReadUnit, kept: _Mask) -> None:
        """As `check_holds`, for entries that other settings may order differently: the place need not be read.

        Raises:
            TableChangedError: Another file has the place of the unit, or no file has.
        """
        inside = slice(*np.searchsorted(self.partition, self._ranks(last.partition)))
        if not kept[inside].any():
            return
        if last.file_name not in {self.unit_at(entry).file_name for entry in self._in_place(last)}:
            raise TableChangedError(
                f"The position names file {last.file_name}, which is not in its place in this range: the table was "
                "rolled back or re-created since the position was saved, or the difference of states was read with "
                "row kinds then and without them now, or the other way round.",
                advice="Resume with the settings of the position, or leave it out to start again.",
            )

    def _in_place(self, last: ReadUnit) -> Iterator[int]:
        """Entries in the place of a unit: at most one in each partition with its texts."""
        for rank in range(*self._ranks(last.partition)):
            order: tuple[int, ...] = (rank, *bucket_order(last.bucket), last.index)
            entry = bisect_left(range(len(self.bucket)), order, key=self._order)
            if entry < len(self.bucket) and self._order(entry) == order:
                yield entry

    def _ranks(self, partition: tuple[str | None, ...]) -> tuple[int, int]:
        """The range of partitions with these texts; if there are none, an empty range where they would be."""
        wanted = partition_order(partition)
        first, end = (search(self.partitions, wanted, key=partition_order) for search in (bisect_left, bisect_right))
        return first, end

    def _order(self, entry: int) -> tuple[int, ...]:
        """The sort key of an entry in canonical order."""
        return int(self.partition[entry]), *bucket_order(int(self.bucket[entry])), int(self.index[entry])


def in_canonical_order(
    entries: pa.Table,
    partition_texts: PartitionTexts,
    *,
    by_sequence: bool,
    unit: Callable[[Units], _Numbers],
    group: _Numbers | None = None,
) -> Units:
    """Sort entries canonically and cut them into units.

    Args:
        entries: Rows of `ENTRY_SCHEMA`, in manifest order.
        partition_texts: Returns the texts of all serialised partitions at once.
        by_sequence: Files of a bucket by smallest sequence number first (append tables: unaware buckets, and full
            plans, as in Java); otherwise in manifest order.
        unit: Which entries form a unit: `each_file`, `each_name`, `whole_buckets` or `whole_row_id_groups`.
        group: The number of the snapshot of each entry; each snapshot is sorted for itself. None: one snapshot.
    """
    encoded = entries["partition"].combine_chunks().dictionary_encode()
    texts = partition_texts(encoded.dictionary)
    # Only distinct partitions are compared as texts; `rank` is the inverse permutation, from the dictionary code of a
    # partition to its number in canonical order.
    ranking = sorted(range(len(texts)), key=lambda index: partition_order(texts[index]))
    rank = np.empty(len(texts), dtype=np.int64)
    rank[ranking] = np.arange(len(texts))
    partition = rank[encoded.indices.to_numpy(zero_copy_only=False)] if len(texts) else np.empty(0, dtype=np.int64)
    bucket = column(entries, "bucket")
    # `lexsort` takes the last key as the most significant one and is stable: ties stay in manifest order.
    keys: list[Any] = [_bucket_key(bucket), partition]
    if unit is whole_row_id_groups:
        keys.insert(0, column(entries, "first_row_id", -1))
    elif unit is each_name:
        keys = [*_gone_before_new(entries), *keys]
    elif by_sequence:
        keys.insert(0, column(entries, "min_sequence_number"))
    if group is not None:
        keys.append(group)
    order = np.lexsort(keys)
    partition, bucket = partition[order], bucket[order]
    groups = () if group is None else (group[order],)
    bare = Units(
        entries.take(pa.array(order)),
        np.arange(len(order)),
        tuple(texts[index] for index in ranking),
        partition,
        bucket,
        _index_in_run(partition, bucket, *groups),
    )
    return replace(bare, of_entry=unit(bare))


def each_file(units: Units) -> _Numbers:
    """Every file is a unit."""
    return np.arange(len(units.bucket))


def each_name(units: Units) -> _Numbers:
    """Every file is a unit, with its entries in both of two states that are compared.

    Files of the earlier state alone come first, then those of both, then those of the later state, each by name. So a
    row that was rewritten is retracted before it is inserted.
    """
    names = units.entries["file_name"].to_numpy()
    starts = units.index == 0
    starts[1:] |= names[1:] != names[:-1]
    return np.cumsum(starts, dtype=np.int64) - 1


def whole_buckets(units: Units) -> _Numbers:
    """All files of a (partition, bucket) are one unit, because they are merged; those of bucket -2 are not."""
    starts = (units.index == 0) | (units.bucket == POSTPONE_BUCKET)
    return np.cumsum(starts, dtype=np.int64) - 1


def whole_snapshot(units: Units) -> _Numbers:
    """All files are one unit, because keys may have moved to other buckets."""
    return np.zeros(len(units.index), dtype=np.int64)


def whole_row_id_groups(units: Units) -> _Numbers:
    """Files whose row-id ranges overlap hold columns of the same rows, and are one unit."""
    first, count = column(units.entries, "first_row_id", -1), column(units.entries, "row_count")
    return row_ranges(first, count, units.index == 0)


def sides(old: pa.Table | None, new: pa.Table) -> pa.Table:
    """The entries of two states, each with its side."""
    both = [(side, table) for side, table in enumerate((old, new)) if table is not None]
    return pa.concat_tables(
        table.append_column(_SIDE, pa.array(np.full(table.num_rows, side, dtype=np.int8))) for side, table in both
    )


def on_each_side(entries: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The entries of the state before, and those of the state after."""
    return entries.filter(pc.equal(entries[_SIDE], 0)), entries.filter(pc.equal(entries[_SIDE], 1))


def _gone_before_new(entries: pa.Table) -> list[_Numbers]:
    """Sort keys of entries of two states, the least significant first; see `each_name`."""
    _, names = np.unique(entries["file_name"].to_numpy(), return_inverse=True)
    later = column(entries, _SIDE) == 1
    count = int(names.max(initial=-1)) + 1
    is_old, is_new = (np.bincount(names[side], minlength=count) > 0 for side in (~later, later))
    return [names, (1 + is_new.astype(np.int64) - is_old)[names]]


def column(entries: pa.Table, name: str, null: int = 0) -> _Numbers:
    """A numeric column of entries; `null` replaces nulls."""
    values = entries[name].combine_chunks()
    filled: _Numbers = values.fill_null(null).to_numpy(zero_copy_only=False).astype(np.int64)
    return filled


def _bucket_key(bucket: _Numbers) -> _Numbers:
    return np.where(bucket == POSTPONE_BUCKET, np.iinfo(np.int64).max, bucket)


def _index_in_run(*columns: _Numbers) -> _Numbers:
    count = len(columns[0])
    starts = np.ones(count, dtype=bool)
    starts[1:] = np.logical_or.reduce([values[1:] != values[:-1] for values in columns])
    # A running maximum carries the start of a run to all of its entries.
    begin = np.maximum.accumulate(np.where(starts, np.arange(count), 0))
    index: _Numbers = np.arange(count) - begin
    return index


DeletionFiles = Mapping[tuple[bytes, int, str], DeletionFile]
"""The deletion file of each data file, by serialised partition, bucket and name."""


def check_same_buckets(entries: pa.Table, before: Snapshot, snapshot: Snapshot) -> None:
    """Check that no partition was rescaled between two states.

    Raises:
        UnsupportedTableError: A partition was rescaled, so its keys are in other buckets.
    """
    if is_rescaled(entries):
        raise rescaled("of a partition", before, snapshot)


def is_rescaled(entries: pa.Table) -> bool:
    """Whether files of one partition were written for different numbers of buckets; dynamic buckets record -1."""
    return bool(bucket_counts(entries))


def bucket_counts(entries: pa.Table) -> dict[bytes, list[int]]:
    """The numbers of buckets of the partitions (serialised rows) that have several."""
    totals = entries.filter(pc.greater_equal(entries["total_buckets"], 0)).select(["partition", "total_buckets"])
    counts = totals.group_by("partition").aggregate([("total_buckets", "count_distinct")])
    several = counts.filter(pc.greater(counts["total_buckets_count_distinct"], 1))["partition"]
    inside = totals.filter(pc.is_in(totals["partition"], value_set=several.combine_chunks()))
    found: dict[bytes, list[int]] = {}
    for pair in inside.group_by(["partition", "total_buckets"]).aggregate([]).to_pylist():
        found.setdefault(pair["partition"], []).append(pair["total_buckets"])
    return {row: sorted(numbers) for row, numbers in sorted(found.items())}


def keys_move(entries: pa.Table) -> bool:
    """Whether an OVERWRITE may move a key to another bucket: by a rescale, or because buckets are not fixed."""
    return bool(pc.any(pc.less(entries["total_buckets"], 0)).as_py()) or is_rescaled(entries)


def rescaled(what: str, before: Snapshot, snapshot: Snapshot) -> UnsupportedTableError:
    """The error for two states whose buckets are not the same ones."""
    return UnsupportedTableError(
        f"The number of buckets {what} has changed between snapshots {before.id} and {snapshot.id}, so their states "
        "cannot be compared bucket by bucket. Compare snapshots on one side of that change, or read the changes "
        "between them."
    )


def lone_files(units: Units) -> _Mask:
    """Entries whose file is on one side only; a file that was moved to another level counts as another file."""
    # Each column of `pairs` is (code of the name, level). A pair that occurs once is on one side only.
    names = units.entries["file_name"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    pairs = np.stack([names, column(units.entries, "level")])
    _, inverse, counts = np.unique(pairs, axis=1, return_inverse=True, return_counts=True)
    lone: _Mask = counts[inverse.ravel()] == 1
    return lone


def differing_vectors(before: DeletionFiles | None, after: DeletionFiles | None) -> list[tuple[bytes, int, str]]:
    """The data files, as `DeletionFiles` names them, whose deletion vector is not the same in two states."""
    old, new = before or {}, after or {}
    return [file for file in old.keys() | new.keys() if old.get(file) != new.get(file)]


def differing_units(units: Units, deletions_before: DeletionFiles | None, deletions: DeletionFiles | None) -> _Mask:
    """Entries of units whose files, or the rows deleted from them, differ between the two sides."""
    names = units.entries["file_name"].combine_chunks()
    codes = names.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    # Pairs of (unit, code of the file name). A pair that occurs once is a file of one side. A unit with such a file, or
    # with a deletion vector that differs, is compared as a whole.
    pairs = np.unique(np.stack([units.of_entry, codes]), axis=1, return_counts=True)
    lone = np.unique(pairs[0][0][pairs[1] == 1])
    changed = [name for _, _, name in differing_vectors(deletions_before, deletions)]
    differing: _Mask = np.isin(units.of_entry, lone)
    touched = pc.is_in(names, value_set=pa.array(changed, pa.string())).to_numpy(zero_copy_only=False)
    return differing | np.isin(units.of_entry, units.of_entry[touched])
