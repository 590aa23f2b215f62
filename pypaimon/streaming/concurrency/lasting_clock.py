"""`LastingClock`: time that passes also while the machine sleeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


AWAKE = _boottime if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


class LastingClock:
    """Seconds that never go back, and are never fewer than what really passed, as far as any clock here knows.

    Between two looks the longest of what the clocks say has passed: one may stand still while the machine sleeps,
    another one may be set back. Thread-safe.

    Args:
        clocks: Each gives seconds.
    """

    def __init__(self, clocks: Sequence[Callable[[], float]] = (AWAKE, time.time)) -> None:
        self._clocks = clocks
        self._lock = threading.Lock()
        self._last = [clock() for clock in clocks]
        self._total = 0.0

    def __call__(self) -> float:
        """Seconds since it was made."""
        with self._lock:
            now = [clock() for clock in self._clocks]
            self._total += max(0.0, *(new - old for new, old in zip(now, self._last, strict=True)))
            self._last = now
            return self._total
