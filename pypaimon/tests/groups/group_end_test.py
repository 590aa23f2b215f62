"""Ends of group streams: the loop of each member ends once the members together have confirmed everything."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from pypaimon.streaming import StreamConfigError, stream_read_builder
from pypaimon.streaming.groups import GroupStreamBuilder
from support.docs.cli_runs import Program
from support.groups.members import BUCKETS, FOR_EVER, SESSION, Member, group, keys, write
from support.tables.streamed_table import Table
from support.tables.written_tables import key_value_table
from support.waits import until

pytestmark = pytest.mark.slow


@pytest.fixture
def written(written: Table) -> Table:
    write(written, *range(100, 140))
    return written


def bounded(table: Table, end: dict[str, Any], **settings: Any) -> GroupStreamBuilder:
    builder = stream_read_builder(table.handle()).with_poll_interval_ms(20).with_end(**end)
    return builder.new_group("etl", **{"session_timeout": SESSION, **settings})


def all_keys(stream: Any) -> list[int]:
    return sorted(key for batch in stream for key in keys(batch))


def test_a_single_member_ends_at_the_latest_snapshot_and_the_next_one_continues_there(written: Table) -> None:
    with bounded(written, {"latest": True}).open_sync() as stream:
        assert all_keys(stream) == [*range(40), *range(100, 140)]
        assert stream.assignment is None
    with bounded(written, {"latest": True}).open_sync() as stream:
        assert all_keys(stream) == []
    write(written, 200, 201)
    with bounded(written, {"latest": True}).open_sync() as stream:
        assert all_keys(stream) == [200, 201]


@pytest.mark.parametrize("end", [{"snapshot_id": 1}, {"latest": True}])
def test_snapshots_after_the_end_are_not_read(written: Table, end: dict[str, Any]) -> None:
    """The latest snapshot is the one that is the latest when the member joins."""
    builder = stream_read_builder(written.handle()).with_poll_interval_ms(20).with_start(snapshot_id=1, full=True)
    shared = builder.with_end(**end).new_group("etl", session_timeout=SESSION)
    with shared.open_sync(read_ahead_bytes=0) as stream:
        found = keys(next(stream))
        write(written, 200, 201)
        found += [key for batch in stream for key in keys(batch)]
    assert sorted(found) == [*range(40), *(range(100, 140) if "latest" in end else ())]


def test_a_time_in_the_past_is_an_end(written: Table) -> None:
    millis = written.handle().snapshot_manager().get_snapshot_by_id(1).time_millis
    builder = stream_read_builder(written.handle()).with_poll_interval_ms(20).with_start(snapshot_id=1, full=True)
    for wanted in (list(range(40)), []):
        with builder.with_end(timestamp=millis).new_group("etl", session_timeout=SESSION).open_sync() as stream:
            assert all_keys(stream) == wanted


def test_a_table_without_snapshots_is_at_its_end(tmp_path: Path) -> None:
    table = key_value_table(tmp_path, bucket="2")
    with bounded(table, {"latest": True}).open_sync() as stream:
        assert all_keys(stream) == []


def test_a_group_that_begins_after_the_end_is_an_error(written: Table) -> None:
    with bounded(written, {"snapshot_id": 1}).open_sync() as stream:
        for _ in range(2):
            with pytest.raises(StreamConfigError, match="beyond the end at snapshot 1"):
                next(stream)


def test_no_member_ends_before_all_is_confirmed(written: Table) -> None:
    """Not even one that has nothing to read: each of four members has one slot, the fifth has none."""
    first = bounded(written, {"latest": True}, commit="manual").open_sync(batch_bytes=1)
    batch = next(first)
    others = [Member(lambda **calls: bounded(written, {"latest": True}, **calls)) for _ in range(4)]
    until(lambda: first.assignment is not None and first.assignment.members == 5)
    assert not any(member.has_ended for member in others)
    found = keys(batch)
    while True:
        batch.commit()
        if (following := next(first, None)) is None:
            break
        assert not any(member.has_ended for member in others)
        batch = following
        found += keys(batch)
    first.close()
    for member in others:
        member.join()
        found += member.keys
    assert sorted(found) == [*range(40), *range(100, 140)]


def test_a_loop_ends_before_what_its_reader_confirms_afterwards(written: Table) -> None:
    """With the last commit the member leaves, though its stream is open."""
    stream = bounded(written, {"latest": True}, commit="manual").open_sync()
    batches = list(stream)
    assert batches and stream.assignment is not None
    waits = Member(lambda **calls: bounded(written, {"latest": True}, **calls))
    until(lambda: stream.assignment is not None and stream.assignment.members == 2)
    assert not waits.has_ended
    batches[-1].commit()
    waits.join()
    assert waits.keys == [] and stream.assignment is None


def test_a_member_that_is_stopped_leaves_though_it_has_not_committed(written: Table) -> None:
    stream = group(written, commit="manual").open_sync()
    found = keys(next(stream))
    stream.stop()
    assert list(stream) == []
    with group(written).open_sync() as after:
        assert sorted(keys(next(after))) == sorted(found) == [*range(40), *range(100, 140)]


def test_async_for_ends_too(written: Table) -> None:
    async def read() -> list[int]:
        async with bounded(written, {"latest": True}).open() as stream:
            return sorted([key async for batch in stream for key in keys(batch)])

    assert asyncio.run(read()) == [*range(40), *range(100, 140)]


def test_members_with_ends_and_without_share_a_table(written: Table) -> None:
    follows = Member(lambda **calls: group(written, **calls))
    follows.wait(lambda member: len(member.slots) == BUCKETS)
    with bounded(written, {"latest": True}).open_sync() as stream:
        found = all_keys(stream)
    write(written, *range(200, 240))
    wanted = [*range(40), *range(100, 140), *range(200, 240)]
    follows.wait(lambda member: len(found) + len(member.keys) >= len(wanted))
    follows.end()
    assert sorted(found + follows.keys) == wanted


def test_slots_of_a_killed_process_are_read_before_another_one_ends(
    written: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first one cannot reach its end: its output is not read beyond what a pipe holds."""
    for commit in range(1, 6):
        write(written, *range(1000 * commit, 1000 * commit + 1000))
    program = Program(tmp_path, capsys)
    arguments = ("tail", written.name, "--group", "etl", "--start", "earliest", "--until-latest", "-f", "json")
    first = program.start(*arguments)
    assert first.stdout is not None
    lines = [first.stdout.readline()]
    second = program.start(*arguments)
    first.kill()
    # Not `communicate`, which skips what `readline` has read ahead.
    lines += first.stdout.readlines()
    lines += second.communicate(timeout=FOR_EVER)[0].splitlines(keepends=True)
    first.communicate(timeout=FOR_EVER)
    assert (first.returncode, second.returncode) == (-SIGKILL, 0)
    found = {json.loads(line)["k"] for line in lines if line.endswith("\n")}
    assert found == {*range(40), *range(100, 140), *range(1000, 6000)}
