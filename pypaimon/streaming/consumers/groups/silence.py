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
        self._received: float | None = None
        self._numbers: Mapping[str, int] = {}
        self._silent: dict[str, float] = {}

    def listed(self, numbers: Mapping[str, int], sent: float, received: float) -> None:
        """A listing has come.

        Args:
            numbers: Of the last versions, by member.
            sent: When it was asked for.
            received: When it came.
        """
        gap = 0.0 if self._received is None else max(0.0, min(sent - self._received, self._credit))
        self._silent = {
            member: self._silent.get(member, 0.0) + gap if self._numbers.get(member) == number else 0.0
            for member, number in numbers.items()
        }
        self._numbers, self._received = dict(numbers), received

    def longer_than(self, seconds: float) -> set[str]:
        """Members whose registers have been silent for this long."""
        return {member for member, silent in self._silent.items() if silent >= seconds}
