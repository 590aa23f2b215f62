"""A stream that copies a table to another one: killed again and again, the copy ends equal to its origin."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema

from pypaimon.streaming.commit.idempotent_commit import commit_batch
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from support.spark.session import ATTEMPTS
from support.spark.sink_application import POINTS, Application
from support.tables.handles import batch_table, catalog_with_database
from support.tables.written_rows import rows_of, write

pytest.importorskip("pyspark", reason="Spark's tests run where pyspark is installed")

pytestmark = [pytest.mark.spark, pytest.mark.soak]

ROUNDS, KILLS = 5, 10
COMMITS = 2
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.mark.nightly
def test_a_copy_stays_equal_through_kills(tmp_path: Path) -> None:
    catalog = catalog_with_database(tmp_path / "warehouse")
    keyed = Schema.from_pyarrow_schema(COLUMNS, primary_keys=["id"], options={"bucket": "2"})
    for name in ("origin", "copied"):
        catalog.create_table(f"db.{name}", keyed, False)
    rng = random.Random(0)
    for _ in range(ROUNDS):
        for _ in range(KILLS):
            _change(catalog, rng)
            _run(tmp_path, (rng.choice((*POINTS, "before-publish")), rng.randrange(COMMITS)))
        _change(catalog, rng)
        _run(tmp_path, None)
        origin = _rows(catalog, "origin")
        assert origin
        assert _rows(catalog, "copied") == origin


def _run(directory: Path, stop: tuple[str, int] | None) -> None:
    """Run the query until all is read, or kill it at a point of the first or a later batch that is not logged yet."""
    for attempt in range(ATTEMPTS):
        name = f"{len(list(directory.glob('signals-*')))}"
        job = _job(directory, name, None if stop is None else [stop[0], _next_batch(directory) + stop[1]])
        with Application(directory, job) as application:
            try:
                if stop is None:
                    application.finish()
                else:
                    application.wait_for(lambda: Path(job["signals"], f"copied-{stop[0]}").exists())  # noqa: B023
                return
            except AssertionError:
                if not application.gave_up or attempt == ATTEMPTS - 1:
                    raise


def _change(catalog: Any, rng: random.Random) -> None:
    """Commits of inserts, updates and deletes: a batch each at least, for each has a file."""
    for _ in range(COMMITS):
        ids = rng.sample(range(20), 6)
        kinds = [rng.choice((0, 0, 2, 3)) for _ in ids]
        table, text = catalog.get_table("db.origin"), f"{rng.random()}"
        messages = write(table, rows_of(COLUMNS, [(each, text) for each in ids], kinds), user="origin")
        commit_batch(PaimonTable(table), messages, overwrite=False)


def _next_batch(directory: Path) -> int:
    """The first batch that has not been committed in Spark's log; it is run again, or for the first time."""
    commits = directory / "checkpoint" / "commits"
    names = [path.name for path in commits.iterdir()] if commits.exists() else []
    return max((int(name) for name in names if name.isdigit()), default=-1) + 1


def _job(directory: Path, name: str, stop: list[Any] | None) -> dict[str, Any]:
    signals = directory / f"signals-{name}"
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
        "home": str(directory / f"home-{name}"),
        "warehouse": warehouse,
        "signals": str(signals),
        "stops": {} if stop is None else {"copied": stop},
        "queries": [query],
    }


def _rows(catalog: Any, name: str) -> list[tuple[int, str]]:
    data = batch_table(catalog.get_table(f"db.{name}"))
    return sorted(zip(data["id"].to_pylist(), data["v"].to_pylist(), strict=True))
