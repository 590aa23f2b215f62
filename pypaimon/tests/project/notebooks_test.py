"""The notebooks run from top to bottom; what they claim they assert.

In `make soak`; that of Ray in `ray_feed_test.py`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.spark.session import ATTEMPTS, NO_WORKER, QUICK, ROOT, quick_environment

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
MARKS = {"spark": [pytest.mark.spark, pytest.mark.nightly], "feeds": [pytest.mark.torch]}
CASES = [
    pytest.param(path, id=path.stem, marks=MARKS.get(path.stem, [pytest.mark.nightly]))
    for path in NOTEBOOKS
    if path.stem != "ray"
]


@pytest.mark.parametrize("notebook", CASES)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    spark = tmp_path / "spark"
    spark.mkdir()
    code = "import sys; from nbclient.cli import NbClientApp; NbClientApp.launch_instance(sys.argv[1:])"
    command = [sys.executable, "-c", code, "--timeout=600", f"--output={tmp_path / 'done'}", str(notebook)]
    # What a busy machine needs, without a word of it in the notebook.
    settings = shlex.join(f"--conf={key}={value}" for key, value in QUICK.items())
    variables = {**os.environ, **quick_environment(spark), "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell"}
    for _ in range(ATTEMPTS):
        result = subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=900, check=False
        )
        if NO_WORKER not in result.stderr:
            break
    assert result.returncode == 0, result.stderr[-3000:]


def test_notebooks_are_kept_without_what_they_printed() -> None:
    assert len(NOTEBOOKS) >= 5
    assert [path.name for path in NOTEBOOKS if '"output_type"' in path.read_text(encoding="utf-8")] == []
