"""Which partitions of a table are compacted: the chosen ones (`ChosenPartitions`), without those that only `rescale`
accepts (`MixedPartitions`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.compaction.live_files import LiveBucket, local_millis
from pypaimon.streaming.compaction.reports import SkippedPartition
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.filtering.filter_text import parse_filter
from pypaimon.streaming.filtering.filters import conjunction
from pypaimon.streaming.filtering.partition_spec import PartitionSpec, partitions_where
from pypaimon.streaming.filtering.partition_texts import partition_text
from pypaimon.streaming.formats.binary_row import decode
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.maintenance.partition_expiry import PartitionExpiry
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import finite_seconds
from pypaimon.streaming.paimon.write_internals import BucketMode
from pypaimon.streaming.planning.units import bucket_counts

Choice = Callable[[pa.Array], pa.Array]
"""Chooses some of the partitions (serialised rows)."""


class ChosenPartitions:
    """The partitions of a table that are compacted.

    Args:
        partition: As `PartitionSpec.of` takes it; None: any.
        where: A condition on partition columns, as `with_filter` takes it; None: any.
        partition_idle_time: Only partitions without a younger file; None: any.
        without: Serialised rows of partitions that are left out.
        only: Serialised rows of the only partitions that may be chosen, even if they have expired; None: any.

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
        without: Collection[bytes] = (),
        only: pa.Array | None = None,
    ) -> None:
        self._zone = table.zone
        self._only = only
        self._without = pa.array(without, pa.binary())
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
        if self._only is not None:
            rows = rows.filter(pc.is_in(rows, value_set=self._only))
        if len(self._without):
            rows = rows.filter(pc.invert(pc.is_in(rows, value_set=self._without)))
        if self._predicate is None:
            return rows
        return rows.filter(partitions_where(self._predicate, rows, self._fields))

    def living(self, table: PaimonTable, now: datetime) -> Choice:
        """Chooses as `among`, without partitions that are about to be dropped, because they have expired by their
        values, if the table's options ask for it (`compaction.skip-expired-partitions`).

        As in Java only in tables with buckets. Raises UnsupportedTableError if the format of the times is not
        supported.
        """
        options = table.options
        skips = option_keys.COMPACTION_SKIP_EXPIRED_PARTITIONS.of(options) and self._only is None
        # Partitions of chain tables are not dropped here.
        skips = skips and not option_keys.CHAIN_TABLE_ENABLED.of(options)
        expiry = PartitionExpiry.of(table, None, now) if skips else None
        if expiry is None or table.bucket_mode == BucketMode.BUCKET_UNAWARE:
            return self.among

        def kept(rows: pa.Array) -> pa.Array:
            rows = self.among(rows)
            return rows.filter(pa.array([not expiry.is_over(row) for row in rows.to_pylist()], pa.bool_()))

        return kept

    def others(self, rows: pa.Array) -> pa.Array:
        """The partitions that the conditions have excluded; none if there are no conditions."""
        if self._predicate is None:
            return rows.slice(0, 0)
        if len(self._without):
            rows = rows.filter(pc.invert(pc.is_in(rows, value_set=self._without)))
        return rows.filter(pc.invert(partitions_where(self._predicate, rows, self._fields)))

    def idle(self, buckets: Iterable[LiveBucket]) -> Iterator[LiveBucket]:
        if self._idle_millis is None:
            yield from buckets
            return
        newest = local_millis(self._zone.now()) - self._idle_millis
        for _, members in groupby(buckets, key=lambda bucket: bucket.row):
            partition = list(members)
            if max(file.made_millis for bucket in partition for file in bucket.files) <= newest:
                yield from partition


class MixedPartitions:
    """The partitions of one state of a table whose files are divided into several numbers of buckets.

    A writer that does not check the number of buckets leaves such a partition. A commit that compacts it is refused,
    because a key may be in a bucket of either number.
    """

    def __init__(self, table: PaimonTable, entries: pa.Table, chosen: Choice) -> None:
        counts = bucket_counts(entries)
        self._rows = pa.array(list(counts), pa.binary())
        self._chosen = chosen
        self.skipped = tuple(
            SkippedPartition(
                dict(zip(table.partition_keys, decode(row, table.partition_fields), strict=True)),
                f"Its files are divided into {' and '.join(map(str, counts[row]))} buckets, so it is not compacted. "
                "Rescale it: rescale(table, buckets), or paimon-stream rescale.",
            )
            for row in chosen(self._rows).to_pylist()
        )

    def others(self, rows: pa.Array) -> pa.Array:
        """The chosen partitions (serialised rows) without these."""
        rows = self._chosen(rows)
        return rows.filter(pc.invert(pc.is_in(rows, value_set=self._rows))) if len(self._rows) else rows

    def log(self, table: PaimonTable) -> None:
        """Log a warning for each of them."""
        for each in self.skipped:
            StreamLog(__name__, table=table.name).warning(
                "partition_not_compacted",
                "partition %(partition)s is left as it is: %(reason)s",
                partition=partition_text(each.partition),
                reason=each.reason,
            )
