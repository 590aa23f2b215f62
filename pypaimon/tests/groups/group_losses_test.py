"""Members whose record, group or table is deleted while they run, and groups without members."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import (
    ConsumerConflictError,
    StreamConfigError,
    TableChangedError,
    stream_read_builder,
)
from pypaimon.streaming.groups import GroupStreamBuilder
from support.groups.members import SESSION, Member, group, keys, write
from support.groups.readers import Reader, Readers
from support.tables.streamed_table import Table
from support.waits import until

pytestmark = pytest.mark.slow

SINCE = 1_700_000_000_000


def processes(tmp_path: Path) -> Readers:
    catalog = {"warehouse": str(tmp_path)}
    return Readers(tmp_path, {"catalog": catalog, "table": "db.w", "session": SESSION, "poll_ms": 50})


def ended(reader: Reader) -> str:
    """The error output of a process that fails."""
    reader.process.wait(60)
    return reader.lines.with_suffix(".err").read_text().splitlines()[-1]


def test_the_slots_of_a_killed_member_whose_record_is_deleted_are_read_by_the_others(
    written: Table, tmp_path: Path
) -> None:
    with processes(tmp_path) as readers:
        first, second = readers.start(), readers.start()
        home = written.path / "consumer" / "group-etl" / "1"
        until(lambda: _owners(home) == 2)
        readers.kill(first)
        alive = max(home.glob("member-*"), key=lambda path: path.stat().st_mtime_ns)
        until(lambda: max(home.glob("member-*"), key=lambda path: path.stat().st_mtime_ns) != alive)
        alive = max(home.glob("member-*"), key=lambda path: path.stat().st_mtime_ns)
        for path in home.glob("member-*"):
            if path.name.split("-")[1] != alive.name.split("-")[1]:
                path.unlink()
        write(written, *range(100, 140))
        until(lambda: {key for line in second.output() for key in line.get("keys", ())} >= set(range(100, 140)))


def _versions(home: Path) -> int:
    return max(int(path.name.rpartition("-")[2]) for path in home.glob("member-*"))


def _owners(home: Path) -> int:
    states = sorted(home.glob("state-*"))
    if not states:
        return 0
    return len({each.get("owner") for each in json.loads(states[-1].read_text())["owned"]} - {None})


def test_a_deleted_group_is_an_error_for_every_member_and_for_the_next_one(written: Table, tmp_path: Path) -> None:
    with processes(tmp_path) as readers:
        members = [readers.start(), readers.start()]
        until(lambda: _owners(written.path / "consumer" / "group-etl" / "1") == 2)
        shutil.rmtree(written.path / "consumer" / "group-etl")
        for member in members:
            assert "ConsumerConflictError" in ended(member) and "group 'etl' were deleted" in ended(member)
    with group(written).open_sync() as stream, pytest.raises(ConsumerConflictError, match="were deleted"):
        next(stream)


@pytest.mark.parametrize("fate", ["dropped", "being dropped", "renamed"])
def test_members_of_a_table_that_is_gone_make_no_directory(written: Table, fate: str) -> None:
    members = [Member(lambda **calls: group(written, **calls)) for _ in range(2)]
    for member in members:
        member.wait(lambda member: len(member.slots) == 2)
    # A drop deletes one file after the other, in any order.
    if fate == "dropped":
        shutil.rmtree(written.path / "schema")
        # A file that is created meanwhile keeps its directory. Then it is deleted again.
        until(lambda: _is_deleted(written.path))
    elif fate == "being dropped":
        shutil.rmtree(written.path / "snapshot")
    else:
        written.catalog.rename_table("db.w", "db.other")
    for member in members:
        until(lambda member=member: member.has_ended)  # type: ignore[misc]
        assert isinstance(member.error, TableChangedError), member.error
        assert "dropped" in str(member.error)
    assert written.path.exists() is (fate == "being dropped")
    assert written.catalog.list_tables("db") == {"dropped": [], "being dropped": ["w"], "renamed": ["other"]}[fate]


def _is_deleted(path: Path) -> bool:
    shutil.rmtree(path, ignore_errors=True)
    return not path.exists()


def bounded(table: Table, condition: str | None = None, **start: Any) -> GroupStreamBuilder:
    builder = stream_read_builder(table.handle()).with_poll_interval_ms(20).with_end(latest=True)
    builder = builder if condition is None else builder.with_filter(condition)
    builder = builder.with_start(**start) if start else builder
    return builder.new_group("etl", session_timeout=SESSION)


def all_keys(builder: GroupStreamBuilder) -> list[int]:
    with builder.open_sync() as stream:
        return sorted(key for batch in stream for key in keys(batch))


def test_a_group_without_members_continues_with_another_filter_and_another_start(
    written: Table, tmp_path: Path
) -> None:
    hour_ago = int(time.time() * 1000) - 3_600_000
    assert len(all_keys(bounded(written, timestamp=hour_ago))) == 40
    write(written, *range(100, 120))
    assert all_keys(bounded(written, timestamp=hour_ago + 1)) == [*range(100, 120)]
    write(written, *range(200, 220))
    assert all_keys(bounded(written, "k >= 210")) == [*range(210, 220)]
    with processes(tmp_path) as readers:
        killed = readers.start()
        until(lambda: _owners(written.path / "consumer" / "group-etl" / "1") == 1)
        readers.kill(killed)
        write(written, *range(300, 320))
        assert all_keys(bounded(written, "k >= 310")) == [*range(310, 320)]


def test_a_first_plan_is_not_finished_with_another_start_by_creation_time(written: Table) -> None:
    builder = stream_read_builder(written.handle()).with_poll_interval_ms(20).with_start(creation_time=SINCE)
    begun = builder.new_group("etl", session_timeout=SESSION, commit="manual")
    with begun.open_sync() as stream:
        assert keys(next(stream))
    with (
        bounded(written).open_sync() as stream,
        pytest.raises(StreamConfigError, match=f"from-creation-timestamp {SINCE}"),
    ):
        next(stream)
    assert len(all_keys(bounded(written, creation_time=SINCE))) == 40
    assert all_keys(bounded(written)) == []


def test_a_healthy_member_is_not_fenced_by_one_with_a_shorter_session(written: Table) -> None:
    lost: list[tuple[int, ...]] = []
    long = Member(lambda **calls: group(written, session_timeout=SESSION * 8, **{**calls, "on_lost": lost.append}))
    long.wait(lambda member: len(member.slots) == 4)
    short = Member(lambda **calls: group(written, **calls))
    short.wait(lambda member: len(member.slots) == 2)
    home = written.path / "consumer" / "group-etl" / "1"
    # The member with the short session writes two versions in each of its sessions.
    before = _versions(home)
    until(lambda: _versions(home) >= before + 4)
    assert lost == []
    write(written, *range(100, 140))
    short.wait(lambda member: len(member.keys) > 0)
    short.end()
    long.end()
    assert not {*short.keys} & {*long.keys}
