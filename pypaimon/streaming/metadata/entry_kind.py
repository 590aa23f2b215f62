"""`EntryKind`: what an entry of a manifest, or of an index manifest, says of its file."""

from __future__ import annotations

from enum import IntEnum


class EntryKind(IntEnum):
    """The numbers of `_KIND` in manifests."""

    ADD = 0
    DELETE = 1
