"""`Silence`: how long registers have kept their numbers, by the clock of the one who watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class _Silent:
    """How long a register has kept its number: in listings that followed each other, and how often over a pause."""

    seconds: float = 0.0
    interruptions: int = 0


_NOT_SILENT = _Silent()


class Silence:
    """How long registers have kept their numbers, as seen in pairs of listings that succeeded.

    Where a listing failed, or the next one came late, the watcher or the store was away. That counts for little,
    however long it was: nobody is taken for gone at once after it.

    Args:
        longest: Seconds between two listings that count in full.
        credit: Seconds that all others count for, at most.
        pace: How fast the silence of a member counts, in proportion to that of the watcher: a member that promises to
            write ten times as often is missed ten times as soon.
    """

    def __init__(self, longest: float, credit: float, pace: Callable[[str], float] = lambda member: 1.0) -> None:
        self._longest = longest
        self._credit = credit
        self._pace = pace
        self._has_failed = False
        self._sent = self._received = float("inf")
        self._numbers: Mapping[str, int] = {}
        self._silent: dict[str, _Silent] = {}

    def listed(self, numbers: Mapping[str, int], sent: float, received: float) -> None:
        """A listing has come.

        Args:
            numbers: Of the last versions, by member.
            sent: When it was asked for.
            received: When it came.
        """
        # A number may have come to be until its first listing came; from then on it was there all the time.
        first, later = sent - self._received, sent - self._sent
        silent = {}
        for member, number in numbers.items():
            so_far = self._silent.get(member, _NOT_SILENT)
            kept = self._numbers.get(member) == number
            silent[member] = self._longer(so_far, first if so_far == _NOT_SILENT else later) if kept else _NOT_SILENT
        self._numbers, self._silent = dict(numbers), silent
        self._sent, self._received = sent, received
        self._has_failed = False

    def failed(self) -> None:
        """A listing has not come."""
        self._has_failed = True

    def longer_than(self, seconds: float) -> set[str]:
        """Members whose registers have been silent for this long, each at its own pace."""
        return {member for member in self._silent if self._of(member) >= seconds}

    def _of(self, member: str) -> float:
        silent, pace = self._silent[member], self._pace(member)
        return silent.seconds * pace + silent.interruptions * self._credit * min(1.0, pace)

    def _longer(self, silent: _Silent, gap: float) -> _Silent:
        if self._has_failed or gap > self._longest:
            return replace(silent, interruptions=silent.interruptions + 1)
        return replace(silent, seconds=silent.seconds + max(0.0, gap))
