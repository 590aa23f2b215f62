"""`paimon-stream tail --group`: members print the rows of their slots, and continue where others have confirmed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from support.docs.cli_runs import Program
from support.tables.orders import catalog, change, create_orders

pytestmark = pytest.mark.slow


def test_the_next_member_continues_where_the_one_before_has_confirmed(tmp_path: Path, program: Program) -> None:
    table = create_orders(catalog(tmp_path))
    for key in range(1, 4):
        change(table, "+I", (key, "placed", 1.5))
    arguments = (
        "tail",
        "db.orders",
        "--follow",
        "--group",
        "g",
        "--start",
        "earliest",
        "--columns",
        "id",
        "-f",
        "json",
        "-n",
    )
    first = program(*arguments, "2")
    assert first.code == 0
    assert [row["id"] for row in first.records] == [1, 2]
    assert "assigned slots 0" in first.err
    # The last batch was not confirmed, because no further batch was asked for.
    second = program(*arguments, "2")
    assert [row["id"] for row in second.records] == [2, 3]


def test_a_member_that_is_asked_to_end_has_confirmed_what_it_printed(tmp_path: Path, program: Program) -> None:
    table = create_orders(catalog(tmp_path))
    change(table, "+I", (1, "placed", 1.5))
    running = program.start(
        "tail", "db.orders", "--follow", "--group", "g", "--member", "a", "-f", "json", "--columns", "id"
    )
    assert running.stdout is not None
    assert json.loads(running.stdout.readline()) == {"_row_kind": "+I", "id": 1}
    shown = program("consumers", "show", "db.orders", "g")
    assert (shown.code, "a" in shown.out) == (0, True), shown
    running.send_signal(signal.SIGTERM)
    _, errors = running.communicate(timeout=120)
    assert "assigned slots 0" in errors
    assert running.returncode == 0, errors
    # What was printed is confirmed, and the member has left.
    change(table, "+I", (2, "placed", 1.5))
    (row,) = program(
        "tail", "db.orders", "--follow", "--group", "g", "-n", "1", "-f", "json", "--columns", "id"
    ).records
    assert row["id"] == 2


def test_until_latest_ends_where_the_group_has_come_to_it(tmp_path: Path, program: Program) -> None:
    table = create_orders(catalog(tmp_path))
    for key in (1, 2):
        change(table, "+I", (key, "placed", 1.5))
    arguments = ("tail", "db.orders", "--group", "g", "--until-latest", "-f", "json", "--columns", "id")
    assert sorted(row["id"] for row in program(*arguments).records) == [1, 2]
    change(table, "+I", (3, "placed", 1.5))
    assert [row["id"] for row in program(*arguments).records] == [3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--group", "g", "--consumer-id", "c"), "--consumer-id does not go with --group"),
        (("--group", "g", "--commits"), "--commits does not go with --group"),
        (("--member", "a"), "--member goes with --group"),
        (("--group", "../g"), "../g"),
    ],
)
def test_what_does_not_go_with_a_group_is_refused(
    tmp_path: Path, program: Program, arguments: tuple[str, ...], message: str
) -> None:
    create_orders(catalog(tmp_path))
    found = program("tail", "db.orders", *arguments)
    assert found.code == 2
    assert message in found.err
