"""Ctrl-C ends `paimon-stream` at any moment without a stack: in imports, in a run, on another thread, at the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

INTERRUPTED = 130

_PROGRAM = """
import atexit, os, signal, sys

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

class Finder:
    "Interrupts the import of a module."
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            interrupt()

class Trash:
    def __del__(self):
        interrupt()
        sum(range(1000))

if {module!r} == "atexit":
    atexit.register(interrupt)
sys.meta_path.insert(0, Finder())
from paimon_stream import main
if {module!r} in ("finalizer", "finalizer before a wait"):
    import threading
    from pypaimon.streaming.cli import app
    run = app.run
    def run_with_trash():
        Trash()
        if {module!r} == "finalizer before a wait":
            threading.Event().wait()
        return run()
    app.run = run_with_trash
sys.argv = ["paimon-stream", "tail", "db.t", "--follow", *{arguments!r}, "--warehouse", {warehouse!r}]
main()
"""


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("warehouse")
    Table(home).commit([1])
    return home


def ended(warehouse: Path, module: str, *arguments: str) -> tuple[int, str]:
    """How the program ends, and what it says on stderr, where Ctrl-C comes with the import of a module."""
    program = _PROGRAM.format(module=module, arguments=arguments, warehouse=str(warehouse))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr.strip()


@pytest.mark.parametrize(
    "module",
    [
        # While pypaimon and the program are imported; at its first contact with the catalog, on a thread; in a read.
        "pypaimon",
        "pypaimon.streaming",
        "pypaimon.streaming.cli.app",
        "pypaimon.streaming.cli.tail",
        "pypaimon.filesystem.local_file_io",
        "pypaimon.streaming.batches.batch_stream",
        "finalizer",
        "finalizer before a wait",
    ],
)
def test_an_interrupt_ends_it_without_a_stack(warehouse: Path, module: str) -> None:
    code, err = ended(warehouse, module)
    assert (code, err) == (INTERRUPTED, "")


def test_the_program_as_a_module_imports_pypaimon_after_the_handler_is_in_place(warehouse: Path) -> None:
    program = "import runpy, sys\nsys.argv = ['paimon-stream', '--version']\nrunpy.run_module('paimon_stream')\n"
    program += "assert not any(name.startswith('pypaimon') for name in sys.modules), 'imported before main'"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_an_interrupt_at_the_end_says_nothing(warehouse: Path) -> None:
    code, err = ended(warehouse, "atexit", "--until-latest")
    assert code in (0, INTERRUPTED) and err == ""
