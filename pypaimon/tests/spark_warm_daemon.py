"""Spark's daemon of Python workers, which has the library in memory before it forks: no worker spends time on imports."""

import importlib

for _name in ("pyspark.worker", "pypaimon.catalog.catalog_factory", "pypaimon.streaming.builder", "pypaimon.spark.source"):
    importlib.import_module(_name)

from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
