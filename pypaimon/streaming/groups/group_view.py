"""`GroupView`: what one member sees of its group; `HeartbeatMonitor`: which members it hears of; `GroupTimes`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from pypaimon.streaming.errors import StoreError
from pypaimon.streaming.groups.group_files import (
    GroupState,
    MemberRecord,
    MemberStatus,
    parse_file,
    parse_names,
    record_file,
    state_file,
)
from pypaimon.streaming.groups.group_requests import ListNames, ReadFiles, Steps

_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """The timeouts and intervals of a member, in seconds of its own clock. Clocks are never compared.

    Attributes:
        session: Seconds without a heartbeat after which the others fence a member.
        poll: Seconds between two looks at the retention pin.
        pin_age: Seconds after which the pin is written again, so that `consumer.expiration-time` does not delete it;
            None if it is written only to move it.
        final_record_age: Seconds that the last version of an ended member stays, by the store's clock.
    """

    session: float
    poll: float
    pin_age: float | None = None
    final_record_age: float = _DAY

    @property
    def heartbeat(self) -> float:
        return self.session / 2

    @property
    def idle_listing(self) -> float:
        """Seconds between two listings while nothing changes."""
        return self.session / 2

    @property
    def busy_listing(self) -> float:
        """Seconds between two listings in the session after a change."""
        return self.session / 8

    @property
    def retry(self) -> float:
        """Seconds between a request that failed and the next one."""
        return self.session / 16

    @property
    def overdue(self) -> float:
        """Seconds after which a heartbeat is late."""
        return self.heartbeat + self.busy_listing

    @property
    def lease(self) -> float:
        """Seconds after it sent a heartbeat in which a member may hand out plans.

        Less than a session: a member that cannot reach the store stops before the others can have fenced it.
        """
        return self.session * 0.75

    @property
    def own_version_age(self) -> float:
        """Seconds that a member keeps its old versions, so that a slow listing always contains one of them."""
        return self.session * 2


@dataclass(frozen=True, slots=True)
class _Silence:
    """How long a record has kept its version: seconds between timely listings, and how many were not timely."""

    seconds: float = 0.0
    interruptions: int = 0


_NOT_SILENT = _Silence()


class HeartbeatMonitor:
    """For how long each member has sent no heartbeat, by the clock of the member that watches.

    Only the time between two listings that succeeded in a row counts in full. If a listing failed or came late, the
    watcher or the store was away, perhaps not the others. Such a gap counts for little however long it was, so that a
    watcher that wakes up after an hour does not fence the whole group.

    Args:
        longest: Seconds between two listings up to which the time counts in full.
        credit: Seconds that any longer gap counts for.
        pace: How fast the silence of a member counts, as a multiple of real time: a member whose session is a tenth of
            the watcher's is missed ten times as soon.
    """

    def __init__(self, longest: float, credit: float, pace: Callable[[str], float] = lambda member: 1.0) -> None:
        self._longest = longest
        self._credit = credit
        self._pace = pace
        self._has_failed = False
        self._sent = self._received = float("inf")
        self._versions: Mapping[str, int] = {}
        self._silences: dict[str, _Silence] = {}

    def listed(self, versions: Mapping[str, int], sent: float, received: float) -> None:
        """A listing succeeded.

        Args:
            versions: The last version of each member's record.
            sent: When the listing was sent.
            received: When the answer came.
        """
        # A version may have been written until the first listing that contains it was answered. From then on it was
        # there all the time, so that later silence counts from listing to listing.
        first, later = sent - self._received, sent - self._sent
        silences = {}
        for member, version in versions.items():
            silence = self._silences.get(member, _NOT_SILENT)
            kept = self._versions.get(member) == version
            gap = first if silence == _NOT_SILENT else later
            silences[member] = self._longer(silence, gap) if kept else _NOT_SILENT
        self._versions, self._silences = dict(versions), silences
        self._sent, self._received = sent, received
        self._has_failed = False

    def failed(self) -> None:
        self._has_failed = True

    def silent_for(self, seconds: float) -> set[str]:
        """Members that have sent no heartbeat for this long, each at its own pace."""
        return {member for member in self._silences if self._seconds(member) >= seconds}

    def _seconds(self, member: str) -> float:
        silence, pace = self._silences[member], self._pace(member)
        return silence.seconds * pace + silence.interruptions * self._credit * min(1.0, pace)

    def _longer(self, silence: _Silence, gap: float) -> _Silence:
        if self._has_failed or gap > self._longest:
            return replace(silence, interruptions=silence.interruptions + 1)
        return replace(silence, seconds=silence.seconds + max(0.0, gap))


class GroupView:
    """What one member sees of its group. The state with the highest generation in a listing counts.

    Attributes:
        state: The last state that was listed; None before the first listing and in a group without a state.
        is_last: Whether the last listing contained `state` and no newer one.
        generations: Generations of the states in the last listing.
        versions: Versions of each member's record in the last listing, ascending.
        modified: When its files were written, by the store's clock.
        known: The records that were read. `records` adds members whose record is missing.
        listed_at: When the last listing was sent.
        look_at: When the next listing is due.
    """

    def __init__(self, times: GroupTimes, clock: Callable[[], float]) -> None:
        self._times = times
        self._clock = clock
        self._monitor = HeartbeatMonitor(times.lease, times.busy_listing, self._pace)
        self._sessions: dict[str, float] = {}
        self.state: GroupState | None = None
        self.is_last = False
        self.generations: list[int] = []
        self.versions: dict[str, list[int]] = {}
        self.modified: Mapping[str, float | None] = {}
        self.known: dict[str, MemberRecord] = {}
        self.listed_at = self.look_at = float("-inf")
        self._busy_until = float("-inf")
        self._seen: object = None

    @property
    def is_stale(self) -> bool:
        """Whether the last listing is too old to decide by it: the others may have written much since."""
        return self._clock() - self.listed_at > self._times.session

    @property
    def final(self) -> set[str]:
        """Members that are known to have left or to be fenced."""
        return {member for member, record in self.known.items() if record.is_final}

    @property
    def records(self) -> dict[str, MemberRecord]:
        """The records that were read. A member whose record was missing for a session counts as fenced.

        Members never delete the record of a member that a state lists. Something else did, so that member can save
        nothing any more, and what it had confirmed is lost.
        """
        members = () if self.state is None else self.state.members
        gone = self._monitor.silent_for(self._times.session).difference(self.versions).intersection(members)
        deleted = {member: MemberRecord(member, 0, "", member, MemberStatus.FENCED, 0) for member in gone}
        return {**self.known, **deleted}

    def last(self, member: str) -> int:
        """The last version of a member's record in the last listing; 0 if there is none."""
        return self.versions[member][-1] if member in self.versions else 0

    def silent(self) -> set[str]:
        """Members that may be dead: no heartbeat for a session, and no final record."""
        return self._monitor.silent_for(self._times.session) - self.final

    def expect_change(self) -> None:
        """List at once, and then often for a session."""
        self._busy_until = self._clock() + self._times.session
        self.look_at = float("-inf")

    def look(self) -> Steps[None]:
        sent = self._clock()
        try:
            self.modified = yield ListNames()
        except StoreError:
            self._monitor.failed()
            raise
        received = self._clock()
        self.generations, self.versions = parse_names(self.modified)
        # Version 0 stands for a member whose record is missing.
        missing = dict.fromkeys(() if self.state is None else self.state.members, 0)
        last_ones = {member: versions[-1] for member, versions in self.versions.items()}
        self._monitor.listed({**missing, **last_ones}, sent, received)
        self.listed_at = sent
        self.known = {member: record for member, record in self.known.items() if member in self.versions}
        self._schedule()
        last = self.generations[-1] if self.generations else -1
        known = -1 if self.state is None else self.state.generation
        self.is_last = False
        if last > known:
            name = state_file(last)
            (data,) = yield ReadFiles((name,))
            if data is None:
                raise StoreError(f"{name} was deleted after it was listed: there are newer states")
            self.state = parse_file(name, data, GroupState.from_json)
        self.is_last = last >= known and self.state is not None

    def read(self, members: Iterable[str]) -> Steps[None]:
        """Read the last listed version of members' records, unless it is known or was deleted since."""
        listed = [member for member in members if member in self.versions and not self._knows_last(member)]
        names = {member: record_file(member, self.last(member)) for member in listed}
        if not names:
            return
        answers = yield ReadFiles(tuple(names.values()))
        for (member, name), data in zip(names.items(), answers, strict=True):
            if data is not None:
                record = self.known[member] = parse_file(name, data, MemberRecord.from_json)
                self._sessions[member] = record.session or self._times.session

    def _schedule(self) -> None:
        seen = self.generations[-1:], self.versions.keys(), self._monitor.silent_for(self._times.overdue)
        if seen != self._seen:
            self._seen = seen
            self._busy_until = self.listed_at + self._times.session
        is_busy = self.listed_at < self._busy_until
        self.look_at = self.listed_at + (self._times.busy_listing if is_busy else self._times.idle_listing)

    def _pace(self, member: str) -> float:
        # Each is missed after the session that its own record names; after the watcher's until that was read.
        return self._times.session / self._sessions.get(member, self._times.session)

    def _knows_last(self, member: str) -> bool:
        known = self.known.get(member)
        return known is not None and known.version >= self.last(member)
