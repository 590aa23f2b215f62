"""The distribution beside pypaimon in one directory, as `pip install` leaves it: Spark finds the format by its name.

In a classic session, and with Spark Connect; each is a Spark of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pypaimon
import pytest

from support.java.home import java_home
from support.repository import program
from support.spark.session import unpacked_home

pytest.importorskip("pyspark", reason="Spark's tests run where pyspark is installed")

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SESSIONS = [("classic", "pyspark.sql.session"), ("connect", "pyspark.sql.connect.session")]
CHILD = "support.spark.installed_child"


@pytest.fixture(scope="module")
def site_packages(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pypaimon and, out of its wheel, the distribution."""
    target = tmp_path_factory.mktemp("site-packages")
    _run(sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(target), *distributions.glob("*.whl"))
    home = Path(str(pypaimon.__file__)).parent
    ours = shutil.ignore_patterns("streaming", "spark")
    shutil.copytree(home, target / "pypaimon", ignore=lambda at, names: ours(at, names) if at == str(home) else set(),
                    dirs_exist_ok=True)  # fmt: skip
    return target


def _run(*command: str | Path, **variables: str) -> str:
    environment = {**os.environ, **variables}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.mark.parametrize(("kind", "module"), SESSIONS)
def test_the_format_is_there_after_an_installation(kind: str, module: str, site_packages: Path, tmp_path: Path) -> None:
    if kind == "connect":
        pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
    variables = {
        "JAVA_HOME": str(java_home()),
        "PYTHONPATH": str(site_packages),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(unpacked_home(tmp_path / "spark")),
    }
    where = _run(sys.executable, "-c", "import pypaimon.spark as ours; print(ours.__file__)", **variables)
    assert Path(where.strip()).is_relative_to(site_packages)
    shown = _run(*program(CHILD, kind, str(tmp_path)), **variables)
    assert f"{module} [(1, 'v1'), (2, 'v2')]" in shown
    if kind == "connect":
        assert "pipeline [(2, 'v2')]" in shown
