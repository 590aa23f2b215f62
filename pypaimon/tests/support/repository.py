"""Where things are in this repository, and how a helper is run as a program of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SUPPORT = Path(__file__).parent
TESTS = SUPPORT.parent
ROOT = TESTS.parents[1]


def program(module: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    """The command that runs a module of `support` in a process of its own; `options` are those of Python."""
    return [sys.executable, *options, str(SUPPORT / "run.py"), module, *arguments]


def read_toml(path: Path) -> dict[str, Any]:
    """What a TOML file holds."""
    return tomllib.loads(path.read_text(encoding="utf-8"))
