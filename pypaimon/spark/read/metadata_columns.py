"""Columns that a source adds to those of the table."""

from __future__ import annotations

from collections.abc import Iterable

from pypaimon.streaming.model.system_columns import ROW_KIND

"""`+I`, `-U`, `+U` or `-D`."""
SNAPSHOT_ID = "_snapshot_id"
"""The snapshot that the row came with."""
ORDINAL = "_ordinal"
"""Grows with the order of the rows of one (partition, bucket) of one snapshot."""
METADATA = (ROW_KIND, SNAPSHOT_ID, ORDINAL)


def data_columns(names: Iterable[str]) -> list[str]:
    """The names that are columns of the table."""
    return [name for name in names if name not in METADATA]
