"""The pages of the documentation, and running what stands in their blocks of code."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

from pypaimon.streaming.cli.app import run
from support import programs
from support.repository import ROOT
from support.spark.session import ATTEMPTS, NO_WORKER

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md"])
ON_SPARK = [page for page in PAGES if page.stem.startswith("spark")]
_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_NOT_RUN = re.compile(r"(pip|make|git|cd|python -m pypaimon.streaming.example_tables|#|$)")
HOME = "/path/to"
"""The directory of the warehouse, as pages write it."""
STORE = "http://localhost:9000"
"""The endpoint of an S3 server, as pages write it."""


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    content = page.read_text(encoding="utf-8")
    return [
        Block(match[2], textwrap.dedent(match[3]), content.count("\n", 0, match.start()) + 2)
        for match in _BLOCK.finditer(content)
    ]


def of_section(page: Path, title: str) -> list[Block]:
    """The blocks below a heading of the second level, up to the next one."""
    lines = page.read_text(encoding="utf-8").splitlines()
    first = lines.index(f"## {title}") + 1
    last = next((number for number, line in enumerate(lines[first:], first + 1) if line.startswith("## ")), len(lines))
    return [block for block in blocks(page) if first < block.line <= last]


def run_section(page: Path, title: str, warehouse: Path) -> dict[str, Any]:
    """Run the Python of a section as one module; gives what it defines."""
    code = "".join(block.text for block in of_section(page, title) if block.language == "python")
    namespace: dict[str, Any] = {"__name__": f"section_{title}"}
    exec(code.replace(HOME, str(warehouse.parent)), namespace)
    return namespace


def run_page(page: Path, warehouse: Path, loop: asyncio.AbstractEventLoop, store: str = STORE) -> None:
    """Run the blocks of a page; what they print must stand behind them."""
    with mock.patch.dict(os.environ):
        _run_blocks(page, warehouse, loop, store)


def _run_blocks(page: Path, warehouse: Path, loop: asyncio.AbstractEventLoop, store: str) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    found = [*blocks(page), Block("end", "", 0)]
    for block, following in pairwise(found):
        text = block.text.replace(HOME, str(warehouse.parent)).replace(STORE, store)
        where = f"{page.name}:{block.line}"
        expected = _comparable(following.text) if following.language == "text" else None
        if block.language == "python":
            whole = "asyncio.run(" in text
            printed = run_program(text, len(expected or [""])) if whole else run_python(text, where, namespace, loop)
        elif block.language == "sh":
            printed = run_commands(text, where, warehouse)
        else:
            continue
        assert expected in (None, _comparable(printed)), f"{where} prints\n{printed}"


def _comparable(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def run_program(text: str, lines: int) -> str:
    """The first lines that a program prints, which then may go on for ever."""
    with programs.Popen([sys.executable, "-u", "-c", text], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        printed = "".join(program.stdout.readline() for _ in range(lines))
        program.kill()
    assert printed
    return printed


def run_python(text: str, where: str, namespace: dict[str, Any], loop: asyncio.AbstractEventLoop) -> str:
    """What a block prints. It runs again where this machine was too slow to begin a query of Spark."""
    code = compile(text, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for attempt in range(ATTEMPTS):
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                result = eval(code, namespace)
                if inspect.iscoroutine(result):
                    loop.run_until_complete(result)
            break
        except Exception as error:
            if NO_WORKER not in str(error) or attempt == ATTEMPTS - 1:
                raise
    return out.getvalue()


def run_commands(text: str, where: str, warehouse: Path) -> str:
    """What the commands of `paimon-stream` print; others (pip, make, what made the tables) are not run here."""
    printed = ""
    config = Path("paimon.yaml")
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("paimon-stream "):
            if not config.exists():
                config.write_text(f"warehouse: {warehouse}\n")
            out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = run(shlex.split(line, comments=True)[1:])
            outputs = []
            for each in (out, err):
                each.seek(0)
                outputs.append(each.read())
            assert code == 0, f"{where}: {line}\n{outputs[1]}"
            printed += outputs[0]
        elif line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            os.environ[name] = value
        else:
            assert _NOT_RUN.match(line), f"{where}: {line} is never run"
    return printed
