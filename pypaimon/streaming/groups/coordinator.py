"""`Coordinator`: what one member does for the whole group: fence dead members, write states, keep the pin, clean up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pypaimon.streaming.groups.group_files import GroupState, MemberStatus, record_file, state_file
from pypaimon.streaming.groups.group_requests import (
    CheckStart,
    CreateFile,
    DeleteFiles,
    FindStart,
    ReadPin,
    RetentionPin,
    Steps,
    WritePin,
)
from pypaimon.streaming.groups.group_view import GroupTimes, GroupView
from pypaimon.streaming.groups.rebalance import (
    begun_state,
    coordinator_order,
    ended_state,
    lowest_position,
    next_state,
    restarted_state,
)
from pypaimon.streaming.model.position import Position

_MAX_STATES = 16
_STATES_KEPT = 8


class Coordinator:
    """The coordinating part of a member. Every member has one; which of them acts follows from `coordinator_order`.

    There is no election, and two may act at the same time. That is safe: files are created only where none of their
    name exists, so one of two equal generations is written, and both coordinators act on that one from then on.
    """

    def __init__(
        self, view: GroupView, times: GroupTimes, clock: Callable[[], float], draw: Callable[[], str], pin_owner: str
    ) -> None:
        self._view = view
        self._times = times
        self._clock = clock
        self._draw = draw
        self._pin_owner = pin_owner
        self._work: tuple[object, ...] = ()
        self._work_since = 0.0
        self._read_all_at = self._read_pin_at = float("-inf")
        self._pin_written_at = float("-inf")

    def act(self, own: str) -> Steps[bool]:
        """Coordinate, if it is this member's turn. Returns whether there may be a new state.

        Raises:
            StoreError: The store failed. The next call, by whichever member, completes what was begun.
        """
        state = self._view.state
        if state is None or not self._view.is_last or not self._has_turn(state, own):
            return False
        # The records say after how long each member may be fenced.
        yield from self._view.read([member for member in state.members if member in self._view.silent()])
        for member in state.members:
            # Fencing lists the group again, in which a member that was silent before may have sent a heartbeat.
            if member in self._view.silent():
                yield from self.fence(member, own)
        yield from self._view.read(self._records_to_read(state, own))
        if self._view.state is not state or self._view.is_stale:
            return True
        if not state.begun:
            return (yield from self._begin(state))
        new = next_state(state, self._view.records, self._view.silent())
        if new is None and self._view.look_at > self._read_pin_at:
            new = yield from self._keep_pin(state)
        if new is not None:
            yield from self._write_state(new)
            return True
        yield from self._delete_old_files(state)
        return False

    def member_left(self, own: str) -> Steps[None]:
        """This member has left: give its slots to the others at once, without waiting for their coordinator.

        If it was the last one, it moves the pin to where its slots are, which no other member would do.
        """
        yield from self._view.look()
        state = self._view.state
        if state is None or not state.begun or own not in state.members:
            return
        if state.members == (own,):
            yield from self._keep_pin(state)
        else:
            yield from self.rebalance(state)

    def rebalance(self, state: GroupState) -> Steps[None]:
        """Write the next state from what this member knows, without waiting for its turn to coordinate."""
        new = next_state(state, self._view.records, self._view.silent())
        if new is not None:
            yield from self._write_state(new)

    def fence(self, member: str, by: str) -> Steps[None]:
        """Fence a member: write the next version of its record, which says so and repeats what was confirmed.

        The member creates its versions with ascending numbers, and only where none exists. So it either wrote that
        version itself and lives, or finds it taken and knows that it was fenced. In both cases only one of the two
        counts.

        The version has to be the last one in a listing afterwards. While this call was under way, the member may have
        created the same version, later ones too, and deleted the old ones again. Then the version that is created here
        fences nobody, and is deleted.
        """
        yield from self._view.read([member])
        record = self._view.known.get(member)
        if record is None or record.is_final or self._view.is_stale:
            return
        fenced = replace(
            record, version=record.version + 1, nonce=self._draw(), written_by=by, status=MemberStatus.FENCED
        )
        name = record_file(member, fenced.version)
        if not (yield CreateFile(name, fenced.to_json())):
            return
        yield from self._view.look()
        if self._view.last(member) == fenced.version:
            self._view.known[member] = fenced
        else:
            yield DeleteFiles((name,))

    # ---- whose turn it is ----

    def _joining(self, state: GroupState) -> list[str]:
        return [member for member in self._view.versions if member not in state.members]

    def _has_turn(self, state: GroupState, own: str) -> bool:
        """Whether this member coordinates: those before it are gone, or have left work undone for too long."""
        silent = self._view.silent()
        self._note_work(state, silent)
        order = coordinator_order(state, self._joining(state), silent | self._view.final)
        if own not in order:
            return False
        rank = order.index(own)
        waited = self._clock() - self._work_since
        return rank == 0 or (bool(self._work) and waited >= rank * self._times.busy_listing)

    def _note_work(self, state: GroupState, silent: set[str]) -> None:
        joining = frozenset(self._joining(state)) - silent - self._view.final
        gone = frozenset(silent.intersection(state.members))
        work = (state.generation, joining, gone) if joining or gone or not state.begun else ()
        if work != self._work:
            self._work, self._work_since = work, self._clock()

    def _records_to_read(self, state: GroupState, own: str) -> list[str]:
        """Members whose records may change the state."""
        joining = self._joining(state)
        record = self._view.known.get(own)
        # All once a session, while any member joins (it may have the name of an ended one), and while this
        # one waits for the others at a barrier or has no slots.
        waits = record is None or record.barrier is not None or not record.held
        if waits or not self._view.final.issuperset(joining) or self._clock() >= self._read_all_at:
            self._read_all_at = self._clock() + self._times.session
            return [*state.members, *joining]
        # These may have released the slots.
        revoked = {ownership.owner for ownership in state.owned if ownership.moves_to is not None}
        return [member for member in state.members if member in revoked]

    # ---- the start, and the pin ----

    def _begin(self, state: GroupState) -> Steps[bool]:
        """Pin the start, and assign slots if it was still there afterwards."""
        new = next_state(state, self._view.records, self._view.silent())
        if not (new or state).members:
            return False
        # In this order: expiry may have deleted the start's snapshot before the pin existed, and not after
        # that.
        if (yield from self._pin_start(state)) and not self._view.is_stale:
            if (yield CheckStart(state.start)):
                yield from self._write_state(begun_state(state, self._view.records, self._view.silent()))
            else:
                yield from self._write_state(restarted_state(state, (yield FindStart())))
        return True

    def _pin_start(self, state: GroupState) -> Steps[bool]:
        found: RetentionPin | None = yield ReadPin()
        floor = state.start.snapshot
        if found is not None and (found.owner, found.floor) == (self._pin_owner, floor):
            return True
        return bool((yield WritePin(floor, found, _fingerprint_before(state.start))))

    def _keep_pin(self, state: GroupState) -> Steps[GroupState | None]:
        """Move the pin up to the slowest slot. Returns the state that ends the group if another one owns the pin."""
        found: RetentionPin | None = yield ReadPin()
        self._read_pin_at = self._clock() + self._times.poll
        if found is None:
            return ended_state(state, "its retention pin was deleted, or consumer.expiration-time has passed")
        if found.owner != self._pin_owner:
            by = "Java, a reset or another library" if found.owner is None else found.owner
            return ended_state(state, f"its retention pin was replaced by {by}, at snapshot {found.floor}")
        lowest, age = lowest_position(state, self._view.records), self._times.pin_age
        moves = lowest.snapshot > found.floor
        if moves or (age is not None and self._clock() - self._pin_written_at >= age):
            self._pin_written_at = self._clock()
            floor = lowest.snapshot if moves else found.floor
            fingerprint = _fingerprint_before(lowest) if moves else found.fingerprint
            # If another member has moved it meanwhile, this changes nothing: the pin is not the one that was read.
            yield WritePin(floor, found, fingerprint)
        return None

    # ---- files ----

    def _write_state(self, state: GroupState) -> Steps[None]:
        if not self._view.is_stale:
            # Another member may write this generation first. The next listing shows whose it is.
            yield CreateFile(state_file(state.generation), state.to_json())

    def _delete_old_files(self, state: GroupState) -> Steps[None]:
        names = [state_file(generation) for generation in self._old_generations(state)]
        newest = max((time for time in self._view.modified.values() if time is not None), default=0.0)
        ended = self._view.final.intersection(self._joining(state))
        names += [record_file(member, version) for member in ended for version in self._old_versions(member, newest)]
        if names and not self._view.is_stale:
            yield DeleteFiles(tuple(names))

    def _old_generations(self, state: GroupState) -> list[int]:
        if len(self._view.generations) <= _MAX_STATES:
            return []
        acted_on = [record.generation for member in state.members if (record := self._view.known.get(member))]
        oldest = min(acted_on, default=0)
        return [generation for generation in self._view.generations[:-_STATES_KEPT] if generation < oldest]

    def _old_versions(self, member: str, newest: float) -> list[int]:
        """Versions to delete of a member that has ended. `newest` is when the group's newest file was written."""
        versions = self._view.versions[member]
        last = self._view.modified.get(record_file(member, versions[-1]))
        # Until every listing contains the final version, which the member has to find if it is still running.
        if last is None or newest - last < self._times.own_version_age:
            return []
        # After a day no request that was under way can still create a version.
        return versions if newest - last >= self._times.final_record_age else versions[:-1]


def _fingerprint_before(position: Position) -> str | None:
    """The fingerprint of the snapshot before a position's; None where the position knows that of another snapshot."""
    return None if position.is_inside else position.fingerprint
