"""`PaimonStreamReader`: Spark's calls, in the order in which Spark makes them, on the stream's planner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pypaimon.spark.errors import ErrorContext, readable, readable_errors
from pypaimon.spark.read.offset import Offset
from pypaimon.spark.spark_versions import ReadLimit, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pypaimon.spark.read.query import Query
    from pypaimon.spark.read.tasks import Task


class PaimonStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream in micro-batches, each exactly as it was planned, also after a restart.

    Spark makes several of these: one in a process that lives as long as the query, which is asked what to read, and
    copies that read on the executors. So making one costs nothing, and what lives is not pickled. The first batch waits
    for a process that only imports this module and pickles `read`.
    """

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._query: Query | None = None
        self._last: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_query": None, "_last": None}

    def __repr__(self) -> str:
        return "PaimonStreamReader()"

    @property
    def error_context(self) -> ErrorContext:
        return ErrorContext.of(self._options, streaming=True)

    @property
    def _live(self) -> Query:
        if self._query is None:
            from pypaimon.spark.read.query import Query

            self._query = Query(self._options, self._schema)
        return self._query

    @readable
    def getDefaultReadLimit(self) -> ReadLimit:
        """The limits of the options; Spark gives this back with each request."""
        from pypaimon.spark.read.admission import default_limit

        return default_limit(self._live.options.admission)

    @readable
    def prepareForTriggerAvailableNow(self) -> None:
        """From now on nothing is new beyond the snapshot that is the latest now."""
        self._live.freeze()

    @readable
    def initialOffset(self) -> dict[str, Any]:
        return self._live.initial().to_json()

    @readable
    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        from pypaimon.spark.read.admission import UNLIMITED, requested

        # Spark 4.0 and 4.1 give neither the start nor a limit.
        begin = Offset.from_json(start) if start is not None else self._last or self._live.initial()
        admission = UNLIMITED if start is None else requested(limit, self._live.options.admission)
        self._last = self._live.latest(begin, admission)
        return self._last.to_json()

    def reportLatestOffset(self) -> dict[str, Any]:
        """How far the query is behind the table, for `sources[].latestOffset` of its progress. No IO."""
        return self._live.lag()

    @readable
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Task]:
        self._last = Offset.from_json(end)
        return self._live.tasks(Offset.from_json(start), self._last)

    @readable
    def commit(self, end: dict[str, Any]) -> None:
        """All before `end` has arrived: progress is saved under the consumer id."""
        self._live.commit(Offset.from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pypaimon.spark.read.task_reader import read_task

        with readable_errors(self.error_context):
            yield from read_task(self._options, self._schema, partition)  # type: ignore[arg-type]
