"""`BatchIds`: a set of commit identifiers as ranges, which stays small while they follow each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True)
class BatchIds:
    """A set of numbers.

    Attributes:
        ranges: First and last number of each range, ascending, with a gap between any two.
    """

    ranges: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def of(ids: Iterable[int]) -> BatchIds:
        """The set of these ids."""
        return BatchIds().union(ids)

    @staticmethod
    def from_pairs(value: object) -> BatchIds:
        """Read what `pairs` gave, after JSON.

        Raises:
            ValueError: It is none of it.
        """
        if not isinstance(value, list) or not all(_is_pair(each) for each in value):
            raise ValueError(f"no ranges of numbers: {value!r}")
        ranges = tuple((first, last) for first, last in value)
        if any(last + 1 >= first for (_, last), (first, _) in pairwise(ranges)):
            raise ValueError(f"ranges overlap or are out of order: {value!r}")
        return BatchIds(ranges)

    def pairs(self) -> list[list[int]]:
        """The ranges as JSON has them."""
        return [list(each) for each in self.ranges]

    @property
    def greatest(self) -> int | None:
        """The greatest id, None if there is none."""
        return self.ranges[-1][1] if self.ranges else None

    def __contains__(self, batch: int) -> bool:
        return any(first <= batch <= last for first, last in self.ranges)

    def union(self, ids: Iterable[int]) -> BatchIds:
        """This set and those ids."""
        return self.joined(BatchIds(tuple((each, each) for each in ids)))

    def joined(self, other: BatchIds) -> BatchIds:
        """This set and another one, whose ranges may touch each other."""
        joined: list[tuple[int, int]] = []
        for first, last in sorted([*self.ranges, *other.ranges]):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        return BatchIds(tuple(joined))

    def newest(self, count: int) -> tuple[BatchIds, int | None]:
        """The ranges of the greatest ids, so many at most; and the greatest id that is not in them, None if all are."""
        left_out = self.ranges[:-count]
        return BatchIds(self.ranges[-count:]), left_out[-1][1] if left_out else None


def _is_pair(value: Any) -> bool:
    numbers = isinstance(value, list) and len(value) == 2 and all(type(each) is int for each in value)
    return numbers and bool(value[0] <= value[1])
