"""`LedgerRecord`: the ledger's small JSON file about one commit user of one table; `IdRanges`: the ids in it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

_VERSION = 2


@dataclass(frozen=True, slots=True)
class IdRanges:
    """A set of commit identifiers as ranges: it stays small while they are consecutive."""

    # First and last number of each range, ascending, with a gap between any two
    ranges: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def of(ids: Iterable[int]) -> IdRanges:
        return IdRanges().union(ids)

    @staticmethod
    def from_pairs(value: object) -> IdRanges:
        """Read what `pairs` returned, after a round trip through JSON.

        Raises:
            ValueError: It is something else.
        """
        if not isinstance(value, list) or not all(_is_pair(each) for each in value):
            raise ValueError(f"expected ranges of numbers, got {value!r}")
        ranges = tuple((first, last) for first, last in value)
        if any(last + 1 >= first for (_, last), (first, _) in pairwise(ranges)):
            raise ValueError(f"ranges overlap or are out of order: {value!r}")
        return IdRanges(ranges)

    def pairs(self) -> list[list[int]]:
        return [list(each) for each in self.ranges]

    @property
    def greatest(self) -> int | None:
        """The greatest id, None if the set is empty."""
        return self.ranges[-1][1] if self.ranges else None

    def __contains__(self, identifier: int) -> bool:
        return any(first <= identifier <= last for first, last in self.ranges)

    def union(self, ids: Iterable[int]) -> IdRanges:
        joined: list[tuple[int, int]] = []
        for first, last in sorted([*self.ranges, *((each, each) for each in ids)]):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        return IdRanges(tuple(joined))

    def newest(self, count: int) -> tuple[IdRanges, int | None]:
        """The last `count` ranges, and the greatest id that they leave out (None if they leave out none)."""
        left_out = self.ranges[:-count]
        return IdRanges(self.ranges[-count:]), left_out[-1][1] if left_out else None


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """What the ledger remembers. It stays true of the history with its fingerprint, so an older one does no harm."""

    first: int  # Snapshots before it hold no commit of the user except those in `batches`, or those up to `unknown`
    batches: IdRanges
    # Identifiers up to this one that are not in `batches` may have been committed; None: none of them was
    unknown: int | None
    attempt: int  # The greatest identifier whose commit was started, or reserved for a later one
    origin: str | None = None
    # That of the snapshot before `first`; None if there was none, or an older release wrote the file
    fingerprint: str | None = None

    def to_json(self) -> bytes:
        value = {
            "version": _VERSION,
            "first": self.first,
            "batches": self.batches.pairs(),
            "unknown": self.unknown,
            "attempt": self.attempt,
            "origin": self.origin,
            "mark": self.fingerprint,
        }
        return json.dumps(value).encode()

    @staticmethod
    def from_json(data: bytes) -> LedgerRecord:
        """Read what `to_json` wrote, in this version or version 1, which only knew the last commit.

        Raises:
            ValueError: It is not a record.
        """
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("version") not in (1, _VERSION):
            raise ValueError(f"not a record of version {_VERSION}")
        first, attempt = _number(value, "first"), _number(value, "attempt")
        if first is None or attempt is None:
            raise ValueError(f"numbers are missing in {value!r}")
        if value["version"] == 1:
            committed = _number(value, "committed")
            known = IdRanges() if committed is None else IdRanges.of([committed])
            return LedgerRecord(first, known, committed, attempt)
        batches = IdRanges.from_pairs(value.get("batches"))
        origin, fingerprint = _text(value, "origin"), _text(value, "mark")
        return LedgerRecord(first, batches, _number(value, "unknown"), attempt, origin, fingerprint)


def _is_pair(value: Any) -> bool:
    numbers = isinstance(value, list) and len(value) == 2 and all(type(each) is int for each in value)
    return numbers and bool(value[0] <= value[1])


def _number(value: dict[str, Any], name: str) -> int | None:
    found = value.get(name)
    if found is not None and type(found) is not int:
        raise ValueError(f"field {name!r} is {found!r}")
    return found


def _text(value: dict[str, Any], name: str) -> str | None:
    found = value.get(name)
    if found is not None and not isinstance(found, str):
        raise ValueError(f"field {name!r} is {found!r}")
    return found
