"""Spark's daemon of Python workers with the library in memory before it forks: no worker spends time on imports."""

import pypaimon.catalog.catalog_factory
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import pypaimon.spark.source
import pypaimon.streaming.read_builder  # noqa: F401

if __name__ == "__main__":
    manager()
