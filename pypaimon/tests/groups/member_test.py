"""One member, step by step: its requests, and how it handles answers that are lost, late or damaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from pypaimon.streaming.errors import ConsumerConflictError, CorruptTableError, StoreError, StreamConfigError
from pypaimon.streaming.groups.assigned_slots import AssignedSlots
from pypaimon.streaming.groups.coordinator import Coordinator
from pypaimon.streaming.groups.group_files import (
    GroupState,
    GroupTerms,
    MemberRecord,
    MemberStatus,
    SlotProgress,
    first_state,
    parse_names,
    record_file,
    state_file,
)
from pypaimon.streaming.groups.group_requests import (
    CheckStart,
    CreateFile,
    DeleteFiles,
    FindStart,
    ListNames,
    Pause,
    ReadFiles,
    ReadPin,
    ReportDeleted,
    Request,
    RetentionPin,
    Steps,
    WritePin,
)
from pypaimon.streaming.groups.group_view import GroupTimes, GroupView
from pypaimon.streaming.groups.member import GroupMember
from pypaimon.streaming.model.position import Position
from support.groups.world import SESSION, Weather, World

TIMES = GroupTimes(session=8.0, poll=4.0)


class Hand:
    """A store and a clock that a test controls.

    Attributes:
        modified: When files were written that were not written now.
        fault: Raises in the place of an answer, once it is asked for; given the request.
    """

    def __init__(self) -> None:
        self.now = 100.0
        self.files: dict[str, bytes] = {}
        self.pin: RetentionPin | None = None
        self.asked: Counter[type] = Counter()
        self.modified: dict[str, float] = {}
        self.fault: Callable[[Request], None] = lambda request: None
        self._drawn = 0

    def clock(self) -> float:
        return self.now

    def draw(self) -> str:
        self._drawn += 1
        return f"{self._drawn:08x}"

    def member(self, name: str = "", slots: int = 3) -> tuple[GroupMember, AssignedSlots]:
        assigned = AssignedSlots()
        return GroupMember(name, GroupTerms(slots), TIMES, self.clock, self.draw, assigned), assigned

    def started(self, seconds: float, name: str = "", slots: int = 3) -> tuple[GroupMember, AssignedSlots, Steps[None]]:
        """A member that has run for a time, and its steps."""
        member, assigned = self.member(name, slots)
        steps = member.run()
        self.run(steps, seconds)
        return member, assigned, steps

    def last(self, id: str | None) -> MemberRecord:
        assert id is not None
        return MemberRecord.from_json(self.files[record_file(id, parse_names(self.files)[1][id][-1])])

    def state(self) -> GroupState:
        return GroupState.from_json(self.files[state_file(parse_names(self.files)[0][-1])])

    def run(self, steps: Steps[None], seconds: float) -> None:
        end = self.now + seconds
        request = steps.send(None)
        while True:
            if isinstance(request, Pause):
                if request.until > end:
                    self.now = end
                    return
                self.now = max(self.now, request.until)
                request = steps.send(None)
                continue
            self.asked[type(request)] += 1
            try:
                self.fault(request)
                answer = self.answer(request)
            except StoreError as error:
                request = steps.throw(error)
            else:
                request = steps.send(answer)

    def answer(self, request: Request) -> Any:
        if isinstance(request, ListNames):
            return {name: self.modified.get(name, self.now) for name in self.files}
        if isinstance(request, ReadFiles):
            return [self.files.get(name) for name in request.names]
        if isinstance(request, CreateFile):
            return self.files.setdefault(request.name, request.data) == request.data
        if isinstance(request, DeleteFiles):
            for name in request.names:
                self.files.pop(name, None)
            return None
        if isinstance(request, ReadPin):
            return self.pin
        if isinstance(request, WritePin):
            self.pin = RetentionPin(request.floor, "group:1")
            return True
        if isinstance(request, ReportDeleted):
            raise ConsumerConflictError("the files were deleted")
        assert isinstance(request, (FindStart, CheckStart))
        return Position("t", 5) if isinstance(request, FindStart) else True


@pytest.fixture
def hand() -> Hand:
    return Hand()


def calm_world(seed: int, members: int, slots: int = 4) -> World:
    """A group in which nothing fails, and requests take up to 0.08 sessions."""
    world = World(seed, Weather(slots, faults=0.0001, slow=0, disturbances=0, pauses=False))
    for index in range(members):
        world.at(0.1, partial(world.join, str(index)))
    return world


def slots_of(assigned: AssignedSlots) -> dict[int, int]:
    return {slot: since for slot, (since, _) in assigned.readable().items()}


def at(snapshot: int) -> Position:
    return Position("t", snapshot)


def test_the_first_member_creates_the_group_pins_the_start_and_gets_all_slots(hand: Hand) -> None:
    member, assigned, _ = hand.started(0)
    assert assigned.readable() == {slot: (1, at(5)) for slot in range(3)}
    assert sum(hand.asked.values()) == 14
    assert hand.pin is not None and hand.pin.floor == 5
    state = GroupState.from_json(hand.files[state_file(parse_names(hand.files)[0][-1])])
    assert state.members == (member.id,) and state.begun


def test_a_quiet_session_is_two_versions_and_two_listings(hand: Hand) -> None:
    _, _, steps = hand.started(16)
    hand.asked.clear()
    hand.run(steps, 80)
    assert hand.asked[CreateFile] <= 21 and hand.asked[ListNames] <= 21
    assert hand.asked[ReadPin] <= 21 and hand.asked[ReadFiles] == hand.asked[WritePin] == 0
    assert hand.asked[DeleteFiles] <= 3
    assert len(hand.files) < 24


def test_saves_that_wait_are_one_version_and_delay_the_heartbeat(hand: Hand) -> None:
    member, assigned, steps = hand.started(8)
    for after in (6, 7, 8):
        assert assigned.hand_out(slots_of(assigned), at(after - 1), at(after), hand.now)
        assert not assigned.confirm(slots_of(assigned), at(after))
    hand.asked.clear()
    hand.run(steps, 0.5)
    assert hand.asked[CreateFile] == 1
    assert {held.position for held in hand.last(member.id).held.values()} == {at(8)}
    hand.run(steps, 1.4)
    assert hand.asked[CreateFile] == 1


def test_a_version_whose_answer_is_lost_is_sent_again_unchanged_with_the_lease_of_the_first_attempt(hand: Hand) -> None:
    _, assigned, steps = hand.started(8)
    tried: list[tuple[float, bytes]] = []

    def lost(request: Request) -> None:
        if isinstance(request, CreateFile):
            tried.append((hand.now, request.data))
            if len(tried) < 5:
                hand.answer(request)
                hand.now += 1
                raise StoreError("the answer was lost")

    hand.fault = lost
    hand.run(steps, 14)
    assert len({data for _, data in tried[:5]}) == 1
    first, acknowledged = tried[0][0], tried[4][0]
    assert acknowledged - first > 3
    sent_at = [time for time, _ in tried[4:]]
    # That version is old by the time it is acknowledged, so the next one follows at once.
    assert sent_at[1] - sent_at[0] < TIMES.heartbeat
    hand.fault = lambda request: None
    assert assigned.hand_out(slots_of(assigned), at(5), at(6), hand.now)


def test_the_lease_ends_three_quarters_of_a_session_after_the_first_attempt(hand: Hand) -> None:
    _, assigned, steps = hand.started(8)
    sent: list[float] = []

    def lost(request: Request) -> None:
        if isinstance(request, CreateFile):
            sent.append(hand.now)
            if len(sent) == 1:
                hand.answer(request)
            if len(sent) < 8 or len(sent) > 8:
                raise StoreError("the answer was lost")

    hand.fault = lost
    hand.run(steps, 10)
    assert len(sent) > 8 and sent[7] - sent[0] > 3
    slots = slots_of(assigned)
    assert not assigned.hand_out(slots, at(5), at(6), sent[0] + TIMES.lease + 0.01)
    assert assigned.hand_out(slots, at(5), at(6), sent[0] + TIMES.lease)


def test_a_fencing_version_that_the_member_has_passed_is_deleted(hand: Hand) -> None:
    id = ".bbbbbbbb"
    held = {0: SlotProgress(1, at(9))}
    for number in (3, 4):
        hand.files[record_file(id, number)] = MemberRecord(id, number, "n", id, MemberStatus.ACTIVE, 1, held).to_json()
    view = GroupView(TIMES, hand.clock)
    coordinator = Coordinator(view, TIMES, hand.clock, hand.draw, "group:1")
    answer_all(hand, view.look())

    def passes(request: Request) -> None:
        """The member writes more versions and deletes old ones while the fencing version is under way."""
        if isinstance(request, CreateFile):
            for number in (5, 6, 7, 8):
                hand.files[record_file(id, number)] = MemberRecord(
                    id, number, "n", id, MemberStatus.ACTIVE, 1, held
                ).to_json()
            for number in (3, 4, 5, 6):
                del hand.files[record_file(id, number)]

    hand.fault = passes
    answer_all(hand, coordinator.fence(id, ".aaaaaaaa"))
    assert id not in view.final
    assert sorted(hand.files) == [record_file(id, 7), record_file(id, 8)]


def test_a_member_whose_heartbeat_arrives_while_another_is_fenced_is_not_fenced(hand: Hand) -> None:
    ids = (".aaaaaaaa", ".bbbbbbbb", ".cccccccc")
    state = replace(first_state(at(5), GroupTerms(3)), generation=1, begun=True, members=ids)
    hand.files[state_file(1)] = state.to_json()
    for id in ids:
        hand.files[record_file(id, 1)] = MemberRecord(id, 1, "n", id, MemberStatus.ACTIVE, 1).to_json()
    view = GroupView(TIMES, hand.clock)
    coordinator = Coordinator(view, TIMES, hand.clock, hand.draw, "group:1")
    for _ in range(4):
        answer_all(hand, view.look())
        hand.now += TIMES.idle_listing
    assert view.silent() == set(ids)

    def beats(request: Request) -> None:
        if isinstance(request, CreateFile) and ids[1] in request.name:
            hand.files[record_file(ids[2], 2)] = MemberRecord(ids[2], 2, "n", ids[2], MemberStatus.ACTIVE, 1).to_json()

    hand.fault = beats
    hand.files[record_file(ids[0], 2)] = MemberRecord(ids[0], 2, "n", ids[0], MemberStatus.ACTIVE, 1).to_json()
    answer_all(hand, view.look())
    answer_all(hand, coordinator.act(ids[0]))
    assert view.final == {ids[1]} and hand.last(ids[2]).status is MemberStatus.ACTIVE


def answer_all(hand: Hand, steps: Steps[Any]) -> None:
    request = next(steps)
    with suppress(StopIteration):
        while True:
            hand.fault(request)
            request = steps.send(hand.answer(request))


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"version":1}', b"\xff"])
def test_a_damaged_file_is_an_error_that_names_it(hand: Hand, data: bytes) -> None:
    _, assigned, steps = hand.started(8)
    hand.files[state_file(9)] = data
    with pytest.raises(CorruptTableError) as raised:
        hand.run(steps, 8)
    assert raised.value.path == state_file(9)
    assert not assigned.readable()


def test_a_fenced_member_has_no_slots_and_joins_again(hand: Hand) -> None:
    member, assigned, steps = hand.started(8)
    former = hand.last(member.id)
    assert assigned.readable()
    fenced = replace(former, version=former.version + 1, nonce="x", written_by=".cccccccc", status=MemberStatus.FENCED)
    hand.files[record_file(former.id, fenced.version)] = fenced.to_json()
    hand.run(steps, 4.1)
    assert member.id not in (None, former.id)
    hand.run(steps, 6)
    assert set(slots_of(assigned)) == {0, 1, 2}
    assert hand.last(former.id) == fenced


@pytest.mark.parametrize(("age", "left"), [(7.0, [4, 5]), (17.0, [5]), (86_300.0, [5]), (86_500.0, [])])
def test_the_last_version_of_an_ended_member_stays_for_a_day(hand: Hand, age: float, left: list[int]) -> None:
    _, _, steps = hand.started(8)
    other = ".bbbbbbbb"
    for number, status in ((4, MemberStatus.ACTIVE), (5, MemberStatus.FENCED)):
        name = record_file(other, number)
        hand.files[name] = MemberRecord(other, number, "n", ".cccccccc", status, 1).to_json()
        hand.modified[name] = hand.now - age
    hand.run(steps, 8)
    assert parse_names(hand.files)[1].get(other, []) == left


def test_old_states_are_deleted_once_no_member_acts_on_them(hand: Hand) -> None:
    member, assigned, steps = hand.started(8)
    state = GroupState.from_json(hand.files[state_file(1)])
    for number in range(2, 30):
        hand.files[state_file(number)] = replace(state, generation=number).to_json()
    hand.run(steps, 8)
    assert parse_names(hand.files)[0] == list(range(22, 30))
    assert set(slots_of(assigned)) == {0, 1, 2} and hand.last(member.id).generation == 29


def test_of_two_members_with_one_name_the_newer_one_stays(hand: Hand) -> None:
    _, old_assigned, steps = hand.started(8, "n")
    _, assigned, newer = hand.started(4, "n")
    assert set(slots_of(assigned)) == {0, 1, 2}
    with pytest.raises(ConsumerConflictError, match="a newer one of this name has taken over"):
        hand.run(steps, 4)
    assert not old_assigned.readable()
    hand.run(newer, 8)
    assert set(slots_of(assigned)) == {0, 1, 2}


def test_the_slots_of_a_dead_member_whose_record_was_deleted_are_read_again(hand: Hand) -> None:
    """What it has confirmed is lost, so its slots begin again where it began."""
    dead = hand.member()[0]
    steps = dead.run()
    hand.run(steps, TIMES.session)
    assert {ownership.owner for ownership in hand.state().owned} == {dead.id}
    for name in [name for name in hand.files if name.startswith(f"member-{dead.id}-")]:
        del hand.files[name]
    other, assigned, others = hand.started(TIMES.session * 0.9)
    assert {ownership.owner for ownership in hand.state().owned} == {dead.id}
    hand.run(others, TIMES.session * 1.5)
    assert {ownership.owner for ownership in hand.state().owned} == {other.id}
    assert assigned.readable() == {slot: (hand.state().generation, Position("t", 5)) for slot in range(3)}


@pytest.mark.parametrize("taken", [None, RetentionPin(3, None), RetentionPin(3, "group:2")])
def test_when_the_pin_is_taken_away_the_group_ends_for_all(taken: RetentionPin | None) -> None:
    world = calm_world(3, 3)
    world.run_until(20)
    assert len(world.living()) == 3 and not world.laws.seen["conflicts"]

    def take() -> None:
        world.pin = taken

    world.at(21, take)
    # Reading the pin, writing the state, and a listing by each member.
    world.run_until(21 + TIMES.idle_listing + 4 * 0.64 + TIMES.idle_listing)
    assert world.laws.seen["conflicts"] == 3 and not world.living()


def other(hand: Hand, **changed: Any) -> tuple[GroupMember, AssignedSlots]:
    """A member that differs from those of `hand`."""
    assigned = AssignedSlots()
    terms = GroupTerms(**{"slots": 3, **changed})
    return GroupMember("", terms, TIMES, hand.clock, hand.draw, assigned), assigned


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"slots": 4}, "another number of slots: 3, this reader by 4"),
        ({"rule": "bucket"}, "another rule of slots"),
        ({"settings": "filter"}, "the group has other settings"),
    ],
)
def test_a_member_with_other_settings_than_living_members_is_refused_before_it_writes(
    hand: Hand, changed: dict[str, Any], said: str
) -> None:
    _, assigned, steps = hand.started(8)
    files = set(hand.files)
    others = other(hand, **changed)[0].run()
    with pytest.raises(StreamConfigError, match=said):
        for _ in range(8):
            hand.run(others, 1)
            assert set(hand.files) == files
            hand.run(steps, 1)
            files = set(hand.files)
    hand.run(steps, 8)
    assert set(slots_of(assigned)) == {0, 1, 2}


@pytest.mark.parametrize("ends", ["leaves", "is killed", "is killed, and its record is deleted"])
def test_a_member_with_other_settings_continues_where_those_that_have_ended_have_confirmed(
    hand: Hand, ends: str
) -> None:
    member, assigned, steps = hand.started(1)
    slots = slots_of(assigned)
    assert assigned.hand_out(slots, at(5), at(9), hand.now)
    assigned.confirm({0: slots[0]}, at(9))
    hand.run(steps, 1)
    if ends == "leaves":
        member.leave()
        with pytest.raises(StopIteration):
            hand.run(steps, 1)
    elif "record" in ends:
        for name in [name for name in hand.files if name.startswith("member-")]:
            del hand.files[name]
    later, its = other(hand, settings="another filter, another start")
    others = later.run()
    hand.run(others, 0 if ends == "leaves" else TIMES.session * 1.3)
    assert hand.state().settings == "another filter, another start" and hand.state().members == (later.id,)
    known = "record" not in ends
    assert {slot: position for slot, (_, position) in its.readable().items()} == {
        0: at(9 if known else 5),
        1: at(5),
        2: at(5),
    }


def test_of_two_members_with_different_settings_one_is_refused(hand: Hand) -> None:
    first, second = other(hand, settings="a")[0].run(), other(hand, settings="b")[0].run()
    hand.run(first, TIMES.session / 8)
    with pytest.raises(StreamConfigError, match="the group has other settings"):
        for _ in range(24):
            hand.run(second, TIMES.session / 8)
            hand.run(first, TIMES.session / 8)
    assert len(hand.state().members) == 1


def test_a_deleted_group_is_an_error_for_its_members_and_is_not_created_again(hand: Hand) -> None:
    members = [hand.member()[0] for _ in range(2)]
    running = [member.run() for member in members]
    for _ in range(8):
        for steps in running:
            hand.run(steps, 1)
    hand.files.clear()
    for steps in running:
        with pytest.raises(ConsumerConflictError, match="deleted"):
            hand.run(steps, TIMES.session)
    with pytest.raises(ConsumerConflictError, match="deleted"):
        hand.run(hand.member()[0].run(), TIMES.session)
    assert hand.files == {}


@pytest.mark.parametrize("seed", range(6))
def test_the_slots_of_a_killed_member_are_read_again_three_poll_intervals_after_its_session(seed: int) -> None:
    world = calm_world(seed, 3, slots=6)
    world.run_until(40 + seed)
    victim = world.processes[seed % 3]
    slots = slots_of(victim.assigned)
    assert len(slots) == 2
    victim.is_over = True
    world.run_until(world.now + SESSION + 3 * SESSION / 1.7)
    held = [slots_of(process.assigned) for process in world.living()]
    assert all(any(each.get(slot, 0) > since for each in held) for slot, since in slots.items())


def test_a_member_leaves_at_once_and_another_has_its_slots() -> None:
    world = calm_world(4, 2)
    world.run_until(20)
    leaver, stays = world.processes
    leaver.member.leave()
    leaver.wake()
    # Its last version, a listing and the requests after it, each within two thirds of a second.
    world.run_until(20 + TIMES.idle_listing + 7 * 0.64)
    assert leaver.is_over and set(slots_of(stays.assigned)) == {0, 1, 2, 3}


@pytest.mark.parametrize("seconds", [0.55 * SESSION, 0.7 * SESSION, 3 * SESSION])
def test_no_member_is_fenced_after_an_outage_of_the_store(seconds: float) -> None:
    for seed in range(4):
        world = calm_world(seed, 3)
        world.run_until(6 * SESSION + seed)
        for index, process in enumerate(world.processes):
            # Requests that hang time out one after the other.
            process.cut_until = world.now + seconds + index * TIMES.session / 8
        world.run_until(world.now + seconds + 3 * SESSION)
        assert len(world.living()) == 3 and not world.laws.seen["fencings"]


def test_a_quiet_session_is_four_requests_of_each_member_and_one_for_all_of_them() -> None:
    world = calm_world(5, 8, slots=16)
    world.run_until(12 * SESSION)
    world.requests.clear()
    world.run_until(22 * SESSION)
    asked = {kind: count / 80 for kind, count in world.requests.items()}
    assert asked[CreateFile] < 2.2 and asked[ListNames] < 2.2
    assert sum(asked.values()) < 5.5
