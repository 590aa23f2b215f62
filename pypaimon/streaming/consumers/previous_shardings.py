"""`PreviousShardings`: progress files of the same consumer id under another number of shards."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerManager
from pypaimon.streaming.consumers.consumer_names import ConsumerName


class PreviousShardings:
    """The shardings of a consumer id other than this reader's; a reader without shards counts as one of them.

    Members have none: each of them saves under a name of its own.
    """

    def __init__(self, manager: ConsumerManager, name: ConsumerName) -> None:
        self._manager = manager
        self._name = name

    def among(self, names: AbstractSet[ConsumerName]) -> list[ConsumerName]:
        """Their files, pins included, without the file of the shared start."""
        if self._name.member is not None:
            return []
        shared = self._name.shared_start
        others = (name for name in names if name.member is None and name != shared)
        return [name for name in others if name.progress not in self._name.sharding]

    def position(
        self, names: AbstractSet[ConsumerName], counts: Callable[[AbstractSet[str | None]], bool]
    ) -> Consumer | None:
        """The slowest file of a complete sharding: everything before it was confirmed. None if there is none.

        Of several complete shardings the one that is furthest counts, since it repeats least.
        """
        positions = []
        for sharding in {name.sharding for name in self.among(names) if not name.is_pin}:
            files = [self._manager.read(name) for name in sharding] if sharding <= names else [None]
            found = [file for file in files if file is not None]
            if len(found) == len(files) and counts({file.began for file in found}):
                positions.append(min(found, key=_next_snapshot))
        return max(positions, key=_next_snapshot, default=None)

    def drop(self, names: AbstractSet[ConsumerName], created: bool) -> None:
        """Delete their files once this sharding is complete.

        If this reader created its own file, the others were there before: they are from earlier. If it found its own
        file, the others may also belong to a newer sharding that is just starting. Only files that are not ahead of
        this sharding are surely from earlier.
        """
        if not self._name.sharding <= names:
            return
        others = self.among(names)
        if not created:
            own = [file.next_snapshot for name in self._name.sharding if (file := self._manager.read(name)) is not None]
            found = {name: self._manager.read(name) for name in others}
            others = [name for name, file in found.items() if file is not None and file.next_snapshot <= min(own)]
        for name in others:
            self._manager.delete(name)


def _next_snapshot(file: Consumer) -> int:
    return file.next_snapshot
