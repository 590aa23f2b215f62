"""What tests ask of Spark: streams of a table, run until nothing is new, and the rows that came out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException

from support.spark.session import ATTEMPTS, NO_WORKER
from support.tables.streamed_table import Table

Rows = list[tuple[Any, ...]]


def options(table: Table) -> dict[str, str]:
    return {"warehouse": str(table.path.parents[1]), "table": table.name}


def frame(spark: Any, table: Table, schema: str | None = None, **more: str) -> Any:
    """A stream of a table; `__` in the name of an option is a dot, `_` a dash."""
    reader = spark.readStream.format("pypaimon").options(**options(table), **spelled(more))
    return (reader.schema(schema) if schema is not None else reader).load()


def spelled(more: dict[str, str]) -> dict[str, str]:
    """Options whose names could not be keywords."""
    return {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}


def run_to_its_end(start: Callable[[], Any]) -> None:
    """Run a query; again, where Spark could not start a Python process in time."""
    for attempt in range(ATTEMPTS):
        try:
            start().awaitTermination(900)
            break
        except StreamingQueryException as error:
            if NO_WORKER not in str(error) or attempt == ATTEMPTS - 1:
                raise


class Collected:
    """Rows of a stream, batch by batch.

    Attributes:
        batches: Rows of each batch by its id; of a batch that was run again, those of the last run.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.batches: dict[int, Rows] = {}
        self.query: Any = None

    @property
    def rows(self) -> Rows:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]

    def sorted(self) -> Rows:
        return sorted(self.rows)

    def start(self, stream: Any, **trigger: Any) -> Any:
        def collect(batch: Any, batch_id: int) -> None:
            self.batches[batch_id] = [tuple(row) for row in batch.collect()]

        writer = stream.writeStream.foreachBatch(collect).option("checkpointLocation", str(self.directory))
        self.query = writer.trigger(**(trigger or {"availableNow": True})).start()
        return self.query

    def run(self, stream: Any, **trigger: Any) -> Rows:
        known = set(self.batches)
        run_to_its_end(partial(self.start, stream, **trigger))
        assert not self.query.isActive
        return [row for batch in sorted(self.batches) if batch not in known for row in self.batches[batch]]
