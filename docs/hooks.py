"""What `mkdocs build` needs before it reads the sources: `pypaimon` as one package, with ours in it and nothing else.

The installed pypaimon would be found in place of our directory, which has no `__init__.py`.
"""

from __future__ import annotations

import shutil
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
