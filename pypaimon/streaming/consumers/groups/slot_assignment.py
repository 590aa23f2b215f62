"""`assign`: which member is to have which slot. Who has one keeps it, as far as all have as many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence


def assign(
    holders: Sequence[str | None],
    moving: Sequence[str | None],
    members: Sequence[str],
    unsure: Collection[str] = (),
) -> list[str | None]:
    """Divide the slots over the members: counts differ by at most one, and as few slots as possible change.

    Args:
        holders: For each slot the one of `members` that has it; None: it is free.
        moving: For each slot the member that is to get it, as was decided before; None: none is.
        members: In the order of their admission.
        unsure: Members that may be gone: they get nothing, and keep what they have.

    Returns:
        For each slot the member that is to have it; None only if there is nobody to take it.
    """
    takers = [member for member in members if member not in unsure]
    if not takers:
        return list(holders)
    wanted: list[str | None] = [
        to if holder in unsure and to in takers else holder for holder, to in zip(holders, moving, strict=True)
    ]
    quotas = _quotas(wanted, takers)
    for member in takers:
        slots = [slot for slot, each in enumerate(wanted) if each == member]
        for slot in _surplus(slots, len(slots) - quotas[member], moving, takers):
            wanted[slot] = None
    missing = Counter(quotas)
    missing.subtract(Counter(member for member in wanted if member in quotas))
    loose = [slot for slot, member in enumerate(wanted) if member is None]
    for slot in loose:
        to = moving[slot]
        if to is not None and missing[to] > 0:
            wanted[slot] = to
            missing[to] -= 1
    _stripe(wanted, [slot for slot in loose if wanted[slot] is None], takers, missing)
    return wanted


def _quotas(wanted: Sequence[str | None], takers: Sequence[str]) -> dict[str, int]:
    """How many each is to have: the larger numbers go to who has most."""
    held = Counter(wanted)
    least, larger = divmod(sum(member is None or member in takers for member in wanted), len(takers))
    order = sorted(takers, key=lambda member: -held[member])
    return {member: least + (place < larger) for place, member in enumerate(order)}


def _surplus(slots: list[int], count: int, moving: Sequence[str | None], takers: Collection[str]) -> list[int]:
    """Which of its slots a member gives away: those that it was to give away already, then others, evenly."""
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
