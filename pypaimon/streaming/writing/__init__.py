"""Writing tables: rows into files, files into snapshots."""

from pypaimon.streaming.lazy_imports import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
