"""Columns that a source adds to those of the table, and those that stand for files in the place of rows."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import LongType, StringType, StructField, StructType

from pypaimon.streaming.model.system_columns import ROW_KIND

SNAPSHOT_ID = "_snapshot_id"
"""The snapshot that the row came with."""
ORDINAL = "_ordinal"
"""Grows with the order of the rows of one (partition, bucket) of one snapshot."""
METADATA = (ROW_KIND, SNAPSHOT_ID, ORDINAL)
FILES_SCHEMA = StructType(
    [
        StructField("path", StringType(), False),
        StructField("columns", StringType(), False),
        StructField("snapshot_id", LongType(), False),
        StructField("row_count", LongType(), False),
        StructField("file_size", LongType(), False),
    ]
)
"""One row per file (`mode=files`); `columns` is JSON: how each column comes out of the file (`FileColumn`)."""


def data_columns(names: Iterable[str]) -> list[str]:
    return [name for name in names if name not in METADATA]
