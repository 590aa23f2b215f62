"""`paimon-stream copy`: a table into another one, run after run, made like its source where it is asked for."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming.cli.app import program as commands
from pypaimon.streaming.cli.copy import Running
from support.docs.cli_runs import Outcome, Program, subcommands
from support.tables.handles import create_table, sorted_rows
from support.tables.streamed_table import KEYED, Table
from support.tables.written_tables import changes, key_value_table, rows

pytestmark = pytest.mark.slow


@pytest.fixture
def source(tmp_path: Path) -> Table:
    table = key_value_table(tmp_path, "source")
    grown(table, rows(1, 2, 3))
    return table


def grown(table: Table, *commits: Any) -> None:
    with table.writer("maker").open_sync() as writer:
        for each in commits:
            writer.write(each)
            writer.commit()


def held(source: Table, name: str) -> list[tuple[Any, ...]]:
    return sorted_rows(source.catalog.get_table(name))


def options(source: Table, name: str) -> dict[str, str]:
    return dict(source.catalog.get_table(name).table_schema.options)


def test_each_run_continues_where_the_last_one_ended(program: Program, source: Table) -> None:
    first = program("copy", "db.source", "db.copy", "--create")
    assert first == Outcome(0, "db.source -> db.copy: 1 commit; it holds db.source before snapshot 2\n", "")
    assert held(source, "db.copy") == source.rows()
    grown(source, changes(("-D", 1, "v1"), ("+U", 2, "new")), rows(4))
    again = program("copy", "db.source", "db.copy", "--create", "--json")
    assert again.records == [
        {
            "source": "db.source",
            "target": "db.copy",
            "created": False,
            "commits": 2,
            "next": 4,
            "commit_user": "copy-of-db.source",
        }
    ]
    assert held(source, "db.copy") == source.rows() == [(2, "new"), (3, "v3"), (4, "v4")]
    assert program("copy", "db.source", "db.copy", "--json").records[0]["commits"] == 0


def test_rows_that_no_copy_has_written_are_replaced_where_it_is_asked_for(program: Program, source: Table) -> None:
    theirs = key_value_table(Path(source.path).parent.parent, "theirs")
    grown(theirs, rows(7, 8))
    refused = program("copy", "db.source", "db.theirs")
    assert refused.code == 2 and "empty this one, or give --replace, so that" in refused.err
    assert held(source, "db.theirs") == [(7, "v7"), (8, "v8")]
    assert program("copy", "db.source", "db.theirs", "--replace").code == 0
    assert held(source, "db.theirs") == source.rows()
    part = ["copy", "db.source", "db.theirs", "--filter", "k > 1"]
    refused = program(*part)
    assert refused.code == 2 and "or give --replace, so that the state of SOURCE replaces it.\n" in refused.err
    assert program(*part, "--replace").code == 0
    assert held(source, "db.theirs") == [(2, "v2"), (3, "v3")]


def test_the_advice_for_a_source_that_was_rolled_back_works(program: Program, source: Table) -> None:
    grown(source, rows(4), rows(5))
    assert program("copy", "db.source", "db.copy", "--create").code == 0
    handle = source.catalog.get_table("db.source")
    handle.rollback_to(1)
    refused = program("copy", "db.source", "db.copy")
    advice = "Give --replace and another --commit-user, so that the state of SOURCE replaces the rows of TARGET.\n"
    assert refused.code == 1 and refused.err.endswith(advice) and "--start" not in refused.err
    assert program("copy", "db.source", "db.copy", "--replace", "--commit-user", "other").code == 0
    assert held(source, "db.copy") == source.rows() == [(1, "v1"), (2, "v2"), (3, "v3")]


def test_a_part_into_another_warehouse(program: Program, source: Table, tmp_path: Path) -> None:
    other = tmp_path / "other"
    arguments = ["--target-warehouse", str(other), "--create", "--filter", "k > 1", "--columns", "k"]
    assert program("copy", "db.source", "new.part", *arguments, "--create-option", "bucket=3").code == 0
    elsewhere = Program(other, program._capsys)
    found = elsewhere("tail", "new.part", "--until-latest", "--format", "json")
    assert sorted(row["k"] for row in found.records) == [2, 3]
    assert {tuple(row) for row in found.records} == {("_row_kind", "k")}


def test_a_copy_merges_nothing_where_the_changes_are_merged(program: Program, tmp_path: Path) -> None:
    merged = key_value_table(
        tmp_path,
        "merged",
        **{
            "changelog-producer": "lookup",
            "merge-engine": "partial-update",
            "sequence.field": "v",
            "target-file-size": "1 mb",
        },
    )
    program("copy", "db.merged", "db.copy", "--create")
    assert options(merged, "db.copy") == {"bucket": "2", "changelog-producer": "input", "target-file-size": "1 mb"}
    places = {"consumer.expiration-time": "1 d", "scan.max-snapshot.count": "9", "sequence.snapshot-ordering": "true"}
    raw = key_value_table(tmp_path, "raw", **places)
    assert program("copy", "db.raw", "db.raw_copy", "--create").code == 0
    assert options(raw, "db.raw_copy") == {"bucket": "2", "sequence.snapshot-ordering": "true"}


def test_a_copy_has_the_dynamic_buckets_of_its_source(program: Program, tmp_path: Path) -> None:
    dynamic = key_value_table(tmp_path, "dynamic", bucket="-1")
    grown(dynamic, rows(1, 2))
    assert program("copy", "db.dynamic", "db.copy", "--create").code == 0
    assert options(dynamic, "db.copy") == {"bucket": "-1"} and held(dynamic, "db.copy") == dynamic.rows()


def test_tail_and_copy_follow_or_end_by_the_same_flags(program: Program, source: Table) -> None:
    for name in ("tail", "copy"):
        command = subcommands(commands)[name]
        assert {"--follow", "--until-latest"} in [{*each.opts, *each.secondary_opts} for each in command.params]
    for ends in ((), ("--until-latest",), ("--follow", "--until-latest")):
        assert program("copy", "db.source", "db.copy", "--create", *ends).code == 0
        assert program("tail", "db.copy", "--format", "json", *ends).code == 0
    assert program("tail", "db.copy", "--until-latest", "--follow", "--rows", "3", "--format", "json").code == 0
    assert held(source, "db.copy") == source.rows()


def test_it_follows_until_it_is_ended(program: Program, source: Table, tmp_path: Path) -> None:
    snapshots = tmp_path / "db.db" / "copy" / "snapshot"

    def change_and_end() -> None:
        for number in (1, 2):
            while not (snapshots / f"snapshot-{number}").exists():
                pass
            if number == 1:
                grown(source, rows(7))
        os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(change_and_end)
        found = program("copy", "db.source", "db.copy", "--create", "--follow", "--poll", "0.01")
        waiting.result()
    assert found == Outcome(0, "db.source -> db.copy: 2 commits; it holds db.source before snapshot 3\n", "")
    assert held(source, "db.copy") == source.rows()


def test_a_copy_that_was_stopped_before_its_end_is_not_a_success() -> None:
    running = Running[Any]()
    running.check_end(follow=False)
    running.stop()
    running.check_end(follow=True)
    with pytest.raises(KeyboardInterrupt):
        running.check_end(follow=False)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["db.source", "copy"], 2, "'copy' names no database"),
        (["db.source", "db.copy", "--create-option", "bucket=1"], 2, "--create-option goes with --create"),
        (["db.source", "db.copy", "--create", "--create-option", "write-onli=true"], 2, "Unknown option 'write-onli'"),
        (["db.source", "db.copy"], 1, "table db.copy does not exist"),
        (["db.source", "db.source"], 2, "db.source is the source and the target of the copy"),
        (
            ["db.source", "db.copy", "--create", "--create-option", "x"],
            2,
            "--create-option: expected KEY=VALUE, got 'x'",
        ),
        (["db.moving", "db.copy", "--create"], 2, "keys of the source move between partitions"),
    ],
)
def test_what_cannot_be_copied(
    program: Program, source: Table, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    create_table(source.catalog, "moving", KEYED, primary_keys=["k"], partition_keys=["v"])
    found = program("copy", *arguments)
    assert found.code == code and said in found.err
    assert "copy" not in source.catalog.list_tables("db")
