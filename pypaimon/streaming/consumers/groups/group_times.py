"""`GroupTimes`: how long the members of a group wait for what. All are seconds of a member's own clock."""

from __future__ import annotations

from dataclasses import dataclass

_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """How long the members of a group wait for what, in seconds. No clock is compared with another one's.

    Attributes:
        session: So long a member may be silent before others end it.
        poll: Between two looks at the fence.
        fence_age: The fence is written again after this time; None: only where it changes.
        dead_for: So long the register of a member that has ended stays, by the store's times.
    """

    session: float
    poll: float
    fence_age: float | None = None
    dead_for: float = _DAY

    @property
    def beat(self) -> float:
        """Between two versions of a register."""
        return self.session / 2

    @property
    def quiet_watch(self) -> float:
        """Between two listings while nothing changes."""
        return self.session / 2

    @property
    def busy_watch(self) -> float:
        """Between two listings in the session after a change."""
        return self.session / 8

    @property
    def retry(self) -> float:
        """Between a request that failed and the next one."""
        return self.session / 16

    @property
    def overdue(self) -> float:
        """Who is silent for so long should have written."""
        return self.beat + self.busy_watch

    @property
    def lease(self) -> float:
        """So long after the sending of its last version a member may hand out plans."""
        return self.session * 0.75

    @property
    def kept(self) -> float:
        """So long a member keeps its own versions, so that no listing that takes its time misses the last one."""
        return self.session * 2
