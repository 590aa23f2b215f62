"""`MixedPartitions`: partitions whose files are divided into several numbers of buckets, which only `rescale` accepts.

Such a partition is what a writer leaves that does not check the number of buckets. A commit that compacts it is
refused, because a key may be in a bucket of either number.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.compaction.reports import SkippedPartition
from pypaimon.streaming.filtering.partition_texts import partition_text
from pypaimon.streaming.formats.binary_row import decode
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.planning.units import bucket_counts


class MixedPartitions:
    """The partitions of one state of a table that have several numbers of buckets."""

    def __init__(self, table: PaimonTable, entries: pa.Table, chosen: Callable[[pa.Array], pa.Array]) -> None:
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
