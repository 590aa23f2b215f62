"""`GroupMember`: one member of a group, as steps that yield requests. `MemberThread` runs them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from pypaimon.streaming.errors import ConsumerConflictError, StoreError, StreamConfigError
from pypaimon.streaming.groups.assigned_slots import AssignedSlots
from pypaimon.streaming.groups.coordinator import Coordinator
from pypaimon.streaming.groups.group_files import (
    GroupState,
    GroupTerms,
    MemberRecord,
    MemberStatus,
    first_state,
    name_of,
    parse_file,
    record_file,
    state_file,
)
from pypaimon.streaming.groups.group_requests import (
    CreateFile,
    DeleteFiles,
    FindStart,
    Pause,
    ReadFiles,
    ReadPin,
    ReportDeleted,
    RetentionPin,
    Steps,
)
from pypaimon.streaming.groups.group_view import GroupTimes, GroupView
from pypaimon.streaming.groups.rebalance import is_in_first_plan, members_to_fence, resumed_state

_OWN_VERSIONS_KEPT = 2
_MAX_OLD_VERSIONS = 8


class FencedError(Exception):
    """Another member has fenced this one. It has no slots any more and can save nothing; it joins again."""


class GroupMember:
    """One member of a group. If it is fenced it joins again, with a new id.

    The member writes one file of its own: its record, whose versions are its heartbeats and its saves. What was
    confirmed counts as saved once the version that says so exists. All steps run in one thread.

    Args:
        name: Under this name the member gets its slots back after a restart (Kafka's static membership); or empty.
        clock: Seconds of a clock that counts on while the machine sleeps, so that a lease ends in time.
        draw: Draws a random text, for ids and for nonces, by which a member recognises its own version of a file.
        assigned: The slots of this member, as its reader sees them; the only object that both threads use.
        pin_owner: What the retention pin names as its owner: this group in its current lifetime.

    Attributes:
        id: Id of the member, which is new each time it joins; None before it has joined.
    """

    def __init__(
        self,
        name: str,
        terms: GroupTerms,
        times: GroupTimes,
        clock: Callable[[], float],
        draw: Callable[[], str],
        assigned: AssignedSlots,
        pin_owner: str = "group:1",
    ) -> None:
        self._name = name
        self._terms = terms
        self._times = times
        self._clock = clock
        self._draw = draw
        self._assigned = assigned
        self._pin_owner = pin_owner
        self._leaves = False
        self._has_joined_before = False
        self.ended = False
        self._reset()

    def _reset(self) -> None:
        self.id: str | None = None
        self._view = GroupView(self._times, self._clock)
        self._coordinator = Coordinator(self._view, self._times, self._clock, self._draw, self._pin_owner)
        self._version = 0
        self._is_admitted = False
        self._predecessors: tuple[str, ...] = ()
        self._first_seen: dict[str, int] = {}
        self._pending: tuple[MemberRecord, float] | None = None
        self._heartbeat_at = float("-inf")
        self._versions: deque[tuple[int, float]] = deque()
        self._newest_old = 0
        self._is_fenced = False

    def leave(self) -> None:
        """Have the member leave when it next runs; the others get its slots where they are confirmed. Thread-safe."""
        self._assigned.close()
        self._leaves = True

    def run(self) -> Steps[None]:
        """Be a member until `leave`.

        Raises:
            ConsumerConflictError: A newer member of the same name has taken over, or the group was ended from outside.
            CorruptTableError: A file of the group is damaged, or access to it is denied.
            TableChangedError: The table was dropped or renamed.
        """
        try:
            while not self.ended:
                yield from self._attempt()
        finally:
            self._assigned.lose_all()

    def _attempt(self) -> Steps[None]:
        try:
            yield from self._step()
            until = self._due_at()
        except FencedError:
            self._assigned.lose_all()
            self._is_fenced = True
            until = self._clock()
        except StoreError:
            # A request that failed may have been carried out. The next attempt repeats it, and finds out.
            until = self._clock() + self._times.retry
        yield Pause(until)

    def _step(self) -> Steps[None]:
        if self._is_fenced:
            yield from self._handle_fencing()
        if self.id is None:
            if self._leaves:
                self.ended = True
                return
            yield from self._join()
            if self.id is None:
                return
        if self._view.is_stale:
            yield from self._watch()
        if self._pending or self._leaves or self._assigned.wants_save or self._clock() >= self._heartbeat_at:
            yield from self._send_heartbeat()
        if self.ended and self.id is not None:
            self._assigned.lose_all()
            yield from self._coordinator.member_left(self.id)
        if not self.ended and self._clock() >= self._view.look_at:
            yield from self._watch()
            assert self.id is not None
            if (yield from self._coordinator.act(self.id)):
                yield from self._watch()

    def _due_at(self) -> float:
        if self.id is None and not self.ended:
            return self._clock() if self._leaves else self._view.look_at
        due = self._assigned.wants_save or self._leaves
        return self._clock() if due and not self.ended else min(self._heartbeat_at, self._view.look_at)

    # ---- joining ----

    def _join(self) -> Steps[None]:
        yield from self._view.look()
        yield from self._check_files_exist()
        if self._view.state is None:
            yield from self._create_group()
        state = self._view.state
        assert state is not None
        self._check_rule(state)
        if state.settings != self._terms.settings and not (yield from self._has_replaced_settings(state)):
            return
        self._predecessors = tuple(self._same_name_members())
        self.id = f"{self._name}.{self._draw()}"
        self._has_joined_before = True

    def _create_group(self) -> Steps[None]:
        """Create the group. If it has existed before, its files were deleted, which is an error."""
        pin: RetentionPin | None = yield ReadPin()
        if self._has_joined_before or (pin is not None and pin.owner == self._pin_owner):
            # Another member may have created the group and its pin since this one listed it.
            yield from self._view.look()
            if self._view.state is None:
                yield ReportDeleted()
            return
        start = yield FindStart()
        state = first_state(start, self._terms)
        yield CreateFile(state_file(0), state.to_json())
        yield from self._view.look()
        if self._view.state is None:
            raise StoreError(f"{state_file(0)} was created, but a listing does not contain it")

    def _check_files_exist(self) -> Steps[None]:
        state = self._view.state
        if state is None or self._view.generations:
            return
        (data,) = yield ReadFiles((state_file(state.generation),))
        if data is not None:
            raise StoreError(f"{state_file(state.generation)} exists, but a listing does not contain it")
        # On an object store the heartbeats since then would be all that is left of a dropped table.
        own = self._view.versions.get(self.id or "", [])
        yield DeleteFiles(tuple(record_file(self.id or "", version) for version in own))
        yield ReportDeleted()

    def _check_rule(self, state: GroupState) -> None:
        for what, own, groups in (
            ("rule of slots", self._terms.rule, state.rule),
            ("number of slots", self._terms.slots, len(state.owned)),
        ):
            if own != groups:
                raise StreamConfigError(
                    f"the group divides the table by another {what}: {groups!r}, this reader by {own!r}. Use the same "
                    "release of this library for all members, or start another group."
                )

    def _has_replaced_settings(self, state: GroupState) -> Steps[bool]:
        """Give the group this member's settings, if no other member lives. Returns whether it has them now."""
        others = [*state.members, *(id for id in self._view.versions if id not in state.members)]
        yield from self._view.read(others)
        self._check_alone(state)
        # Settings are fixed while members live. A silent one is waited for, and fenced after its session.
        for id in self._view.silent():
            yield from self._coordinator.fence(id, "")
        if any(not record.is_final for id, record in self._view.records.items() if id in others):
            return False
        # A start applies only to a group that has not begun. In others slots continue where they are.
        start = state.start if state.begun else (yield FindStart())
        if not self._view.is_stale:
            if state.begun and is_in_first_plan(state, self._view.records):
                self._terms.check_first_plan(state.settings)
            new = resumed_state(state, self._view.records, self._terms.settings, start)
            yield CreateFile(state_file(new.generation), new.to_json())
        yield from self._view.look()
        now = self._view.state
        return now is not None and now.settings == self._terms.settings

    def _check_alone(self, state: GroupState) -> None:
        """Refuse settings that differ from those of members that have sent a heartbeat since this one first looked."""
        versions = {id: self._view.last(id) for id in self._view.versions if id not in self._view.final}
        living = [id for id, version in versions.items() if version != self._first_seen.setdefault(id, version)]
        if living:
            raise StreamConfigError(
                f"the group has other settings, and its member {living[0]} is running: {state.settings}, this reader "
                f"has {self._terms.settings}. Give this reader the same settings, end the others first, or use another "
                "group."
            )

    def _same_name_members(self) -> list[str]:
        others = self._view.versions if self._name else {}
        return [id for id in others if name_of(id) == self._name and id != self.id and id not in self._view.final]

    # ---- heartbeats ----

    def _send_heartbeat(self) -> Steps[None]:
        """Write the next version of the record, with what is confirmed. Raises FencedError if it is taken."""
        # If an answer was lost, the same version is sent again until its fate is known: one with other
        # content would look like that of another member. The lease counts from the first attempt, which the
        # others may have seen.
        record, sent = self._pending or (self._next_record(), self._clock())
        self._pending = record, sent
        if not (yield CreateFile(record_file(record.id, record.version), record.to_json())):
            raise FencedError
        self._pending = None
        # The others act on these soon: they admit this member, or let it pass the barrier.
        if self._version == 0 or record.barrier not in (None, self._view.known[record.id].barrier):
            self._view.expect_change()
        self._version = record.version
        self._versions.append((record.version, self._clock()))
        self._heartbeat_at = sent + self._times.heartbeat
        self._view.known[record.id] = record
        self._assigned.saved({**record.held, **record.released}, sent + self._times.lease)
        self.ended = record.status is MemberStatus.LEFT

    def _next_record(self) -> MemberRecord:
        assert self.id is not None and self._view.state is not None
        admitted = MemberStatus.ACTIVE if self._is_admitted else MemberStatus.JOINING
        held, released, barrier = self._assigned.compose()
        return MemberRecord(
            self.id,
            self._version + 1,
            self._draw(),
            self.id,
            MemberStatus.LEFT if self._leaves else admitted,
            self._view.state.generation,
            held,
            released,
            barrier,
            self._predecessors,
            float(self._times.session),
        )

    def _delete_old_versions(self, own: str) -> Steps[None]:
        written_before = self._clock() - self._times.own_version_age
        while len(self._versions) > _OWN_VERSIONS_KEPT and self._versions[0][1] <= written_before:
            self._newest_old = self._versions.popleft()[0]
        old = [version for version in self._view.versions.get(own, ()) if version <= self._newest_old]
        # Several at a time, because a store may delete them in one request.
        if len(old) >= _MAX_OLD_VERSIONS:
            yield DeleteFiles(tuple(record_file(own, version) for version in old))

    # ---- states ----

    def _watch(self) -> Steps[None]:
        yield from self._view.look()
        yield from self._check_files_exist()
        state = self._view.state
        if state is None or self.id is None:
            return
        if state.conflict is not None:
            raise ConsumerConflictError(f"the group has ended for all its members: {state.conflict}")
        # A version that is pending may exist already.
        if self._version and not self._version <= self._view.last(self.id) <= self._version + bool(self._pending):
            raise FencedError
        if self.id in state.members:
            self._is_admitted = True
        elif self._is_admitted:
            raise FencedError
        if state.settings != self._terms.settings:
            # Another member that joined at the same time has replaced them.
            raise FencedError
        self._assigned.adopt(state, self.id)
        yield from self._fence_same_name(self.id)
        yield from self._delete_old_versions(self.id)

    def _fence_same_name(self, own: str) -> Steps[None]:
        if not self._version or not (others := self._same_name_members()):
            return
        yield from self._view.read(others)
        records = {id: self._view.known[id] for id in others if id in self._view.known}
        fenced = members_to_fence(own, self._predecessors, records)
        for member in fenced:
            yield from self._coordinator.fence(member, own)
        state = self._view.state
        if fenced and state is not None and state.begun:
            yield from self._coordinator.rebalance(state)
            self._view.expect_change()

    # ---- fencing ----

    def _handle_fencing(self) -> Steps[None]:
        """Find out which member has fenced this one, and prepare to join again."""
        own, version = self.id, self._version + 1
        if own is not None and self._name:
            name = record_file(own, version)
            (data,) = yield ReadFiles((name,))
            by = parse_file(name, data, MemberRecord.from_json).written_by if data is not None else own
            # Two that fenced each other and joined again would never end.
            if by != own and name_of(by) == self._name:
                raise ConsumerConflictError(f"member {self._name!r}: a newer one of this name has taken over")
        self._reset()
