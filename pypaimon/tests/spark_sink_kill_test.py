"""kill -9 of the whole Spark application at each point of a commit, for appends and upserts; then the rows are the model's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pypaimon import CatalogFactory, Schema

pytest.importorskip("pyspark", reason="Spark's tests run where pyspark is installed")

CHILD = Path(__file__).parent / "spark_sink_child.py"
POINTS = ("write", "after-write", "before-publish", "after-publish", "after-commit")
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])
LIMIT = 240


class Application:
    """A Spark application in a process group of its own."""

    def __init__(self, directory: Path, job: dict[str, Any]) -> None:
        self.signals = Path(job["signals"])
        self._log = (directory / "spark.log").open("ab")
        environment = {
            **os.environ,
            "SINK_TEST_JOB": json.dumps(job),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD)], stdout=self._log, stderr=self._log, env=environment, start_new_session=True,
            cwd=directory,
        )  # fmt: skip

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for something that the application does; an application that ended before it is a failure."""
        limit = time.monotonic() + LIMIT
        while not condition():
            assert self.process.poll() is None, f"the application ended; see {self._log.name}"
            assert time.monotonic() < limit, f"nothing happened for {LIMIT} s; see {self._log.name}"
            time.sleep(0.05)

    def kill(self) -> None:
        """kill -9 of driver, JVM and workers at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def finish(self) -> None:
        assert self.process.wait(LIMIT) == 0, f"the application failed; see {self._log.name}"
        self._log.close()


def test_killed_at_each_point(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    catalog = CatalogFactory.create({"warehouse": str(warehouse)})
    catalog.create_database("db", True)
    catalog.create_table("db.appended", Schema.from_pyarrow_schema(COLUMNS), False)
    keyed = Schema.from_pyarrow_schema(COLUMNS, primary_keys=["id"], options={"bucket": "2"})
    catalog.create_table("db.upserted", keyed, False)
    batches = len(POINTS) + 1
    appended = [[(batch * 10 + row, str(batch)) for row in range(3)] for batch in range(batches)]
    changes = [
        [("+I", batch, "new"), ("+U", batch - 1, f"by {batch}"), ("-D", batch - 2, "")] for batch in range(batches)
    ]
    _files(tmp_path / "rows", [pa.table(list(zip(*rows, strict=True)), schema=COLUMNS) for rows in appended])
    with_kind = pa.schema([("_row_kind", pa.string()), *COLUMNS])
    _files(tmp_path / "changes", [pa.table(list(zip(*rows, strict=True)), schema=with_kind) for rows in changes])
    for number, point in enumerate(POINTS):
        job = _job(tmp_path, number, [point, number])
        application = Application(tmp_path, job)
        reached = [Path(job["signals"], f"{name}-{point}") for name in ("appended", "upserted")]
        application.wait_for(lambda reached=reached: all(path.exists() for path in reached))  # type: ignore[misc]
        application.kill()
    Application(tmp_path, _job(tmp_path, len(POINTS), None)).finish()

    assert _rows(catalog, "db.appended") == sorted(row for rows in appended for row in rows)
    model: dict[int, str] = {}
    for kind, key, value in (change for rows in changes for change in rows):
        if kind == "-D":
            model.pop(key, None)
        else:
            model[key] = value
    assert dict(_rows(catalog, "db.upserted")) == model
    for name in ("appended", "upserted"):
        _each_batch_once(warehouse / "db.db" / name, batches)


def _job(directory: Path, number: int, stop: list[Any] | None) -> dict[str, Any]:
    signals = directory / f"signals-{number}"
    signals.mkdir()
    sources = {"appended": ("rows", "id long, v string"), "upserted": ("changes", "_row_kind string, id long, v string")}
    return {
        "warehouse": str(directory / "warehouse"),
        "signals": str(signals),
        "stop": stop,
        "queries": [
            {
                "name": name,
                "format": "parquet",
                "source": str(directory / source),
                "schema": schema,
                "source_options": {"maxFilesPerTrigger": "1"},
                "table": f"db.{name}",
                "checkpoint": str(directory / f"checkpoint-{name}"),
            }
            for name, (source, schema) in sources.items()
        ],
    }


def _files(directory: Path, tables: list[pa.Table]) -> None:
    """One file per batch, in the order of their times."""
    directory.mkdir()
    for number, table in enumerate(tables):
        path = directory / f"{number}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))


def _rows(catalog: Any, name: str) -> list[tuple[int, str]]:
    builder = catalog.get_table(name).new_read_builder()
    data = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return sorted(zip(data["id"].to_pylist(), data["v"].to_pylist(), strict=True))


def _each_batch_once(table: Path, batches: int) -> None:
    snapshots = [json.loads(path.read_bytes()) for path in (table / "snapshot").glob("snapshot-*")]
    assert len({snapshot["commitUser"] for snapshot in snapshots}) == 1
    assert sorted(snapshot["commitIdentifier"] for snapshot in snapshots) == list(range(batches))
