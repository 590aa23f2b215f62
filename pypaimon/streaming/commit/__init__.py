"""Commits: files that writers have written become one snapshot, exactly once. Read `idempotent_commit` first.

Calls block. A call that reads or writes the store may raise `StoreError` or `CorruptTableError`; docstrings name the
other errors.
"""
