"""Where things are in this repository and the cache folder, and how a helper is run as a program of its own."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
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


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """`pypaimon-streaming` in `XDG_CACHE_HOME`, or in `~/.cache`."""
    base = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "pypaimon-streaming")


def cached(name: str, content: bytes, build: Callable[[Path], object]) -> Path:
    """A directory of the cache folder, which `build` fills at its first use.

    Processes may ask for it at the same time: it appears as a whole or not at all.
    """
    folder = cache_folder()
    target = folder / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            draft = Path(scratch) / "draft"
            draft.mkdir()
            build(draft)
            try:
                draft.rename(target)
            except OSError:
                if not target.exists():  # otherwise another process was faster
                    raise
    return target


def load_example(name: str) -> Any:
    """A program of `examples/` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
