"""A stream that copies a table to another one: killed again and again, the copy ends equal to its origin."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema
from spark_sink_application import POINTS, Application

from pypaimon.spark.committing import commit_batch
from pypaimon.spark.record_writer import RecordWriter
from pypaimon.spark.schema_check import KIND

pytest.importorskip("pyspark", reason="Spark's tests run where pyspark is installed")

KILLS = 50 if os.environ.get("SOAK") else 1
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


def test_a_copy_stays_equal_through_kills(tmp_path: Path) -> None:
    catalog = CatalogFactory.create({"warehouse": str(tmp_path / "warehouse")})
    catalog.create_database("db", True)
    keyed = Schema.from_pyarrow_schema(COLUMNS, primary_keys=["id"], options={"bucket": "2"})
    for name in ("origin", "copied"):
        catalog.create_table(f"db.{name}", keyed, False)
    rng = random.Random(0)
    for kill in range(KILLS):
        _change(catalog, rng, f"{kill}")
        point = rng.choice(POINTS)
        job = _job(tmp_path, kill, [point, _next_batch(tmp_path)])
        with Application(tmp_path, job) as application:
            application.wait_for(lambda: Path(job["signals"], f"copied-{point}").exists())  # noqa: B023
    _change(catalog, rng, "last")
    with Application(tmp_path, _job(tmp_path, KILLS, None)) as application:
        application.finish()
    origin = _rows(catalog, "origin")
    assert origin
    assert _rows(catalog, "copied") == origin


def _change(catalog: Any, rng: random.Random, mark: str) -> None:
    """A few commits of inserts, updates and deletes."""
    for number in range(3):
        ids = rng.sample(range(20), 6)
        kinds = [rng.choice((0, 0, 2, 3)) for _ in ids]
        columns = [pa.array(ids, pa.int64()), pa.array([f"{mark}.{number}"] * len(ids)), pa.array(kinds, pa.int8())]
        table = catalog.get_table("db.origin")
        writer = RecordWriter(table, "origin", False)
        writer.write(pa.record_batch(columns, schema=COLUMNS.append(pa.field(KIND, pa.int8(), nullable=False))))
        commit_batch(table, writer.prepare(0), overwrite=False)
        writer.close()


def _next_batch(directory: Path) -> int:
    """The first batch that has not been committed in Spark's log; it is run again, or for the first time."""
    commits = directory / "checkpoint" / "commits"
    names = [path.name for path in commits.iterdir()] if commits.exists() else []
    return max((int(name) for name in names if name.isdigit()), default=-1) + 1


def _job(directory: Path, number: int, stop: list[Any] | None) -> dict[str, Any]:
    signals = directory / f"signals-{number}"
    signals.mkdir()
    warehouse = str(directory / "warehouse")
    query = {
        "name": "copied",
        "format": "pypaimon",
        "source_options": {"warehouse": warehouse, "table": "db.origin", "maxFilesPerTrigger": "1"},
        "table": "db.copied",
        "checkpoint": str(directory / "checkpoint"),
    }
    return {
        "home": str(directory / f"home-{number}"),
        "warehouse": warehouse,
        "signals": str(signals),
        "stops": {} if stop is None else {"copied": stop},
        "queries": [query],
    }


def _rows(catalog: Any, name: str) -> list[tuple[int, str]]:
    builder = catalog.get_table(f"db.{name}").new_read_builder()
    data = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return sorted(zip(data["id"].to_pylist(), data["v"].to_pylist(), strict=True))
