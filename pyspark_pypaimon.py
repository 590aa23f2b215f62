"""Spark looks for modules named `pyspark_*` and registers their `DefaultSource`."""

from pypaimon.spark.source import PaimonDataSource as DefaultSource

__all__ = ["DefaultSource"]
