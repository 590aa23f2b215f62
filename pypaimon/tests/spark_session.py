"""Real Spark for tests: one session per run, on this machine's Java or one that pip installs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from java_home import java_home

ROOT = Path(__file__).parents[2]
NO_WORKER = "Python worker failed to connect back"
"""What Spark says where a Python process took more than ten seconds to start; no option makes that more."""
CONFIGURATION = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    # A busy machine needs more than 15 seconds to start a Python worker.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timeType.enabled": "true",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.log.level": "OFF",
}


def environment(directory: Path) -> dict[str, str]:
    """What a process needs to start Spark with this Python, `format("pypaimon")` found by itself.

    Spark looks for modules named `pyspark_*` in directories, so that it does not see an editable install: a directory
    with nothing but that module stands in for site-packages.

    Args:
        directory: An empty directory.
    """
    (directory / "pyspark_pypaimon.py").write_bytes((ROOT / "pyspark_pypaimon.py").read_bytes())
    return {
        "JAVA_HOME": str(java_home()),
        "PYTHONPATH": str(directory),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TZ": "UTC",
    }


def new_session(directory: Path, **configuration: str) -> Any:
    """A session that keeps its files below a directory, which is emptied by nobody else."""
    from pyspark.sql import SparkSession

    modules = directory / "modules"
    modules.mkdir(parents=True)
    os.environ.update(environment(modules))
    builder = SparkSession.builder.config("spark.sql.warehouse.dir", str(directory / "spark-warehouse"))
    for key, value in {**CONFIGURATION, **configuration}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
