"""`PaimonBatchReader`: `spark.read.format("pypaimon")`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pypaimon.spark.errors import ErrorContext, readable, readable_errors
from pypaimon.spark.lean_imports import plan_without_pandas
from pypaimon.spark.options.source_options import parse
from pypaimon.spark.read.batch_range import batch_options, batch_splits
from pypaimon.spark.read.table_schema import builder_for
from pypaimon.spark.read.tasks import Task, tasks
from pypaimon.streaming.filtering.filters import conjunction

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from pypaimon.streaming.filter_internals import Predicate


_PUSHES = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module that Spark runs, in a process of its own, to plan a read with filters to push."""


class PaimonBatchReader(DataSourceReader):
    """Reads the state of a table, or a range of its history; buckets that are merged are read in parallel.

    Args:
        options: The source's options.
        schema: The columns to give out.
    """

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._pushed: list[Predicate] = []

    @readable
    def partitions(self) -> list[Task]:
        """The tasks."""
        plan_without_pandas()
        given = parse(self._options)
        options = batch_options(given)
        builder = builder_for(options, self._schema, streaming=False)
        own = builder.options.predicate
        predicate = conjunction([each for each in (own, *self._pushed) if each is not None])
        builder.with_filter(predicate, unmatched="drop")
        return tasks(batch_splits(given, builder), builder, options.parallelism)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task, on an executor."""
        from pypaimon.spark.read.task_reader import read_task

        if isinstance(partition, Task):
            with readable_errors(self.error_context):
                yield from read_task(self._options, self._schema, partition, batch=True)

    @property
    def error_context(self) -> ErrorContext:
        """What the messages of its errors say beside."""
        return ErrorContext.of(self._options)

    def __repr__(self) -> str:
        return "PaimonBatchReader()"


class PushingBatchReader(PaimonBatchReader):
    """A reader that Spark tells what it filters for. Spark refuses such a one where the session does not allow it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Prune by the filters that Paimon can apply; Spark applies them all again, so that none is lost."""
        from pypaimon.spark.read.pushed_filters import to_predicate

        for each in filters:
            predicate = to_predicate(each, self._schema)
            if predicate is not None:
                self._pushed.append(predicate)
            yield each


def batch_reader(options: dict[str, str], schema: Any) -> PaimonBatchReader:
    """The reader that the options ask for.

    A reader that takes filters fails every query of a session with `spark.sql.python.filterPushdown.enabled=false`, so
    it is made where Spark asks for one to push filters to, which it does where the session allows it.
    """
    wanted = parse(options).push_filters
    pushing = _PUSHES in sys.modules if wanted is None else wanted
    return (PushingBatchReader if pushing else PaimonBatchReader)(options, schema)
