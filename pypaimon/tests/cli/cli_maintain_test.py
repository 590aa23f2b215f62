"""`paimon-stream maintain`: what it prints and deletes, of one table and of several."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.docs.cli_runs import Program
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

LATEST_ONLY = ("--min-snapshots", "1", "--snapshot-age", "0s")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path, "t")
    for key in range(3):
        table.commit([key])
    return table


@pytest.fixture
def program(table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(tmp_path, capsys)


def test_a_dry_run_says_what_a_run_deletes(program: Program, table: Table) -> None:
    planned = json.loads(program("maintain", "db.t", *LATEST_ONLY, "--dry-run", "--json").out)
    assert planned["snapshots"] == [1, 2] and planned["dry_run"] and table.ids() == [1, 2, 3]
    assert "db.t: deleted 2 snapshots (1 to 2)" in program("maintain", "db.t", *LATEST_ONLY).out
    assert table.ids() == [3]
    assert "nothing is due" in program("maintain", "db.*", *LATEST_ONLY).out


@pytest.mark.parametrize(
    "wrong", [("--every", "0s"), ("--every", "soon"), ("--orphans", "1h"), ("--min-snapshots", "0")], ids=" ".join
)
def test_wrong_options_are_refused(program: Program, table: Table, wrong: tuple[str, str]) -> None:
    assert program("maintain", "db.t", *wrong).code == 2
    assert table.ids() == [1, 2, 3]
