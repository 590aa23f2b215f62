"""The first hour of five people, typed from the README and the pages: `make first-hours` prints what came, and when.

Each begins with a fresh clone, HOME and virtual environment. A step names the page that says what is typed; nothing
else is typed, but for what `OWN` holds: a person's own tools.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support.docs.doc_pages import HOME, blocks
from support.repository import ROOT

OWN = "a person's own tools"
STEP_SECONDS = 1200
"""A step that takes longer is ended."""
_OF_THIS_PROCESS = ("PYTHON", "VIRTUAL_ENV", "XDG")
"""How variables begin that a person does not have."""


@dataclass(frozen=True)
class Step:
    """One thing that is typed.

    Attributes:
        page: Where it stands, from the root of the repository; or `OWN`.
        typed: A command, or the beginnings of blocks of Python.
        shows: What has to be printed.
        kind: `sh`, a `program`, or the cells of a `notebook`.
        is_endless: It is ended once it has printed `shows`.
    """

    page: str
    typed: tuple[str, ...]
    shows: str = ""
    kind: str = "sh"
    is_endless: bool = False

    def code(self) -> list[str]:
        """The command, or the blocks, as the page has them.

        Raises:
            LookupError: The page does not have them.
        """
        if self.page == OWN:
            return [*self.typed]
        page = ROOT / self.page
        if self.kind == "sh":
            (command,) = self.typed
            if command not in page.read_text(encoding="utf-8"):
                raise LookupError(f"{self.page} does not say: {command}")
            return [command]
        found = [block.text for block in blocks(page) if block.language == "python"]
        chosen = [text for words in self.typed for text in found if words in text]
        if len(chosen) != len(self.typed):
            raise LookupError(f"{self.page} has not one block each with {self.typed}")
        return chosen


def sh(page: str, command: str, shows: str = "") -> Step:
    return Step(page, (command,), shows)


def program(page: str, *words: str, shows: str = "", is_endless: bool = False) -> Step:
    return Step(page, words, shows, "program", is_endless)


def notebook(page: str, *words: str, shows: str = "") -> Step:
    return Step(page, words, shows, "notebook")


README, INDEX, SHELL, TARGETS = "README.md", "docs/index.md", "docs/command-line.md", "docs/targets.md"
INSTALL = sh(README, "pip install .")
TABLES = sh(README, "python -m pypaimon.streaming.example_tables /path/to/warehouse", "db.events")
CLI = (sh(INDEX, "pip install '.[cli]'"), sh(INDEX, "export PAIMON_STREAM_WAREHOUSE=/path/to/warehouse"))
JUPYTER = sh(OWN, "pip install nbclient ipykernel")

HOURS: dict[str, tuple[Step, ...]] = {
    "backend engineer": (
        INSTALL,
        TABLES,
        program(README, "asyncio.run(", shows="4 pyarrow.Table", is_endless=True),
        sh(README, "pip install '.[duckdb]'"),
        program(README, "DuckDBTarget("),
        program("docs/operations.md", "print(batch.rows.to_pylist())", shows="[{'id': 1, 'status': 'paid'}]"),
        *CLI,
        sh(INDEX, "paimon-stream tail db.orders --start 2 --columns id,status", "4  -D   2  placed"),
    ),
    "data scientist": (
        INSTALL,
        TABLES,
        JUPYTER,
        sh(OWN, "jupyter execute docs/notebooks/first-steps.ipynb"),
        notebook(INDEX, "for row in batch.data.to_pylist()", shows="BlockingBatch(2 rows, full of snapshot 1)"),
        sh("docs/reading.md", "pip install '.[duckdb]'"),
        notebook(
            "docs/reading.md", "catalog = CatalogFactory", "scan_changes", shows="[('-U', 1), ('+U', 1), ('-D', 2)]"
        ),
    ),
    "data engineer with Spark": (
        sh("docs/spark.md", "pip install '.[spark]'"),
        TABLES,
        program(
            "docs/spark.md",
            "print(orders.schema.simpleString())",
            "def last_of_each_key",
            "def read(**more)",
            "orders.writeStream.format",
            "CREATE TABLE IF NOT EXISTS orders",
            shows="|  1|  paid|",
        ),
    ),
    "operator of tables": (
        *CLI,
        TABLES,
        sh(SHELL, "paimon-stream tables", "orders"),
        sh("docs/operations.md", "paimon-stream doctor db.orders", "ok"),
        sh(SHELL, "paimon-stream snapshots db.orders"),
        sh(SHELL, "paimon-stream files db.orders"),
        sh("docs/operations.md", "paimon-stream tail db.orders --consumer-id night --format json", '"status"'),
        sh("docs/operations.md", "paimon-stream lag db.orders --max-lag 5m", "night"),
        sh(SHELL, "paimon-stream consumers list db.orders", "night"),
        sh("docs/maintenance.md", "paimon-stream maintain db.orders --dry-run"),
        sh("docs/compaction.md", "paimon-stream compact db.orders"),
        sh(SHELL, "paimon-stream tag create db.orders before-migration --snapshot 2 --retention 30d"),
        sh(SHELL, "paimon-stream tag list db.orders --json", "before-migration"),
        sh("docs/maintenance.md", "paimon-stream rollback db.orders --to-snapshot 2 --dry-run"),
    ),
    "maintainer of a neighbouring project": (
        INSTALL,
        TABLES,
        JUPYTER,
        notebook("docs/comparison.md", "scan.stream()", shows="4 1"),
        program(TARGETS, "print(orders.rows)", "class SqliteCopy", shows="[(1, 'paid')]"),
        sh("CONTRIBUTING.md", "make check WHERE=planning", "passed"),
    ),
}


class Hour:
    """A person at a fresh machine: a home, a clone below it, and an environment in the clone."""

    def __init__(self, directory: Path, report: Callable[[str], None]) -> None:
        self._home, self._report = directory / "home", report
        self._clone, self._work = self._home / "pypaimon-streaming", self._home / "work"
        self._work.mkdir(parents=True)
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self._variables = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("PYTHON", "VIRTUAL_ENV", "XDG"))
            },
            "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(caches / "pip")),
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(caches / "uv")),
            "HOME": str(self._home),
            "PATH": f"{self._home}/venv/bin{os.pathsep}{os.environ['PATH']}",
        }
        self._begin = time.monotonic()

    def run(self, steps: tuple[Step, ...]) -> None:
        """Type everything.

        Raises:
            AssertionError: A step failed, or printed something else.
        """
        for command in (f"git clone --quiet {ROOT} {self._clone}", f"{sys.executable} -m venv {self._home}/venv"):
            self._type(Step(OWN, (command,)), command, self._home)
        for number, step in enumerate(steps):
            code = [text.replace(HOME, str(self._work)) for text in step.code()]
            if step.kind == "sh":
                self._command(step, code[0])
            elif step.kind == "program":
                self._work.joinpath(f"program_{number}.py").write_text("\n\n".join(code))
                self._type(step, f"python -u program_{number}.py", self._work)
            else:
                self._notebook(step, code, self._work / f"notebook_{number}.ipynb")

    def _command(self, step: Step, command: str) -> None:
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self._variables[name] = value
            self._report(f"$ {command}\n")
        else:
            in_clone = command.startswith(("pip ", "make ", "jupyter "))
            self._type(step, command, self._clone if in_clone else self._work)

    def _notebook(self, step: Step, code: list[str], path: Path) -> None:
        cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
        cells = [{**cell, "id": f"cell-{number}", "source": text} for number, text in enumerate(code)]
        path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
        self._type(Step(step.page, step.typed), f"jupyter execute --inplace {path.name}", self._work)
        outputs = [output for each in json.loads(path.read_text())["cells"] for output in each["outputs"]]
        printed = "".join("".join(output.get("text", ())) for output in outputs)
        self._report(printed)
        assert step.shows in printed, f"{step} printed {printed!r}"

    def _type(self, step: Step, command: str, directory: Path) -> None:
        """Run a command until it ends, or has printed what an endless one shows."""
        self._report(f"$ {command}\n")
        begun, printed = time.monotonic(), ""
        with subprocess.Popen(
            command,
            shell=True,
            executable="/bin/bash",
            cwd=directory,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as running:
            assert running.stdout is not None
            limit = threading.Timer(STEP_SECONDS, os.killpg, (running.pid, 9))
            limit.start()
            for line in running.stdout:
                printed += line
                self._report(f"  {line}")
                if step.is_endless and step.shows in line:
                    os.killpg(running.pid, 9)
                    break
            limit.cancel()
        now = time.monotonic()
        self._report(f"  [{now - begun:.1f} s; {now - self._begin:.0f} s in all]\n")
        assert step.is_endless or running.returncode == 0, f"{command} ended with {running.returncode}:\n{printed}"
        assert step.shows in printed, f"{command} did not print {step.shows!r}:\n{printed}"


def main() -> None:
    """Print the hours of the roles whose names contain an argument; of all without one."""
    for role, steps in HOURS.items():
        if not sys.argv[1:] or any(word in role for word in sys.argv[1:]):
            sys.stdout.write(f"\n=== {role} ===\n")
            with tempfile.TemporaryDirectory() as directory:
                Hour(Path(directory), lambda text: print(text, end="", flush=True)).run(steps)


if __name__ == "__main__":
    main()
