"""What `mkdocs build` needs besides the pages: the sources for the reference, and links into the repository.

Sources are `pypaimon` as one package, with ours in it and nothing else. The installed pypaimon would be found in place
of our directory, which has no `__init__.py`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "build" / "reference" / "pypaimon"


def on_startup(**_: Any) -> None:
    """Lay out `build/reference`, which `mkdocs.yml` names."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    SOURCES.mkdir(parents=True)
    (SOURCES / "__init__.py").touch()
    for name in ("streaming", "spark"):
        (SOURCES / name).symlink_to(ROOT / "pypaimon" / name)


def repository() -> str:
    """The address of the clone's `origin` for a browser; of the clone itself, if it has none."""
    command = ("git", "remote", "get-url", "origin")
    origin = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    pattern = r"(?:https?://(?:[^@/]*@)?([^/]+)/|(?:ssh://)?git@([^/:]+)[/:])(.+?)(?:\.git)?/?"
    match = re.fullmatch(pattern, origin)
    return f"https://{match[1] or match[2]}/{match[3]}" if match else ROOT.as_uri()


def on_config(config: Any, **_: Any) -> None:
    """Every page links to the repository."""
    config.repo_url, config.repo_name = repository(), "Repository"


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """Links to files outside of `docs` lead into the repository; that they exist is tested (`docs_test.py`)."""
    files = config.repo_url + ("" if config.repo_url.startswith("file:") else "/blob/HEAD")
    return re.sub(r"\]\(\.\./(?=[\w.])", f"]({files}/", markdown)
