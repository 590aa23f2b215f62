"""The slots of a member: what may be handed out of them, what is confirmed, and when they are released."""

from __future__ import annotations

from pypaimon.streaming.groups.assigned_slots import AssignedSlots
from pypaimon.streaming.groups.group_files import GroupState, SlotOwnership, SlotProgress
from pypaimon.streaming.model.position import Position

OWN, OTHER = ".aaaaaaaa", ".bbbbbbbb"


def at(snapshot: int) -> Position:
    return Position("t", snapshot)


def state(*owned: SlotOwnership, passed: int = 0) -> GroupState:
    return GroupState(9, "t", at(1), True, "", "", (OWN, OTHER), owned, passed)


def own(since: int = 3, start: int = 5, to: str | None = None) -> SlotOwnership:
    return SlotOwnership(OWN, since, at(start), to)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def assigned_slots(*owned: SlotOwnership, clock: Clock | None = None, max_hold: float | None = None) -> AssignedSlots:
    """With a lease until second 110."""
    assigned = AssignedSlots(clock or Clock(), max_hold)
    assigned.adopt(state(*owned), OWN)
    assigned.saved({}, 110.0)
    return assigned


def test_plans_of_own_slots_are_handed_out_in_order_while_the_lease_lasts() -> None:
    assigned = assigned_slots(own(), own(), SlotOwnership(OTHER, 3, at(5)))
    assert assigned.readable() == {0: (3, at(5)), 1: (3, at(5))}
    assert not assigned.hand_out({0: 3, 2: 3}, at(5), at(6), 101)
    assert not assigned.hand_out({0: 3, 1: 2}, at(5), at(6), 101)
    assert not assigned.hand_out({0: 3}, at(6), at(7), 101)
    assert not assigned.hand_out({0: 3}, at(5), at(6), 110.5)
    assert assigned.hand_out({0: 3, 1: 3}, at(5), at(7), 101)
    assert assigned.readable() == {0: (3, at(7)), 1: (3, at(7))}
    assert not assigned.hand_out({0: 3}, at(5), at(7), 101)


def test_nothing_is_handed_out_before_the_first_version_exists() -> None:
    assigned = AssignedSlots()
    assigned.adopt(state(own()), OWN)
    assert not assigned.hand_out({0: 3}, at(5), at(6), 0.0)


def test_what_is_confirmed_is_saved_and_no_more() -> None:
    assigned = assigned_slots(own(), own())
    assert not assigned.wants_save
    assigned.hand_out({0: 3, 1: 3}, at(5), at(9), 101)
    assert assigned.confirm({0: 3}, at(8)) == []
    assert assigned.wants_save
    held, released, barrier = assigned.compose()
    assert held == {0: SlotProgress(3, at(8)), 1: SlotProgress(3, at(5))} and not released and barrier is None
    assert not assigned.wants_save
    # More than was handed out cannot be confirmed, and nothing goes back.
    assigned.confirm({0: 3}, at(12))
    assigned.confirm({0: 3}, at(6))
    assert assigned.compose()[0][0] == SlotProgress(3, at(9))


def test_a_revoked_slot_is_released_when_all_of_it_is_confirmed() -> None:
    assigned = assigned_slots(own(), own())
    assigned.hand_out({0: 3, 1: 3}, at(5), at(9), 101)
    assigned.adopt(state(own(to=OTHER), own()), OWN)
    assert list(assigned.readable()) == [1]
    assert not assigned.hand_out({0: 3}, at(9), at(10), 101)
    assigned.confirm({0: 3}, at(8))
    assert assigned.compose()[:2] == ({0: SlotProgress(3, at(8)), 1: SlotProgress(3, at(5))}, {})
    assigned.confirm({0: 3}, at(9))
    assert assigned.compose()[1] == {0: SlotProgress(3, at(9))}
    # It has been released: the state that takes the revocation back comes too late.
    assigned.adopt(state(own(), own()), OWN)
    assert list(assigned.readable()) == [1] and assigned.compose()[1] == {0: SlotProgress(3, at(9))}
    assigned.adopt(state(own(since=12, start=9), own()), OWN)
    assert assigned.readable()[0] == (12, at(9))


def test_a_revocation_that_is_taken_back_in_time_changes_nothing() -> None:
    assigned = assigned_slots(own())
    assigned.hand_out({0: 3}, at(5), at(9), 101)
    assigned.adopt(state(own(to=OTHER)), OWN)
    assigned.adopt(state(own()), OWN)
    assert assigned.hand_out({0: 3}, at(9), at(10), 101)


def test_a_revoked_slot_is_released_after_max_hold_and_confirming_it_reports_the_loss() -> None:
    clock = Clock()
    assigned = assigned_slots(own(), own(), clock=clock, max_hold=4.0)
    assigned.hand_out({0: 3, 1: 3}, at(5), at(9), 101)
    assigned.adopt(state(own(to=OTHER), own()), OWN)
    clock.now += 3.9
    assigned.adopt(state(own(to=OTHER), own()), OWN)
    assert not assigned.wants_save
    clock.now += 0.2
    assert assigned.wants_save
    assert assigned.compose()[1] == {0: SlotProgress(3, at(5))}
    assert assigned.confirm({0: 3, 1: 3}, at(9)) == [0]
    held, released, _ = assigned.compose()
    assert held == {1: SlotProgress(3, at(9))} and released == {0: SlotProgress(3, at(5))}


def test_a_barrier_is_saved_once_and_passed_with_the_state_that_says_so() -> None:
    assigned = assigned_slots(own())
    assert not assigned.may_pass(7) and assigned.wants_save
    assert assigned.compose()[2] == 7
    assert not assigned.may_pass(7) and not assigned.wants_save
    assigned.adopt(state(own(), passed=7), OWN)
    assert assigned.may_pass(7) and assigned.compose()[2] is None


def test_a_fenced_member_confirms_nothing() -> None:
    assigned = assigned_slots(own())
    assigned.hand_out({0: 3}, at(5), at(9), 101)
    assigned.lose_all()
    assert assigned.readable() == {} and assigned.confirm({0: 3}, at(9)) == [0]
    assigned.adopt(state(own()), OWN)
    assert not assigned.hand_out({0: 3}, at(5), at(6), 101)


def test_a_closed_member_hands_out_nothing_and_keeps_what_is_confirmed() -> None:
    assigned = assigned_slots(own())
    assigned.hand_out({0: 3}, at(5), at(9), 101)
    assigned.close()
    assert assigned.readable() == {} and not assigned.hand_out({0: 3}, at(9), at(10), 101)
    assigned.confirm({0: 3}, at(9))
    assert assigned.compose()[0] == {0: SlotProgress(3, at(9))}


def test_what_was_confirmed_is_saved_or_lost_in_the_end() -> None:
    assigned = assigned_slots(own(), own(), own())
    assert assigned.hand_out({0: 3, 1: 3, 2: 3}, at(5), at(7), 101)
    assigned.confirm({0: 3, 1: 3, 2: 3}, at(7))
    slots = {0: 3, 1: 3, 2: 3}
    assert assigned.saved_or_lost(slots, at(7)) == (set(), set())
    assigned.saved({0: SlotProgress(3, at(7)), 1: SlotProgress(3, at(6))}, 120.0)
    assert assigned.saved_or_lost(slots, at(7)) == ({0}, set())
    assigned.adopt(state(own(), own(since=4), SlotOwnership(OTHER, 4, at(5))), OWN)
    assert assigned.saved_or_lost(slots, at(7)) == ({0}, {1, 2})
    assigned.lose_all()
    assert assigned.saved_or_lost(slots, at(7)) == (set(), {0, 1, 2})


def test_incomplete_plans_are_taken_back_and_snapshots_without_rows_are_passed_over() -> None:
    assigned = assigned_slots(own(), own())
    assert assigned.pass_over({0: 3, 1: 3}, at(5), at(8))
    assert not assigned.pass_over({0: 3}, at(7), at(9))
    assert not assigned.pass_over({0: 2}, at(8), at(9))
    assert assigned.hand_out({0: 3}, at(8), at(9), 101)
    assert not assigned.pass_over({0: 3, 1: 3}, at(9), at(10))
    assigned.take_back({0: 3}, at(8))
    assigned.take_back({0: 3}, at(2))
    assert assigned.readable() == {0: (3, at(8)), 1: (3, at(8))}
    assert assigned.pass_over({0: 3, 1: 3}, at(8), at(9))


def test_a_revoked_slot_waits_for_the_callback() -> None:
    assigned = AssignedSlots(Clock(), waits_for_reader=True)
    assigned.adopt(state(own(to=OTHER)), OWN)
    assert not assigned.wants_save
    assigned.handle_revoke([0])
    assert assigned.wants_save
    assigned.adopt(state(own()), OWN)
    assigned.adopt(state(own(to=OTHER)), OWN)
    assert not assigned.wants_save
