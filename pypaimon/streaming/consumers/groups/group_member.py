"""`GroupMember`: one member of a group, as steps that ask for what they need; a thread runs them, or a simulation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from pypaimon.streaming.consumers.groups.group_decisions import is_in_first_plan, resumed_state, rivals
from pypaimon.streaming.consumers.groups.group_duty import GroupDuty
from pypaimon.streaming.consumers.groups.group_files import register_name, state_name
from pypaimon.streaming.consumers.groups.group_requests import (
    CreateFile,
    DeleteFiles,
    Fence,
    FindStart,
    LookAtFence,
    Pause,
    ReadFiles,
    ReportDeleted,
    Steps,
)
from pypaimon.streaming.consumers.groups.group_state import GroupState, first_state
from pypaimon.streaming.consumers.groups.group_times import GroupTimes
from pypaimon.streaming.consumers.groups.group_view import GroupView, parsed
from pypaimon.streaming.consumers.groups.holdings import Holdings
from pypaimon.streaming.consumers.groups.register import Register, Status, name_of
from pypaimon.streaming.errors import ConsumerConflictError, StoreError, StreamConfigError

_OWN_VERSIONS_KEPT = 2
_MOST_OLD_VERSIONS = 8


class FencedError(Exception):
    """Others have ended this life of the member; it has nothing, and saves nothing any more."""


class GroupMember:
    """One member of a group, for one life after the other: ended by others, it joins again under a new id.

    Its register is the only file that it writes for itself: beats and saves are its versions, one after the other, and
    what was saved counts once its version exists. All steps run in one thread.

    Args:
        name: Under which it comes back to its slots after a restart; empty: it has none.
        slots: How many the table has.
        times: Of the group.
        clock: Seconds of a clock that does not go back, and does not stand still while the machine sleeps.
        draw: Gives eight hexadecimal digits that nobody else draws.
        holdings: What the reader hands out of.
        settings: Of the stream; all members have the same.
        rule: How files are divided over slots.
        fence_owner: Whose the fence of the group is.
        check_former: Raises if this member cannot finish a first plan that was begun with other settings.

    Attributes:
        id: Of this life; None before it has one.
        lives: How many it has had.
        ended: Whether it has left.
    """

    def __init__(
        self,
        name: str,
        slots: int,
        times: GroupTimes,
        clock: Callable[[], float],
        draw: Callable[[], str],
        holdings: Holdings,
        *,
        settings: str = "",
        rule: str = "",
        fence_owner: str = "group:1",
        check_former: Callable[[str], None] = lambda settings: None,
    ) -> None:
        self._name = name
        self._slots = slots
        self._times = times
        self._clock = clock
        self._draw = draw
        self._holdings = holdings
        self._settings = settings
        self._rule = rule
        self._fence_owner = fence_owner
        self._check_former = check_former
        self._leaves = False
        self.lives = 0
        self.ended = False
        self._be_born()

    def _be_born(self) -> None:
        self.id: str | None = None
        self._view = GroupView(self._times, self._clock)
        self._duty = GroupDuty(self._view, self._times, self._clock, self._draw, self._fence_owner)
        self._number = 0
        self._is_in = False
        self._former: tuple[str, ...] = ()
        self._first_seen: dict[str, int] = {}
        self._pending: tuple[Register, float] | None = None
        self._beat_at = float("-inf")
        self._versions: deque[tuple[int, float]] = deque()
        self._newest_old = 0
        self._is_fenced = False

    def leave(self) -> None:
        """Have the member end when it next runs; what is not confirmed comes again elsewhere. From any thread."""
        self._holdings.close()
        self._leaves = True

    def run(self) -> Steps[None]:
        """Be a member until `leave`.

        Raises:
            ConsumerConflictError: A newer life of the name has taken over, or the group was ended from outside.
            CorruptTableError: A file of the group is damaged, or may not be read or written.
            StreamConfigError: The group has living members with other settings, or divides the table otherwise.
            TableChangedError: The table was dropped, or has another name.
        """
        try:
            while not self.ended:
                yield from self._attempt()
        finally:
            self._holdings.lose()

    def _attempt(self) -> Steps[None]:
        try:
            yield from self._step()
            until = self._next()
        except FencedError:
            self._holdings.lose()
            self._is_fenced = True
            until = self._clock()
        except StoreError:
            # What is not known to be done is done again, and found out then.
            until = self._clock() + self._times.retry
        yield Pause(until)

    def _step(self) -> Steps[None]:
        """What is due."""
        if self._is_fenced:
            yield from self._die()
        if self.id is None:
            if self._leaves:
                self.ended = True
                return
            yield from self._join()
            if self.id is None:
                return
        if self._view.is_stale:
            yield from self._watch()
        if self._pending or self._leaves or self._holdings.wants_save or self._clock() >= self._beat_at:
            yield from self._save()
        if self.ended and self.id is not None:
            self._holdings.lose()
            yield from self._duty.part(self.id)
        if not self.ended and self._clock() >= self._view.look_at:
            yield from self._watch()
            assert self.id is not None
            if (yield from self._duty.act(self.id)):
                yield from self._watch()

    def _next(self) -> float:
        if self.id is None and not self.ended:
            return self._clock() if self._leaves else self._view.look_at
        due = self._holdings.wants_save or self._leaves
        return self._clock() if due and not self.ended else min(self._beat_at, self._view.look_at)

    def _join(self) -> Steps[None]:
        """Find the group, or make it, and begin a life in it; not while it may have members with other settings."""
        yield from self._view.look()
        yield from self._check_there()
        if self._view.state is None:
            yield from self._found()
        state = self._view.state
        assert state is not None
        self._check_rule(state)
        if state.settings != self._settings and not (yield from self._has_replaced_settings(state)):
            return
        self._former = tuple(self._namesakes())
        self.id = f"{self._name}.{self._draw()}"
        self.lives += 1

    def _found(self) -> Steps[None]:
        """Make the group, unless it has begun before: then its files were deleted."""
        fence: Fence | None = yield LookAtFence()
        if self.lives or (fence is not None and fence.owner == self._fence_owner):
            # Another member may have made the group, and its fence, in between.
            yield from self._view.look()
            if self._view.state is None:
                yield ReportDeleted()
            return
        start = yield FindStart()
        state = first_state(start, self._slots, self._settings, self._rule)
        yield CreateFile(state_name(0), state.to_json())
        yield from self._view.look()
        if self._view.state is None:
            raise StoreError(f"{state_name(0)}: it was made, and is not listed")

    def _check_there(self) -> Steps[None]:
        """Whether the files of a group that was seen are still there.

        Raises:
            ConsumerConflictError: They were deleted.
            TableChangedError: The table was dropped, or has another name.
        """
        state = self._view.state
        if state is None or self._view.states:
            return
        (data,) = yield ReadFiles((state_name(state.number),))
        if data is not None:
            raise StoreError(f"{state_name(state.number)}: it is there, and was not listed")
        # What this member wrote since would be all that is left of the table.
        own = self._view.versions.get(self.id or "", [])
        yield DeleteFiles(tuple(register_name(self.id or "", number) for number in own))
        yield ReportDeleted()

    def _check_rule(self, state: GroupState) -> None:
        for what, own, groups in (
            ("rule of slots", self._rule, state.rule),
            ("number of slots", self._slots, len(state.owned)),
        ):
            if own != groups:
                raise StreamConfigError(
                    f"the group divides the table by another {what}: {groups!r}, this reader by {own!r}. Use the same "
                    "release of this library for all members, or begin another group."
                )

    def _has_replaced_settings(self, state: GroupState) -> Steps[bool]:
        """Give the group this member's settings, if it has no members: whether it has them now.

        They are fixed while members live. A silent member is waited for, and ended after its session. The start counts
        only where nothing is saved: in a group that has not begun. Otherwise slots continue where they stand.

        Raises:
            StreamConfigError: A member is alive, or this one cannot finish the first plan.
        """
        others = [*state.members, *(id for id in self._view.versions if id not in state.members)]
        yield from self._view.read(others)
        self._check_alone(state)
        for id in self._view.silent():
            yield from self._duty.seal(id, "")
        if any(not register.is_final for id, register in self._view.registers.items() if id in others):
            return False
        start = state.start if state.begun else (yield FindStart())
        if not self._view.is_stale:
            if state.begun and is_in_first_plan(state, self._view.registers):
                self._check_former(state.settings)
            new = resumed_state(state, self._view.registers, self._settings, start)
            yield CreateFile(state_name(new.number), new.to_json())
        yield from self._view.look()
        now = self._view.state
        return now is not None and now.settings == self._settings

    def _check_alone(self, state: GroupState) -> None:
        """Refuse other settings than those of members that have been heard of since this one began to look."""
        numbers = {id: self._view.last(id) for id in self._view.versions if id not in self._view.final}
        heard = [id for id, number in numbers.items() if number != self._first_seen.setdefault(id, number)]
        if heard:
            raise StreamConfigError(
                f"the group has other settings while its members live ({heard[0]} does): {state.settings}, this reader "
                f"has {self._settings}. Give this reader the same settings, end the others first, or use another group."
            )

    def _namesakes(self) -> list[str]:
        """Other lives of its name that have not ended."""
        others = self._view.versions if self._name else {}
        return [id for id in others if name_of(id) == self._name and id != self.id and id not in self._view.final]

    def _save(self) -> Steps[None]:
        """Write the next version of the register.

        One whose answer was lost is tried again as it is, until it is known what became of it.

        Raises:
            FencedError: Another member has written it.
        """
        register, sent = self._pending or (self._compose(), self._clock())
        self._pending = register, sent
        if not (yield CreateFile(register_name(register.id, register.number), register.to_json())):
            raise FencedError
        self._pending = None
        if self._number == 0 or register.barrier not in (None, self._view.known[register.id].barrier):
            self._view.expect_change()
        self._number = register.number
        self._versions.append((register.number, self._clock()))
        self._beat_at = sent + self._times.beat
        self._view.known[register.id] = register
        self._holdings.saved({**register.held, **register.released}, sent + self._times.lease)
        self.ended = register.status is Status.LEFT

    def _compose(self) -> Register:
        assert self.id is not None and self._view.state is not None
        status = Status.LEFT if self._leaves else Status.ACTIVE if self._is_in else Status.JOINING
        held, released, barrier = self._holdings.compose()
        return Register(
            self.id,
            self._number + 1,
            self._draw(),
            self.id,
            status,
            self._view.state.number,
            held,
            released,
            barrier,
            self._former,
            float(self._times.session),
        )

    def _watch(self) -> Steps[None]:
        """List the group, and act upon the last state.

        Raises:
            FencedError: The register is not this member's any more, or the state is without it.
            ConsumerConflictError: The group has ended.
        """
        yield from self._view.look()
        yield from self._check_there()
        state = self._view.state
        if state is None or self.id is None:
            return
        if state.conflict is not None:
            raise ConsumerConflictError(f"the group has ended for all its members: {state.conflict}")
        if self._number and not self._number <= self._view.last(self.id) <= self._number + bool(self._pending):
            raise FencedError
        if self.id in state.members:
            self._is_in = True
        elif self._is_in:
            raise FencedError
        if state.settings != self._settings:
            # Another member that began at the same time was faster.
            raise FencedError
        self._holdings.adopt(state, self.id)
        yield from self._end_rivals(self.id)
        yield from self._tidy_up(self.id)

    def _end_rivals(self, own: str) -> Steps[None]:
        if not self._number or not (namesakes := self._namesakes()):
            return
        yield from self._view.read(namesakes)
        registers = {id: self._view.known[id] for id in namesakes if id in self._view.known}
        ended = rivals(own, self._former, registers)
        for member in ended:
            yield from self._duty.seal(member, own)
        state = self._view.state
        if ended and state is not None and state.begun:
            yield from self._duty.hand_over(state)
            self._view.expect_change()

    def _tidy_up(self, own: str) -> Steps[None]:
        """Delete own versions that nobody needs, some at a time."""
        made_before = self._clock() - self._times.kept
        while len(self._versions) > _OWN_VERSIONS_KEPT and self._versions[0][1] <= made_before:
            self._newest_old = self._versions.popleft()[0]
        old = [number for number in self._view.versions.get(own, ()) if number <= self._newest_old]
        if len(old) >= _MOST_OLD_VERSIONS:
            yield DeleteFiles(tuple(register_name(own, number) for number in old))

    def _die(self) -> Steps[None]:
        """Find out who has ended this life, and begin another one.

        Raises:
            ConsumerConflictError: A newer life of the name has ended this one.
        """
        own, number = self.id, self._number + 1
        if own is not None and self._name:
            name = register_name(own, number)
            (data,) = yield ReadFiles((name,))
            by = parsed(name, data, Register.from_json).by if data is not None else own
            if by != own and name_of(by) == self._name:
                raise ConsumerConflictError(f"member {self._name!r}: a newer one of this name has taken over")
        self._be_born()
