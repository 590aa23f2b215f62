"""What else ran on the machine while an area was measured: processor time that is not of this program's processes."""

from __future__ import annotations

import time

import psutil

from benchmarks.measuring import Figure

QUIET = 0.1
"""Cores that other programs may keep busy before rows are marked."""


class OtherLoad:
    """Cores that other programs kept busy on average since this was made."""

    def __init__(self) -> None:
        self._since, self._machine, self._own = time.monotonic(), _busy_seconds(), own_seconds()

    def cores(self) -> float:
        """The average so far; never below zero."""
        others = (_busy_seconds() - self._machine) - (own_seconds() - self._own)
        return max(0.0, others / (time.monotonic() - self._since))


def disturbed(figures: list[Figure], cores: float) -> list[str]:
    """The measures of an area, if other programs ran next to it."""
    return list(dict.fromkeys(each.measure for each in figures)) if cores > QUIET else []


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


def own_seconds() -> float:
    """Processor time of this process, and of all below it, also of those that have ended."""
    seconds = 0.0
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            # Its parent counts it from now on.
            continue
        seconds += times.user + times.system + times.children_user + times.children_system
    return seconds
