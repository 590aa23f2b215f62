"""`Silence`: how long registers have kept their numbers, by the clock of the one who watches."""

from __future__ import annotations

from collections.abc import Mapping


class Silence:
    """How long registers have kept their numbers, as seen in pairs of listings that succeeded.

    Where a listing failed, or the next one came late, the watcher or the store was away. That counts for little,
    however long it was: nobody is taken for gone at once after it.

    Args:
        longest: Seconds between two listings that count in full.
        credit: Seconds that all others count for.
    """

    def __init__(self, longest: float, credit: float) -> None:
        self._longest = longest
        self._credit = credit
        self._has_failed = False
        self._sent = self._received = float("inf")
        self._numbers: Mapping[str, int] = {}
        self._silent: dict[str, float] = {}

    def listed(self, numbers: Mapping[str, int], sent: float, received: float) -> None:
        """A listing has come.

        Args:
            numbers: Of the last versions, by member.
            sent: When it was asked for.
            received: When it came.
        """
        # A number may have come to be until its first listing came; from then on it was there all the time.
        first, later = (self._counted(sent - since) for since in (self._received, self._sent))
        silent = {}
        for member, number in numbers.items():
            so_far = self._silent.get(member, 0.0)
            kept = self._numbers.get(member) == number
            silent[member] = so_far + (later if so_far else first) if kept else 0.0
        self._numbers, self._silent = dict(numbers), silent
        self._sent, self._received = sent, received
        self._has_failed = False

    def failed(self) -> None:
        """A listing has not come."""
        self._has_failed = True

    def longer_than(self, seconds: float) -> set[str]:
        """Members whose registers have been silent for this long."""
        return {member for member, silent in self._silent.items() if silent >= seconds}

    def _counted(self, gap: float) -> float:
        return max(0.0, self._credit if self._has_failed or gap > self._longest else gap)
