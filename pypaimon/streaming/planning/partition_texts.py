"""Partitions as text, by which they are ordered and divided: equal however a writer has laid out their bytes."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pypaimon.streaming.formats import binary_row
from pypaimon.streaming.internals import DataField

PartitionText = tuple[str | None, ...]
"""The values of the partition columns as text, None for null; empty without partitions."""


def texts_of(partitions: pa.Array, fields: Sequence[DataField]) -> list[PartitionText]:
    """The texts of partitions.

    Args:
        partitions: Serialised rows.
        fields: The partition columns.
    """
    columns = (column.to_pylist() for column in binary_row.decode_columns(partitions, fields))
    texts = ([None if value is None else str(value) for value in values] for values in columns)
    return list(zip(*texts, strict=True)) if fields else [()] * len(partitions)
