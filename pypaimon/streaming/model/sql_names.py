"""Names in SQL."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A name as it is written in SQL."""
    return '"' + name.replace('"', '""') + '"'
