"""`Schedule`: whose turn it is, among many that are due at different times: a few workers, and idle ones never wait
for busy ones."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Schedule(Generic[T]):
    """Jobs by the time at which they are due. Not thread-safe; knows no clock.

    Args:
        workers: How many there are. One of them is kept for jobs that are not busy.
    """

    def __init__(self, workers: int) -> None:
        self._most_busy = max(1, workers - 1)
        self._busy_at_work = 0
        self._number = count()
        self._idle: list[tuple[float, int, T]] = []
        self._busy: list[tuple[float, int, T]] = []
        self._due: dict[T, tuple[float, int]] = {}

    def put(self, job: T, due: float, *, busy: bool = False) -> None:
        """Have a job done at a time, in the place of any other time that it was to be done at."""
        number = next(self._number)
        self._due[job] = due, number
        heapq.heappush(self._busy if busy else self._idle, (due, number, job))

    def remove(self, job: T) -> None:
        """Have a job not done; nothing if it was not to be."""
        self._due.pop(job, None)

    def take(self, now: float) -> tuple[T, bool] | None:
        """A job that is due, and whether it is busy; None: there is none."""
        heaps = [self._idle] if self._busy_at_work >= self._most_busy else [self._idle, self._busy]
        due = [heap for heap in heaps if (first := self._first(heap)) is not None and first <= now]
        if not due:
            return None
        heap = min(due, key=lambda heap: heap[0][:2])
        _, _, job = heapq.heappop(heap)
        del self._due[job]
        busy = heap is self._busy
        self._busy_at_work += busy
        return job, busy

    def done(self, *, busy: bool) -> None:
        """A job that was taken is done."""
        self._busy_at_work -= busy

    def next_due(self) -> float | None:
        """When the next job that may be taken is due; None: there is none."""
        heaps = [self._idle] if self._busy_at_work >= self._most_busy else [self._idle, self._busy]
        return min((first for heap in heaps if (first := self._first(heap)) is not None), default=None)

    def _first(self, heap: list[tuple[float, int, T]]) -> float | None:
        """When the first job of a heap is due; those that were put elsewhere, or removed, go."""
        while heap and self._due.get(heap[0][2]) != heap[0][:2]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None
