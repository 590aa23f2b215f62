"""The next state of a group: which member gets which slots, and from which position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.groups.group_files import (
    GroupState,
    GroupTerms,
    MemberRecord,
    MemberStatus,
    SlotOwnership,
    SlotProgress,
    first_state,
    record_file,
    slots_from_text,
    slots_to_text,
    state_file,
)
from pypaimon.streaming.groups.rebalance import (
    assign,
    begun_state,
    coordinator_order,
    lowest_position,
    members_to_fence,
    next_state,
    restarted_state,
)
from pypaimon.streaming.model.position import Phase, Position, ReadUnit

A, B, C = ".aaaaaaaa", ".bbbbbbbb", ".cccccccc"
SHARED = settings(deadline=None, derandomize=True, max_examples=60)


def at(snapshot: int) -> Position:
    return Position("t", snapshot)


def record(id: str, status: MemberStatus = MemberStatus.ACTIVE, **changed: object) -> MemberRecord:
    return replace(MemberRecord(id, 5, "n", id, status, 1), **changed)  # type: ignore[arg-type]


def said(since: int, snapshot: int) -> SlotProgress:
    return SlotProgress(since, at(snapshot))


def group(owners: Iterable[str | None], members: Sequence[str] = (A, B), **changed: object) -> GroupState:
    owned = tuple(SlotOwnership(owner, 3, at(10)) for owner in owners)
    state = GroupState(7, "t", at(10), True, "", "", tuple(members), owned)
    return replace(state, **changed)  # type: ignore[arg-type]


def owners_of(state: GroupState | None) -> str:
    assert state is not None
    return "".join((ownership.owner or " -")[1] for ownership in state.owned)


# ---- states that follow ----


def test_the_first_members_get_the_slots_in_turn_once_the_start_is_pinned() -> None:
    state = first_state(at(5), GroupTerms(5))
    joined = next_state(state, {id: record(id, MemberStatus.JOINING) for id in (B, A)})
    assert joined is not None and joined.members == (A, B) and joined.generation == 1
    assert {ownership.owner for ownership in joined.owned} == {None}
    begun = begun_state(joined, {})
    assert owners_of(begun) == "ababa"
    assert {(ownership.since, ownership.start) for ownership in begun.owned} == {(2, at(5))}
    moved = restarted_state(joined, at(9))
    assert moved.owned == (SlotOwnership(None, 0, at(9)),) * 5 and not moved.begun and moved.generation == 2


def test_a_joining_member_gets_a_slot_once_its_owner_has_released_it() -> None:
    joined = next_state(group([A] * 4, (A,)), {B: joining(B)})
    assert owners_of(joined) == "aaaa" and joined is not None
    marked = [slot for slot, ownership in enumerate(joined.owned) if ownership.moves_to == B]
    assert len(marked) == 2
    assert next_state(joined, {}) is None
    gives = record(A, released={marked[0]: SlotProgress(3, at(14))}, held={marked[1]: SlotProgress(3, at(12))})
    given = next_state(joined, {A: gives})
    assert given is not None and given.owned[marked[0]] == SlotOwnership(B, 9, at(14))
    assert given.owned[marked[1]] == SlotOwnership(A, 3, at(10), B)


def joining(id: str) -> MemberRecord:
    return record(id, MemberStatus.JOINING)


@pytest.mark.parametrize("status", [MemberStatus.LEFT, MemberStatus.FENCED])
def test_slots_of_an_ended_member_continue_where_its_last_version_says(status: MemberStatus) -> None:
    ended = record(
        B, status, held={1: SlotProgress(3, at(20)), 3: SlotProgress(2, at(90))}, released={5: SlotProgress(3, at(30))}
    )
    state = next_state(group([A, B] * 3), {B: ended})
    assert state is not None and state.members == (A,)
    # Of slot 3 it knows another ownership.
    assert [state.owned[slot].start.snapshot for slot in (1, 3, 5)] == [20, 10, 30]
    assert {state.owned[slot].since for slot in (1, 3, 5)} == {8}
    assert {state.owned[slot].since for slot in (0, 2, 4)} == {3}


def test_a_member_that_is_only_silent_keeps_its_slots_and_gets_none() -> None:
    assert next_state(group([A, B, A, B]), {}, {B}) is None
    joined = next_state(group([A, A, A, B]), {C: joining(C)}, {B})
    assert joined is not None and [ownership.moves_to for ownership in joined.owned].count(C) == 1
    assert joined.owned[3] == SlotOwnership(B, 3, at(10))
    assert next_state(group([A, B, A, B]), {C: joining(C)}, {C}) is None


def test_a_release_of_an_earlier_ownership_counts_for_nothing() -> None:
    assert next_state(group([A, B]), {A: record(A, released={0: SlotProgress(2, at(50))})}) is None


def test_a_revocation_whose_target_has_ended_is_taken_back_or_gets_another_target() -> None:
    moving = group([A] * 4, (A, B), owned=tuple(SlotOwnership(A, 3, at(10), to) for to in (None, B, None, B)))
    left = next_state(moving, {B: record(B, MemberStatus.LEFT)})
    assert left is not None and left.members == (A,) and {ownership.moves_to for ownership in left.owned} == {None}
    other = next_state(moving, {B: record(B, MemberStatus.LEFT), C: joining(C)})
    assert other is not None and [ownership.moves_to for ownership in other.owned] == [None, C, None, C]


def test_a_named_member_gets_its_slots_back_after_a_restart() -> None:
    old, new = "n.11111111", "n.22222222"
    state = group([A, old, A, old, old], (A, old))
    # It is admitted only after its predecessor has ended.
    assert next_state(state, {new: joining(new)}) is None
    ended = record(old, MemberStatus.FENCED, held={1: SlotProgress(3, at(17))})
    came = next_state(state, {new: joining(new), old: ended})
    assert came is not None and came.members == (A, new)
    assert [ownership.owner for ownership in came.owned] == [A, new, A, new, new]
    assert came.owned[1] == SlotOwnership(new, 8, at(17)) and came.owned[0].since == 3


def test_of_two_members_with_one_name_the_newer_one_fences_the_other() -> None:
    old, one, two = "n.11111111", "n.22222222", "n.33333333"
    both = {
        one: record(one, MemberStatus.JOINING, predecessors=(old,)),
        two: record(two, MemberStatus.JOINING, predecessors=(old,)),
    }
    assert next_state(group([A], (A,)), both) is None
    assert members_to_fence(one, (old,), {**both, old: record(old)}) == [old]
    assert members_to_fence(two, (old,), {**both, old: record(old)}) == [one, old]
    newer = {**both, one: record(one, MemberStatus.JOINING, predecessors=(two,))}
    assert members_to_fence(two, (), newer) == []
    assert members_to_fence(one, (two,), newer) == [two]


def test_members_coordinate_in_the_order_of_their_admission_except_for_those_that_are_gone() -> None:
    state = group([C], (C, A))
    assert coordinator_order(state, {B, A}, set()) == [C, A, B]
    assert coordinator_order(state, {B}, {C, A}) == [B]


def test_the_lowest_position_is_that_of_the_slowest_slot() -> None:
    state = group(
        [A, B, None], owned=(SlotOwnership(A, 3, at(10)), SlotOwnership(B, 4, at(12)), SlotOwnership(None, 4, at(15)))
    )
    assert lowest_position(state, {}) == at(10)
    assert lowest_position(
        state, {A: record(A, held={0: SlotProgress(3, at(14))}), B: record(B, held={1: SlotProgress(3, at(99))})}
    ) == at(12)


def test_a_barrier_is_passed_when_all_slots_have_reached_it() -> None:
    state = group([A, B])
    waits = {
        A: record(A, held={0: SlotProgress(3, at(20))}, barrier=20),
        B: record(B, held={1: SlotProgress(3, at(19))}),
    }
    assert next_state(state, waits) is None
    passed = next_state(state, {**waits, B: record(B, held={1: SlotProgress(3, at(20))}, barrier=30)})
    assert passed is not None and passed.passed == 20 and passed.owned == state.owned


# ---- the assignor ----


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
def test_a_member_that_may_be_dead_gets_nothing(data: st.DataObject) -> None:
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


# ---- files ----


INSIDE = (
    b'{"version":1,"table":"t","snapshot":4,"fingerprint":"f","phase":"full",'
    b'"unit":{"partition":["p",null],"bucket":3,"file":"file","index":2}}'
)
STATE = (
    b'{"version":1,"number":7,"table":"t","start":%b,"begun":true,"settings":"s","slots":4,"rule":"r","passed":6,'
    b'"members":["a.1","b.2"],"owned":['
    b'{"slots":"0-1","since":3,"from":{"version":1,"table":"t","snapshot":10,"phase":"follow"},"owner":"a.1"},'
    b'{"slots":"2","since":4,"from":{"version":1,"table":"t","snapshot":9,"phase":"follow"},"owner":"a.1","to":"b.2"},'
    b'{"slots":"3","since":0,"from":%b}],"conflict":"why"}'
) % (INSIDE, INSIDE)
RECORD = (
    b'{"version":1,"id":"a.1","number":5,"nonce":"n","by":"b.2","status":"sealed","seen":7,'
    b'"held":[{"slots":"0-1","since":3,"position":{"version":1,"table":"t","snapshot":12,"phase":"follow"}}],'
    b'"released":[{"slots":"2","since":4,"position":%b}],"barrier":8,"former":["a.0"],"session":2.5}'
) % INSIDE


def test_files_have_the_format_of_earlier_releases() -> None:
    """Members of several releases share a group, so neither names nor fields may change."""
    inside = Position("t", 4, "f", Phase.FULL, ReadUnit(("p", None), 3, "file", 2))
    first = SlotOwnership("a.1", 3, at(10))
    owned = (first, first, SlotOwnership("a.1", 4, at(9), "b.2"), SlotOwnership(None, 0, inside))
    state = GroupState(7, "t", inside, True, "s", "r", ("a.1", "b.2"), owned, 6, "why")
    assert state.to_json() == STATE and GroupState.from_json(STATE) == state
    held, released = {0: said(3, 12), 1: said(3, 12)}, {2: SlotProgress(4, inside)}
    record = MemberRecord("a.1", 5, "n", "b.2", MemberStatus.FENCED, 7, held, released, 8, ("a.0",), 2.5)
    assert record.to_json() == RECORD and MemberRecord.from_json(RECORD) == record
    assert (state_file(7), record_file("a.1", 5)) == ("state-000000000007", "member-a.1-000000000005")


def test_files_are_read_as_they_were_written() -> None:
    inside = Position("t", 4, "f", Phase.FULL, ReadUnit(("p", None), 3, "file", 2))
    state = group([A, B, None, A, A], passed=4, conflict="it was deleted", start=inside)
    assert GroupState.from_json(state.to_json()) == state
    held = {0: SlotProgress(3, inside), 1: SlotProgress(3, inside), 7: SlotProgress(9, at(2))}
    one = record("a-name.b.aaaaaaaa", held=held, released={4: SlotProgress(3, at(5))}, barrier=8, predecessors=(A,))
    assert MemberRecord.from_json(one.to_json()) == one
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


def test_a_damaged_record_is_an_error() -> None:
    data = record(A, held={0: SlotProgress(3, at(1))}).to_json()
    for part, other in ((b'"active"', b'"alive"'), (b'"since":3', b'"since":null'), (b'"version":1', b'"version":2')):
        assert part in data
        with pytest.raises(ValueError):  # noqa: PT011 (each says something else)
            MemberRecord.from_json(data.replace(part, other, 1))
    with pytest.raises(StreamConfigError, match="update it"):
        MemberRecord.from_json(data.replace(b'"version":1', b'"version":2', 1))


@SHARED
@given(st.sets(st.integers(0, 300)))
def test_slots_are_ranges(slots: set[int]) -> None:
    assert not slots or slots_from_text(slots_to_text(slots)) == sorted(slots)


def test_the_text_of_slots_is_short() -> None:
    assert slots_to_text([*range(16), 40]) == "0-15,40"
