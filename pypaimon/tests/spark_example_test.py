"""The example pipeline runs, twice in a row on the same directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from spark_session import ROOT, quick_environment

pytestmark = pytest.mark.xdist_group("spark")


def test_the_example_pipeline_goes_on_where_it_ended(tmp_path: Path) -> None:
    spark = tmp_path / "spark"
    spark.mkdir()
    command = (sys.executable, str(ROOT / "examples" / "spark_pipeline.py"), str(tmp_path))
    variables = {**os.environ, **quick_environment(spark)}
    result = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert result.returncode == 0, result.stderr
    assert "customer" in result.stdout
