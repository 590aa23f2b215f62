"""`GroupView`: what one member sees of its group: the last state, the registers, and who has been silent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from pypaimon.streaming.consumers.groups.group_files import numbers_of, register_name, state_name
from pypaimon.streaming.consumers.groups.group_requests import ListNames, ReadFiles, Steps
from pypaimon.streaming.consumers.groups.group_state import GroupState
from pypaimon.streaming.consumers.groups.group_times import GroupTimes
from pypaimon.streaming.consumers.groups.register import Register, Status
from pypaimon.streaming.consumers.groups.silence import Silence
from pypaimon.streaming.errors import CorruptTableError, StoreError

T = TypeVar("T")


class GroupView:
    """What one member sees. What counts is the state with the highest number in a listing, never one by itself.

    Args:
        times: Of the group.
        clock: Seconds.

    Attributes:
        state: The last one that was listed; None before the first listing, and where there is none.
        is_last: Whether the last listing had none that is newer, and this one.
        states: Numbers of the states in the last listing.
        versions: Numbers of the versions of each register in it, ascending.
        modified: When its files were written, by the store's clock.
        known: Registers, as they were last read; `registers` adds those that are gone.
        listed_at: When the last listing was asked for.
        look_at: When the next one is due.
    """

    def __init__(self, times: GroupTimes, clock: Callable[[], float]) -> None:
        self._times = times
        self._clock = clock
        self._silence = Silence(times.lease, times.busy_watch, self._pace)
        self._sessions: dict[str, float] = {}
        self.state: GroupState | None = None
        self.is_last = False
        self.states: list[int] = []
        self.versions: dict[str, list[int]] = {}
        self.modified: Mapping[str, float | None] = {}
        self.known: dict[str, Register] = {}
        self.listed_at = self.look_at = float("-inf")
        self._busy_until = float("-inf")
        self._seen: object = None

    @property
    def is_stale(self) -> bool:
        """Whether what was seen is too old to write by it."""
        return self._clock() - self.listed_at > self._times.session

    @property
    def final(self) -> set[str]:
        """Members whose registers are known to have ended."""
        return {member for member, register in self.known.items() if register.is_final}

    @property
    def registers(self) -> dict[str, Register]:
        """What is known of the members. One whose register was deleted has ended, and nothing is known of it.

        No member deletes a register of one that a state names: somebody else has, and its owner can save nothing.
        """
        members = () if self.state is None else self.state.members
        gone = self._silence.longer_than(self._times.session).difference(self.versions).intersection(members)
        return {**self.known, **{member: Register(member, 0, "", member, Status.SEALED, 0) for member in gone}}

    def last(self, member: str) -> int:
        """The number of the last version of a register in the last listing; 0: there is none."""
        return self.versions[member][-1] if member in self.versions else 0

    def silent(self) -> set[str]:
        """Members who may be gone: their registers have kept their numbers for long, and have not ended."""
        return self._silence.longer_than(self._times.session) - self.final

    def expect_change(self) -> None:
        """Look at once, and for a session often."""
        self._busy_until = self._clock() + self._times.session
        self.look_at = float("-inf")

    def look(self) -> Steps[None]:
        """List the group, and read the last state if it is another one."""
        sent = self._clock()
        try:
            self.modified = yield ListNames()
        except StoreError:
            self._silence.failed()
            raise
        received = self._clock()
        self.states, self.versions = numbers_of(self.modified)
        missing = dict.fromkeys(() if self.state is None else self.state.members, 0)
        last_ones = {member: numbers[-1] for member, numbers in self.versions.items()}
        self._silence.listed({**missing, **last_ones}, sent, received)
        self.listed_at = sent
        self.known = {member: register for member, register in self.known.items() if member in self.versions}
        self._set_pace()
        last = self.states[-1] if self.states else -1
        known = -1 if self.state is None else self.state.number
        self.is_last = False
        if last > known:
            name = state_name(last)
            (data,) = yield ReadFiles((name,))
            if data is None:
                raise StoreError(f"{name}: it was listed, and is not there; newer ones have come")
            self.state = parsed(name, data, GroupState.from_json)
        self.is_last = last >= known and self.state is not None

    def _set_pace(self) -> None:
        """Often in the session after a state, a member or a silence has come or gone."""
        seen = self.states[-1:], self.versions.keys(), self._silence.longer_than(self._times.overdue)
        if seen != self._seen:
            self._seen = seen
            self._busy_until = self.listed_at + self._times.session
        is_busy = self.listed_at < self._busy_until
        self.look_at = self.listed_at + (self._times.busy_watch if is_busy else self._times.quiet_watch)

    def read(self, members: Iterable[str]) -> Steps[None]:
        """Have the last versions of registers that were listed be known, but those that are gone by now."""
        listed = [member for member in members if member in self.versions and not self._knows_last(member)]
        new = {member: register_name(member, self.last(member)) for member in listed}
        if not new:
            return
        answers = yield ReadFiles(tuple(new.values()))
        for (member, name), data in zip(new.items(), answers, strict=True):
            if data is not None:
                register = self.known[member] = parsed(name, data, Register.from_json)
                self._sessions[member] = register.session or self._times.session

    def _pace(self, member: str) -> float:
        """Each is missed after its own session, which its register says; the watcher's, while that was not read."""
        return self._times.session / self._sessions.get(member, self._times.session)

    def _knows_last(self, member: str) -> bool:
        known = self.known.get(member)
        return known is not None and known.number >= self.last(member)


def parsed(name: str, data: bytes, parser: Callable[[bytes], T]) -> T:
    """A file of the group as a value.

    Raises:
        CorruptTableError: It is damaged.
    """
    try:
        return parser(data)
    except (ValueError, RecursionError) as error:
        raise CorruptTableError(name, f"cannot be decoded: {error}") from error
