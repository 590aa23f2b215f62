"""`paimon-stream` on a chain table: its stream, and the snapshots that this follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.docs.cli_runs import Program
from support.tables.chain_tables import ChainTable, two_regions

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("chain")]


@pytest.fixture
def chain(tmp_path: Path) -> ChainTable:
    return two_regions(tmp_path)


def test_tail_prints_the_first_plan_of_both_branches(program: Program, chain: ChainTable) -> None:
    found = program("tail", "db.t", "--until-latest", "--format", "json")
    assert found.code == 0
    rows = [(row["_row_kind"], row["region"], row["day"], row["k"], row["v"]) for row in found.records]
    assert sorted(rows) == chain.first_plan()


def test_snapshots_are_those_of_the_delta_branch(program: Program) -> None:
    found = program("snapshots", "db.t", "--format", "json")
    assert (found.code, [each["snapshot"] for each in found.records]) == (0, [1, 2, 3])


def test_explain_asks_for_a_branch(program: Program) -> None:
    found = program("explain", "db.t")
    assert found.code == 1 and "db.t$branch_Delta, which a stream follows" in found.err
    assert program("explain", "db.t$branch_Delta").code == 0
