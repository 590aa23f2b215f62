"""`ValidatedCache`: small objects that were read before, whose bytes need not come again while they are the same."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from cachetools import LRUCache

from pypaimon.streaming.concurrency.forking import cache_lock

_ENTRIES = 256
_LARGEST = 16 << 10


class ValidatedCache:
    """Bytes of small objects by path, each with the entity tag that the store gave it.

    Before Arrow reads an object of a store it asks for its size, and is told its tag too. So the bytes of one that was
    read before, and still has its tag, cost no request of their own. Thread-safe.
    """

    def __init__(self) -> None:
        self._entries: LRUCache[str, tuple[bytes, bytes]] = LRUCache(_ENTRIES)
        self._lock = cache_lock(self._entries)

    def read(self, path: str, stream: Any) -> bytes:
        """All bytes of an object.

        Args:
            path: Of the object.
            stream: It, just opened.
        """
        tag = _entity_tag(stream)
        if tag is None:
            return bytes(stream.read())
        with self._lock.held:
            known_tag, known = self._entries.get(path, (None, b""))
        if known_tag == tag:
            return known
        data = bytes(stream.read())
        if len(data) <= _LARGEST:
            with self._lock.held:
                self._entries[path] = tag, data
        return data


def _entity_tag(stream: Any) -> bytes | None:
    tag: bytes | None = stream.metadata().get("ETag") if isinstance(stream, pa.NativeFile) else None
    return tag
