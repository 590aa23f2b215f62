"""Compaction: small files become large ones, and sorted runs fewer, by commits that do not change any row.

Calls block. A call that reads or writes the store may raise `StoreError` or `CorruptTableError`; docstrings name the
other errors.
"""
