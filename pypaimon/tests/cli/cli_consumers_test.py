"""`paimon-stream consumers`: list, show, reset, delete and clear."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import ConsumerManager
from pypaimon.streaming.consumers.consumer_manager import Consumer
from pypaimon.streaming.consumers.consumer_names import ConsumerName
from support.docs.cli_runs import Program
from support.tables.orders import catalog, orders
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow


@pytest.fixture
def manager(tmp_path: Path) -> ConsumerManager:
    """The consumers of orders with four snapshots: etl in two shards, and a test."""
    table = orders(catalog(tmp_path))
    found = ConsumerManager(table.file_io, table.table_path)
    for name, next_snapshot in (("etl.shard-0-of-2", 2), ("etl.shard-1-of-2", 4), ("test", 5), ("test.first-plan", 3)):
        found.write(ConsumerName.parse(name), Consumer(next_snapshot))
    return found


def test_list_shows_every_file(manager: ConsumerManager, program: Program) -> None:
    found = program("consumers", "list", "db.orders", "--format", "json").records
    assert [(each["id"], each["kind"], each["next_snapshot"], each["lag"]) for each in found] == [
        ("etl", "progress", 2, 3),
        ("etl", "progress", 4, 1),
        ("test", "progress", 5, 0),
        ("test", "first plan", 3, 2),
    ]
    assert found[1]["shard"] == {"index": 1, "count": 2}
    assert len(program("consumers", "list", "db.orders").lines) == 5


def test_show_shows_one(manager: ConsumerManager, program: Program) -> None:
    found = program("consumers", "show", "db.orders", "etl", "--format", "json").records
    assert [each["consumer"] for each in found] == ["etl.shard-0-of-2", "etl.shard-1-of-2"]


def test_show_says_what_there_is(manager: ConsumerManager, program: Program) -> None:
    found = program("consumers", "show", "db.orders", "elt")
    assert (found.code, found.err) == (1, "paimon-stream: db.orders has no consumer 'elt'; it has: etl, test\n")


@pytest.mark.parametrize(("to", "expected"), [("1", 1), ("3", 3), ("5", 5), ("earliest", 1), ("latest", 5)])
def test_reset_moves_every_shard(manager: ConsumerManager, program: Program, to: str, expected: int) -> None:
    found = program("consumers", "reset", "db.orders", "etl", "--to", to, "--yes")
    assert (found.code, found.out) == (0, f"Consumer etl continues at snapshot {expected}.\n")
    assert {info.next_snapshot for info in manager.infos() if info.consumer_id == "etl"} == {expected}


@pytest.mark.parametrize("to", ["0", "6", "-1", "soon"])
def test_reset_refuses_what_the_table_does_not_hold(manager: ConsumerManager, program: Program, to: str) -> None:
    before = manager.consumers()
    assert program("consumers", "reset", "db.orders", "etl", f"--to={to}", "--yes").code == 2
    assert manager.consumers() == before


def test_reset_of_an_id_that_is_not_there_asks(
    manager: ConsumerManager, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("consumers", "reset", "db.orders", "elt", "--to", "3")
    refused = program(*arguments)
    assert (refused.code, manager.list_all_ids()) == (1, ["etl", "test"])
    assert "db.orders has no consumer 'elt'; it has: etl, test; with --yes it is created" in refused.err
    for answer, ids in (("n", ["etl", "test"]), ("y", ["elt", "etl", "test"])):
        master, slave = os.openpty()
        os.write(master, f"{answer}\n".encode())
        with os.fdopen(slave, closefd=True) as terminal:
            monkeypatch.setattr(sys, "stdin", terminal)
            asked = program(*arguments)
        os.close(master)
        assert (asked.code, manager.list_all_ids()) == (0 if answer == "y" else 130, ids)
        assert "Create it, to start at snapshot 3?" in asked.err
    assert program("consumers", "reset", "db.orders", "new", "--to", "3", "--yes").code == 0


def test_delete_deletes_one(manager: ConsumerManager, program: Program) -> None:
    assert program("consumers", "delete", "db.orders", "etl", "--yes").code == 0
    assert manager.list_all_ids() == ["test"]


def test_clear_matches_whole_ids(manager: ConsumerManager, program: Program) -> None:
    assert program("consumers", "clear", "db.orders", "te", "--yes").out == "0 deleted.\n"
    assert program("consumers", "clear", "db.orders", ".*", "--except", "e.*", "--yes").out == "1 deleted: test.\n"
    assert manager.list_all_ids() == ["etl"]


def test_what_was_done_comes_as_json_too(manager: ConsumerManager, program: Program) -> None:
    def done(command: str, *arguments: str) -> list[dict[str, Any]]:
        return program("consumers", command, "db.orders", *arguments, "--yes", "--format", "json").records

    assert done("reset", "etl", "--to", "3") == [{"id": "etl", "next_snapshot": 3}]
    assert done("delete", "etl") == [{"id": "etl", "deleted_files": 2}]
    assert done("clear", ".*") == [{"deleted": ["test"]}]


def test_an_invalid_pattern_is_refused(manager: ConsumerManager, program: Program) -> None:
    found = program("consumers", "clear", "db.orders", "(", "--yes")
    assert found.code == 2
    assert "invalid regular expression" in found.err


@pytest.mark.parametrize("command", [("reset", "etl", "--to", "3"), ("delete", "etl"), ("clear", ".*")])
def test_nothing_happens_without_a_yes(
    manager: ConsumerManager, program: Program, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = manager.consumers()
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    found = program("consumers", command[0], "db.orders", *command[1:])
    assert found.code == 130
    assert "db.orders" in found.err
    assert manager.consumers() == before


def test_long_lived_changelogs_count(tmp_path: Path, program: Program) -> None:
    table = Table(tmp_path, changelog__num_retained__max="90", snapshot__num_retained__max="9")
    table.commit_each(range(4))
    with table.builder().with_start("earliest").with_consumer_id("etl").with_end(snapshot_id=2).open_sync() as stream:
        assert list(stream)
    (table.path / "changelog").mkdir()
    for number in (1, 2):
        table.snapshot_path(number).rename(table.path / "changelog" / f"changelog-{number}")
    (table.path / "snapshot" / "EARLIEST").write_text("3")

    def state() -> str:
        return str(program("consumers", "list", "db.t", "--format", "json").records[0]["state"])

    assert state() == "ok"
    changelog = table.path / "changelog" / "changelog-2"
    changelog.write_text(json.dumps({**json.loads(changelog.read_text()), "commitUser": "another", "uuid": "another"}))
    assert state() == "rolled back"
    for to in ("1", "earliest"):
        found = program("consumers", "reset", "db.t", "etl", "--to", to, "--yes")
        assert (found.code, found.out) == (0, "Consumer etl continues at snapshot 1.\n")
