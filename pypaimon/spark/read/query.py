"""`Query`: one running query in the process that plans it: batches, tasks, progress and lag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pypaimon.spark.lean_imports import plan_without_pandas
from pypaimon.spark.options.source_options import VERSION_KEYS, Admission, SourceOptions, parse
from pypaimon.spark.read.micro_batches import MicroBatchPlanner
from pypaimon.spark.read.offset import Offset
from pypaimon.spark.read.source_stream import new_progress
from pypaimon.spark.read.table_schema import stream_for
from pypaimon.spark.read.tasks import Task, listing_tasks, tasks
from pypaimon.spark.spark_versions import check_limits
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.plan import Plan
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.between import RANGE_KEYS
from pypaimon.streaming.spec.resolve import ResolvedStream

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pypaimon.spark.read.offset import Offset


class QueryProgress:
    """Saves what Spark has committed; does nothing without a consumer id.

    Spark commits a batch only when it plans the next one, and after a restart when that plans its first. So what is
    saved lags one batch: a reader that starts by the consumer file repeats rows, and never misses any.
    """

    def __init__(self, stream: ResolvedStream) -> None:
        self._progress = new_progress(stream)
        self._clock = stream.clock
        consumer = stream.options.consumer
        self._ignores_saved = consumer is not None and consumer.ignore_progress
        self._opened = False
        self._saved: Position | None = None
        self._reached: Position | None = None

    def saved(self) -> Position | None:
        if self._progress is None:
            return None
        if not self._opened:
            saved = self._progress.open(self._clock.monotonic()).saved
            self._saved = None if saved is None else saved.position
            self._opened = True
        return None if self._ignores_saved else self._saved

    def planned(self, start: Offset, end: Offset, plans: Sequence[Plan]) -> None:
        """A batch is handed out: what it reads is kept from expiry from now on."""
        begin = end.origin if start.is_initial else start.position
        if self._progress is None or begin is None or end.position is None:
            return
        if self._reached == end.position:
            return
        self._begin(begin)
        if end.position != begin:
            if plans:
                self._progress.on_plan(end.position)
            else:
                self._progress.on_passed_over(end.position)
        self._reached = end.position

    def commit(self, end: Offset) -> None:
        if self._progress is None or end.position is None:
            return
        if self._reached is None:
            self._begin(end.position)
        self._progress.confirm(end.position)
        self._progress.flush(self._clock.monotonic())

    def keep_alive(self) -> None:
        """Rewrite the files of an idle query before `consumer.expiration-time` takes them."""
        if self._progress is not None and self._opened:
            self._progress.flush(self._clock.monotonic())
            self._progress.keep_alive(self._clock.monotonic())

    def _begin(self, position: Position) -> None:
        assert self._progress is not None
        self.saved()
        if self._reached != position:
            self._progress.begin(position, self._clock.monotonic())
            self._reached = position


_BATCH_ONLY = (*RANGE_KEYS, *VERSION_KEYS)


class Query:
    """A stream of one table for one query."""

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
        self._planner.freeze(self._progress.saved())

    def initial(self) -> Offset:
        return self._planner.initial(self._progress.saved())

    def latest(self, start: Offset, admission: Admission) -> Offset:
        self._progress.keep_alive()
        return self._planner.latest(start, admission)

    def tasks(self, start: Offset, end: Offset) -> list[Task]:
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
