"""Live tables: the rows of a table, kept up to date in memory or on disk, read by key, as Arrow or with SQL."""

from pypaimon.streaming.lazy_imports import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
