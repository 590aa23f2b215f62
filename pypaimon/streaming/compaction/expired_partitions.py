"""`without_expired`: leaves out partitions that are about to be dropped (`compaction.skip-expired-partitions`)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pyarrow as pa

from pypaimon.streaming.maintenance.partition_expiry import PartitionExpiry
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.write_internals import BucketMode

Chosen = Callable[[pa.Array], pa.Array]
"""Chooses some of the partitions (serialised rows)."""


def without_expired(table: PaimonTable, now: datetime, chosen: Chosen) -> Chosen:
    """The chosen partitions without those that have expired by their values, if the table's options ask for it.

    As in Java only in tables with buckets. Raises UnsupportedTableError if the format of the times is not supported.
    """
    skips = option_keys.COMPACTION_SKIP_EXPIRED_PARTITIONS.of(table.options)
    expiry = PartitionExpiry.of(table, None, now) if skips else None
    if expiry is None or table.bucket_mode == BucketMode.BUCKET_UNAWARE:
        return chosen

    def kept(rows: pa.Array) -> pa.Array:
        rows = chosen(rows)
        return rows.filter(pa.array([not expiry.is_over(row) for row in rows.to_pylist()], pa.bool_()))

    return kept
