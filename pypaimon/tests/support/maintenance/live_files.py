"""`LiveFiles`: how many files a table has to keep, followed from commit to commit."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

from support.tables.named_files import needed_by


class LiveFiles:
    """What the snapshots need that a number of snapshots and the consumers keep, whether or not others are still there.

    Args:
        table: The directory of the table.
        kept: How many snapshots its options keep.
    """

    def __init__(self, table: Path, kept: int) -> None:
        self._table = table
        self._kept = kept
        self._needed: dict[int, set[str]] = {}
        self._uses: Counter[str] = Counter()

    def counts(self) -> tuple[int, int]:
        """How many files there are, and how many of them are live now."""
        ids = [int(path.name.removeprefix("snapshot-")) for path in (self._table / "snapshot").glob("snapshot-*")]
        first = self._first_kept(max(ids))
        for number in [each for each in self._needed if each < first]:
            self._count(self._needed.pop(number), -1)
        for number in ids:
            if number >= first and number not in self._needed:
                self._needed[number] = {*needed_by(self._table, self._table / "snapshot" / f"snapshot-{number}")}
                self._count(self._needed[number], 1)
        names = {Path(home).name: files for home, _, files in os.walk(self._table)}
        small = len(names["schema"]) + len(names["consumer"]) + len({"EARLIEST", "LATEST"} & {*names["snapshot"]})
        return sum(map(len, names.values())), len(self._uses) + len(self._needed) + small

    def _first_kept(self, latest: int) -> int:
        files = (self._table / "consumer").glob("consumer-*")
        read = [int(json.loads(path.read_text())["nextSnapshot"]) for path in files]
        return min([latest - self._kept + 1, *(number - 1 for number in read)])

    def _count(self, names: set[str], change: int) -> None:
        for name in names:
            self._uses[name] += change
            if not self._uses[name]:
                del self._uses[name]
