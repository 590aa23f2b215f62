"""Several snapshots that lie ahead, prepared together: columns of many files take hardly longer than those of one."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.concurrency.forking import ForkSafeLock
from pypaimon.streaming.planning.prepared import Prepared
from pypaimon.streaming.planning.splits import SplitFactory
from pypaimon.streaming.planning.units import Units

_Key = tuple[str, str]
_MOST_WINDOWS = 3


class PreparedAhead:
    """What was prepared of snapshots, by the manifest list and what is read of it, until their turn comes.

    It holds the last few windows; whose is gone by then is prepared alone. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._windows: deque[dict[_Key, Prepared]] = deque(maxlen=_MOST_WINDOWS)

    def put(self, window: Mapping[_Key, Prepared]) -> None:
        """Hold these."""
        with self._lock.held:
            self._windows.append(dict(window))

    def take(self, key: _Key) -> Prepared | None:
        """What was prepared, which is not held any longer; None: prepare it now."""
        with self._lock.held:
            found = [window.pop(key) for window in self._windows if key in window]
        return found[0] if found else None

    def __contains__(self, key: _Key) -> bool:
        with self._lock.held:
            return any(key in window for window in self._windows)


def cut(units: Units, kept: npt.NDArray[np.bool_], ends: Sequence[int], factory: SplitFactory) -> list[Prepared]:
    """What was prepared together, one by one.

    Args:
        units: Units of several snapshots, one after the other, without statistics.
        kept: Which of their entries are read.
        ends: Up to where the entries of each snapshot go.
        factory: Makes their splits.
    """
    files = factory.files(units.entries.filter(pa.array(kept)))
    result = []
    start = first = 0
    for end in ends:
        of_one = Prepared(units.part(start, end), kept[start:end])
        stop = first + int(np.count_nonzero(of_one.kept))
        result.append(replace(of_one, files=files.part(first, stop)))
        start, first = end, stop
    return result
