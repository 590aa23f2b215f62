"""One member, step by step: what it asks for, and what it makes of answers that are lost, late or damaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from pypaimon.streaming.consumers.groups.group_duty import GroupDuty
from pypaimon.streaming.consumers.groups.group_files import numbers_of, register_name, state_name
from pypaimon.streaming.consumers.groups.group_member import GroupMember
from pypaimon.streaming.consumers.groups.group_requests import (
    CreateFile,
    DeleteFiles,
    Fence,
    FindStart,
    ListNames,
    LookAtFence,
    Pause,
    ReadFiles,
    ReportDeleted,
    Request,
    Stands,
    Steps,
    WriteFence,
)
from pypaimon.streaming.consumers.groups.group_state import GroupState, first_state
from pypaimon.streaming.consumers.groups.group_times import GroupTimes
from pypaimon.streaming.consumers.groups.group_view import GroupView
from pypaimon.streaming.consumers.groups.holdings import Holdings
from pypaimon.streaming.consumers.groups.register import Held, Register, Status
from pypaimon.streaming.errors import ConsumerConflictError, CorruptTableError, StoreError, StreamConfigError
from pypaimon.streaming.model.position import Position
from support.groups.world import SESSION, Weather, World

TIMES = GroupTimes(session=8.0, poll=4.0)


class Hand:
    """A store and a clock, worked by hand.

    Attributes:
        now: Seconds.
        files: Its content.
        modified: When files were written that were not written now.
        asked: Kinds of requests so far.
        fault: Raises in the place of an answer, once it is asked for; given the request.
    """

    def __init__(self) -> None:
        self.now = 100.0
        self.files: dict[str, bytes] = {}
        self.fence: Fence | None = None
        self.asked: Counter[type] = Counter()
        self.modified: dict[str, float] = {}
        self.fault: Callable[[Request], None] = lambda request: None
        self._drawn = 0

    def clock(self) -> float:
        return self.now

    def draw(self) -> str:
        self._drawn += 1
        return f"{self._drawn:08x}"

    def member(self, name: str = "", slots: int = 3) -> tuple[GroupMember, Holdings]:
        holdings = Holdings()
        return GroupMember(name, slots, TIMES, self.clock, self.draw, holdings), holdings

    def last(self, id: str | None) -> Register:
        assert id is not None
        return Register.from_json(self.files[register_name(id, numbers_of(self.files)[1][id][-1])])

    def state(self) -> GroupState:
        return GroupState.from_json(self.files[state_name(numbers_of(self.files)[0][-1])])

    def run(self, steps: Steps[None], seconds: float) -> None:
        """Let a member go on for a time."""
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
        if isinstance(request, LookAtFence):
            return self.fence
        if isinstance(request, WriteFence):
            self.fence = Fence(request.floor, "group:1")
            return True
        if isinstance(request, ReportDeleted):
            raise ConsumerConflictError("the files were deleted")
        assert isinstance(request, (FindStart, Stands))
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


def slots_of(holdings: Holdings) -> dict[int, int]:
    return {slot: since for slot, (since, _) in holdings.assigned().items()}


def at(snapshot: int) -> Position:
    return Position("t", snapshot)


def test_the_first_member_makes_the_group_and_has_all_slots_behind_a_fence(hand: Hand) -> None:
    member, holdings = hand.member()
    steps = member.run()
    hand.run(steps, 0)
    assert holdings.assigned() == {slot: (1, at(5)) for slot in range(3)}
    assert sum(hand.asked.values()) == 14
    assert hand.fence is not None and hand.fence.floor == 5
    state = GroupState.from_json(hand.files[state_name(numbers_of(hand.files)[0][-1])])
    assert state.members == (member.id,) and state.begun


def test_a_quiet_session_is_two_versions_and_two_listings(hand: Hand) -> None:
    member, _ = hand.member()
    steps = member.run()
    hand.run(steps, 16)
    hand.asked.clear()
    hand.run(steps, 80)
    assert hand.asked[CreateFile] <= 21 and hand.asked[ListNames] <= 21
    assert hand.asked[LookAtFence] <= 21 and hand.asked[ReadFiles] == hand.asked[WriteFence] == 0
    assert hand.asked[DeleteFiles] <= 3
    assert len(hand.files) < 24


def test_saves_that_wait_are_one_version_and_delay_the_beat(hand: Hand) -> None:
    member, holdings = hand.member()
    steps = member.run()
    hand.run(steps, 8)
    for after in (6, 7, 8):
        assert holdings.hand_out(slots_of(holdings), at(after - 1), at(after), hand.now)
        assert not holdings.confirm(slots_of(holdings), at(after))
    hand.asked.clear()
    hand.run(steps, 0.5)
    assert hand.asked[CreateFile] == 1
    assert {held.position for held in hand.last(member.id).held.values()} == {at(8)}
    hand.run(steps, 1.4)
    assert hand.asked[CreateFile] == 1


def test_a_version_whose_answer_is_lost_is_tried_as_it_is_and_its_lease_is_that_of_the_first_try(hand: Hand) -> None:
    member, holdings = hand.member()
    steps = member.run()
    hand.run(steps, 8)
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
    beats = [time for time, _ in tried[4:]]
    # The version that came back late is old already: the next one follows at once.
    assert beats[1] - beats[0] < TIMES.beat
    hand.fault = lambda request: None
    assert holdings.hand_out(slots_of(holdings), at(5), at(6), hand.now)


def test_the_lease_ends_three_quarters_of_a_session_after_the_first_try(hand: Hand) -> None:
    member, holdings = hand.member()
    steps = member.run()
    hand.run(steps, 8)
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
    slots = slots_of(holdings)
    assert not holdings.hand_out(slots, at(5), at(6), sent[0] + TIMES.lease + 0.01)
    assert holdings.hand_out(slots, at(5), at(6), sent[0] + TIMES.lease)


def test_a_seal_behind_which_the_member_has_gone_on_is_deleted(hand: Hand) -> None:
    id = ".bbbbbbbb"
    held = {0: Held(1, at(9))}
    for number in (3, 4):
        hand.files[register_name(id, number)] = Register(id, number, "n", id, Status.ACTIVE, 1, held).to_json()
    view = GroupView(TIMES, hand.clock)
    duty = GroupDuty(view, TIMES, hand.clock, hand.draw, "group:1")
    answer_all(hand, view.look())

    def goes_on(request: Request) -> None:
        """It writes on, and deletes what nobody needs any more, while the seal is on its way."""
        if isinstance(request, CreateFile):
            for number in (5, 6, 7, 8):
                hand.files[register_name(id, number)] = Register(id, number, "n", id, Status.ACTIVE, 1, held).to_json()
            for number in (3, 4, 5, 6):
                del hand.files[register_name(id, number)]

    hand.fault = goes_on
    answer_all(hand, duty.seal(id, ".aaaaaaaa"))
    assert id not in view.final
    assert sorted(hand.files) == [register_name(id, 7), register_name(id, 8)]


def test_who_is_heard_of_while_another_one_is_ended_is_not_ended(hand: Hand) -> None:
    ids = (".aaaaaaaa", ".bbbbbbbb", ".cccccccc")
    state = replace(first_state(at(5), 3), number=1, begun=True, members=ids)
    hand.files[state_name(1)] = state.to_json()
    for id in ids:
        hand.files[register_name(id, 1)] = Register(id, 1, "n", id, Status.ACTIVE, 1).to_json()
    view = GroupView(TIMES, hand.clock)
    duty = GroupDuty(view, TIMES, hand.clock, hand.draw, "group:1")
    for _ in range(4):
        answer_all(hand, view.look())
        hand.now += TIMES.quiet_watch
    assert view.silent() == set(ids)

    def beats(request: Request) -> None:
        if isinstance(request, CreateFile) and ids[1] in request.name:
            hand.files[register_name(ids[2], 2)] = Register(ids[2], 2, "n", ids[2], Status.ACTIVE, 1).to_json()

    hand.fault = beats
    hand.files[register_name(ids[0], 2)] = Register(ids[0], 2, "n", ids[0], Status.ACTIVE, 1).to_json()
    answer_all(hand, view.look())
    answer_all(hand, duty.act(ids[0]))
    assert view.final == {ids[1]} and hand.last(ids[2]).status is Status.ACTIVE


def answer_all(hand: Hand, steps: Steps[Any]) -> None:
    request = next(steps)
    with suppress(StopIteration):
        while True:
            hand.fault(request)
            request = steps.send(hand.answer(request))


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"version":1}', b"\xff"])
def test_a_damaged_file_is_an_error_that_names_it(hand: Hand, data: bytes) -> None:
    member, holdings = hand.member()
    steps = member.run()
    hand.run(steps, 8)
    hand.files[state_name(9)] = data
    with pytest.raises(CorruptTableError) as raised:
        hand.run(steps, 8)
    assert raised.value.path == state_name(9)
    assert not holdings.assigned()


def test_who_is_sealed_has_nothing_and_joins_again(hand: Hand) -> None:
    member, holdings = hand.member()
    steps = member.run()
    hand.run(steps, 8)
    former = hand.last(member.id)
    assert holdings.assigned()
    sealed = replace(former, number=former.number + 1, nonce="x", by=".cccccccc", status=Status.SEALED)
    hand.files[register_name(former.id, sealed.number)] = sealed.to_json()
    hand.run(steps, 4.1)
    assert member.id not in (None, former.id) and member.lives == 2
    hand.run(steps, 6)
    assert set(slots_of(holdings)) == {0, 1, 2}
    assert hand.last(former.id) == sealed


@pytest.mark.parametrize(("age", "left"), [(7.0, [4, 5]), (17.0, [5]), (86_300.0, [5]), (86_500.0, [])])
def test_the_last_version_of_who_has_ended_stays_for_a_day(hand: Hand, age: float, left: list[int]) -> None:
    member, _ = hand.member()
    steps = member.run()
    hand.run(steps, 8)
    other = ".bbbbbbbb"
    for number, status in ((4, Status.ACTIVE), (5, Status.SEALED)):
        name = register_name(other, number)
        hand.files[name] = Register(other, number, "n", ".cccccccc", status, 1).to_json()
        hand.modified[name] = hand.now - age
    hand.run(steps, 8)
    assert numbers_of(hand.files)[1].get(other, []) == left


def test_former_states_go_once_no_member_acts_upon_them(hand: Hand) -> None:
    member, holdings = hand.member()
    steps = member.run()
    hand.run(steps, 8)
    state = GroupState.from_json(hand.files[state_name(1)])
    for number in range(2, 30):
        hand.files[state_name(number)] = replace(state, number=number).to_json()
    hand.run(steps, 8)
    assert numbers_of(hand.files)[0] == list(range(22, 30))
    assert set(slots_of(holdings)) == {0, 1, 2} and hand.last(member.id).seen == 29


def test_of_two_members_of_one_name_the_newer_one_stays(hand: Hand) -> None:
    old, old_holdings = hand.member("n")
    steps = old.run()
    hand.run(steps, 8)
    new, holdings = hand.member("n")
    newer = new.run()
    hand.run(newer, 4)
    assert set(slots_of(holdings)) == {0, 1, 2}
    with pytest.raises(ConsumerConflictError, match="a newer one of this name has taken over"):
        hand.run(steps, 4)
    assert not old_holdings.assigned()
    hand.run(newer, 8)
    assert set(slots_of(holdings)) == {0, 1, 2}


def test_the_slots_of_a_dead_member_whose_register_was_deleted_are_read_again(hand: Hand) -> None:
    """What it has confirmed is not known any more, so that its slots begin where they began for it."""
    dead = hand.member()[0]
    steps = dead.run()
    hand.run(steps, TIMES.session)
    assert {tenure.owner for tenure in hand.state().owned} == {dead.id}
    for name in [name for name in hand.files if name.startswith(f"member-{dead.id}-")]:
        del hand.files[name]
    other, holdings = hand.member()
    others = other.run()
    hand.run(others, TIMES.session * 0.9)
    assert {tenure.owner for tenure in hand.state().owned} == {dead.id}
    hand.run(others, TIMES.session * 1.5)
    assert {tenure.owner for tenure in hand.state().owned} == {other.id}
    assert holdings.assigned() == {slot: (hand.state().number, Position("t", 5)) for slot in range(3)}


@pytest.mark.parametrize("taken", [None, Fence(3, None), Fence(3, "group:2")])
def test_when_the_fence_is_taken_away_the_group_ends_for_all(taken: Fence | None) -> None:
    world = calm_world(3, 3)
    world.run_until(20)
    assert len(world.living()) == 3 and not world.laws.seen["conflicts"]

    def take() -> None:
        world.fence = taken

    world.at(21, take)
    # A look at the fence, the state that says it, and a listing of each, which take their time.
    world.run_until(21 + TIMES.quiet_watch + 4 * 0.64 + TIMES.quiet_watch)
    assert world.laws.seen["conflicts"] == 3 and not world.living()


def other(hand: Hand, **changed: Any) -> tuple[GroupMember, Holdings]:
    """A member that differs from those of `hand`."""
    holdings = Holdings()
    given = {"slots": 3, "clock": hand.clock, "draw": hand.draw, "holdings": holdings, "times": TIMES, "name": ""}
    return GroupMember(**{**given, **changed}), holdings


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"slots": 4}, "another number of slots: 3, this reader by 4"),
        ({"rule": "bucket"}, "another rule of slots"),
        ({"settings": "filter"}, "other settings while its members live"),
    ],
)
def test_a_member_with_other_settings_than_living_members_is_refused_before_it_writes(
    hand: Hand, changed: dict[str, Any], said: str
) -> None:
    member, holdings = hand.member()
    steps = member.run()
    hand.run(steps, 8)
    files = set(hand.files)
    others = other(hand, **changed)[0].run()
    with pytest.raises(StreamConfigError, match=said):
        for _ in range(8):
            hand.run(others, 1)
            assert set(hand.files) == files
            hand.run(steps, 1)
            files = set(hand.files)
    hand.run(steps, 8)
    assert set(slots_of(holdings)) == {0, 1, 2}


@pytest.mark.parametrize("ends", ["leaves", "is killed", "is killed, and its register is deleted"])
def test_a_member_with_other_settings_continues_where_those_that_have_ended_have_confirmed(
    hand: Hand, ends: str
) -> None:
    member, holdings = hand.member()
    steps = member.run()
    hand.run(steps, 1)
    slots = slots_of(holdings)
    assert holdings.hand_out(slots, at(5), at(9), hand.now)
    holdings.confirm({0: slots[0]}, at(9))
    hand.run(steps, 1)
    if ends == "leaves":
        member.leave()
        with pytest.raises(StopIteration):
            hand.run(steps, 1)
    elif "register" in ends:
        for name in [name for name in hand.files if name.startswith("member-")]:
            del hand.files[name]
    later, its = other(hand, settings="another filter, another start")
    others = later.run()
    hand.run(others, 0 if ends == "leaves" else TIMES.session * 1.3)
    assert hand.state().settings == "another filter, another start" and hand.state().members == (later.id,)
    known = "register" not in ends
    assert {slot: position for slot, (_, position) in its.assigned().items()} == {
        0: at(9 if known else 5),
        1: at(5),
        2: at(5),
    }


def test_of_two_members_with_different_settings_one_is_refused(hand: Hand) -> None:
    first, second = other(hand, settings="a")[0].run(), other(hand, settings="b")[0].run()
    hand.run(first, TIMES.session / 8)
    with pytest.raises(StreamConfigError, match="other settings while its members live"):
        for _ in range(24):
            hand.run(second, TIMES.session / 8)
            hand.run(first, TIMES.session / 8)
    assert len(hand.state().members) == 1


def test_a_group_whose_directory_was_deleted_is_an_error_for_its_members_and_not_made_again(hand: Hand) -> None:
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
def test_the_slots_of_who_is_killed_are_read_again_three_poll_intervals_after_its_session(seed: int) -> None:
    world = calm_world(seed, 3, slots=6)
    world.run_until(40 + seed)
    victim = world.processes[seed % 3]
    slots = slots_of(victim.holdings)
    assert len(slots) == 2
    victim.is_over = True
    world.run_until(world.now + SESSION + 3 * SESSION / 1.7)
    held = [slots_of(process.holdings) for process in world.living()]
    assert all(any(each.get(slot, 0) > since for each in held) for slot, since in slots.items())


def test_who_leaves_is_done_at_once_and_another_has_its_slots() -> None:
    world = calm_world(4, 2)
    world.run_until(20)
    leaver, stays = world.processes
    leaver.member.leave()
    leaver.wake()
    # Its last version, a listing, and what is asked for behind that, each within two thirds of a second.
    world.run_until(20 + TIMES.quiet_watch + 7 * 0.64)
    assert leaver.is_over and set(slots_of(stays.holdings)) == {0, 1, 2, 3}


@pytest.mark.parametrize("seconds", [0.55 * SESSION, 0.7 * SESSION, 3 * SESSION])
def test_after_an_outage_of_the_store_nobody_is_ended(seconds: float) -> None:
    for seed in range(4):
        world = calm_world(seed, 3)
        world.run_until(6 * SESSION + seed)
        for index, process in enumerate(world.processes):
            # Requests that hang are given up one after the other.
            process.cut_until = world.now + seconds + index * TIMES.session / 8
        world.run_until(world.now + seconds + 3 * SESSION)
        assert len(world.living()) == 3 and not world.laws.seen["seals"]


def test_a_session_of_a_quiet_group_is_four_requests_of_each_member_and_one_for_all_of_them() -> None:
    world = calm_world(5, 8, slots=16)
    world.run_until(12 * SESSION)
    world.requests.clear()
    world.run_until(22 * SESSION)
    asked = {kind: count / 80 for kind, count in world.requests.items()}
    assert asked[CreateFile] < 2.2 and asked[ListNames] < 2.2
    assert sum(asked.values()) < 5.5
