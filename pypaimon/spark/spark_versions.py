"""What differs between the releases of Spark: 4.2 and later whole; 4.0 and 4.1 know no limits of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    except ImportError:  # Spark 4.0 and 4.1: nobody asks for limits, so nothing but their names is needed.

        class SupportsTriggerAvailableNow:
            """Stands in for Spark 4.2's."""

        class ReadLimit:
            """Stands in for Spark 4.2's."""

            def __init__(self, bound: int | None = None) -> None:
                self.bound = bound

        ReadAllAvailable = ReadMaxBytes = ReadMaxFiles = ReadMaxRows = ReadMinRows = ReadLimit

__all__ = [
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxFiles",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
]


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that batches of a Spark schema must have, exactly."""
    from inspect import signature

    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)
