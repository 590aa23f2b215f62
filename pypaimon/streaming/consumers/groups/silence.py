"""`Silence`: how long registers have kept their numbers, by the clock of the one who watches."""

from __future__ import annotations

from collections.abc import Mapping


class Silence:
    """How long registers have kept their numbers, as seen in pairs of listings that succeeded.

    Between two listings at most `credit` seconds count, however long the watcher or the store was away: nobody is taken
    for gone at once after that.

    Args:
        credit: Seconds.
    """

    def __init__(self, credit: float) -> None:
        self._credit = credit
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
        first, later = (max(0.0, min(sent - since, self._credit)) for since in (self._received, self._sent))
        silent = {}
        for member, number in numbers.items():
            so_far = self._silent.get(member, 0.0)
            kept = self._numbers.get(member) == number
            silent[member] = so_far + (later if so_far else first) if kept else 0.0
        self._numbers, self._silent = dict(numbers), silent
        self._sent, self._received = sent, received

    def longer_than(self, seconds: float) -> set[str]:
        """Members whose registers have been silent for this long."""
        return {member for member, silent in self._silent.items() if silent >= seconds}
