"""Paimon tables in PySpark without a connector jar: `spark.readStream.format("pypaimon")`.

Spark discovers the format where `pypaimon-streaming` is installed; `register(spark)` is for sessions that do not.
Spark's Python workers import this package, so it imports nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pypaimon.spark.compaction import compact, materialize_deletion_vectors, rescale, rewrite_file_index
    from pypaimon.spark.lag_listener import LagListener
    from pypaimon.spark.maintenance import maintain
    from pypaimon.spark.read.native import native_foreach_batch, native_read
    from pypaimon.spark.source import PaimonDataSource, register
    from pypaimon.spark.write.bucketing import repartition_by_bucket

__all__ = [
    "LagListener",
    "PaimonDataSource",
    "compact",
    "maintain",
    "materialize_deletion_vectors",
    "native_foreach_batch",
    "native_read",
    "register",
    "repartition_by_bucket",
    "rescale",
    "rewrite_file_index",
]

_MODULES = {
    "LagListener": "lag_listener",
    "PaimonDataSource": "source",
    "compact": "compaction",
    "maintain": "maintenance",
    "materialize_deletion_vectors": "compaction",
    "native_foreach_batch": "read.native",
    "native_read": "read.native",
    "register": "source",
    "repartition_by_bucket": "write.bucketing",
    "rescale": "compaction",
    "rewrite_file_index": "compaction",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError:
        from pypaimon.streaming.lazy_imports import naming_extra

        with naming_extra(name, {"pyspark": "spark"}):
            raise
