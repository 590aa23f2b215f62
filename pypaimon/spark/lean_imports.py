"""Skips imports of pypaimon and pyarrow that reads do not need, in Spark's short-lived processes.

They are a third of all imports of a process that reads or plans. pypaimon's FileIO imports `requests` for web URIs, and
pyarrow looks for pandas when it converts its first list or number.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

_PLANS = "pyspark.sql.worker.plan_data_source_read"
"""A module that Spark imports in planning processes. No user function runs there."""


class _Late(ModuleType):
    """Stands in for a module until one of its attributes is used."""

    def __getattr__(self, name: str) -> Any:
        # Another thread may have imported this object instead of the module.
        _remove(self)
        return getattr(import_module(self.__name__), name)


def _remove(late: ModuleType) -> None:
    if sys.modules.get(late.__name__) is late:
        del sys.modules[late.__name__]


def import_without_requests(name: str) -> None:
    """Import a module, and defer its import of `requests` to the first use unless `requests` is imported already."""
    if "requests" in sys.modules:
        return
    late = sys.modules["requests"] = _Late("requests")
    try:
        import_module(name)
    finally:
        _remove(late)


class _NoPandas(MetaPathFinder):
    """Makes pandas look as if it were not installed."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Find nothing, and hide pandas.

        Raises:
            ModuleNotFoundError: The module is pandas.
        """
        if name == "pandas":
            raise ModuleNotFoundError("Not looked for in this process.", name=name)


def plan_without_pandas() -> None:
    """Keep pyarrow from importing pandas in a planning process of Spark, only to check for pandas objects.

    pyarrow looks once. Calls that create pandas objects, such as `to_pandas()`, still import it.
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
