"""`PaimonBatchReader`: `spark.read.format("pypaimon")`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pypaimon.spark.errors import ErrorContext, readable, readable_errors
from pypaimon.spark.lean_imports import plan_without_pandas
from pypaimon.spark.options.source_options import parse
from pypaimon.spark.read.batch_range import batch_options, batch_splits
from pypaimon.spark.read.table_schema import stream_for
from pypaimon.spark.read.tasks import Task, tasks
from pypaimon.streaming.options.stream_options import Unmatched

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class PaimonBatchReader(DataSourceReader):
    """Reads the state of a table, or a range of its history; buckets that are merged are read in parallel.

    Spark cannot push filters into it: one reader serves all queries of a DataFrame, and would apply the first one's.
    """

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @readable
    def partitions(self) -> list[Task]:
        plan_without_pandas()
        given = parse(self._options)
        options = batch_options(given)
        stream = stream_for(options, self._schema, streaming=False)
        stream = stream.with_spec(replace(stream.spec, filter=stream.options.predicate, unmatched=Unmatched.DROP))
        return tasks(batch_splits(given, stream), stream, options.parallelism)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task, on an executor."""
        from pypaimon.spark.read.task_reader import read_task

        if isinstance(partition, Task):
            with readable_errors(self.error_context):
                yield from read_task(self._options, self._schema, partition, batch=True)

    @property
    def error_context(self) -> ErrorContext:
        return ErrorContext.of(self._options)

    def __repr__(self) -> str:
        return "PaimonBatchReader()"
