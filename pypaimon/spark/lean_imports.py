"""Skips imports of pypaimon and pyarrow that reads do not need, in Spark's short-lived processes.

They are a third of all imports of a process that reads or plans. pypaimon's FileIO imports `requests` for web URIs, and
pyarrow looks for pandas when it converts its first list or number. In a planning process what Spark has imported is
left out of garbage collections: one of them falls amid the imports, and takes a sixth of their time. So it is in the
processes of tasks, where Spark collects after each task.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

from pypaimon.streaming.lazy_imports import deferred_imports, use_pyarrow_without_pandas

_PLANS = "pyspark.sql.worker.plan_data_source_read"
"""A module that Spark imports in planning processes, and for the function that reads a task."""


def plan_without_pandas() -> None:
    """Keep pyarrow from importing pandas in a planning process of Spark, only to check for pandas objects."""
    if _PLANS in sys.modules:
        use_pyarrow_without_pandas()


if _PLANS in sys.modules:
    # Not in others, where it would keep the garbage of a user's program. Spark has collected that of earlier tasks.
    gc.freeze()
with deferred_imports("requests"):
    import_module("pypaimon.common.uri_reader")
