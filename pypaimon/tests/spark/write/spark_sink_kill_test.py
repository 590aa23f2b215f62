"""kill -9 of a whole Spark application at each point of a commit, for appends and upserts; then the rows are right.

At one of the points for each; in the long form at each.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pypaimon import CatalogFactory, Schema

from support.samples import some
from support.spark.sink_application import POINTS, Application

pytest.importorskip("pyspark", reason="Spark's tests run where pyspark is installed")

pytestmark = [pytest.mark.spark, pytest.mark.soak]

KINDS = ("append", "upsert")
CASES = [(kind, point) for kind in KINDS for point in some(f"points of {kind}", POINTS, 1)]
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])
BATCHES = 2


def test_killed_at_each_point(tmp_path: Path) -> None:
    catalog = CatalogFactory.create({"warehouse": str(tmp_path / "warehouse")})
    catalog.create_database("db", True)
    appended = [[(batch * 10 + row, str(batch)) for row in range(3)] for batch in range(BATCHES)]
    changes = [
        [("+I", batch, "new"), ("+U", batch - 1, f"by {batch}"), ("-D", batch - 2, "")] for batch in range(BATCHES)
    ]
    _files(tmp_path / "rows", [pa.table(list(zip(*rows, strict=True)), schema=COLUMNS) for rows in appended])
    with_kind = pa.schema([("_row_kind", pa.string()), *COLUMNS])
    _files(tmp_path / "changes", [pa.table(list(zip(*rows, strict=True)), schema=with_kind) for rows in changes])
    schemas = {
        "append": Schema.from_pyarrow_schema(COLUMNS),
        "upsert": Schema.from_pyarrow_schema(COLUMNS, primary_keys=["id"], options={"bucket": "2"}),
    }
    for kind, point in CASES:
        catalog.create_table(f"db.{_table(kind, point)}", schemas[kind], False)

    killed = _job(tmp_path, "killed", stop_at=1)
    reached = [Path(killed["signals"], f"{name}-{point}") for name, (point, _) in killed["stops"].items()]
    with Application(tmp_path, killed) as application:
        application.wait_for(lambda: all(path.exists() for path in reached))
    with Application(tmp_path, _job(tmp_path, "restarted", stop_at=None)) as application:
        application.finish()

    model: dict[int, str] = {}
    for kind, key, value in (change for rows in changes for change in rows):
        if kind == "-D":
            model.pop(key, None)
        else:
            model[key] = value
    wanted = {"append": sorted(row for rows in appended for row in rows), "upsert": sorted(model.items())}
    for kind, point in CASES:
        assert _rows(catalog, _table(kind, point)) == wanted[kind], (kind, point)
    for path in (tmp_path / "warehouse" / "db.db").iterdir():
        _each_batch_once(path)


def _table(kind: str, point: str) -> str:
    return f"{kind}_{point.replace('-', '_')}"


def _job(directory: Path, name: str, stop_at: int | None) -> dict[str, Any]:
    """A query for each case."""
    signals = directory / f"signals-{name}"
    signals.mkdir()
    sources = {"append": ("rows", "id long, v string"), "upsert": ("changes", "_row_kind string, id long, v string")}
    queries = {_table(kind, point): (point, *sources[kind]) for kind, point in CASES}
    return {
        "home": str(directory / name),
        "warehouse": str(directory / "warehouse"),
        "signals": str(signals),
        "stops": {} if stop_at is None else {table: [point, stop_at] for table, (point, _, _) in queries.items()},
        "queries": [
            {
                "name": table,
                "format": "parquet",
                "source": str(directory / source),
                "schema": schema,
                "source_options": {"maxFilesPerTrigger": "1"},
                "table": f"db.{table}",
                "checkpoint": str(directory / f"checkpoint-{table}"),
            }
            for table, (_, source, schema) in queries.items()
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
    builder = catalog.get_table(f"db.{name}").new_read_builder()
    data = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return sorted(zip(data["id"].to_pylist(), data["v"].to_pylist(), strict=True))


def _each_batch_once(table: Path) -> None:
    snapshots = [json.loads(path.read_bytes()) for path in (table / "snapshot").glob("snapshot-*")]
    assert len({snapshot["commitUser"] for snapshot in snapshots}) == 1
    assert sorted(snapshot["commitIdentifier"] for snapshot in snapshots) == list(range(BATCHES))
