"""A table that was rolled back before what readers have saved: any reader fails before it reads a row."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pypaimon.filesystem.local_file_io import LocalFileIO

from pypaimon.streaming import StreamReadBuilder, TableChangedError, list_consumers
from pypaimon.streaming.doctor.checks import diagnose
from pypaimon.streaming.doctor.findings import Level
from support import programs
from support.docs.cli_runs import Program
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path, bucket="2", **{"bucket-key": "k"}).commit_each(range(6))


def bounded(table: Table, **end: Any) -> StreamReadBuilder:
    return table.builder().with_poll_interval_ms(20).with_end(**(end or {"latest": True}))


def keys(builder: Any) -> list[int]:
    with builder.open_sync() as stream:
        return sorted(key for batch in stream for key in batch.rows["k"].to_pylist())


def plain(builder: StreamReadBuilder) -> list[int]:
    return keys(builder.with_consumer_id("etl"))


def shards(builder: StreamReadBuilder) -> list[int]:
    return sorted(key for index in (0, 1) for key in keys(builder.with_consumer_id("etl").with_shard(index, 2)))


def member(builder: StreamReadBuilder) -> list[int]:
    return keys(builder.with_consumer_id("etl", member="a"))


def group(builder: StreamReadBuilder) -> list[int]:
    return keys(builder.new_group("etl", session_timeout=2))


def saved(table: Table) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((table.path / "consumer").glob("consumer-*"))]


PROGRAM = """
import sys
from pypaimon import CatalogFactory
from pypaimon.streaming import stream_read_builder

table = CatalogFactory.create({"warehouse": sys.argv[1]}).get_table(sys.argv[2])
builder = stream_read_builder(table).with_start("earliest").with_consumer_id("etl").with_poll_interval_ms(20)
with builder.open_sync() as stream:
    for batch in stream:
        print(batch.snapshot_id, flush=True)
"""


def test_after_a_rollback_the_program_that_follows_a_killed_one_ends_with_an_error(table: Table) -> None:
    name = f"{table.path.parent.stem}.{table.path.name}"
    command = [sys.executable, "-c", PROGRAM, str(table.path.parents[1]), name]
    with programs.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        assert [int(next(killed.stdout)) for _ in range(6)] == [1, 2, 3, 4, 5, 6]
        killed.kill()
    table.rollback(3)
    table.commit_each(range(100, 105))
    ended = programs.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert ended.stdout == ""
    assert "TableChangedError: The table was rolled back" in ended.stderr


FOLLOWERS = {
    "plain": (plain, plain),
    "shards": (shards, shards),
    "member": (member, member),
    "group": (group, group),
    "shards after a reader": (plain, shards),
    "a reader after shards": (shards, plain),
    "a group after a reader": (plain, group),
    "a reader after a group": (group, plain),
}


@pytest.mark.parametrize(("first", "then"), FOLLOWERS.values(), ids=FOLLOWERS)
def test_new_commits_after_a_rollback_are_an_error_not_a_gap(
    table: Table, first: Callable[[StreamReadBuilder], list[int]], then: Callable[[StreamReadBuilder], list[int]]
) -> None:
    assert first(bounded(table)) == [*range(6)]
    table.rollback(3)
    table.commit_each(range(100, 105))
    with pytest.raises(TableChangedError, match="rolled back: snapshot 6"):
        then(bounded(table))


@pytest.mark.parametrize("follow", [plain, shards, group])
def test_the_program_shows_it(
    table: Table, follow: Callable[[StreamReadBuilder], list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    follow(bounded(table))
    table.rollback(3)
    table.commit_each(range(100, 105))
    shows_that_it_was_rolled_back(table, capsys)


@pytest.mark.parametrize("later_commits", [0, 2, 5])
def test_the_program_shows_that_the_snapshot_of_a_first_plan_is_gone(
    table: Table, later_commits: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with table.builder().with_consumer_id("etl", commit="manual").open_sync() as stream:
        next(stream)
    (info,) = list_consumers(table.handle())
    assert info.name.is_pin and info.start is not None
    table.rollback(3)
    table.commit_each(range(100, 100 + later_commits))
    shows_that_it_was_rolled_back(table, capsys)


@pytest.mark.parametrize("start", ["latest", "latest-full"])
def test_the_program_shows_a_start_that_other_shards_have_not_begun(
    table: Table, start: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    keys(bounded(table).with_start(start).with_consumer_id("etl").with_shard(0, 2))
    program, name = Program(table.path.parent.parent, capsys), table.handle().identifier.get_full_name()
    measured = program("lag", name, "--format", "json", "--max-lag", "1")
    waiting = "caught up" if start == "latest" else "in its first plan"
    states = {each["consumer"]: each["state"] for each in measured.records}
    assert (measured.code, states) == (0, {"etl": waiting, "etl.shard-0-of-2": "caught up"})
    listed = program("consumers", "list", name, "--format", "json").records
    assert [each["state"] for each in listed] == ["ok", "ok"]
    findings = [each for each in diagnose(table.handle()).findings if each.check == "consumers"]
    assert [each.level for each in findings] == [Level.OK, Level.OK]


def test_the_program_shows_no_loss_of_a_reader_that_advances_at_that_moment(
    table: Table, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain(bounded(table))
    program, name = Program(table.path.parent.parent, capsys), table.handle().identifier.get_full_name()
    listing, commits = LocalFileIO.list_status, list[int]()

    def advance(file_io: Any, path: str) -> Any:
        if path.endswith("/consumer") and commits:
            later = commits.copy()
            commits.clear()
            table.commit_each(later)
            assert plain(bounded(table)) == later
        return listing(file_io, path)

    monkeypatch.setattr(LocalFileIO, "list_status", advance)
    commits += [10, 11]
    assert program("consumers", "list", name, "--format", "json").records[0]["state"] == "ok"
    commits += [12, 13]
    assert program("lag", name, "--format", "json").records[0]["state"] == "caught up"
    commits += [14, 15]
    (finding,) = (each for each in diagnose(table.handle()).findings if each.check == "consumers")
    assert (finding.level, commits) == (Level.OK, [])


def shows_that_it_was_rolled_back(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    program, name = Program(table.path.parent.parent, capsys), table.handle().identifier.get_full_name()
    listed = program("consumers", "list", name, "--format", "json").records
    assert {(each["state"], each["lag"]) for each in listed} == {("rolled back", None)}
    measured = program("lag", name, "--format", "json", "--max-lag", "100")
    assert measured.code == 3 and "etl" in measured.err and "is rolled back" in measured.err
    assert {(each["state"], each["snapshots"]) for each in measured.records} == {("rolled back", None)}
    findings = [each for each in diagnose(table.handle()).findings if each.check == "consumers"]
    assert all(each.level is Level.PROBLEM and "the table was rolled back" in each.text for each in findings)
    assert len(findings) == len(listed)


@pytest.mark.parametrize("follow", [plain, group])
@pytest.mark.parametrize("end", [{"latest": True}, {"snapshot_id": 4}], ids=str)
def test_an_end_of_a_history_that_was_rolled_back_is_not_reached(
    table: Table, follow: Callable[[StreamReadBuilder], list[int]], end: dict[str, Any]
) -> None:
    follow(bounded(table))
    table.rollback(3)
    table.commit([100])
    with pytest.raises(TableChangedError):
        follow(bounded(table, **end))


@pytest.mark.parametrize("follow", [plain, group])
def test_an_end_before_what_was_read_is_reached(table: Table, follow: Callable[[StreamReadBuilder], list[int]]) -> None:
    follow(bounded(table))
    assert follow(bounded(table, snapshot_id=3)) == []
    table.commit([6])
    table.expire(7)
    assert follow(bounded(table, snapshot_id=3)) == []


def test_a_file_of_java_continues_as_in_java_and_has_a_fingerprint_after_the_next_save(table: Table) -> None:
    plain(bounded(table))
    fingerprint = saved(table)[0]["fingerprint"]
    (table.path / "consumer" / "consumer-etl").write_text('{\n  "nextSnapshot" : 6\n}')
    table.rollback(3)
    table.commit_each(range(100, 104))
    assert plain(bounded(table)) == [102, 103]
    assert saved(table)[0]["fingerprint"] not in (fingerprint, None)
