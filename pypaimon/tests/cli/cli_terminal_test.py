"""`paimon-stream` on a terminal and in a pipe, with and without UTF-8."""

from __future__ import annotations

import io
import os
import pty
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pypaimon.streaming.cli.progress_bars import CatchUpBar
from support.docs.cli_runs import PROGRAM, Program
from support.samples import some
from support.tables.orders import catalog, change, create_orders

pytestmark = [pytest.mark.slow, pytest.mark.soak]

tail = import_module("pypaimon.streaming.cli.tail")
ASCII = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TERM": "xterm", "COLUMNS": "200"}


@pytest.fixture
def table(tmp_path: Path) -> Any:
    found = create_orders(catalog(tmp_path))
    change(found, "+I", (1, "ü", 1.5), (2, "x" * 70, None))
    return found


def command(warehouse: Path, form: str) -> list[str]:
    arguments = ("tail", "db.orders", "--until-latest", "--columns", "id,status", "-f", form)
    return [*PROGRAM, *arguments, "-w", str(warehouse)]


def test_a_terminal_without_utf_8(table: Any, tmp_path: Path) -> None:
    master, slave = pty.openpty()
    with subprocess.Popen(command(tmp_path, "table"), stdin=slave, stdout=slave, stderr=slave, env=ASCII) as program:
        os.close(slave)
        shown = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:
                break
            shown += piece
    os.close(master)
    assert program.returncode == 0, shown
    assert shown.isascii()
    assert rb"\xfc" in shown
    assert b"x" * 57 + b"..." in shown
    assert b"Traceback" not in shown


FORMS = [("json", '"status":"\\u00fc"'), ("csv", "+I,1,ü")]


@pytest.mark.parametrize(("form", "text"), some("pipes without UTF-8", FORMS, 1))
def test_a_pipe_without_utf_8(table: Any, tmp_path: Path, form: str, text: str) -> None:
    found = subprocess.run(command(tmp_path, form), capture_output=True, env=ASCII, timeout=600, check=False)
    assert (found.returncode, found.stderr) == (0, b"")
    assert text.encode() in found.stdout


def shown(happens: Callable[[CatchUpBar], None]) -> str:
    """The text next to the bar at the end."""
    out = io.StringIO()
    with CatchUpBar(Console(file=out, force_terminal=True, color_system=None, width=200)) as bar:
        happens(bar)
    return out.getvalue()


def test_the_bar_counts_rows_inside_a_plan_and_snapshots_after_it() -> None:
    def large_plan(bar: CatchUpBar) -> None:
        bar.rows(1_500, 4_000)

    def second_of_ten(bar: CatchUpBar) -> None:
        bar.reached(1, 4_000, lambda: 10)
        bar.reached(2, 4_100, lambda: 10)

    assert "catching up" in shown(large_plan)
    assert "1,500 of at most 4,000 rows" in shown(large_plan)
    assert "2/10 snapshots, 4,100 rows" in shown(second_of_ten)


def test_tail_updates_the_bar_of_a_large_plan(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows of its files are a plan that comes in several batches."""
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(CatchUpBar, "rows", lambda self, count, planned: calls.append((count, planned)))
    monkeypatch.setattr(tail, "_BATCH_BYTES", 1)
    change(table, "+I", *((key, "placed", 1.0) for key in range(3, 9)))
    found = Program(tmp_path, capsys)("tail", "db.orders", "--until-latest", "-f", "json")
    assert (found.code, len(found.records)) == (0, 8)
    counts = [count for count, _ in calls]
    assert counts == sorted(counts)
    assert 0 < counts[0] < 8
    assert {planned for _, planned in calls} == {8}
