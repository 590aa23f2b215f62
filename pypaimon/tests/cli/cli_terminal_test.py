"""`paimon-stream` on a terminal and in a pipe, with and without UTF-8."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_runs import PROGRAM
from orders import catalog, change, create_orders

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


@pytest.mark.parametrize(("form", "text"), [("json", '"status":"\\u00fc"'), ("csv", "+I,1,ü")])
def test_a_pipe_without_utf_8(table: Any, tmp_path: Path, form: str, text: str) -> None:
    found = subprocess.run(command(tmp_path, form), capture_output=True, env=ASCII, timeout=600, check=False)
    assert (found.returncode, found.stderr) == (0, b"")
    assert text.encode() in found.stdout
