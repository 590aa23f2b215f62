"""`GroupDuty`: what one member does for all: it ends the silent ones, makes the states, keeps the fence, tidies up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pypaimon.streaming.consumers.groups.group_decisions import (
    begun_state,
    ended_state,
    floor_of,
    next_state,
    on_duty,
    restarted_state,
)
from pypaimon.streaming.consumers.groups.group_files import register_name, state_name
from pypaimon.streaming.consumers.groups.group_requests import (
    CreateFile,
    DeleteFiles,
    Fence,
    FindStart,
    LookAtFence,
    Stands,
    Steps,
    WriteFence,
)
from pypaimon.streaming.consumers.groups.group_state import GroupState
from pypaimon.streaming.consumers.groups.group_times import GroupTimes
from pypaimon.streaming.consumers.groups.group_view import GroupView
from pypaimon.streaming.consumers.groups.register import Status
from pypaimon.streaming.model.position import Phase, Position

_MOST_STATES = 16
_STATES_KEPT = 8


class GroupDuty:
    """What one member does for all. It goes by rank: the first one acts at once, the others if those before do not.

    Two who act at the same time do no harm: files are made once, and only the last state counts.

    Args:
        view: What the member sees.
        times: Of the group.
        clock: Seconds.
        draw: Gives text that nobody else draws.
        fence_owner: Whose the fence is.
    """

    def __init__(
        self, view: GroupView, times: GroupTimes, clock: Callable[[], float], draw: Callable[[], str], fence_owner: str
    ) -> None:
        self._view = view
        self._times = times
        self._clock = clock
        self._draw = draw
        self._owner = fence_owner
        self._need: tuple[object, ...] = ()
        self._need_since = 0.0
        self._all_read_at = self._fence_at = float("-inf")
        self._fence_written = float("-inf")

    def act(self, own: str) -> Steps[bool]:
        """Do what has to be done, if it is this member's turn. Whether there may be a new state.

        Args:
            own: Id of the member.

        Raises:
            StoreError: The store failed; what was begun is found, and gone on with, by the next call.
        """
        state = self._view.state
        if state is None or not self._view.is_last or not self._has_turn(state, own):
            return False
        # How long each may be silent is in its register.
        yield from self._view.read([member for member in state.members if member in self._view.silent()])
        for member in state.members:
            # With each seal the group is listed, and one that was silent before may be heard of.
            if member in self._view.silent():
                yield from self.seal(member, own)
        yield from self._view.read(self._to_read(state, own))
        if self._view.state is not state or self._view.is_stale:
            return True
        if not state.begun:
            return (yield from self._begin(state))
        new = next_state(state, self._view.registers, self._view.silent())
        if new is None and self._view.look_at > self._fence_at:
            new = yield from self._keep_fence(state)
        if new is not None:
            yield from self._create(new)
            return True
        yield from self._tidy_up(state)
        return False

    def part(self, own: str) -> Steps[None]:
        """A member has left: its slots go to the others before they have found that out.

        After the last one the fence goes to where its slots stand, as nobody else would see to it.

        Args:
            own: Its id.
        """
        yield from self._view.look()
        state = self._view.state
        if state is None or not state.begun or own not in state.members:
            return
        if state.members == (own,):
            yield from self._keep_fence(state)
        else:
            yield from self.hand_over(state)

    def hand_over(self, state: GroupState) -> Steps[None]:
        """Make the state that follows from what this member knows, without waiting for the one on duty to find it out.

        Args:
            state: The last one, which has begun.
        """
        new = next_state(state, self._view.registers, self._view.silent())
        if new is not None:
            yield from self._create(new)

    def seal(self, member: str, by: str) -> Steps[None]:
        """End a member: the next version of its register is one that says so, and what was confirmed.

        That counts only if it is the last version in a listing afterwards: a number that its member has written and
        deleted can be made again, and stops nobody.

        Args:
            member: Whose register.
            by: Who does it.
        """
        yield from self._view.read([member])
        register = self._view.known.get(member)
        if register is None or register.is_final or self._view.is_stale:
            return
        sealed = replace(register, number=register.number + 1, nonce=self._draw(), by=by, status=Status.SEALED)
        name = register_name(member, sealed.number)
        if not (yield CreateFile(name, sealed.to_json())):
            return
        yield from self._view.look()
        if self._view.last(member) == sealed.number:
            self._view.known[member] = sealed
        else:
            yield DeleteFiles((name,))

    def _strangers(self, state: GroupState) -> list[str]:
        """Who has a register and is not in."""
        return [member for member in self._view.versions if member not in state.members]

    def _has_turn(self, state: GroupState, own: str) -> bool:
        """Whether this member acts: who is before it has ended, or has let too much time pass."""
        silent = self._view.silent()
        self._note_need(state, silent)
        order = on_duty(state, self._strangers(state), silent | self._view.final)
        if own not in order:
            return False
        rank = order.index(own)
        return rank == 0 or bool(self._need) and self._clock() - self._need_since >= rank * self._times.busy_watch

    def _to_read(self, state: GroupState, own: str) -> list[str]:
        """Whose registers may say what changes the state: owners of slots that move, and once a session all.

        All also where somebody comes, perhaps in the place of a former life, and while this member waits for others.
        """
        strangers = self._strangers(state)
        register = self._view.known.get(own)
        waits = register is None or register.barrier is not None or not register.held
        if waits or not self._view.final.issuperset(strangers) or self._clock() >= self._all_read_at:
            self._all_read_at = self._clock() + self._times.session
            return [*state.members, *strangers]
        moving = {tenure.owner for tenure in state.owned if tenure.to is not None}
        return [member for member in state.members if member in moving]

    def _note_need(self, state: GroupState, silent: set[str]) -> None:
        """Since when something has to be done that one can see without reading registers."""
        strangers = frozenset(self._strangers(state)) - silent - self._view.final
        gone = frozenset(silent.intersection(state.members))
        need = (state.number, strangers, gone) if strangers or gone or not state.begun else ()
        if need != self._need:
            self._need, self._need_since = need, self._clock()

    def _begin(self, state: GroupState) -> Steps[bool]:
        """Protect the start, and only then see whether it stands: then slots are given away."""
        new = next_state(state, self._view.registers, self._view.silent())
        if not (new or state).members:
            return False
        if (yield from self._protect(state)) and not self._view.is_stale:
            if (yield Stands(state.start)):
                yield from self._create(begun_state(state, self._view.registers, self._view.silent()))
            else:
                yield from self._create(restarted_state(state, (yield FindStart())))
        return True

    def _protect(self, state: GroupState) -> Steps[bool]:
        """Have the fence keep the start; whether it does."""
        found: Fence | None = yield LookAtFence()
        floor = state.start.snapshot
        if found is not None and (found.owner, found.floor) == (self._owner, floor):
            return True
        return bool((yield WriteFence(floor, found, _before(state.start))))

    def _keep_fence(self, state: GroupState) -> Steps[GroupState | None]:
        """Move the fence behind the slowest slot; if somebody has taken it away, the state that ends the group."""
        found: Fence | None = yield LookAtFence()
        self._fence_at = self._clock() + self._times.poll
        if found is None:
            return ended_state(state, "its fence was deleted, or consumer.expiration-time has taken it")
        if found.owner != self._owner:
            by = "Java, a reset or another library" if found.owner is None else found.owner
            return ended_state(state, f"its fence now belongs to {by}, at snapshot {found.floor}")
        last, age = floor_of(state, self._view.registers), self._times.fence_age
        moves = last.snapshot > found.floor
        if moves or (age is not None and self._clock() - self._fence_written >= age):
            self._fence_written = self._clock()
            floor, fingerprint = (last.snapshot, _before(last)) if moves else (found.floor, found.fingerprint)
            yield WriteFence(floor, found, fingerprint)
        return None

    def _create(self, state: GroupState) -> Steps[None]:
        """Make a state. Whose it is that number has is seen in the next listing."""
        if not self._view.is_stale:
            yield CreateFile(state_name(state.number), state.to_json())

    def _tidy_up(self, state: GroupState) -> Steps[None]:
        """Delete former states, and of the registers of those who have ended what nobody needs."""
        names = [state_name(number) for number in self._former_states(state)]
        newest = max((time for time in self._view.modified.values() if time is not None), default=0.0)
        ended = self._view.final.intersection(self._strangers(state))
        names += [register_name(member, number) for member in ended for number in self._former_versions(member, newest)]
        if names and not self._view.is_stale:
            yield DeleteFiles(tuple(names))

    def _former_states(self, state: GroupState) -> list[int]:
        """States that no member acts upon; not each time."""
        if len(self._view.states) <= _MOST_STATES:
            return []
        seen = [register.seen for member in state.members if (register := self._view.known.get(member))]
        return [number for number in self._view.states[:-_STATES_KEPT] if number < min(seen, default=0)]

    def _former_versions(self, member: str, newest: float) -> list[int]:
        """Versions of a register that has its last one: those before, once every listing has that one.

        The last one too, once it has been there for so long that nobody can be in the midst of writing another one.

        Args:
            member: Whose register.
            newest: When the last file of the group was written, by the store's clock.
        """
        versions = self._view.versions[member]
        last = self._view.modified.get(register_name(member, versions[-1]))
        if last is None or newest - last < self._times.kept:
            return []
        return versions if newest - last >= self._times.dead_for else versions[:-1]


def _before(position: Position) -> str | None:
    """The fingerprint of the snapshot before that of a position, if that is the one that it knows."""
    return position.fingerprint if position.phase is Phase.FOLLOW and position.unit is None else None
