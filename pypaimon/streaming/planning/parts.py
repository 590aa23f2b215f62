"""Parts: the units of a snapshot, of which something is read, as limits cut them into several plans."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pypaimon.streaming.model.position import Unit
from pypaimon.streaming.options.stream_options import Limits
from pypaimon.streaming.planning.units import Units, column

_Mask = npt.NDArray[np.bool_]
_Numbers = npt.NDArray[np.int64]


class Parts:
    """Finds each part by search, so that what it costs does not grow with the snapshot.

    Args:
        units: Units.
        kept: Which of their entries are read.
    """

    def __init__(self, units: Units, kept: _Mask) -> None:
        self._units = units
        self._entries: _Numbers = np.flatnonzero(kept)
        numbers = units.of_entry[self._entries]
        is_last = np.ones(len(numbers), dtype=bool)
        is_last[:-1] = numbers[1:] != numbers[:-1]
        # Up to where among `_entries` each unit goes.
        self._ends = np.flatnonzero(is_last) + 1
        self._held: dict[str, _Numbers] = {}

    def part(self, after: Unit | None, limits: Limits) -> tuple[_Numbers, Unit | None]:
        """Whole units until a limit would be passed, but at least one; never one behind `limits.until`.

        Args:
            after: Last unit that was handed out.
            limits: The limits.

        Returns:
            Positions of the entries of the plan, and the last unit of it if units are left over, else None.
        """
        first = 0 if after is None else self._behind(after)
        if limits.until is not None:
            return self._entries[first : self._behind(limits.until)], limits.until
        ends = self._ends[np.searchsorted(self._ends, first, side="right") :]
        count = len(ends) if limits.max_splits is None else limits.max_splits
        for bound, name in ((limits.max_rows, "row_count"), (limits.max_bytes, "file_size")):
            if bound is not None:
                before = self._before(name)
                count = min(count, int(np.searchsorted(before[ends], before[first] + bound, side="right")))
        count = max(count, 1)
        if count >= len(ends):
            return self._entries[first:], None
        chosen = self._entries[first : ends[count - 1]]
        number = self._units.of_entry[chosen[-1]]
        return chosen, self._units.unit_at(int(np.searchsorted(self._units.of_entry, number, side="right")) - 1)

    def _behind(self, last: Unit) -> int:
        return int(np.searchsorted(self._entries, self._units.behind(last)))

    def _before(self, name: str) -> _Numbers:
        """What the entries before each hold, of those that are read."""
        if name not in self._held:
            values = column(self._units.entries, name)[self._entries]
            self._held[name] = np.concatenate([[0], np.cumsum(values)])
        return self._held[name]
