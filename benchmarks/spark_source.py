"""PySpark: the source beside the limit of any Python data source, and beside Spark's own readers; cost of a batch."""

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
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from benchmarks.measuring import Figure
from benchmarks.tables import SCHEMA, catalog, commit, create, some_rows
from pypaimon.spark import native_read
from pypaimon.spark.write.commit import commit_batch
from pypaimon.spark.write.record_writer import RecordWriter
from pypaimon.streaming.model.system_columns import VALUE_KIND

sys.path.insert(0, str(Path(__file__).parent.parent / "pypaimon" / "tests" / "support"))
from spark_session import new_session

ROWS, FILES, SMALL, ROUNDS, SKIPPED = 2_000_000, 8, 20, 3, 5
BATCH_SIZE = 65536
READY_MADE, DECODED = "ready-made batches", "files through pyarrow"
PARQUET, FILE_SOURCE = "spark.read.parquet", "Spark's file source"


class Bare(DataSource):
    """A source with nothing in it: one Arrow batch again and again, or with option `files` what pyarrow reads of them.

    No Python source can be faster than the first, none that reads the files faster than the second.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "bare"

    def schema(self) -> str:
        """The columns of the tables."""
        return "id bigint not null, amount double, number int, name string, day date"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """As many tasks and rows as the table has files and rows."""
        return BareReader(self.options.get("files"))


class BareReader(DataSourceStreamReader):
    """Decodes files, or nothing."""

    def __init__(self, files: str | None) -> None:
        self.files = files.split(",") if files else []

    def initialOffset(self) -> dict[str, int]:
        """The beginning."""
        return {"batches": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """The end of the only batch."""
        return {"batches": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One per file."""
        return [InputPartition(number) for number in range(FILES)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a file, or so many."""
        if self.files:
            for batch in pq.ParquetFile(self.files[partition.value]).iter_batches(BATCH_SIZE, use_threads=False):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=SCHEMA)
            return
        (batch,) = some_rows(BATCH_SIZE).combine_chunks().to_batches()
        for start in range(0, ROWS // FILES, BATCH_SIZE):
            yield batch.slice(0, ROWS // FILES - start)


def figures(directory: Path) -> list[Figure]:
    """All figures of this area. Needs Java, or takes one from PyPI."""
    directory.mkdir()
    spark = new_session(directory / "spark", quick=False, **{"spark.driver.memory": "2g"})
    # No worker can import this module.
    cloudpickle.register_pickle_by_value(sys.modules[Bare.__module__])
    spark.dataSource.register(Bare)
    try:
        return [*_throughput(spark, directory), *_overhead(spark, directory)]
    finally:
        spark.stop()


def _throughput(spark: Any, directory: Path) -> list[Figure]:
    warehouse, plain = catalog(directory / "warehouse"), directory / "plain"
    plain.mkdir()
    appended = create(warehouse, "appended")
    for number in range(FILES):
        rows = some_rows(ROWS // FILES, seed=number)
        commit(appended, rows)
        pq.write_table(rows, plain / f"{number}.parquet")
    _write_changes(warehouse, some_rows(ROWS))
    place = {"warehouse": str(directory / "warehouse")}
    files = ",".join(str(path) for path in Path(appended.table_path).rglob("data-*.parquet"))

    schema = spark.read.parquet(str(plain)).schema

    def stream(source: str, **options: str) -> Callable[[], float]:
        return lambda: _add_batch_seconds(spark.readStream.format(source).options(**options).load(), directory)

    def parquet_stream() -> float:
        return _add_batch_seconds(spark.readStream.schema(schema).parquet(str(plain)), directory)

    def ours(name: str) -> Callable[[], float]:
        return stream("pypaimon", **place, table=f"db.{name}", start="earliest")

    rates = _best(
        {
            "append": ours("appended"),
            "changelog": ours("changing"),
            READY_MADE: stream("bare"),
            DECODED: stream("bare", files=files),
            FILE_SOURCE: parquet_stream,
            PARQUET: lambda: _seconds(lambda: _noop(spark.read.parquet(str(plain)))),
            "native": lambda: _seconds(lambda: _noop(native_read(spark, {**place, "table": "db.appended"}))),
        }
    )
    return [
        _against("append stream", "append", rates, READY_MADE, 0.95),
        _against("append stream", "append", rates, DECODED, None),
        _against("append stream", "append", rates, FILE_SOURCE, None),
        _against("changelog stream", "changelog", rates, READY_MADE, 0.9),
        _against("native_read", "native", rates, PARQUET, 0.9),
    ]


def _write_changes(warehouse: Any, rows: pa.Table) -> None:
    """A changelog of rows in one commit."""
    options = {"bucket": str(FILES), "changelog-producer": "input"}
    table = create(warehouse, "changing", primary_keys=["id"], options=options)
    writer = RecordWriter(table, "benchmark", False)
    kinds = pa.field(VALUE_KIND, pa.int8(), nullable=False)
    for batch in rows.to_batches():
        inserts = pa.array([0] * batch.num_rows, pa.int8())
        writer.write(pa.RecordBatch.from_arrays([*batch.columns, inserts], schema=rows.schema.append(kinds)))
    commit_batch(table, writer.prepare(0), overwrite=False)
    writer.close()


def _overhead(spark: Any, directory: Path) -> list[Figure]:
    """Milliseconds of a micro-batch of ten rows, and seconds of a query with one such batch."""
    table, plain = create(catalog(directory / "small"), "small"), directory / "small-plain"
    plain.mkdir()
    for number in range(SMALL):
        rows = some_rows(10, seed=number)
        commit(table, rows)
        pq.write_table(rows, plain / f"{number}.parquet")
    options = {"warehouse": str(directory / "small"), "table": "db.small", "start": "earliest"}
    schema = spark.read.parquet(str(plain)).schema

    def ours(files: int) -> Any:
        return spark.readStream.format("pypaimon").options(**options, maxFilesPerTrigger=files).load()

    def theirs(files: int) -> Any:
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(str(plain))

    batch = _median(
        {"ours": lambda: _batch_millis(ours(1), directory), "theirs": lambda: _batch_millis(theirs(1), directory)}
    )
    whole = _median({
        "ours": lambda: _seconds(lambda: _run(ours(SMALL), directory)),
        "theirs": lambda: _seconds(lambda: _run(theirs(SMALL), directory)),
    })  # fmt: skip
    return [
        Figure(
            "spark: micro-batch of ten rows",
            batch["ours"],
            "ms",
            "at most 1.2 times",
            batch["ours"] <= 1.2 * batch["theirs"],
            batch["theirs"],
            FILE_SOURCE,
        ),
        Figure(
            "spark: query of one batch",
            whole["ours"],
            "s",
            "at most 0.6 s more",
            whole["ours"] <= whole["theirs"] + 0.6,
            whole["theirs"],
            FILE_SOURCE,
        ),
    ]


def _against(measure: str, name: str, rates: dict[str, float], peer: str, goal: float | None) -> Figure:
    words = "none" if goal is None else f"at least {goal}"
    met = None if goal is None else rates[name] >= goal * rates[peer]
    return Figure(f"spark: {measure}", rates[name], "M rows/s", words, met, rates[peer], peer, more_is_better=True)


def _best(candidates: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Million rows per second: the best of several rounds, all candidates taking their turn in each."""
    seconds = _rounds(candidates)
    return {name: ROWS / min(times) / 1e6 for name, times in seconds.items()}


def _median(candidates: dict[str, Callable[[], float]]) -> dict[str, float]:
    return {name: median(values) for name, values in _rounds(candidates).items()}


def _rounds(candidates: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(ROUNDS):
        for name, measure in candidates.items():
            found[name].append(measure())
    return found


def _seconds(call: Callable[[], object]) -> float:
    """How long a call takes by the clock: several processes work on it."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _noop(frame: Any) -> None:
    """Read all of a frame."""
    frame.write.format("noop").mode("overwrite").save()


def _run(stream: Any, directory: Path) -> Any:
    """A query to its end, with a checkpoint of its own."""
    checkpoint = tempfile.mkdtemp(dir=directory)
    writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def _add_batch_seconds(stream: Any, directory: Path) -> float:
    """Seconds that a query reads and writes, without start and planning."""
    return sum(each.durationMs.get("addBatch", 0) for each in _run(stream, directory).recentProgress) / 1000


def _batch_millis(stream: Any, directory: Path) -> float:
    """The median of a micro-batch, but for the first five."""
    progress = [each for each in _run(stream, directory).recentProgress if each.numInputRows]
    return float(median(each.durationMs["triggerExecution"] for each in progress[SKIPPED:]))
