"""`HandedOutPlans`: the plans that a stream of a group has handed out and that are not confirmed yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from pypaimon.streaming.batches.chunks import BatchChunk
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.model.position import Position


@dataclass(slots=True, eq=False)
class _HandedOut:
    plan: Plan
    slots: Mapping[int, int]
    has_rows: bool
    is_whole: bool


class HandedOutPlans:
    """Plans in the order in which they were handed out, whichever slots they are of.

    Not thread-safe, but for `has_whole`.
    """

    def __init__(self) -> None:
        self._plans: deque[_HandedOut] = deque()
        self._last: BatchChunk | None = None

    @property
    def has_whole(self) -> bool:
        """Whether any has come whole, so that it can still be confirmed."""
        return any(each.is_whole for each in tuple(self._plans))

    def add(self, chunk: BatchChunk, slots: Mapping[int, int]) -> None:
        """A chunk was handed out. To say so of the last one again changes nothing.

        Args:
            chunk: It; without rows it is its whole plan, or the end of one.
            slots: Whose rows it has, with the numbers of their tenures.
        """
        if chunk is self._last:
            return
        last = self._plans[-1] if self._plans else None
        if last is None or last.plan is not chunk.plan:
            last = _HandedOut(chunk.plan, slots, has_rows=False, is_whole=False)
            self._plans.append(last)
        last.has_rows = last.has_rows or chunk.data is not None
        last.is_whole = chunk.last
        self._last = chunk

    def confirmed(self, chunk: BatchChunk | None) -> list[tuple[Mapping[int, int], Position]]:
        """All that was handed out up to and with a chunk is confirmed: what that is of which slots.

        A plan is confirmed with its last chunk. Those without rows are with the one before them, and one that did not
        come whole, as its slots went elsewhere in its midst, is not.

        Args:
            chunk: It; None: nothing, but plans without rows that nothing is before.
        """
        found: list[_HandedOut] = []
        if chunk is not None and any(each.plan is chunk.plan for each in self._plans):
            while self._plans[0].plan is not chunk.plan:
                found.append(self._plans.popleft())
            if chunk.last:
                found.append(self._plans.popleft())
        while self._plans and self._plans[0].is_whole and not self._plans[0].has_rows:
            found.append(self._plans.popleft())
        return [(each.slots, each.plan.position) for each in found if each.is_whole]
