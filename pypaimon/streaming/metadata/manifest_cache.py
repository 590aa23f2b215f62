"""`ManifestCache`: manifests and manifest lists that were read, up to a bound of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachetools import LRUCache

from pypaimon.streaming.concurrency.forking import cache_lock

if TYPE_CHECKING:
    import pyarrow as pa

SMALL_BYTES = 16 << 10
"""Smaller files are cached undecoded."""
# Memory of a column in addition to its values, measured.
_BYTES_PER_COLUMN = 1024


class ManifestCache:
    """The last used files by path, of one table or of several that share the cache. Thread-safe."""

    def __init__(self, most_bytes: int = 64 << 20) -> None:
        self._cache: LRUCache[str, pa.Table | bytes] = LRUCache(most_bytes, getsizeof=memory_of)
        self._lock = cache_lock(self._cache)

    @property
    def held_bytes(self) -> int:
        with self._lock.held:
            return int(self._cache.currsize)

    def get(self, path: str) -> pa.Table | bytes | None:
        """A file, decoded or as it is stored; None if it is not cached."""
        with self._lock.held:
            return self._cache.get(path)

    def keep(self, path: str, content: pa.Table | bytes) -> None:
        """Cache a file unless it is too large."""
        with self._lock.held:
            if memory_of(content) <= self._cache.maxsize:
                self._cache[path] = content


def memory_of(content: pa.Table | bytes) -> int:
    """Approximate memory of a file. A table with few rows needs most of it outside of its buffers."""
    if isinstance(content, bytes):
        return max(SMALL_BYTES, len(content))
    size: int = content.get_total_buffer_size()
    columns: int = content.num_columns
    return size + columns * _BYTES_PER_COLUMN
