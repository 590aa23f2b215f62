"""A consumer directory, readers of one consumer id, and short ways to write positions."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerManager
from pypaimon.streaming.consumers.consumer_names import ConsumerName, reader_name
from pypaimon.streaming.consumers.progress import Progress
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.model.position import Phase, Position, ReadUnit
from support.stores.fault_file_io import FaultFileIO

POLL = 10.0
EXPIRATION = 3600.0


def at(snapshot: int, unit: int | None = None) -> Position:
    """A position in the changes: before a snapshot, or inside it after a unit."""
    return Position("t", snapshot, unit=None if unit is None else ReadUnit((), 0, f"file-{unit}", unit))


def full(snapshot: int, unit: int | None = None) -> Position:
    """A position in the first full plan of a snapshot."""
    return Position("t", snapshot, phase=Phase.FULL, unit=at(snapshot, unit).unit)


class Group:
    """A table's consumer directory, and readers of the consumer id `etl` on it."""

    def __init__(self, path: Path) -> None:
        self.io = FaultFileIO()
        self.manager = ConsumerManager(self.io, str(path), store=Store(self.io, sleep=lambda _: None))
        self._owners = (f"reader-{number}" for number in itertools.count(1))

    def reader(self, shard: tuple[int, int] | None = None, member: str | None = None, **settings: Any) -> Progress:
        name = reader_name("etl", shard=shard, member=member)
        settings = {"commit": "manual", "poll_interval": POLL, **settings}
        return Progress(self.manager, name, owner=next(self._owners), **settings)

    def started(self, position: Position, found: bool = False, **settings: Any) -> Progress:
        """A reader that begins at a position; `found`: a start that it found itself."""
        progress = self.reader(**settings)
        progress.open(0)
        assert progress.begin(position, 0, found) is None
        return progress

    def files(self) -> dict[str, int]:
        return {info.name.text: info.next_snapshot for info in self.manager.infos()}

    def flushed(self, progress: Progress, now: float, force: bool = False) -> dict[str, int]:
        progress.flush(now, force=force)
        return self.files()

    def confirmed(self, progress: Progress, position: Position, now: float, force: bool = False) -> dict[str, int]:
        progress.confirm(position)
        return self.flushed(progress, now, force)

    def put(self, **files: int) -> None:
        """Files as Java writes them; `s0of2` stands for a shard, `_first` at the end for a pin."""
        for text, next_snapshot in files.items():
            base, is_pin, _ = text.partition("_first")
            shard = None if base == "etl" else tuple(int(part) for part in base[1:].split("of"))
            self.manager.write(ConsumerName("etl", shard, is_pin=bool(is_pin)), Consumer(next_snapshot))  # type: ignore[arg-type]
