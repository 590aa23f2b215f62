"""What no Python data source of Spark can be faster than: sources with the tasks of ours, and nothing in them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from pypaimon.spark.source import PaimonDataSource

BATCH_SIZE = 65536


class Bare(DataSource):
    """A source whose tasks hand out one batch again and again, or with option `files` what pyarrow reads of them.

    Options: `rows`, of each task; `batch`, an Arrow file with one batch, which is mapped and so never made;
    `files`, of each task. The schema is the user's; columns that files lack, as the row kind, come from the batch.
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "bare"

    def reader(self, schema: Any) -> DataSourceReader:
        """All in one batch read."""
        return BareReader(dict(self.options))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """All in one micro-batch."""
        return BareStream(dict(self.options))


class _Tasks:
    def __init__(self, options: dict[str, str]) -> None:
        self.rows: list[int] = json.loads(options["rows"])
        self.path = options["batch"]
        self.files: list[list[str]] = json.loads(options.get("files", "[]"))

    def _tasks(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(len(self.rows))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        with pa.memory_map(self.path) as mapped:
            batch = pa.ipc.open_file(mapped).get_batch(0)
        if not self.files:
            for start in range(0, self.rows[partition.value], BATCH_SIZE):
                yield batch.slice(0, self.rows[partition.value] - start)
            return
        for path in self.files[partition.value]:
            file = pq.ParquetFile(path)
            stored = [name for name in batch.schema.names if name in file.schema_arrow.names]
            for each in file.iter_batches(BATCH_SIZE, columns=stored):
                made = {name: batch.column(name).slice(0, each.num_rows) for name in {*batch.schema.names} - {*stored}}
                columns = [made[name] if name in made else each.column(name) for name in batch.schema.names]
                yield pa.RecordBatch.from_arrays(columns, schema=batch.schema)


class BareReader(_Tasks, DataSourceReader):
    """The batch read."""

    def partitions(self) -> list[InputPartition]:
        """The tasks."""
        return self._tasks()


class BareStream(_Tasks, DataSourceStreamReader):
    """The stream."""

    def initialOffset(self) -> dict[str, int]:
        """The beginning."""
        return {"batches": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """The end of the only batch."""
        return {"batches": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The tasks."""
        return self._tasks()


def register(spark: Any) -> None:
    """Make the format known. No worker can import this module, so that it goes with the tasks."""
    cloudpickle.register_pickle_by_value(sys.modules[Bare.__module__])
    spark.dataSource.register(Bare)


def bare(
    spark: Any, options: dict[str, str], directory: Path, *, streaming: bool, files: bool = False
) -> Callable[[], Any]:
    """What loads a frame of the bare source with the tasks and the columns of ours.

    Args:
        spark: The session.
        options: Those of our source.
        directory: Where the batch may be put.
        streaming: Whether it is a stream.
        files: Whether pyarrow reads the files that ours reads.
    """
    source = PaimonDataSource({key.lower(): value for key, value in options.items()})
    schema: Any = source.schema()
    reader: Any = source.streamReader(schema) if streaming else source.reader(schema)
    if streaming:
        begin = reader.initialOffset()
        tasks = reader.partitions(begin, reader.latestOffset(begin, reader.getDefaultReadLimit()))
    else:
        tasks = reader.partitions()
    of_tasks = [[file for part in task.parts for file in part.split.files] for task in tasks]
    path = directory / f"{options['table']}-{streaming}.arrow"
    (first,) = pa.Table.from_batches(reader.read(tasks[0])).slice(0, BATCH_SIZE).combine_chunks().to_batches()
    with pa.ipc.new_file(str(path), first.schema) as file:
        file.write_batch(first)
    given = {"batch": str(path), "rows": json.dumps([sum(file.row_count for file in each) for each in of_tasks])}
    if files:
        given["files"] = json.dumps([[file.file_path for file in each] for each in of_tasks])

    def load() -> Any:
        made = spark.readStream if streaming else spark.read
        return made.format("bare").schema(schema).options(**given).load()

    return load


def one_row(spark: Any, directory: Path) -> Callable[[], Any]:
    """What loads a stream of the bare source with one task and one row."""
    batch = pa.record_batch({"path": ["file"]})
    path = directory / "one-row.arrow"
    with pa.ipc.new_file(str(path), batch.schema) as file:
        file.write_batch(batch)
    given = {"batch": str(path), "rows": "[1]"}
    return lambda: spark.readStream.format("bare").schema("path string").options(**given).load()
