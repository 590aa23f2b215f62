"""Which files belong to a shard (docs/java-semantics.md#sharding) or to chosen buckets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.options.table_traits import TableTraits

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ShardFilter:
    """Keeps the files of one shard, or of chosen buckets.

    Tables whose buckets are ordered shard by bucket, floor-mod, so that bucket -2 belongs to a shard too;
    unaware-bucket tables by the hash of the file name, as Java does. Shards are disjoint and together complete.

    Attributes:
        traits: The table.
        shard: (index, count), or None.
        bucket_filter: Which buckets are read, or None.
    """

    traits: TableTraits
    shard: tuple[int, int] | None = None
    bucket_filter: Callable[[int], bool] | None = None

    def places(self, entries: pa.Table) -> _Mask:
        """Which entries lie in a bucket of which some are read; as `mask` where files are not told apart."""
        return replace(self, shard=None if self.traits.shards_by_file else self.shard).mask(entries)

    def mask(self, entries: pa.Table) -> _Mask:
        """Which entries (rows of `ENTRY_SCHEMA`) are read."""
        keep = np.ones(entries.num_rows, dtype=bool)
        if self.shard is None and self.bucket_filter is None:
            return keep
        buckets = entries["bucket"].to_numpy()
        if self.bucket_filter is not None:
            wanted = [bucket for bucket in np.unique(buckets) if self.bucket_filter(int(bucket))]
            keep &= np.isin(buckets, wanted)
        if self.shard is not None:
            index, count = self.shard
            by_file = self.traits.shards_by_file
            numbers = _name_hashes(entries["file_name"]) if by_file else buckets
            # As in Java: `Math.abs(hash % count)` by file, `Math.floorMod(bucket, count)` by bucket.
            keep &= (np.abs(np.fmod(numbers, count)) if by_file else np.mod(numbers, count)) == index
        return keep


def _name_hashes(names: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Java's `String.hashCode` of each name, which goes through its UTF-16 units."""
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
    # All names advance together, one UTF-16 unit per step; names that have ended take no part. The product stays below
    # 2^37, so that 64 bits hold it until it is cut to the 32 bits of a Java int.
    for position in range(int(lengths.max(initial=0))):
        longer = position < lengths
        hashes[longer] = (hashes[longer] * 31 + units[starts[longer] + position]) & 0xFFFFFFFF
    return np.where(hashes >= 1 << 31, hashes - (1 << 32), hashes)
