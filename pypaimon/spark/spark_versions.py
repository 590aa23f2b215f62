"""Differences between releases of Spark: 4.2 and later support everything, 4.0 and 4.1 ignore limits of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
    from pyspark.sql.types import StructType

    from pypaimon.spark.options.source_options import Admission

    KNOWS_LIMITS = True
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxFiles,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )

        KNOWS_LIMITS = True
    except ImportError:  # Spark 4.0 and 4.1 never ask for limits, so the names are enough.

        class SupportsTriggerAvailableNow:
            """Stands in for Spark 4.2's."""

        class ReadLimit:
            def __init__(self, bound: int | None = None) -> None:
                self.bound = bound

        KNOWS_LIMITS = False
        ReadAllAvailable = ReadMaxBytes = ReadMaxFiles = ReadMaxRows = ReadMinRows = ReadLimit

__all__ = [
    "KNOWS_LIMITS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxFiles",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "check_limits",
    "check_stream_writes",
]


def check_limits(admission: Admission) -> None:
    """Refuse limits that this release of Spark ignores."""
    if KNOWS_LIMITS or not any(getattr(admission, name) is not None for name in admission.__slots__):
        return
    raise StreamConfigError(
        f"Options '*PerTrigger': this is Spark {_version()}, which ignores limits and asks a Python "
        "source for everything; Spark 4.2 and later apply them. Leave them out: each trigger then takes everything."
    )


def check_stream_writes() -> None:
    """Refuse to write a stream where Spark passes no Arrow batches to a Python sink."""
    from pyspark.sql import datasource

    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        raise UnsupportedTableError(
            f"This is Spark {_version()}: streams are written from Spark 4.1 on; in foreachBatch use df.write with "
            "the options 'query-id' and 'batch-id'."
        )


def _version() -> str:
    import pyspark

    return pyspark.__version__


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that batches of a Spark schema must have, exactly."""
    from inspect import signature

    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)
