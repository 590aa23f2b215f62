"""Compaction: small files become large ones, and sorted runs fewer, by commits that do not change any row.

Calls block. A call that reads or writes the store may raise `StoreError` or `CorruptTableError`; docstrings name the
other errors.
"""

from pypaimon.streaming.lazy_imports import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
