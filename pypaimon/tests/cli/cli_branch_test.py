"""`paimon-stream branch` and `paimon-stream rollback`: what they print, ask and change."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from support.docs.cli_runs import Program
from support.tables.streamed_table import Table

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("table")]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path, "t").commit_each(range(3))
    table.handle().create_tag("v1", 2)
    return table


def test_branches_come_and_go(program: Program, table: Table) -> None:
    assert "Branch b of db.t is created" in program("branch", "create", "db.t", "b", "--tag", "v1").out
    assert program("branch", "rename", "db.t", "b", "c").code == 0
    (record,) = program("branch", "list", "db.t", "--format", "json").records
    assert (record["branch"], record["earliest_snapshot"], record["latest_snapshot"]) == ("c", 2, 2)
    assert "db.t has got 0 snapshots" not in program("branch", "fast-forward", "db.t", "c").out
    assert json.loads(program("branch", "delete", "db.t", "c", "--yes", "--json").out)["branch"] == "c"
    assert "db.t has no branches" in program("branch", "list", "db.t").err
    assert program("branch", "delete", "db.t", "c", "--yes").code == 2


def test_a_branch_without_snapshots_has_blanks(program: Program, table: Table) -> None:
    program("branch", "create", "db.t", "empty")
    assert program("branch", "list", "db.t").out.splitlines()[1].split() == ["empty"]


def test_a_fast_forward_names_what_is_lost(program: Program, table: Table) -> None:
    program("branch", "create", "db.t", "b", "--tag", "v1")
    table.write(table.arrow_rows([9]), table=table.handle(branch="b"))
    refused = program("branch", "fast-forward", "db.t", "b")
    assert refused.code == 2 and "snapshot 3" in refused.err
    assert "--discard-own-commits" in refused.err
    assert "would lose snapshot 3" in program(
        "branch", "fast-forward", "db.t", "b", "--discard-own-commits", "--dry-run"
    ).out  # fmt: skip
    done = program("branch", "fast-forward", "db.t", "b", "--discard-own-commits", "--yes")
    assert "db.t has got 1 snapshot of branch b (the fork is snapshot 2)" in done.out
    assert [row[0] for row in table.rows()] == [0, 1, 9]


def test_a_branch_is_merged(program: Program, table: Table, tmp_path: Path) -> None:
    events = Table(tmp_path, "events")
    events.commit([1])
    program("tag", "create", "db.events", "v1")
    program("branch", "create", "db.events", "b", "--tag", "v1")
    events.write(events.arrow_rows([9]), table=events.handle(branch="b"))
    assert "db.events would get 1 row in 1 file" in program("branch", "merge", "db.events", "b", "--dry-run").out
    assert json.loads(program("branch", "merge", "db.events", "b", "--json").out)["snapshot_id"] == 2
    assert [row[0] for row in events.rows()] == [1, 9]


def test_a_rollback_asks_first(program: Program, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(question: str, **_: object) -> None:
        assert question == "Roll db.t back to snapshot 1?"
        raise click.Abort

    monkeypatch.setattr(click, "confirm", refuse)
    assert program("rollback", "db.t", "--to-snapshot", "1").code == 130 and table.ids() == [1, 2, 3]
    dry = json.loads(program("rollback", "db.t", "--to-tag", "v1", "--dry-run", "--json").out)
    assert dry["deleted_snapshots"] == [3] and dry["dry_run"] and table.ids() == [1, 2, 3]
    assert "deleted: 2 snapshots (2 to 3); 1 tag (v1)" in program("rollback", "db.t", "--to-snapshot", "1", "--yes").out
    assert table.ids() == [1]


def test_a_rollback_as_latest(program: Program, table: Table) -> None:
    assert "db.t: snapshot 4 has the state of snapshot 1" in program(
        "rollback", "db.t", "--to-snapshot", "1", "--as-latest"
    ).out  # fmt: skip
    assert [row[0] for row in table.rows()] == [0]
    assert program("rollback", "db.t", "--to-time", "0s", "--dry-run").code == 0


@pytest.mark.parametrize(
    "wrong", ["", "--to-snapshot 1 --to-tag v1", "--to-time soon", "--to-time 3", "--to-tag x", "--to-snapshot 9"]
)
def test_wrong_choices_are_refused(program: Program, table: Table, wrong: str) -> None:
    assert program("rollback", "db.t", *wrong.split(), "--yes").code == 2
    assert table.ids() == [1, 2, 3]
