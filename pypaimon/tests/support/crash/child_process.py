"""Programs that follow a table in a process of their own, with warnings as errors."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from support import programs
from support.repository import TESTS

_PROLOGUE = """
import os, signal, sys, threading
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from support.stores.fault_file_io import FaultFileIO
from support.tables.streamed_table import Table, available
table = object.__new__(Table)
from pypaimon import CatalogFactory
table.catalog = CatalogFactory.create({"warehouse": sys.argv[2]})
table.name = "db.t"
"""


def run(tmp_path: Path, body: str) -> subprocess.Popen[str]:
    """Start a program; `table` in it is the table `db.t` of the warehouse `tmp_path/w`."""
    program = _PROLOGUE + textwrap.dedent(body)
    command = [sys.executable, "-W", "error", "-c", program, str(TESTS), str(tmp_path / "w")]
    return programs.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def first_lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]
