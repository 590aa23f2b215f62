"""`ListedNames`: the names of files that manifest lists lead to, so that their manifests need not be decoded again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from cachetools import LRUCache

from pypaimon.streaming.concurrency.forking import cache_lock

_MOST = 200_000
Names = tuple[str, ...]
_Key = TypeVar("_Key", bound=Hashable)


class ListedNames:
    """Names by what leads to them, up to a number of names; those used last stay. Thread-safe.

    Manifest lists and manifests never change and their names are unique, so what was found once holds for ever.

    Args:
        most: How many names are kept.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._cache: LRUCache[Hashable, Names] = LRUCache(most, getsizeof=lambda names: len(names) + 1)
        self._lock = cache_lock(self._cache)

    @property
    def held(self) -> int:
        """How many names are kept, counting one more for each key."""
        with self._lock.held:
            return int(self._cache.currsize)

    def get(self, what: str, keys: Sequence[_Key], find: Callable[[list[_Key]], Iterable[Names]]) -> list[Names]:
        """The names that each of these leads to.

        Args:
            what: Which names of the keys are meant.
            keys: Manifest lists, or groups of them.
            find: Finds them for the keys that are not known, in their order.
        """
        with self._lock.held:
            found = {key: self._cache.get((what, key)) for key in keys}
        missing = [key for key, names in found.items() if names is None]
        for key, names in zip(missing, find(missing) if missing else (), strict=True):
            found[key] = names
            with self._lock.held:
                if len(names) < self._cache.maxsize:
                    self._cache[what, key] = names
        return [found[key] or () for key in keys]
