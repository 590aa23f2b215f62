"""kill -9 of a whole Spark application; its queries go on in another one, and every row is there once.

Queries that append and upsert are at a point of a commit, at one for each, in the long form at each; one that reads is
in its first batch.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pypaimon import Schema

from support.samples import some
from support.spark.queries import Collected, frame, options, run_to_its_end
from support.spark.sink_application import POINTS, Application
from support.tables.handles import batch_table, catalog_with_database
from support.tables.streamed_table import Table

pytest.importorskip("pyspark", reason="Spark's tests run where pyspark is installed")

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.nightly]

KINDS = ("append", "upsert")
CASES = [(kind, point) for kind in KINDS for point in some(f"points of {kind}", POINTS, 1)]
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])
BATCHES = 2


@dataclass(frozen=True)
class Killed:
    """What an application has left that was killed with all its queries.

    Attributes:
        wanted: What their tables are to hold in the end, by kind.
        read: The table that a query read which was in its first batch.
    """

    directory: Path
    catalog: Any
    queries: list[dict[str, Any]]
    wanted: dict[str, list[Any]]
    read: Table


LIMITS = {"maxRowsPerTrigger": "20"}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """One application for all cases: to start one takes as long as all of them."""
    directory = tmp_path_factory.mktemp("killed")
    catalog = catalog_with_database(directory / "warehouse")
    appended = [[(batch * 10 + row, str(batch)) for row in range(3)] for batch in range(BATCHES)]
    changes = [
        [("+I", batch, "new"), ("+U", batch - 1, f"by {batch}"), ("-D", batch - 2, "")] for batch in range(BATCHES)
    ]
    _files(directory / "rows", [pa.table(list(zip(*rows, strict=True)), schema=COLUMNS) for rows in appended])
    with_kind = pa.schema([("_row_kind", pa.string()), *COLUMNS])
    _files(directory / "changes", [pa.table(list(zip(*rows, strict=True)), schema=with_kind) for rows in changes])
    schemas = {
        "append": Schema.from_pyarrow_schema(COLUMNS),
        "upsert": Schema.from_pyarrow_schema(COLUMNS, primary_keys=["id"], options={"bucket": "2"}),
    }
    for kind, point in CASES:
        catalog.create_table(f"db.{_table(kind, point)}", schemas[kind], False)
    read = Table(directory / "read")
    for number in range(3):
        read.commit(range(number * 10, number * 10 + 10))

    job = _job(directory, read)
    reached = [Path(job["signals"], f"{name}-{point}") for name, (point, _) in job["stops"].items()]
    reached.append(Path(job["signals"], "read-batch"))
    with Application(directory, job) as application:
        application.wait_for(lambda: all(path.exists() for path in reached))

    model: dict[int, str] = {}
    for kind, key, value in (change for rows in changes for change in rows):
        if kind == "-D":
            model.pop(key, None)
        else:
            model[key] = value
    wanted = {"append": sorted(row for rows in appended for row in rows), "upsert": sorted(model.items())}
    return Killed(directory, catalog, [query for query in job["queries"] if "table" in query], wanted, read)


def test_killed_at_each_point(spark: Any, killed: Killed) -> None:
    warehouse = str(killed.directory / "warehouse")
    for query in killed.queries:
        rows = spark.readStream.format(query["format"]).options(**query["source_options"]).schema(query["schema"])
        writer = rows.load(query["source"]).writeStream.format("pypaimon").option("warehouse", warehouse)
        writer = writer.option("table", query["table"]).option("checkpointLocation", query["checkpoint"])
        run_to_its_end(writer.trigger(availableNow=True).start)
    for kind, point in CASES:
        assert _rows(killed.catalog, _table(kind, point)) == killed.wanted[kind], (kind, point)
    for path in (killed.directory / "warehouse" / "db.db").iterdir():
        _each_batch_once(path)


def test_batch_0_is_the_same_after_a_kill(spark: Any, killed: Killed) -> None:
    table = killed.read
    for number in range(3, 6):
        table.commit(range(number * 10, number * 10 + 10))
    collected = Collected(killed.directory / "checkpoint-read")
    collected.run(frame(spark, table, **LIMITS))
    assert [row[0] for row in collected.sorted()] == list(range(60))
    assert sorted(row[0] for row in collected.batches[0]) == list(range(20))
    table.commit([60])
    collected.run(frame(spark, table, **LIMITS))
    assert [row[0] for row in collected.sorted()] == list(range(61))


def _table(kind: str, point: str) -> str:
    return f"{kind}_{point.replace('-', '_')}"


def _job(directory: Path, read: Table) -> dict[str, Any]:
    """A query for each case, each of which stops in its second batch, and one that reads a table."""
    signals = directory / "signals"
    signals.mkdir()
    sources = {"append": ("rows", "id long, v string"), "upsert": ("changes", "_row_kind string, id long, v string")}
    queries = {_table(kind, point): (point, *sources[kind]) for kind, point in CASES}
    reading = {"name": "read", "format": "pypaimon", "source_options": {**options(read), **LIMITS}}
    return {
        "home": str(directory / "session"),
        "warehouse": str(directory / "warehouse"),
        "signals": str(signals),
        "stops": {table: [point, 1] for table, (point, _, _) in queries.items()},
        "queries": [
            {**reading, "checkpoint": str(directory / "checkpoint-read")},
            *(
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
            ),
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
    data = batch_table(catalog.get_table(f"db.{name}"))
    return sorted(zip(data["id"].to_pylist(), data["v"].to_pylist(), strict=True))


def _each_batch_once(table: Path) -> None:
    snapshots = [json.loads(path.read_bytes()) for path in (table / "snapshot").glob("snapshot-*")]
    assert len({snapshot["commitUser"] for snapshot in snapshots}) == 1
    assert sorted(snapshot["commitIdentifier"] for snapshot in snapshots) == list(range(BATCHES))
