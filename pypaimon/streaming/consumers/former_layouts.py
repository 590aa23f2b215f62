"""`FormerLayouts`: files of the same consumer id under another number of shards: where they stand, and when they go."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerManager
from pypaimon.streaming.consumers.consumer_names import ConsumerName


class FormerLayouts:
    """The layouts of a consumer id that are not this reader's. Members belong to none.

    Args:
        manager: Consumers of the table and branch.
        name: The reader's progress file.
    """

    def __init__(self, manager: ConsumerManager, name: ConsumerName) -> None:
        self._manager = manager
        self._name = name

    def among(self, names: AbstractSet[ConsumerName]) -> list[ConsumerName]:
        """Their files, fences included; the start that the id's readers share is none."""
        if self._name.member is not None:
            return []
        shared = self._name.shared_start
        others = (name for name in names if name.member is None and name != shared)
        return [name for name in others if name.progress not in self._name.layout]

    def position(
        self, names: AbstractSet[ConsumerName], counts: Callable[[AbstractSet[str | None]], bool]
    ) -> Consumer | None:
        """Where to continue: all before the slowest file of a complete layout was confirmed.

        The furthest layout repeats least.

        Args:
            names: Files that are there.
            counts: Whether a layout does, whose files began with these starts.
        """
        positions = []
        for layout in {name.layout for name in self.among(names) if not name.fence}:
            files = [self._manager.read(name) for name in layout] if layout <= names else [None]
            found = [file for file in files if file is not None]
            if len(found) == len(files) and counts({file.began for file in found}):
                positions.append(min(found, key=_place))
        return max(positions, key=_place, default=None)

    def drop(self, names: AbstractSet[ConsumerName], created: bool) -> None:
        """Delete their files once this layout is complete.

        A reader that made its own file saw the others before: they are former ones. One that found its own file cannot
        tell leftovers from a layout that is just being built; what lies ahead of its own layout may be the latter.

        Args:
            names: Files that are there.
            created: Whether the reader made its own file.
        """
        if not self._name.layout <= names:
            return
        others = self.among(names)
        if not created:
            own = [file.next_snapshot for name in self._name.layout if (file := self._manager.read(name)) is not None]
            found = {name: self._manager.read(name) for name in others}
            others = [name for name, file in found.items() if file is not None and file.next_snapshot <= min(own)]
        for name in others:
            self._manager.delete(name)


def _place(file: Consumer) -> int:
    return file.next_snapshot
