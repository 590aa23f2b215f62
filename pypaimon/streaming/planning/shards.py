"""Which files belong to a shard (docs/java-semantics.md#sharding), to chosen buckets, or to slots of a group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.options.slot_rule import DividedBy, SlotSet
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.planning.name_hashes import name_hashes
from pypaimon.streaming.planning.slots import in_slots

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ShardFilter:
    """Keeps the files of one shard, of chosen buckets, or of slots.

    Tables whose buckets are ordered shard by bucket, floor-mod, so that bucket -2 belongs to a shard too;
    unaware-bucket tables by the hash of the file name, as Java does. Shards are disjoint and together complete.

    Attributes:
        traits: The table.
        shard: (index, count), or None.
        bucket_filter: Which buckets are read, or None.
        slots: Which slots are read, or None.
    """

    traits: TableTraits
    shard: tuple[int, int] | None = None
    bucket_filter: Callable[[int], bool] | None = None
    slots: SlotSet | None = None

    def places(self, entries: pa.Table) -> _Mask:
        """Which entries lie in a bucket of which some are read; as `mask` where files are not told apart."""
        shard = None if self.traits.shards_by_file else self.shard
        slots = None if self.slots is not None and self.slots.rule.by is DividedBy.FILE else self.slots
        return replace(self, shard=shard, slots=slots).mask(entries)

    def mask(self, entries: pa.Table) -> _Mask:
        """Which entries (rows of `ENTRY_SCHEMA`) are read."""
        keep = np.ones(entries.num_rows, dtype=bool)
        if self.slots is not None:
            keep &= in_slots(entries, self.slots)
        if self.shard is None and self.bucket_filter is None:
            return keep
        buckets = entries["bucket"].to_numpy()
        if self.bucket_filter is not None:
            wanted = [bucket for bucket in np.unique(buckets) if self.bucket_filter(int(bucket))]
            keep &= np.isin(buckets, wanted)
        if self.shard is not None:
            index, count = self.shard
            by_file = self.traits.shards_by_file
            numbers = name_hashes(entries["file_name"]) if by_file else buckets
            # As in Java: `Math.abs(hash % count)` by file, `Math.floorMod(bucket, count)` by bucket.
            keep &= (np.abs(np.fmod(numbers, count)) if by_file else np.mod(numbers, count)) == index
        return keep
