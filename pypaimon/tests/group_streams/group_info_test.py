"""Who is in a group, and how far each is, as a command shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import Program
from group_members import group, until, write
from written_tables import Written

from pypaimon.streaming.consumers.groups.group_info import group_info
from pypaimon.streaming.metadata.table_directory import TableDirectory


@pytest.fixture
def table(tmp_path: Path) -> Written:
    table = Written(tmp_path, bucket="4")
    write(table, *range(20))
    return table


def test_members_are_shown_with_their_slots_and_lag(
    table: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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


def test_who_joins_is_shown_and_what_nobody_has(table: Written) -> None:
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


def test_an_id_that_is_no_group_has_no_members(table: Written) -> None:
    assert group_info(TableDirectory.of(table.handle()), "nobody") is None
