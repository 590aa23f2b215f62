"""What follows from a state of a group and its registers: who gets which slots, from where on, with how few moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypaimon.streaming.consumers.groups.group_decisions import (
    begun_state,
    floor_of,
    next_state,
    on_duty,
    restarted_state,
    rivals,
)
from pypaimon.streaming.consumers.groups.group_state import GroupState, Tenure, first_state
from pypaimon.streaming.consumers.groups.register import Held, Register, Status
from pypaimon.streaming.consumers.groups.slot_assignment import assign
from pypaimon.streaming.consumers.groups.slot_ranges import slots_of_text, slots_to_text
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.position import Phase, Position, Unit

A, B, C = ".aaaaaaaa", ".bbbbbbbb", ".cccccccc"
SHARED = settings(deadline=None, derandomize=True, max_examples=60)


def at(snapshot: int) -> Position:
    return Position("t", snapshot)


def register(id: str, status: Status = Status.ACTIVE, **changed: object) -> Register:
    return replace(Register(id, 5, "n", id, status, 1), **changed)  # type: ignore[arg-type]


def group(owners: Iterable[str | None], members: Sequence[str] = (A, B), **changed: object) -> GroupState:
    owned = tuple(Tenure(owner, 3, at(10)) for owner in owners)
    state = GroupState(7, "t", at(10), True, "", "", tuple(members), owned)
    return replace(state, **changed)  # type: ignore[arg-type]


def owners_of(state: GroupState | None) -> str:
    assert state is not None
    return "".join((tenure.owner or " -")[1] for tenure in state.owned)


# ---- a group's life ----


def test_the_first_members_get_the_slots_in_turn_once_the_start_is_protected() -> None:
    state = first_state(at(5), 5)
    joined = next_state(state, {id: register(id, Status.JOINING) for id in (B, A)})
    assert joined is not None and joined.members == (A, B) and joined.number == 1
    assert {tenure.owner for tenure in joined.owned} == {None}
    begun = begun_state(joined, {})
    assert owners_of(begun) == "ababa"
    assert {(tenure.since, tenure.start) for tenure in begun.owned} == {(2, at(5))}
    moved = restarted_state(joined, at(9))
    assert moved.owned == (Tenure(None, 0, at(9)),) * 5 and not moved.begun and moved.number == 2


def test_who_joins_is_marked_and_gets_a_slot_when_its_owner_has_given_it_back() -> None:
    joined = next_state(group([A] * 4, (A,)), {B: joining(B)})
    assert owners_of(joined) == "aaaa" and joined is not None
    marked = [slot for slot, tenure in enumerate(joined.owned) if tenure.to == B]
    assert len(marked) == 2
    assert next_state(joined, {}) is None
    gives = register(A, released={marked[0]: Held(3, at(14))}, held={marked[1]: Held(3, at(12))})
    given = next_state(joined, {A: gives})
    assert given is not None and given.owned[marked[0]] == Tenure(B, 9, at(14))
    assert given.owned[marked[1]] == Tenure(A, 3, at(10), B)


def joining(id: str) -> Register:
    return register(id, Status.JOINING)


@pytest.mark.parametrize("status", [Status.LEFT, Status.SEALED])
def test_who_ended_leaves_its_slots_where_its_last_version_says(status: Status) -> None:
    ended = register(B, status, held={1: Held(3, at(20)), 3: Held(2, at(90))}, released={5: Held(3, at(30))})
    state = next_state(group([A, B] * 3), {B: ended})
    assert state is not None and state.members == (A,)
    # Of slot 3 it speaks of another tenure.
    assert [state.owned[slot].start.snapshot for slot in (1, 3, 5)] == [20, 10, 30]
    assert {state.owned[slot].since for slot in (1, 3, 5)} == {8}
    assert {state.owned[slot].since for slot in (0, 2, 4)} == {3}


def test_a_member_that_is_only_silent_keeps_its_slots_and_gets_none() -> None:
    assert next_state(group([A, B, A, B]), {}, {B}) is None
    joined = next_state(group([A, A, A, B]), {C: joining(C)}, {B})
    assert joined is not None and [tenure.to for tenure in joined.owned].count(C) == 1
    assert joined.owned[3] == Tenure(B, 3, at(10))
    assert next_state(group([A, B, A, B]), {C: joining(C)}, {C}) is None


def test_a_release_of_a_former_tenure_counts_for_nothing() -> None:
    assert next_state(group([A, B]), {A: register(A, released={0: Held(2, at(50))})}) is None


def test_a_move_is_taken_back_when_its_target_ends_and_goes_on_elsewhere() -> None:
    moving = group([A] * 4, (A, B), owned=tuple(Tenure(A, 3, at(10), to) for to in (None, B, None, B)))
    left = next_state(moving, {B: register(B, Status.LEFT)})
    assert left is not None and left.members == (A,) and {tenure.to for tenure in left.owned} == {None}
    other = next_state(moving, {B: register(B, Status.LEFT), C: joining(C)})
    assert other is not None and [tenure.to for tenure in other.owned] == [None, C, None, C]


def test_a_named_member_that_comes_back_gets_the_same_slots() -> None:
    old, new = "n.11111111", "n.22222222"
    state = group([A, old, A, old, old], (A, old))
    # Until its former life has ended there is no room for it.
    assert next_state(state, {new: joining(new)}) is None
    ended = register(old, Status.SEALED, held={1: Held(3, at(17))})
    came = next_state(state, {new: joining(new), old: ended})
    assert came is not None and came.members == (A, new)
    assert [tenure.owner for tenure in came.owned] == [A, new, A, new, new]
    assert came.owned[1] == Tenure(new, 8, at(17)) and came.owned[0].since == 3


def test_of_two_lives_of_a_name_the_newer_one_ends_the_other() -> None:
    old, one, two = "n.11111111", "n.22222222", "n.33333333"
    both = {one: register(one, Status.JOINING, former=(old,)), two: register(two, Status.JOINING, former=(old,))}
    assert next_state(group([A], (A,)), both) is None
    assert rivals(one, (old,), {**both, old: register(old)}) == [old]
    assert rivals(two, (old,), {**both, old: register(old)}) == [one, old]
    newer = {**both, one: register(one, Status.JOINING, former=(two,))}
    assert rivals(two, (), newer) == []
    assert rivals(one, (two,), newer) == [two]


def test_duty_goes_by_admission_and_past_those_who_are_gone() -> None:
    state = group([C], (C, A))
    assert on_duty(state, {B, A}, set()) == [C, A, B]
    assert on_duty(state, {B}, {C, A}) == [B]


def test_the_fence_stands_before_the_slot_that_is_last() -> None:
    state = group([A, B, None], owned=(Tenure(A, 3, at(10)), Tenure(B, 4, at(12)), Tenure(None, 4, at(15))))
    assert floor_of(state, {}) == at(10)
    assert floor_of(
        state, {A: register(A, held={0: Held(3, at(14))}), B: register(B, held={1: Held(3, at(99))})}
    ) == at(12)


def test_a_barrier_is_passed_when_all_slots_have_reached_it() -> None:
    state = group([A, B])
    waits = {A: register(A, held={0: Held(3, at(20))}, barrier=20), B: register(B, held={1: Held(3, at(19))})}
    assert next_state(state, waits) is None
    passed = next_state(state, {**waits, B: register(B, held={1: Held(3, at(20))}, barrier=30)})
    assert passed is not None and passed.passed == 20 and passed.owned == state.owned


# ---- who gets how many ----


@SHARED
@given(st.data())
def test_counts_are_even_and_no_fewer_slots_could_have_moved(data: st.DataObject) -> None:
    members = [A, B, C][: data.draw(st.integers(1, 3))]
    slots = data.draw(st.integers(1, 6))
    holders = data.draw(st.lists(st.sampled_from([None, *members]), min_size=slots, max_size=slots))
    moving = [data.draw(st.sampled_from([None, *(each for each in members if each != holder)])) for holder in holders]
    wanted = assign(holders, moving, members)
    assert is_even(wanted, members)
    fewest = min(moves(holders, each) for each in product(members, repeat=slots) if is_even(each, members))
    assert moves(holders, wanted) == fewest
    assert assign(wanted, [None] * slots, members) == wanted


@SHARED
@given(st.data())
def test_who_may_be_gone_gets_nothing(data: st.DataObject) -> None:
    members, unsure = [A, B, C], data.draw(st.sets(st.sampled_from([A, B, C])))
    holders = data.draw(st.lists(st.sampled_from([None, *members]), min_size=1, max_size=7))
    moving = data.draw(st.lists(st.sampled_from([None, *members]), min_size=len(holders), max_size=len(holders)))
    wanted = assign(holders, moving, members, unsure)
    for holder, owner in zip(holders, wanted, strict=True):
        assert owner == holder or owner not in unsure
        assert owner is not None or unsure == {A, B, C}
    takers = [member for member in members if member not in unsure]
    assert is_even([owner for owner in wanted if owner in takers], takers)


def is_even(wanted: Sequence[str | None], members: Sequence[str]) -> bool:
    counts = Counter(wanted)
    numbers = [counts[member] for member in members]
    return sum(numbers) == len(wanted) and (not numbers or max(numbers) - min(numbers) <= 1)


def moves(holders: Sequence[str | None], wanted: Sequence[str | None]) -> int:
    return sum(holder not in (None, owner) for holder, owner in zip(holders, wanted, strict=True))


# ---- their files ----


def test_files_come_back_as_they_were_written() -> None:
    inside = Position("t", 4, "f", Phase.FULL, Unit(("p", None), 3, "file", 2))
    state = group([A, B, None, A, A], passed=4, conflict="it was deleted", start=inside)
    assert GroupState.from_json(state.to_json()) == state
    held = {0: Held(3, inside), 1: Held(3, inside), 7: Held(9, at(2))}
    one = register("a-name.b.aaaaaaaa", held=held, released={4: Held(3, at(5))}, barrier=8, former=(A,))
    assert Register.from_json(one.to_json()) == one
    assert one.to_json().count(b'"slots"') == 3


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ((b'"number":7', b'"number":"7"'), "number"),
        ((b'"slots":2', b'"slots":3'), "of 3 slots 1 are missing"),
        ((b'"slots":"1"', b'"slots":"0"'), "occurs twice"),
        ((b'"slots":"0"', b'"slots":"1-0"'), "ranges such as"),
        ((b'"snapshot":10', b'"snapshot":null'), "not a position"),
        ((b'"members":["', b'"members":[1,"'), "expected text"),
        ((b'"version":1,"number"', b'"version":2,"number"'), "update it"),
        ((b"{", b"["), "Expecting"),
    ],
)
def test_a_damaged_state_is_an_error(change: tuple[bytes, bytes], error: str) -> None:
    data = group([A, B]).to_json()
    assert change[0] in data
    with pytest.raises(ValueError, match=error):
        GroupState.from_json(data.replace(*change))


def test_a_damaged_register_is_an_error() -> None:
    data = register(A, held={0: Held(3, at(1))}).to_json()
    for part, other in ((b'"active"', b'"alive"'), (b'"since":3', b'"since":null'), (b'"version":1', b'"version":2')):
        assert part in data
        with pytest.raises(ValueError):  # noqa: PT011 (each says something else)
            Register.from_json(data.replace(part, other, 1))
    with pytest.raises(StreamConfigError, match="update it"):
        Register.from_json(data.replace(b'"version":1', b'"version":2', 1))


@SHARED
@given(st.sets(st.integers(0, 300)))
def test_slots_are_ranges(slots: set[int]) -> None:
    assert not slots or slots_of_text(slots_to_text(slots)) == sorted(slots)


def test_the_text_of_slots_is_short() -> None:
    assert slots_to_text([*range(16), 40]) == "0-15,40"
