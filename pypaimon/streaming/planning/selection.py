"""Which entries of manifests a stream reads: by its filter, shard, buckets or slots, by level and creation time.

Java's rules for shards: docs/java-semantics.md#sharding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.filtering.filters import conjunction
from pypaimon.streaming.filtering.pruning import KNOWLEDGE, Pruner, Scan
from pypaimon.streaming.formats import binary_row
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.data_types import is_local_timestamp
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.model.time_zone import zone_of
from pypaimon.streaming.options.slot_rule import DividedBy, SlotRule, SlotSet
from pypaimon.streaming.options.stream_options import StreamOptions
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.paimon.internals import DataField, TableSchema
from pypaimon.streaming.planning.units import column

AnyScan = Scan | Literal["added", "compared"]
"""What is scanned; `added`: files that several snapshots added; `compared`: files of two states."""
_Mask = npt.NDArray[np.bool_]


class EntrySelection:
    """Masks over entries, and manifests, of one table for one stream's filter and shard.

    Args:
        created_after: Only files created at this time or later, epoch milliseconds; None: all.

    Attributes:
        needs_bounds: Whether files come with the bounds of their columns, from which the time zone of the writer of
            an ORC file is found.
    """

    def __init__(
        self,
        directory: TableDirectory,
        schema: TableSchema,
        traits: TableTraits,
        options: StreamOptions,
        created_after: int | None,
    ) -> None:
        self._schema = schema
        self._schema_of = directory.schema
        self._traits = traits
        # In an altered table a column may have been such a timestamp when a file was written.
        self.needs_bounds = schema.id > 0 or any(is_local_timestamp(field.type) for field in schema.fields)
        # Manifests record the local time of the writer.
        self._created_after = None if created_after is None else zone_of(schema.options).wall_millis(created_after)
        # A range and a state leave out the records of bucket -2, as Java's batch reads do.
        self._may_wait = traits.primary_key and traits.postpone
        self._only_real_buckets = traits.only_real_buckets or (self._may_wait and options.between is not None)
        self._pruner = Pruner(schema, directory.schema, options.predicate)
        self._by_partition = Pruner(schema, directory.schema, options.predicate, by=KNOWLEDGE[:1])
        self._shards = ShardFilter(self._traits, options.shard, options.bucket_filter, options.slots)

    def manifests(self, manifests: pa.Table) -> pa.BooleanArray:
        """Which manifests can hold an entry that is read."""
        return self._pruner.manifests(manifests)

    def manifests_beside(self, manifests: pa.Table, entries: pa.Table) -> pa.BooleanArray:
        """Which manifests can hold an entry in a partition of these entries."""
        from pypaimon.streaming.paimon.filter_internals import Predicate

        partitions = entries["partition"].combine_chunks().unique()
        fields = {field.name: field for field in self._schema.fields}
        keys = [fields[name] for name in self._schema.partition_keys]
        parts = []
        for field, values in zip(keys, binary_row.decode_columns(partitions, keys), strict=True):
            among = [Predicate("in", None, field.name, values.drop_null().unique().to_pylist())]
            null = [Predicate("isNull", None, field.name, None)] if values.null_count else []
            parts.append(Predicate("or", None, None, among + null))
        return Pruner(self._schema, self._schema_of, conjunction(parts)).manifests(manifests)

    def of_first_plan(self, entries: pa.Table) -> _Mask:
        """Entries on levels whose rows no later changelog repeats.

        With the producer `lookup` these are the levels above 0, with `full-compaction` the top level only.
        """
        kept: _Mask = column(entries, "level") >= self._traits.lowest_state_level
        return kept

    def of_places(self, entries: pa.Table, scan: Scan) -> _Mask:
        """Which entries are in a partition and a bucket that may be read; never a part of a (partition, bucket)."""
        kept = self._shards.places(entries)
        if kept.any():
            kept &= self.of_partitions(entries, scan)
        return kept

    def of_partitions(self, entries: pa.Table, scan: Scan) -> _Mask:
        """Which entries are in a partition that may be read, in any shard."""
        kept: _Mask = self._by_partition.entries(entries, scan).to_numpy(zero_copy_only=False)
        return kept

    def kept(self, entries: pa.Table, scan: AnyScan) -> _Mask:
        """Which entries are read."""
        kept = self._shards.mask(entries)
        if self._only_real_buckets or (self._may_wait and scan == "compared"):
            kept &= column(entries, "bucket") != POSTPONE_BUCKET
        if self._created_after is not None:
            kept &= column(entries, "creation_time") >= self._created_after
        if kept.any():
            # With a primary key, values drop no file of a state, because the other state may hold another version of
            # a row.
            what: Scan = "delta" if scan == "added" or scan == "compared" else scan
            kept &= self._pruner.entries(entries, what).to_numpy(zero_copy_only=False)
        return kept


def filtered(entries: pa.Table, kept: _Mask) -> pa.Table:
    """The entries, or manifests, that are kept."""
    return entries if kept.all() else entries.filter(pa.array(kept))


# ---- shards, buckets, slots ----


@dataclass(frozen=True, slots=True)
class ShardFilter:
    """Keeps the files of one shard, of chosen buckets, or of slots.

    A table whose buckets are ordered is sharded by bucket, floor-mod, so that bucket -2 belongs to a shard too. An
    unaware-bucket table is sharded by the hash of the file name, as in Java. If `bucket` of an append table was altered
    to -1, the files from before stay in the shard of their bucket, because shards may continue at different snapshots.
    Shards are disjoint and complete.

    Attributes:
        shard: (index, count), or None.
    """

    traits: TableTraits
    shard: tuple[int, int] | None = None
    bucket_filter: Callable[[int], bool] | None = None
    slots: SlotSet | None = None

    def places(self, entries: pa.Table) -> _Mask:
        """Which entries are in a bucket of which some files are read: `mask`, but without rules by file."""
        slots = None if self.slots is not None and self.slots.rule.by is DividedBy.FILE else self.slots
        return replace(self, slots=slots)._kept(entries, by_file=False)

    def mask(self, entries: pa.Table) -> _Mask:
        """Which entries (rows of `ENTRY_SCHEMA`) are read."""
        return self._kept(entries, by_file=True)

    def _kept(self, entries: pa.Table, *, by_file: bool) -> _Mask:
        keep = np.ones(entries.num_rows, dtype=bool)
        if self.slots is not None:
            keep &= np.isin(_slots_of(entries, self.slots.rule), sorted(self.slots.numbers))
        if self.shard is None and self.bucket_filter is None:
            return keep
        buckets = entries["bucket"].to_numpy()
        if self.bucket_filter is not None:
            wanted = [bucket for bucket in np.unique(buckets) if self.bucket_filter(int(bucket))]
            keep &= np.isin(buckets, wanted)
        if self.shard is not None:
            index, count = self.shard
            # As in Java: `Math.floorMod(bucket, count)` by bucket, `Math.abs(hash % count)` by file.
            inside = np.mod(buckets, count) == index
            loose = self._without_bucket(entries)
            if loose.any() and by_file:
                inside = np.where(loose, np.abs(np.fmod(name_hashes(entries["file_name"]), count)) == index, inside)
            keep &= inside if by_file else inside | loose
        return keep

    def _without_bucket(self, entries: pa.Table) -> _Mask:
        """Which entries are files whose bucket has no meaning."""
        if self.traits.primary_key or self.traits.data_evolution:
            return np.zeros(entries.num_rows, dtype=bool)
        loose: _Mask = column(entries, "total_buckets") < 1
        return loose


def _slots_of(entries: pa.Table, rule: SlotRule) -> npt.NDArray[np.int64]:
    if rule.by is DividedBy.FILE:
        return np.abs(np.fmod(name_hashes(entries["file_name"]), rule.count))
    buckets = entries["bucket"].to_numpy().astype(np.int64)
    if rule.by is DividedBy.PARTITION_AND_BUCKET and len(buckets):
        encoded = pc.dictionary_encode(entries["partition"].combine_chunks())
        offsets = [rule.offset(text) for text in partition_texts(encoded.dictionary, rule.partition_fields)]
        buckets = buckets + np.array(offsets, dtype=np.int64)[encoded.indices.to_numpy()]
    slots: npt.NDArray[np.int64] = np.mod(buckets, rule.count)
    return slots


def name_hashes(names: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Java's `String.hashCode` of each file name, computed over its UTF-16 units."""
    array = names.combine_chunks()
    if pc.all(pc.string_is_ascii(array), min_count=0).as_py():
        array = array.cast(pa.large_string())
        offsets = np.frombuffer(array.buffers()[1], dtype=np.int64)[array.offset : array.offset + len(array) + 1]
        units: npt.NDArray[Any] = np.frombuffer(array.buffers()[2] or b"", dtype=np.uint8)
    else:
        encoded = [name.encode("utf-16-be") for name in array.to_pylist()]
        offsets = np.cumsum([0, *(len(name) // 2 for name in encoded)])
        units = np.frombuffer(b"".join(encoded), dtype=">u2")
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = np.zeros(len(array), dtype=np.int64)
    # All names advance together, one UTF-16 unit per step; names that have ended are skipped. The product stays below
    # 2^37, so 64 bits hold it until it is cut to the 32 bits of a Java int.
    for position in range(int(lengths.max(initial=0))):
        longer = position < lengths
        hashes[longer] = (hashes[longer] * 31 + units[starts[longer] + position]) & 0xFFFFFFFF
    return np.where(hashes >= 1 << 31, hashes - (1 << 32), hashes)


def partition_texts(partitions: pa.Array, fields: Sequence[DataField]) -> list[tuple[str | None, ...]]:
    """The values of serialised partitions as text, None for null; empty tuples without partition columns.

    Partitions are ordered and divided by these texts, which are equal for equal values even if two writers serialised
    a partition to different bytes.
    """
    columns = (column.to_pylist() for column in binary_row.decode_columns(partitions, fields))
    texts = ([None if value is None else str(value) for value in values] for values in columns)
    return list(zip(*texts, strict=True)) if fields else [()] * len(partitions)
