"""Which entries of manifests a stream reads: by shard, bucket, level, creation time, and what its filter rules out."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.filtering.pruning import KNOWLEDGE, Pruner, Scan
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.data_types import is_local_timestamp
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.model.time_zone import zone_of
from pypaimon.streaming.options.stream_options import StreamOptions
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.planning.shards import ShardFilter
from pypaimon.streaming.planning.units import column

AnyScan = Scan | Literal["added"]
"""What is scanned; `added`: files that several snapshots added."""
_Mask = npt.NDArray[np.bool_]


class EntrySelection:
    """Masks over entries, and manifests, of one table for one stream's filter and shard.

    Args:
        directory: The table.
        schema: The schema that the stream reads with.
        options: The stream's settings.
        created_after: Only files created at this time or later, epoch milliseconds; None: all.

    Attributes:
        needs_bounds: Whether files come with the bounds of their columns, which tell the time zone of ORC files.
    """

    def __init__(
        self, directory: TableDirectory, schema: TableSchema, options: StreamOptions, created_after: int | None
    ) -> None:
        self._traits = TableTraits.of(schema)
        # In an altered table a column may have been such a timestamp when a file was written.
        self.needs_bounds = schema.id > 0 or any(is_local_timestamp(field.type) for field in schema.fields)
        # Manifests record what clocks of the writer showed.
        self._created_after = None if created_after is None else zone_of(schema.options).wall_millis(created_after)
        # Records that wait in bucket -2 are in no range, as in Java's batch reads.
        waiting_apart = options.between is not None and self._traits.primary_key and self._traits.postpone
        self._only_real_buckets = self._traits.only_real_buckets or waiting_apart
        self._pruner = Pruner(schema, directory.schema, options.predicate)
        self._by_partition = Pruner(schema, directory.schema, options.predicate, by=KNOWLEDGE[:1])
        self._shards = ShardFilter(self._traits, options.shard, options.bucket_filter, options.slots)

    def manifests(self, manifests: pa.Table) -> pa.BooleanArray:
        """Which manifests can hold an entry that is read."""
        return self._pruner.manifests(manifests)

    def of_first_plan(self, entries: pa.Table) -> _Mask:
        """Levels whose rows no later changelog repeats: lookup above 0, full-compaction the top only."""
        kept: _Mask = column(entries, "level") >= self._traits.lowest_state_level
        return kept

    def of_places(self, entries: pa.Table, scan: Scan) -> _Mask:
        """Which entries lie in a partition and a bucket that may be read; all of a (partition, bucket), or none."""
        kept = self._shards.places(entries)
        if kept.any():
            kept &= self.of_partitions(entries, scan)
        return kept

    def of_partitions(self, entries: pa.Table, scan: Scan) -> _Mask:
        """Which entries lie in a partition that may be read, whatever the shard."""
        kept: _Mask = self._by_partition.entries(entries, scan).to_numpy(zero_copy_only=False)
        return kept

    def kept(self, entries: pa.Table, scan: AnyScan) -> _Mask:
        """Which entries are read."""
        kept = self._shards.mask(entries)
        if self._only_real_buckets:
            kept &= column(entries, "bucket") != POSTPONE_BUCKET
        if self._created_after is not None:
            kept &= column(entries, "creation_time") >= self._created_after
        if kept.any():
            what: Scan = "delta" if scan == "added" else scan
            kept &= self._pruner.entries(entries, what).to_numpy(zero_copy_only=False)
        return kept


def filtered(entries: pa.Table, kept: _Mask) -> pa.Table:
    """The entries, or manifests, that are kept."""
    return entries if kept.all() else entries.filter(pa.array(kept))
