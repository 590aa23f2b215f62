"""The files of a bucket of a primary-key table as sorted runs, newest first.

Java's rules: docs/java-semantics.md#compaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.compaction.live_files import LiveFile
from pypaimon.streaming.merge.runs import key_order


@dataclass(frozen=True, slots=True)
class LevelRun:
    """A sorted run: one file of level 0, or all files of a level above it.

    Attributes:
        level: Its level.
        files: They, in key order.
    """

    level: int
    files: tuple[LiveFile, ...]

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.files)


def level_runs(files: Iterable[LiveFile]) -> list[LevelRun]:
    """The runs of a bucket: level 0 from the newest file to the oldest, then level by level upwards."""
    first: list[LiveFile] = []
    above: dict[int, list[LiveFile]] = {}
    for file in files:
        (above.setdefault(file.level, []) if file.level else first).append(file)
    first.sort(key=_age)
    runs = [LevelRun(0, (file,)) for file in first]
    runs += [LevelRun(level, tuple(sorted(above[level], key=_least_key))) for level in sorted(above)]
    return runs


def _least_key(file: LiveFile) -> tuple[Any, ...]:
    return key_order(file.read.min_key)


def _age(file: LiveFile) -> tuple[int, int, int, str]:
    """Sorts the newest file first."""
    read = file.read
    return -read.max_sequence_number, read.min_sequence_number, file.made_millis, file.name
