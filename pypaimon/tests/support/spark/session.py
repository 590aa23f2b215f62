"""Real Spark for tests: one session per run, on this machine's Java or one that pip installs."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

from support.java.home import java_home
from support.programs import ProgramServer
from support.repository import ROOT

FORKED_PYTHON = Path(__file__).with_name("forked_python.py")
_WORKERS = ("create_data_source", "lookup_data_sources", "plan_data_source_read", "data_source_pushdown_filters")
MODULES = (
    "pypaimon.catalog.catalog_factory",
    "pypaimon.spark.source",
    "pypaimon.streaming.read_builder",
    "pyspark.daemon",
    "pyspark.worker",
    *(f"pyspark.sql.worker.{name}" for name in (*_WORKERS, "write_into_data_source", "commit_data_source_write")),
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
)
"""What the Python processes that Spark starts import."""
NO_WORKER = "Python worker failed to connect back"
"""What Spark says where a Python process took more than ten seconds to start; no option makes that more."""
ATTEMPTS = 20
"""How often a query is begun: under a load of fifty on two cores five in a row have failed so."""
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
_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
FEW_ROWS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
"""Queries of a few rows end before the best code that compilers can make would pay."""
QUICK = {
    **CONFIGURATION,
    **FEW_ROWS,
    # The usual one starts `chmod`, `stat` and `readlink` for each file of a checkpoint.
    "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
}
"""The configuration for many short queries."""


def environment(directory: Path) -> dict[str, str]:
    """What a process needs to start Spark with this Python, `format("pypaimon")` found by itself.

    Spark looks for modules named `pyspark_*` in directories. That of an editable install is there if `build_backend.py`
    has made it; a directory with little but this one stands in for site-packages, whatever is installed.
    """
    modules = directory / "modules"
    modules.mkdir()
    (modules / "pyspark_pypaimon.py").write_bytes((ROOT / "pyspark_pypaimon.py").read_bytes())
    return {
        "JAVA_HOME": str(java_home()),
        "PYTHONPATH": str(modules),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TZ": "UTC",
    }


def quick_environment(directory: Path) -> dict[str, str]:
    """The same, and Python processes that start sooner, as forks of one."""
    found = {**environment(directory), "SPARK_HOME": str(unpacked_home(directory / "spark"))}
    if sys.platform == "linux":
        # Spark sets this variable for its Python processes.
        server = ProgramServer(MODULES, PYTHONHASHSEED="0", PYTHONPATH=found["PYTHONPATH"])
        python = directory / "python"
        command = (sys.executable, "-IS", str(FORKED_PYTHON), server.name, sys.executable)
        python.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        python.chmod(0o755)
        found["PYSPARK_PYTHON"] = found["PYSPARK_DRIVER_PYTHON"] = str(python)
    return found


def unpacked_home(home: Path) -> Path:
    """A Spark home that shows pyspark's installation, with packages in the place of the zip files of its Python side.

    Each Python process that Spark starts would compile all that it imports out of a zip file, which takes seconds.
    """
    import py4j
    import pyspark

    installed = Path(pyspark.__file__).parent
    (home / "python" / "lib").mkdir(parents=True)
    for path in installed.iterdir():
        if path.name != "python":
            (home / path.name).symlink_to(path)
    for path in (installed / "python" / "lib").iterdir():
        package = Path((py4j if path.name.startswith("py4j") else pyspark).__file__).parent
        (home / "python" / "lib" / path.name).mkdir()
        (home / "python" / "lib" / path.name / package.name).symlink_to(package)
    return home


def new_session(directory: Path, quick: bool = True, **configuration: str) -> Any:
    """A session that keeps its files below a directory, which is emptied by nobody else.

    Args:
        quick: For many short queries; False: as a user has it.
    """
    from pyspark.sql import SparkSession

    directory.mkdir(parents=True, exist_ok=True)
    os.environ.update(quick_environment(directory) if quick else environment(directory))
    builder = SparkSession.builder.config("spark.sql.warehouse.dir", str(directory / "spark-warehouse"))
    for key, value in {**(QUICK if quick else CONFIGURATION), **configuration}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
