"""What follows from a state of a group and the registers of its members: functions, without a store or a clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from pypaimon.streaming.consumers.groups.group_state import GroupState, Tenure
from pypaimon.streaming.consumers.groups.register import Register, Status, name_of
from pypaimon.streaming.consumers.groups.slot_assignment import assign
from pypaimon.streaming.model.position import Phase, Position

Registers = Mapping[str, Register]
"""The last version of each register that was read, by the id of its member. Those that are missing say nothing."""


def next_state(state: GroupState, registers: Registers, unsure: Collection[str] = ()) -> GroupState | None:
    """The state that follows: who joined is in, who ended is out, what is free is given away, moves are marked.

    A slot leaves its owner only by what the owner's register says of it: that it was released, or, where the register
    has ended, what was confirmed. All who decide from equal registers come to an equal state.

    Args:
        state: The last one.
        registers: Of its members and of those who want to join.
        unsure: Members that may be gone.

    Returns:
        The state; None if there is nothing to change.
    """
    members, heirs = _members(state, registers, unsure)
    owned = state.owned
    if state.begun:
        owned = _owned(state, registers, members, heirs, unsure)
    passed = _passed(state, registers)
    if (members, owned, passed) == (state.members, state.owned, state.passed):
        return None
    return replace(state, number=state.number + 1, members=members, owned=owned, passed=passed)


def begun_state(state: GroupState, registers: Registers, unsure: Collection[str] = ()) -> GroupState:
    """The state that follows once the start is protected: slots are given away."""
    begun = replace(state, begun=True)
    return next_state(begun, registers, unsure) or replace(begun, number=state.number + 1)


def restarted_state(state: GroupState, start: Position) -> GroupState:
    """The state that follows where the start went before it was protected: another one."""
    return replace(
        state, number=state.number + 1, start=start, owned=(Tenure(None, 0, start),) * len(state.owned), begun=False
    )


def resumed_state(state: GroupState, registers: Registers, settings: str, start: Position) -> GroupState:
    """The state that follows where all members have ended, and another one comes with other settings.

    Args:
        state: The last one.
        registers: Of its members.
        settings: Of the new member.
        start: Where the group begins, if it has not begun.
    """
    owned = tuple(
        Tenure(None, state.number + 1, durable(slot, tenure, registers)) if state.begun else Tenure(None, 0, start)
        for slot, tenure in enumerate(state.owned)
    )
    return replace(state, number=state.number + 1, settings=settings, start=start, members=(), owned=owned)


def is_in_first_plan(state: GroupState, registers: Registers) -> bool:
    """Whether a slot has not come to the end of the first full plan."""
    return any(durable(slot, each, registers).phase is Phase.FULL for slot, each in enumerate(state.owned))


def ended_state(state: GroupState, conflict: str) -> GroupState:
    """The state that ends the group for all members."""
    return replace(state, number=state.number + 1, conflict=conflict)


def floor_of(state: GroupState, registers: Registers) -> Position:
    """Where the slot stands that is furthest behind: its snapshot, and all after it, may still be needed."""
    return min(durable(slot, tenure, registers) for slot, tenure in enumerate(state.owned))


def durable(slot: int, tenure: Tenure, registers: Registers) -> Position:
    """Where a slot would begin if its owner ended now: what its register says of this tenure, else its start."""
    register = None if tenure.owner is None else registers.get(tenure.owner)
    entry = None if register is None else register.entry(slot, tenure.since)
    return tenure.start if entry is None else entry.position


def on_duty(state: GroupState, joining: Iterable[str], gone: Collection[str]) -> list[str]:
    """Who acts for the group, the first at once, the others if those before do not.

    Args:
        state: The last one.
        joining: Who wants to be in.
        gone: Who has ended, or may have.
    """
    order = [member for member in state.members if member not in gone]
    return order + sorted(member for member in joining if member not in gone and member not in state.members)


def rivals(own: str, former: Collection[str], registers: Registers) -> list[str]:
    """Other lives of a member's name that have to end for it: those before it, and of those that began at the same
    time the ones with smaller ids.

    Args:
        own: Id of the member.
        former: Ids of the lives that were there before it.
        registers: Of the lives of its name that have not ended.
    """
    return [
        id
        for id, register in registers.items()
        if id != own and own not in register.former and not register.is_final and (id in former or id < own)
    ]


def _members(
    state: GroupState, registers: Registers, unsure: Collection[str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Who is in, and who has come in the place of a former life of its name."""
    final = {id for id, register in registers.items() if register.is_final}
    joining = sorted(
        id
        for id, register in registers.items()
        if register.status is Status.JOINING and id not in state.members and id not in unsure
    )
    living = [member for member in state.members if member not in final]
    names = [name_of(id) for id in (*living, *joining)]
    admitted = [id for id in joining if not name_of(id) or names.count(name_of(id)) == 1]
    heirs: dict[str, str] = {}
    for id in admitted:
        ended = [member for member in state.members if member in final and name_of(member) == name_of(id) != ""]
        if ended:
            heirs[ended[-1]] = id
    inherited = [heirs.get(member, member) for member in state.members if member in heirs or member not in final]
    return (*inherited, *(id for id in admitted if id not in inherited)), heirs


def _owned(
    state: GroupState,
    registers: Registers,
    members: Sequence[str],
    heirs: Mapping[str, str],
    unsure: Collection[str],
) -> tuple[Tenure, ...]:
    number = state.number + 1
    keeps = [is_held(slot, tenure, registers) for slot, tenure in enumerate(state.owned)]
    holders = [
        tenure.owner if kept else heirs.get(tenure.owner or "") for tenure, kept in zip(state.owned, keeps, strict=True)
    ]
    wanted = assign(holders, [tenure.to for tenure in state.owned], members, unsure)
    owned = []
    for slot, (tenure, kept, owner) in enumerate(zip(state.owned, keeps, wanted, strict=True)):
        if kept:
            owned.append(replace(tenure, to=owner if owner != tenure.owner else None))
        elif owner is None and tenure.owner is None:
            owned.append(tenure)
        else:
            owned.append(Tenure(owner, number, durable(slot, tenure, registers)))
    return tuple(owned)


def is_held(slot: int, tenure: Tenure, registers: Registers) -> bool:
    """Whether the owner of a slot has it still: its register has not ended, and has not released it."""
    if tenure.owner is None:
        return False
    register = registers.get(tenure.owner)
    if register is None:
        return True
    released = register.released.get(slot)
    return not register.is_final and (released is None or released.since != tenure.since)


def _passed(state: GroupState, registers: Registers) -> int:
    """The last snapshot that members wait for each other before, and all slots have reached."""
    waited = [
        register.barrier
        for id, register in registers.items()
        if id in state.members and register.barrier is not None and register.barrier > state.passed
    ]
    if not (state.begun and waited):
        return state.passed
    reached = Position(state.table, min(waited)).order()
    all_there = all(durable(slot, each, registers).order() >= reached for slot, each in enumerate(state.owned))
    return min(waited) if all_there else state.passed
