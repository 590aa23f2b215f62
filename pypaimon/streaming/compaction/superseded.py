"""`Superseded`: which records above the output level of a compaction have got newer ones in their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from pypaimon.streaming.compaction.live_files import LiveFile
from pypaimon.streaming.merge.ordering import Ints

if TYPE_CHECKING:
    from pyroaring import BitMap


class Superseded:
    """Records of some files, numbered file after file, and those of them that were superseded.

    Memory: a compressed bitmap for each file with such records.

    Args:
        files: The files.

    Attributes:
        places: The number of the first record of each file, by its name.
        rows: Places of superseded records in their file, by its name.
    """

    def __init__(self, files: Iterable[LiveFile]) -> None:
        files = list(files)
        starts = np.cumsum([0, *(int(file.read.row_count) for file in files)])
        self._names = [file.name for file in files]
        self._starts = starts[:-1]
        self.places: Mapping[str, int] = dict(zip(self._names, map(int, starts), strict=False))
        self.rows: dict[str, BitMap] = {}

    def add(self, numbers: Ints) -> None:
        """Have records counted among the superseded ones."""
        from pyroaring import BitMap

        if not len(numbers):
            return
        numbers = np.sort(numbers)
        files = np.searchsorted(self._starts, numbers, side="right") - 1
        for file in np.unique(files):
            there = (numbers[files == file] - self._starts[file]).astype(np.uint32)
            self.rows.setdefault(self._names[file], BitMap()).update(BitMap(there))
