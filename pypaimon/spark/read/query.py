"""`Query`: one running query in the process that plans it: batches, tasks, progress and lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pypaimon.spark.lean_imports import plan_without_pandas
from pypaimon.spark.options.source_options import VERSION_KEYS, Admission, SourceOptions, parse
from pypaimon.spark.read.micro_batches import MicroBatchPlanner
from pypaimon.spark.read.query_progress import QueryProgress
from pypaimon.spark.read.table_schema import stream_for
from pypaimon.spark.read.tasks import Task, listing_tasks, tasks
from pypaimon.spark.spark_versions import check_limits
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.options.between import RANGE_KEYS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pypaimon.spark.read.offset import Offset

_BATCH_ONLY = (*RANGE_KEYS, *VERSION_KEYS)


class Query:
    """A stream of one table for one query.

    Args:
        options: The source's options.
        schema: The columns to give out.

    Raises:
        PaimonStreamError: The table cannot be streamed so.
    """

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        plan_without_pandas()
        self.options: SourceOptions = parse(options)
        check_limits(self.options.admission)
        for key in _BATCH_ONLY:
            if key.set_as(self.options.table_options):
                raise StreamConfigError(
                    f"Option '{key}' is for batch reads: use spark.read, or begin a stream with 'start', 'start.tag' "
                    "or 'scan.snapshot-id'."
                )
        self._stream = stream_for(self.options, schema, streaming=True)
        self._planner = MicroBatchPlanner(self._stream)
        self._progress = QueryProgress(self._stream)

    def freeze(self) -> None:
        """Plan nothing beyond the snapshot that is the latest now."""
        self._planner.freeze(self._progress.saved())

    def initial(self) -> Offset:
        """Where a query without checkpoint begins."""
        return self._planner.initial(self._progress.saved())

    def latest(self, start: Offset, admission: Admission) -> Offset:
        """The end of the batch that begins at `start`."""
        self._progress.keep_alive()
        return self._planner.latest(start, admission)

    def tasks(self, start: Offset, end: Offset) -> list[Task]:
        """The tasks of a batch."""
        plans = self._planner.between(start, end)
        self._progress.planned(start, end, plans)
        begin = end.origin if start.is_initial else start.position
        splits = [split for plan in plans for split in plan.splits()]
        if self.options.mode == "files":
            from pypaimon.spark.read.file_rows import check_natively_readable

            check_natively_readable(self._stream, splits)
            return listing_tasks(splits, self._stream)
        return tasks(splits, self._stream, self.options.parallelism, begin)

    def commit(self, end: Offset) -> None:
        """All before `end` has arrived."""
        self._progress.commit(end)

    def lag(self) -> dict[str, Any]:
        """Lag after the last batch that was planned; null is unknown."""
        lag = self._planner.lag
        return {
            "snapshot": lag.latest,
            "snapshotsBehind": lag.snapshots,
            "rowsBehind": lag.rows,
            "bytesBehind": lag.bytes,
            "millisBehind": None if lag.seconds is None else round(lag.seconds * 1000),
        }
