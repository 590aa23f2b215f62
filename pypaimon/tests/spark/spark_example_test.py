"""The example pipeline runs, twice in a row on the same directory."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.spark.session import ATTEMPTS, NO_WORKER, QUICK, ROOT, quick_environment

pytestmark = pytest.mark.spark


@pytest.mark.nightly
def test_the_example_pipeline_continues_where_it_ended(tmp_path: Path) -> None:
    spark = tmp_path / "spark"
    spark.mkdir()
    # What a busy machine needs, without a word of it in the example.
    settings = shlex.join(f"--conf={key}={value}" for key, value in QUICK.items())
    variables = {**os.environ, **quick_environment(spark), "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell"}
    for attempt in range(ATTEMPTS):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        command = (sys.executable, str(ROOT / "examples" / "spark_pipeline.py"), str(directory))
        result = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=900)
        if NO_WORKER not in result.stderr:
            break
    assert result.returncode == 0, result.stderr
    assert "customer" in result.stdout
