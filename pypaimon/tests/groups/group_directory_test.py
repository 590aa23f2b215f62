"""Groups on real stores: their files, the pin that Java respects, lifetimes, and killed processes."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pypaimon.common.options import Options
from pypaimon.filesystem.local_file_io import LocalFileIO
from pypaimon.filesystem.pyarrow_file_io import PyArrowFileIO

from pypaimon.streaming.concurrency.clock import SuspendAwareClock
from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerManager
from pypaimon.streaming.errors import ConsumerConflictError, CorruptTableError
from pypaimon.streaming.groups.assigned_slots import AssignedSlots
from pypaimon.streaming.groups.group_directory import GroupDirectory
from pypaimon.streaming.groups.group_files import GroupState, GroupTerms, state_file
from pypaimon.streaming.groups.group_requests import (
    CheckStart,
    CreateFile,
    DeleteFiles,
    FindStart,
    ListNames,
    ReadFiles,
    ReadPin,
    WritePin,
)
from pypaimon.streaming.groups.group_view import GroupTimes
from pypaimon.streaming.groups.member import GroupMember
from pypaimon.streaming.groups.membership import MemberThread
from pypaimon.streaming.io.store import Store
from support import programs
from support.groups.process import at
from support.repository import program
from support.stores.s3_server import BUCKET, S3Server, methods
from support.waits import until

pytestmark = pytest.mark.server

FOR_EVER = 120


class Place:
    """The directory of a table in a store."""

    def __init__(self, file_io: Any, path: str) -> None:
        self.store = Store(file_io)
        self.manager = ConsumerManager(file_io, path, store=self.store)

    def group(self) -> GroupDirectory:
        group = GroupDirectory(self.manager, self.store, "etl", lambda: at(1), at, lambda position: True)
        group.open()
        return group


@pytest.fixture
def local(tmp_path: Path) -> Place:
    (tmp_path / "t").mkdir()
    return Place(LocalFileIO(), str(tmp_path / "t"))


@pytest.fixture(params=["local", "objects"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        (tmp_path / "t").mkdir()
        return Place(LocalFileIO(), str(tmp_path / "t"))
    server: S3Server = request.getfixturevalue("server")
    path = f"s3://{BUCKET}/{tmp_path.name}/t"
    file_io = PyArrowFileIO(path, Options(server.options()))
    file_io.filesystem = server.file_system()
    return Place(file_io, path)


class Runner:
    """A member in a thread of this process."""

    def __init__(self, group: GroupDirectory, session: float = 0.4) -> None:
        clock, self.assigned = SuspendAwareClock(), AssignedSlots()
        times = GroupTimes(session, session / 4)
        draw = iter(f"{id(self) % (1 << 24):06x}{count:02x}" for count in range(256)).__next__
        self.member = GroupMember("", GroupTerms(4), times, clock, draw, self.assigned, group.owner)
        self.thread = MemberThread(self.member, group.answer, clock)
        self.thread.start()

    def wait(self, slots: int) -> None:
        until(lambda: self.thread.check() or len(self.assigned.readable()) == slots)  # type: ignore[func-returns-value]


def test_requests_are_answered_by_the_files_of_a_lifetime(place: Place) -> None:
    group = place.group()
    assert group.lifetime == 1 and group.answer(ListNames()) == {}
    assert group.answer(CreateFile("state-000000000000", b"1"))
    assert not group.answer(CreateFile("state-000000000000", b"2"))
    assert group.answer(ReadFiles(("state-000000000000",))) == [b"1"]
    (time,) = group.answer(ListNames()).values()
    assert time > 1_600_000_000
    group.answer(DeleteFiles(("state-000000000000", "state-000000000001")))
    assert group.answer(ReadFiles(("state-000000000000",))) == [None]
    assert group.answer(FindStart()) == at(1) and group.answer(CheckStart(at(1)))


def test_files_of_a_group_on_s3_are_deleted_in_one_request(server: S3Server, tmp_path: Path) -> None:
    home = f"s3://{BUCKET}/{tmp_path.name}/deleted"
    group = Place(PyArrowFileIO(home, Options(server.options())), home).group()
    names = tuple(state_file(number) for number in range(3))
    for name in names:
        assert group.answer(CreateFile(name, b"1"))
    with server.asked() as asked:
        group.answer(DeleteFiles((*names, state_file(9))))
    assert methods(asked) == {"POST": 1} and group.answer(ListNames()) == {}


def test_the_pin_is_a_consumer_file_that_is_only_replaced_as_it_was_seen(place: Place) -> None:
    group = place.group()
    assert group.answer(ReadPin()) is None
    assert group.answer(WritePin(7, None))
    assert not group.answer(WritePin(9, None))
    seen = group.answer(ReadPin())
    assert (seen.floor, seen.owner) == (7, "group:1")
    assert group.answer(WritePin(8, seen)) and not group.answer(WritePin(9, seen))
    assert place.manager.min_next_snapshot() == 8
    assert json.loads(place.store.read(f"{place.manager.directory}/consumer-etl.group"))["nextSnapshot"] == 8


def test_members_share_the_slots_and_later_ones_continue_after_the_last_one(local: Place) -> None:
    first = Runner(local.group())
    first.wait(4)
    second = Runner(local.group())
    first.wait(2)
    second.wait(2)
    assert first.thread.stop(FOR_EVER)
    second.wait(4)
    assert second.thread.stop(FOR_EVER) and second.assigned.readable() == {}
    again = Runner(local.group())
    again.wait(4)
    assert again.thread.stop(FOR_EVER)
    assert local.group().lifetime == 1
    assert local.manager.list_all_ids() == ["etl"]


@pytest.mark.parametrize(("taken", "start"), [("deleted", 1), ("reset", 33)])
def test_a_group_whose_pin_is_gone_ends_and_the_next_one_begins_again(local: Place, taken: str, start: int) -> None:
    runner = Runner(local.group())
    runner.wait(4)
    if taken == "deleted":
        local.manager.delete_consumer("etl")
    else:
        local.manager.reset_consumer("etl", Consumer(33))
    with pytest.raises(ConsumerConflictError, match="its retention pin"):
        until(lambda: runner.thread.check())  # type: ignore[func-returns-value]
    assert not runner.assigned.readable()
    group = local.group()
    assert group.lifetime == 2 and group.owner == "group:2"
    other = Runner(group)
    other.wait(4)
    assert {position.snapshot for _, position in other.assigned.readable().values()} == {start}
    assert local.group().lifetime == 2
    assert other.thread.stop(FOR_EVER)


def test_a_damaged_state_is_an_error_for_new_and_running_members(local: Place) -> None:
    runner = Runner(local.group())
    runner.wait(4)
    home = f"{local.manager.directory}/group-etl/1"
    local.store.write_atomic(f"{home}/{state_file(999)}", b"{")
    with pytest.raises(CorruptTableError, match="state-000000000999"):
        until(lambda: runner.thread.check())  # type: ignore[func-returns-value]
    assert not runner.assigned.readable()
    with pytest.raises(CorruptTableError, match="state-000000000999"):
        local.group()


def test_a_killed_member_is_replaced_and_no_number_is_missing(tmp_path: Path) -> None:
    last, slots = 60, 6
    (tmp_path / "t").mkdir()
    command = program("support.groups.process", str(tmp_path / "t"), "etl", str(slots), str(last), "1", "3")
    start = partial(programs.Popen, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    lines: list[tuple[int, list[int]]] = []
    said: dict[int, list[bool]] = defaultdict(list)

    def listen(index: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            value = json.loads(line)
            if isinstance(value, bool):
                said[index].append(value)
            else:
                lines.append((index, value))

    members = [start() for _ in range(3)]
    listeners = [threading.Thread(target=listen, args=each) for each in enumerate(members)]
    for listener in listeners:
        listener.start()
    try:
        until(lambda: len({index for index, _ in lines}) == 3)
        members[0].kill()
        wanted = {(slot, number) for slot in range(slots) for number in range(1, last)}
        until(lambda: wanted == {(slot, number) for _, (slot, _, number) in lines})
    finally:
        for member in members:
            assert member.stdin is not None
            member.stdin.close()
        for listener in listeners:
            listener.join(FOR_EVER)
        for member in members:
            member.wait(FOR_EVER)
            assert member.stdout is not None
            member.stdout.close()
    assert said == {1: [True], 2: [True]}
    _check_order(lines, slots)
    state = GroupState.from_json(max((tmp_path / "t/consumer/group-etl/1").glob("state-*")).read_bytes())
    assert state.begun


def _check_order(lines: list[tuple[int, list[int]]], slots: int) -> None:
    """Each ownership has one member and no gap, and begins no later than where the ones before it ended."""
    for slot in range(slots):
        ownerships: dict[int, list[int]] = defaultdict(list)
        owners: dict[int, set[int]] = defaultdict(set)
        for index, (each, since, number) in lines:
            if each == slot:
                ownerships[since].append(number)
                owners[since].add(index)
        end = 1
        for since in sorted(ownerships):
            numbers = ownerships[since]
            assert len(owners[since]) == 1
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) and numbers[0] <= end
            end = max(end, numbers[-1] + 1)
