"""`ChosenPartitions`: which partitions are compacted: by values of their columns, by a condition, by age."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import groupby
from typing import Any

import pyarrow as pa

from pypaimon.streaming.compaction.live_files import LiveBucket, local_millis
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.filtering.filter_text import parse_filter
from pypaimon.streaming.filtering.filters import conjunction
from pypaimon.streaming.filtering.partition_spec import PartitionSpec, partitions_where
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options.arguments import finite_seconds


class ChosenPartitions:
    """The partitions of a table that are compacted.

    Args:
        partition: As `PartitionSpec.of` takes it; None: any.
        where: A condition on partition columns, as `with_filter` takes it; None: any.
        partition_idle_time: Only partitions without a younger file; None: any.

    Raises:
        StreamConfigError: `partition` or `where` names a column that is not a partition column, a value does not fit
            its column, or `partition_idle_time` is not a time.
    """

    def __init__(
        self,
        table: PaimonTable,
        partition: Mapping[str, Any] | None = None,
        where: str | None = None,
        partition_idle_time: float | timedelta | None = None,
    ) -> None:
        self._zone = table.zone
        self._fields = table.partition_fields
        parts = [] if partition is None else [PartitionSpec.of(table.schema, partition, "partition").predicate]
        if where is not None:
            if not self._fields:
                raise StreamConfigError(f"where {where!r}: the table has no partitions, leave it out.")
            parts.append(parse_filter(where, self._fields))
        self._predicate = conjunction(parts)
        self._idle_millis = (
            None if partition_idle_time is None else 1000 * finite_seconds("partition_idle_time", partition_idle_time)
        )

    @property
    def by_time(self) -> bool:
        """Whether the choice changes without a commit, as time passes."""
        return self._idle_millis is not None

    def among(self, rows: pa.Array) -> pa.Array:
        """The partitions (serialised rows) whose values are chosen."""
        if self._predicate is None:
            return rows
        return rows.filter(partitions_where(self._predicate, rows, self._fields))

    def idle(self, buckets: Iterable[LiveBucket]) -> Iterator[LiveBucket]:
        """The buckets of partitions that are idle.

        Args:
            buckets: All buckets, grouped by partition.
        """
        if self._idle_millis is None:
            yield from buckets
            return
        newest = local_millis(self._zone.now()) - self._idle_millis
        for _, members in groupby(buckets, key=lambda bucket: bucket.row):
            partition = list(members)
            if max(file.made_millis for bucket in partition for file in bucket.files) <= newest:
                yield from partition
