"""Command: the PySpark source beside Spark's own reader and beside the limit of any Python data source, in one run.

`python -m benchmarks.spark_source` needs Java and the extra `spark`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from benchmarks import measuring, tables

sys.path.insert(0, str(Path(__file__).parent.parent / "pypaimon" / "tests"))
ROWS, FILES, SMALL, ROUNDS = 4_000_000, 8, 30, 3
READY_MADE = "ready-made batches"


class ReadyMade(DataSource):
    """Hands over the same Arrow batch again and again: what no Python source can be faster than."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ready_made"

    def schema(self) -> str:
        """The columns of the tables."""
        return "id bigint not null, amount double, number int, name string, day date"

    def reader(self, schema: Any) -> DataSourceReader:
        """As many tasks and rows as the table has files and rows."""
        return ReadyMadeReader()


class ReadyMadeReader(DataSourceReader):
    """Reads nothing."""

    def partitions(self) -> list[InputPartition]:
        """One per file."""
        return [InputPartition(number) for number in range(FILES)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One batch, repeated."""
        rows = tables.some_rows(65536)
        batch = pa.Table.from_arrays(rows.columns, schema=tables.SCHEMA).combine_chunks().to_batches()[0]
        left = ROWS // FILES
        while left:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= min(left, batch.num_rows)


def main() -> None:
    """Measure, and print a table."""
    from spark_session import new_session

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        spark = new_session(directory / "spark", **{"spark.driver.memory": "2g"})
        # Its class is this script's, which no worker can import.
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[ReadyMade.__module__])
        spark.dataSource.register(ReadyMade)
        found = [*throughput(spark, directory), *overhead(spark, directory)]
        spark.stop()
    sys.stdout.write(measuring.plain(found) + "\n")


def throughput(spark: Any, directory: Path) -> list[measuring.Figure]:
    """Rows per second of streams and batches."""
    from pypaimon.spark import native_read

    catalog = tables.catalog(directory / "warehouse")
    appended, changing = (
        tables.create(catalog, "appended"),
        tables.create(
            catalog, "changing", primary_keys=["id"], options={"bucket": str(FILES), "changelog-producer": "input"}
        ),
    )
    plain = directory / "plain"
    plain.mkdir()
    for number in range(FILES):
        rows = tables.some_rows(ROWS // FILES, seed=number)
        commit(appended, rows)
        pq.write_table(rows, plain / f"{number}.parquet")
    commit(changing, tables.some_rows(ROWS))
    place = {"warehouse": str(directory / "warehouse")}

    def stream(name: str, **more: str) -> Callable[[], float]:
        return lambda: add_batch_seconds(
            spark.readStream.format("pypaimon").options(**place, table=f"db.{name}", **more).load(), directory
        )

    candidates: dict[str, Callable[[], float]] = {
        "append": stream("appended"),
        "changelog": stream("changing", start="earliest"),
        READY_MADE: lambda: seconds(lambda: noop(spark.read.format("ready_made").load())),
        "parquet": lambda: seconds(lambda: noop(spark.read.parquet(str(plain)))),
        "native": lambda: seconds(lambda: noop(native_read(spark, {**place, "table": "db.appended"}))),
    }
    rates: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(ROUNDS):
        for name, run in candidates.items():
            rates[name].append(ROWS / run() / 1e6)
    best = {name: max(values) for name, values in rates.items()}
    return [
        against("append stream", best["append"], best[READY_MADE], READY_MADE, 0.95),
        against("changelog stream", best["changelog"], best[READY_MADE], READY_MADE, 0.9),
        against("native_read", best["native"], best["parquet"], "spark.read.parquet", 0.9),
        against("append stream", best["append"], best["parquet"], "spark.read.parquet", 0.0),
    ]


def overhead(spark: Any, directory: Path) -> list[measuring.Figure]:
    """Milliseconds of a micro-batch of ten rows, and seconds until a query has ended that had nothing much to do."""
    table = tables.create(tables.catalog(directory / "small"), "small")
    plain = directory / "small-plain"
    plain.mkdir()
    for number in range(SMALL):
        rows = tables.some_rows(10, seed=number)
        commit(table, rows)
        pq.write_table(rows, plain / f"{number}.parquet")
    options = {"warehouse": str(directory / "small"), "table": "db.small"}
    ours = spark.readStream.format("pypaimon").options(**options, start="earliest")
    schema = spark.read.parquet(str(plain)).schema
    theirs = spark.readStream.schema(schema)
    batches = {
        "ours": lambda: batch_millis(ours.option("maxFilesPerTrigger", "1").load(), directory),
        "theirs": lambda: batch_millis(theirs.option("maxFilesPerTrigger", 1).parquet(str(plain)), directory),
    }
    starts = {
        "ours": lambda: seconds(lambda: run(ours.option("maxFilesPerTrigger", "1000").load(), directory)),
        "theirs": lambda: seconds(
            lambda: run(theirs.option("maxFilesPerTrigger", 1000).parquet(str(plain)), directory)
        ),
    }
    batch, start = in_turns(batches), in_turns(starts)
    peer = "Spark's file source"
    return [
        measuring.Figure("one micro-batch", batch["ours"], "ms", "at most 1.2", batch["ours"] <= 1.2 * batch["theirs"],
                         batch["theirs"], peer),
        measuring.Figure("query of one batch, whole", start["ours"], "s", "at most 0.6 s more",
                         start["ours"] <= start["theirs"] + 0.6, start["theirs"], peer),
    ]  # fmt: skip


def against(measure: str, ours: float, peer: float, name: str, goal: float) -> measuring.Figure:
    """A figure of rates."""
    aim = f"at least {goal}" if goal else "none"
    return measuring.Figure(measure, ours, "M rows/s", aim, ours >= goal * peer, peer, name, more_is_better=True)


def in_turns(candidates: dict[str, Callable[[], float]]) -> dict[str, float]:
    """The median of what each candidate measures itself."""
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(ROUNDS):
        for name, measure in candidates.items():
            found[name].append(measure())
    return {name: median(values) for name, values in found.items()}


def commit(table: Any, rows: pa.Table) -> None:
    """One snapshot."""
    builder = table.new_batch_write_builder()
    write = builder.new_write()
    write.write_arrow(rows)
    builder.new_commit().commit(write.prepare_commit())
    write.close()


def noop(frame: Any) -> None:
    """Read all of a frame."""
    frame.write.format("noop").mode("overwrite").save()


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def run(stream: Any, directory: Path) -> Any:
    """A query to its end, with a checkpoint of its own."""
    checkpoint = tempfile.mkdtemp(dir=directory)
    writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def add_batch_seconds(stream: Any, directory: Path) -> float:
    """Seconds that a query reads and writes, without start and planning."""
    return sum(each.durationMs.get("addBatch", 0) for each in run(stream, directory).recentProgress) / 1000


def batch_millis(stream: Any, directory: Path) -> float:
    """The median of a micro-batch, but for the first five."""
    progress = [each for each in run(stream, directory).recentProgress if each.numInputRows]
    return float(median(each.durationMs["triggerExecution"] for each in progress[5:]))


if __name__ == "__main__":
    main()
