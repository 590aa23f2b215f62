"""`EntryKind`: whether an entry of a manifest or an index manifest adds or deletes its file."""

from __future__ import annotations

from enum import IntEnum


class EntryKind(IntEnum):
    """The numbers of `_KIND` in manifests."""

    ADD = 0
    DELETE = 1
