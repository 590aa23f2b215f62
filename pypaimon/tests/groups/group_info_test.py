"""The members of a group, and how far each has read, as the command shows it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pypaimon.streaming import ConsumerConflictError, Lag
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.groups.group_directory import group_info, living_member
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.docs.cli_runs import Program
from support.groups.members import group, write
from support.tables.streamed_table import Table
from support.tables.written_tables import key_value_table
from support.waits import until

pytestmark = pytest.mark.slow


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = key_value_table(tmp_path, bucket="4")
    write(table, *range(20))
    return table


def test_members_are_shown_with_their_slots_and_lag(
    table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = Program(tmp_path, capsys)
    with group(table, commit="manual", member="a").open_sync() as stream:
        next(stream).commit()
        write(table, 50)
        (found,) = program("consumers", "show", table.name, "etl", "--format", "json").records
        assert found["member"].startswith("a.")
        assert (found["status"], found["slots"], found["next_snapshot"], found["lag"]) == ("active", "0-3", 2, 1)
        assert found["last_save"] is not None
        shown = program("consumers", "show", table.name, "etl").lines
        assert "member" in shown[0].lower() and any("0-3" in line for line in shown)
    (left,) = group_info(TableDirectory.of(table.handle()), "etl") or ()
    assert left.status == "left"
    listed = program("consumers", "list", table.name, "--format", "json").records
    assert [(each["kind"], each["next_snapshot"]) for each in listed if each["id"] == "etl"] == [("group", 2)]


def test_joining_members_and_slots_without_owner_are_shown(table: Table) -> None:
    directory = TableDirectory.of(table.handle())
    assert group_info(directory, "etl") is None
    with group(table).open_sync() as first:
        next(first)
        with group(table).open_sync() as second:
            assert second.assignment is None
            _ = second._reader.ready()
            until(lambda: len(group_info(directory, "etl") or ()) == 2)
            found = group_info(directory, "etl") or []
            assert sum(len(each.slots) for each in found) == 4
            assert found[0].lag == 1 and found[0].next_snapshot == 1


def test_an_unknown_group_has_no_members(table: Table) -> None:
    assert group_info(TableDirectory.of(table.handle()), "nobody") is None


def test_a_reset_of_a_group_with_living_members_is_refused_unless_it_is_forced(
    table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = Program(tmp_path, capsys)
    with group(table, member="a").open_sync() as stream:
        next(stream)
        commands = (
            ("reset", table.name, "etl", "--to", "1"),
            ("delete", table.name, "etl"),
            ("clear", table.name, "e.*"),
        )
        for command in commands:
            refused = program("consumers", *command, "--yes")
            assert refused.code == 1 and "living members (a." in refused.err and "--force" in refused.err
        assert program("consumers", "reset", table.name, "etl", "--to", "1", "--yes", "--force").code == 0
        with pytest.raises(ConsumerConflictError):
            next(stream)
    # A member that was ended or has left is not alive.
    assert program("consumers", "clear", table.name, "e.*", "--yes").out == "1 deleted: etl.\n"


def test_a_member_whose_process_was_killed_is_not_alive(table: Table) -> None:
    """Its record does not say that it has ended, but gets no new version."""
    with group(table, member="a").open_sync() as stream:
        next(stream)
        home = table.path / "consumer" / "group-etl" / "1"
        copied = {path.name: path.read_bytes() for path in home.iterdir()}
    for path in home.iterdir():
        path.unlink()
    for name, content in copied.items():
        (home / name).write_bytes(content)
    directory = TableDirectory.of(table.handle())
    assert [each.status in ("joining", "active") for each in group_info(directory, "etl") or ()] == [True]
    assert living_member(directory, "etl", Clock()) is None


def test_lag_is_that_of_the_slowest_slot(table: Table) -> None:
    with group(table, commit="manual").open_sync() as stream:
        assert stream.lag() is None
        batch = next(stream)
        write(table, 50)
        lag = stream.lag()
        assert lag is not None and (lag.snapshots, lag.latest, lag.committed) == (1, 2, 1)
        batch.commit()
        assert (lag := stream.lag()) is not None and lag.committed == 2
        next(stream)
        assert (lag := stream.lag()) is not None and lag.snapshots == 0
    assert stream.lag() is None


def test_lag_of_an_asynchronous_stream(table: Table) -> None:
    async def measured() -> Lag | None:
        async with group(table).open() as stream:
            await stream.__anext__()
            return await stream.lag()

    lag = asyncio.run(measured())
    assert lag is not None and (lag.snapshots, lag.seconds) == (0, 0)
