"""Rebalancing: the next state of a group from the last one and the records of its members. Pure functions.

They use neither the store nor a clock, so that members that see the same files compute the same state, and that a
test can try every case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from pypaimon.streaming.groups.group_files import GroupState, MemberRecord, MemberStatus, SlotOwnership, name_of
from pypaimon.streaming.model.position import Phase, Position

Records = Mapping[str, MemberRecord]
"""The last version of each record that was read, by member id. Nothing is known about other members."""


# ---- states that follow ----


def next_state(state: GroupState, records: Records, silent: Collection[str] = ()) -> GroupState | None:
    """The next generation: joining members are admitted, ended ones removed, free slots assigned, others revoked.

    A slot leaves its owner only because of what the owner's record says: that it was released or, if the record is
    final, how far it was confirmed. A state alone never takes a slot away, since its owner may not have seen it yet.

    Args:
        records: Records of its members and of those that want to join.
        silent: Members that may be dead. They keep their slots, and get no others.

    Returns:
        The next state; None if nothing changes.
    """
    members, successors = _members(state, records, silent)
    owned = state.owned
    if state.begun:
        owned = _owned(state, records, members, successors, silent)
    passed = _passed(state, records)
    if (members, owned, passed) == (state.members, state.owned, state.passed):
        return None
    return replace(state, generation=state.generation + 1, members=members, owned=owned, passed=passed)


def begun_state(state: GroupState, records: Records, silent: Collection[str] = ()) -> GroupState:
    """The next state once the retention pin protects the start: slots are assigned."""
    begun = replace(state, begun=True)
    return next_state(begun, records, silent) or replace(begun, generation=state.generation + 1)


def restarted_state(state: GroupState, start: Position) -> GroupState:
    owned = (SlotOwnership(None, 0, start),) * len(state.owned)
    return replace(state, generation=state.generation + 1, start=start, owned=owned, begun=False)


def resumed_state(state: GroupState, records: Records, settings: str, start: Position) -> GroupState:
    """The next state if all members have ended and a new one has other settings.

    Args:
        start: Where the group begins if it has not begun yet.
    """
    owned = tuple(
        SlotOwnership(None, state.generation + 1, durable_position(slot, ownership, records))
        if state.begun
        else SlotOwnership(None, 0, start)
        for slot, ownership in enumerate(state.owned)
    )
    return replace(state, generation=state.generation + 1, settings=settings, start=start, members=(), owned=owned)


def ended_state(state: GroupState, conflict: str) -> GroupState:
    return replace(state, generation=state.generation + 1, conflict=conflict)


# ---- facts about a state ----


def durable_position(slot: int, ownership: SlotOwnership, records: Records) -> Position:
    """Where another member would continue if the owner of a slot died now: its saved progress, or its start."""
    record = None if ownership.owner is None else records.get(ownership.owner)
    progress = None if record is None else record.progress_of(slot, ownership.since)
    return ownership.start if progress is None else progress.position


def lowest_position(state: GroupState, records: Records) -> Position:
    """The position of the slowest slot. The group still needs its snapshot and all later ones."""
    return min(durable_position(slot, ownership, records) for slot, ownership in enumerate(state.owned))


def is_in_first_plan(state: GroupState, records: Records) -> bool:
    positions = (durable_position(slot, each, records) for slot, each in enumerate(state.owned))
    return any(position.phase is Phase.FULL for position in positions)


def coordinator_order(state: GroupState, joining: Iterable[str], gone: Collection[str]) -> list[str]:
    """The members by their turn to coordinate: the first acts at once, each later one if those before it do not.

    Args:
        joining: Members that want to join. They come last: they coordinate only if no member is left.
        gone: Members that have ended or may be dead.
    """
    order = [member for member in state.members if member not in gone]
    return order + sorted(member for member in joining if member not in gone and member not in state.members)


def members_to_fence(own: str, predecessors: Collection[str], records: Records) -> list[str]:
    """The members with this member's name that it has to fence.

    These are the ones that were there before it. Of two that joined at the same time, so that neither names the other
    as a predecessor, the one with the greater id stays.
    """
    return [
        id
        for id, record in records.items()
        if id != own and own not in record.predecessors and not record.is_final and (id in predecessors or id < own)
    ]


def _members(state: GroupState, records: Records, silent: Collection[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The members of the next state, and the ended members whose slots a new one of the same name takes over."""
    final = {id for id, record in records.items() if record.is_final}
    joining = sorted(
        id
        for id, record in records.items()
        if record.status is MemberStatus.JOINING and id not in state.members and id not in silent
    )
    living = [member for member in state.members if member not in final]
    names = [name_of(id) for id in (*living, *joining)]
    # Two with one name are both left out until one of them has fenced the other.
    admitted = [id for id in joining if not name_of(id) or names.count(name_of(id)) == 1]
    successors: dict[str, str] = {}
    for id in admitted:
        ended = [member for member in state.members if member in final and name_of(member) == name_of(id) != ""]
        if ended:
            successors[ended[-1]] = id
    kept = [successors.get(member, member) for member in state.members if member in successors or member not in final]
    return (*kept, *(id for id in admitted if id not in kept)), successors


def _owned(
    state: GroupState, records: Records, members: Sequence[str], successors: Mapping[str, str], silent: Collection[str]
) -> tuple[SlotOwnership, ...]:
    keeps = [_is_held(slot, ownership, records) for slot, ownership in enumerate(state.owned)]
    holders = [
        ownership.owner if kept else successors.get(ownership.owner or "")
        for ownership, kept in zip(state.owned, keeps, strict=True)
    ]
    wanted = assign(holders, [ownership.moves_to for ownership in state.owned], members, silent)
    owned = []
    for slot, (ownership, kept, owner) in enumerate(zip(state.owned, keeps, wanted, strict=True)):
        if kept:
            # Its owner may be reading: the slot is only revoked, and moves once the owner has released it.
            owned.append(replace(ownership, moves_to=owner if owner != ownership.owner else None))
        elif owner is None and ownership.owner is None:
            owned.append(ownership)
        else:
            owned.append(SlotOwnership(owner, state.generation + 1, durable_position(slot, ownership, records)))
    return tuple(owned)


def _is_held(slot: int, ownership: SlotOwnership, records: Records) -> bool:
    """Whether the owner still has the slot: its record is not final and has not released it."""
    if ownership.owner is None:
        return False
    record = records.get(ownership.owner)
    if record is None:
        return True
    released = record.released.get(slot)
    return not record.is_final and (released is None or released.since != ownership.since)


def _passed(state: GroupState, records: Records) -> int:
    barriers = [
        record.barrier
        for id, record in records.items()
        if id in state.members and record.barrier is not None and record.barrier > state.passed
    ]
    if not (state.begun and barriers):
        return state.passed
    reached = Position(state.table, min(barriers)).order()
    positions = (durable_position(slot, each, records) for slot, each in enumerate(state.owned))
    return min(barriers) if all(position.order() >= reached for position in positions) else state.passed


# ---- the assignor ----


def assign(
    holders: Sequence[str | None], moving: Sequence[str | None], members: Sequence[str], silent: Collection[str] = ()
) -> list[str | None]:
    """Divide the slots among the members: counts differ by at most one, and as few slots as possible move.

    As Kafka's sticky assignor. Moves that were decided before are kept where they still fit, so that a slot that its
    owner is about to release does not change its target with each generation.

    Args:
        holders: For each slot the one of `members` that has it; None if it is free.
        moving: For each slot the member that gets it next by an earlier decision; None if it stays.
        members: Ids, in the order in which they were admitted.
        silent: Members that may be dead. They get nothing, and keep what they have.

    Returns:
        For each slot the member that should have it; None only if no member can take it.
    """
    takers = [member for member in members if member not in silent]
    if not takers:
        return list(holders)
    wanted: list[str | None] = [
        to if holder in silent and to in takers else holder for holder, to in zip(holders, moving, strict=True)
    ]
    quotas = _quotas(wanted, takers)
    for member in takers:
        slots = [slot for slot, each in enumerate(wanted) if each == member]
        for slot in _surplus(slots, len(slots) - quotas[member], moving, takers):
            wanted[slot] = None
    missing = Counter(quotas)
    missing.subtract(Counter(member for member in wanted if member in quotas))
    free = [slot for slot, member in enumerate(wanted) if member is None]
    for slot in free:
        to = moving[slot]
        if to is not None and missing[to] > 0:
            wanted[slot] = to
            missing[to] -= 1
    _stripe(wanted, [slot for slot in free if wanted[slot] is None], takers, missing)
    return wanted


def _quotas(wanted: Sequence[str | None], takers: Sequence[str]) -> dict[str, int]:
    held = Counter(wanted)
    least, larger = divmod(sum(member is None or member in takers for member in wanted), len(takers))
    # The larger quotas go to the members that have most, so that fewer slots move.
    order = sorted(takers, key=lambda member: -held[member])
    return {member: least + (place < larger) for place, member in enumerate(order)}


def _surplus(slots: list[int], count: int, moving: Sequence[str | None], takers: Collection[str]) -> list[int]:
    """The slots that a member gives away: first those that were revoked before, then others, evenly spread."""
    if count <= 0:
        return []
    chosen = [slot for slot in slots if moving[slot] in takers][:count]
    rest = [slot for slot in slots if slot not in chosen]
    more = count - len(chosen)
    return chosen + [rest[(2 * place + 1) * len(rest) // (2 * more)] for place in range(more)]


def _stripe(wanted: list[str | None], slots: Sequence[int], takers: Sequence[str], missing: Counter[str]) -> None:
    place = 0
    for slot in slots:
        while missing[takers[place % len(takers)]] <= 0:
            place += 1
        member = takers[place % len(takers)]
        wanted[slot] = member
        missing[member] -= 1
        place += 1
