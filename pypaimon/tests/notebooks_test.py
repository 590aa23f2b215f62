"""The notebooks run from top to bottom; what they claim they assert."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    code = "import sys; from nbclient.cli import NbClientApp; NbClientApp.launch_instance(sys.argv[1:])"
    command = [sys.executable, "-c", code, "--timeout=120", f"--output={tmp_path / 'done'}", str(notebook)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr[-3000:]


def test_notebooks_are_kept_without_what_they_printed() -> None:
    assert len(NOTEBOOKS) >= 3
    assert [path.name for path in NOTEBOOKS if '"output_type"' in path.read_text(encoding="utf-8")] == []
