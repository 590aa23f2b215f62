"""Keeps out of Spark's short-lived processes what pypaimon and pyarrow would import for uses that reads have not.

Together they are a third of what a process imports to read or to plan: `requests`, which pypaimon's FileIO imports for
URIs of the web, with this module; pandas, which pyarrow looks for with the first list or number that it is given.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

_PLANS = "pyspark.sql.worker.plan_data_source_read"
"""A module that Spark imports in the processes that plan, in which no function of a user runs."""


class _Late(ModuleType):
    """Stands for a module until something of that is asked for."""

    def __getattr__(self, name: str) -> Any:
        # Another thread may have met it in the place of the module.
        _take_away(self)
        return getattr(import_module(self.__name__), name)


def _take_away(late: ModuleType) -> None:
    if sys.modules.get(late.__name__) is late:
        del sys.modules[late.__name__]


def import_without_requests(name: str) -> None:
    """Import a module for which `requests` is imported when it first uses it, if nobody has imported that yet."""
    if "requests" in sys.modules:
        return
    late = sys.modules["requests"] = _Late("requests")
    try:
        import_module(name)
    finally:
        _take_away(late)


class _NoPandas(MetaPathFinder):
    """Answers for pandas as where it is not installed."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """None, and of pandas an error.

        Raises:
            ModuleNotFoundError: It is pandas.
        """
        if name == "pandas":
            raise ModuleNotFoundError("Not looked for in this process.", name=name)


def plan_without_pandas() -> None:
    """In a process of Spark's that plans, have pyarrow find no pandas where it merely looks for objects of it.

    It looks once. What makes objects of pandas, as `to_pandas()`, imports it all the same.
    """
    if _PLANS not in sys.modules or "pandas" in sys.modules:
        return
    import pyarrow as pa

    none = _NoPandas()
    sys.meta_path.insert(0, none)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(none)


import_without_requests("pypaimon.common.uri_reader")
