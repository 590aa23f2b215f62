"""What tests keep between runs, in one folder: unpacked corpora, jars, compiled classes, a Java. All of it is named by
what it is made of, so that nothing in it is ever out of date.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """`pypaimon-streaming` in `XDG_CACHE_HOME`, or in `~/.cache`."""
    base = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "pypaimon-streaming")


def cached(name: str, content: bytes, build: Callable[[Path], object]) -> Path:
    """A directory of the cache folder, which `build` fills at its first use.

    Processes may ask for it at the same time: it appears as a whole or not at all.

    Args:
        name: What it is.
        content: What it is made of.
        build: Fills an empty directory.
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
