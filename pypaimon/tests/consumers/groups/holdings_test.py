"""What a member has: what it may hand out of it, what is confirmed of that, and when it gives it back."""

from __future__ import annotations

from pypaimon.streaming.consumers.groups.group_state import GroupState, Tenure
from pypaimon.streaming.consumers.groups.holdings import Holdings
from pypaimon.streaming.consumers.groups.register import Held
from pypaimon.streaming.model.position import Position

OWN, OTHER = ".aaaaaaaa", ".bbbbbbbb"


def at(snapshot: int) -> Position:
    return Position("t", snapshot)


def state(*owned: Tenure, passed: int = 0) -> GroupState:
    return GroupState(9, "t", at(1), True, "", "", (OWN, OTHER), owned, passed)


def own(since: int = 3, start: int = 5, to: str | None = None) -> Tenure:
    return Tenure(OWN, since, at(start), to)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def holding(*owned: Tenure, clock: Clock | None = None, max_hold: float | None = None) -> Holdings:
    """With a lease until second 110."""
    holdings = Holdings(clock or Clock(), max_hold)
    holdings.adopt(state(*owned), OWN)
    holdings.saved({}, 110.0)
    return holdings


def test_plans_are_handed_out_of_own_slots_from_where_they_stand_while_the_lease_lasts() -> None:
    holdings = holding(own(), own(), Tenure(OTHER, 3, at(5)))
    assert holdings.assigned() == {0: (3, at(5)), 1: (3, at(5))}
    assert not holdings.hand_out({0: 3, 2: 3}, at(5), at(6), 101)
    assert not holdings.hand_out({0: 3, 1: 2}, at(5), at(6), 101)
    assert not holdings.hand_out({0: 3}, at(6), at(7), 101)
    assert not holdings.hand_out({0: 3}, at(5), at(6), 110.5)
    assert holdings.hand_out({0: 3, 1: 3}, at(5), at(7), 101)
    assert holdings.assigned() == {0: (3, at(7)), 1: (3, at(7))}
    assert not holdings.hand_out({0: 3}, at(5), at(7), 101)


def test_nothing_is_handed_out_before_the_first_version_exists() -> None:
    holdings = Holdings()
    holdings.adopt(state(own()), OWN)
    assert not holdings.hand_out({0: 3}, at(5), at(6), 0.0)


def test_what_is_confirmed_is_saved_and_no_more() -> None:
    holdings = holding(own(), own())
    assert not holdings.wants_save
    holdings.hand_out({0: 3, 1: 3}, at(5), at(9), 101)
    assert holdings.confirm({0: 3}, at(8)) == []
    assert holdings.wants_save
    held, released, barrier = holdings.compose()
    assert held == {0: Held(3, at(8)), 1: Held(3, at(5))} and not released and barrier is None
    assert not holdings.wants_save
    # More than was handed out cannot be confirmed, and nothing goes back.
    holdings.confirm({0: 3}, at(12))
    holdings.confirm({0: 3}, at(6))
    assert holdings.compose()[0][0] == Held(3, at(9))


def test_a_slot_that_is_to_move_is_given_back_when_all_of_it_is_confirmed() -> None:
    holdings = holding(own(), own())
    holdings.hand_out({0: 3, 1: 3}, at(5), at(9), 101)
    holdings.adopt(state(own(to=OTHER), own()), OWN)
    assert list(holdings.assigned()) == [1]
    assert not holdings.hand_out({0: 3}, at(9), at(10), 101)
    holdings.confirm({0: 3}, at(8))
    assert holdings.compose()[:2] == ({0: Held(3, at(8)), 1: Held(3, at(5))}, {})
    holdings.confirm({0: 3}, at(9))
    assert holdings.compose()[1] == {0: Held(3, at(9))}
    # That the move is called off comes too late.
    holdings.adopt(state(own(), own()), OWN)
    assert list(holdings.assigned()) == [1] and holdings.compose()[1] == {0: Held(3, at(9))}
    holdings.adopt(state(own(since=12, start=9), own()), OWN)
    assert holdings.assigned()[0] == (12, at(9))


def test_a_move_that_is_called_off_in_time_changes_nothing() -> None:
    holdings = holding(own())
    holdings.hand_out({0: 3}, at(5), at(9), 101)
    holdings.adopt(state(own(to=OTHER)), OWN)
    holdings.adopt(state(own()), OWN)
    assert holdings.hand_out({0: 3}, at(9), at(10), 101)


def test_who_holds_a_batch_for_too_long_loses_its_slot_and_is_told() -> None:
    clock = Clock()
    holdings = holding(own(), own(), clock=clock, max_hold=4.0)
    holdings.hand_out({0: 3, 1: 3}, at(5), at(9), 101)
    holdings.adopt(state(own(to=OTHER), own()), OWN)
    clock.now += 3.9
    holdings.adopt(state(own(to=OTHER), own()), OWN)
    assert not holdings.wants_save
    clock.now += 0.2
    assert holdings.wants_save
    assert holdings.compose()[1] == {0: Held(3, at(5))}
    assert holdings.confirm({0: 3, 1: 3}, at(9)) == [0]
    held, released, _ = holdings.compose()
    assert held == {1: Held(3, at(9))} and released == {0: Held(3, at(5))}


def test_a_barrier_is_told_once_and_passed_with_the_state_that_says_so() -> None:
    holdings = holding(own())
    assert not holdings.may_pass(7) and holdings.wants_save
    assert holdings.compose()[2] == 7
    assert not holdings.may_pass(7) and not holdings.wants_save
    holdings.adopt(state(own(), passed=7), OWN)
    assert holdings.may_pass(7) and holdings.compose()[2] is None


def test_who_has_lost_everything_confirms_nothing() -> None:
    holdings = holding(own())
    holdings.hand_out({0: 3}, at(5), at(9), 101)
    holdings.lose()
    assert holdings.assigned() == {} and holdings.confirm({0: 3}, at(9)) == [0]
    holdings.adopt(state(own()), OWN)
    assert not holdings.hand_out({0: 3}, at(5), at(6), 101)


def test_who_ends_hands_out_nothing_more_and_keeps_what_is_confirmed() -> None:
    holdings = holding(own())
    holdings.hand_out({0: 3}, at(5), at(9), 101)
    holdings.close()
    assert holdings.assigned() == {} and not holdings.hand_out({0: 3}, at(9), at(10), 101)
    holdings.confirm({0: 3}, at(9))
    assert holdings.compose()[0] == {0: Held(3, at(9))}


def test_what_was_confirmed_is_saved_or_lost_in_the_end() -> None:
    holdings = holding(own(), own(), own())
    assert holdings.hand_out({0: 3, 1: 3, 2: 3}, at(5), at(7), 101)
    holdings.confirm({0: 3, 1: 3, 2: 3}, at(7))
    slots = {0: 3, 1: 3, 2: 3}
    assert holdings.saved_or_lost(slots, at(7)) == (set(), set())
    holdings.saved({0: Held(3, at(7)), 1: Held(3, at(6))}, 120.0)
    assert holdings.saved_or_lost(slots, at(7)) == ({0}, set())
    holdings.adopt(state(own(), own(since=4), Tenure(OTHER, 4, at(5))), OWN)
    assert holdings.saved_or_lost(slots, at(7)) == ({0}, {1, 2})
    holdings.lose()
    assert holdings.saved_or_lost(slots, at(7)) == (set(), {0, 1, 2})


def test_what_did_not_arrive_whole_is_taken_back_and_what_has_no_rows_is_passed_over() -> None:
    holdings = holding(own(), own())
    assert holdings.pass_over({0: 3, 1: 3}, at(5), at(8))
    assert not holdings.pass_over({0: 3}, at(7), at(9))
    assert not holdings.pass_over({0: 2}, at(8), at(9))
    assert holdings.hand_out({0: 3}, at(8), at(9), 101)
    assert not holdings.pass_over({0: 3, 1: 3}, at(9), at(10))
    holdings.take_back({0: 3}, at(8))
    holdings.take_back({0: 3}, at(2))
    assert holdings.assigned() == {0: (3, at(8)), 1: (3, at(8))}
    assert holdings.pass_over({0: 3, 1: 3}, at(8), at(9))


def test_a_slot_that_moves_waits_until_the_reader_lets_it_go() -> None:
    holdings = Holdings(Clock(), waits_for_reader=True)
    holdings.adopt(state(own(to=OTHER)), OWN)
    assert not holdings.wants_save
    holdings.let_go([0])
    assert holdings.wants_save
    holdings.adopt(state(own()), OWN)
    holdings.adopt(state(own(to=OTHER)), OWN)
    assert not holdings.wants_save
