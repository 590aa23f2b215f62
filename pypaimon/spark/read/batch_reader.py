"""`PaimonBatchReader`: `spark.read.format("pypaimon")`, of a state or of a range of the history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pypaimon.spark.errors import ErrorContext, readable, readable_errors
from pypaimon.spark.lean_imports import plan_without_pandas
from pypaimon.spark.options.source_options import SourceOptions, parse
from pypaimon.spark.read.source_stream import new_planner, refuse_chain, snapshot_of_version
from pypaimon.spark.read.table_schema import stream_for
from pypaimon.spark.read.tasks import Task, tasks
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.model.plan import SplitMode, StreamSplit
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.model.time_zone import zone_options
from pypaimon.streaming.options.between import MODE, RANGE_KEYS, TAG_TO_SNAPSHOT, Between, between_of_options
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.options.stream_options import Unmatched
from pypaimon.streaming.spec.resolve import ResolvedStream

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pypaimon.streaming.planning.planner_state import PlannerState

_SNAPSHOT, _TAG = ("scan.snapshot-id", "scan.version"), "scan.tag-name"
_MILLIS, _TIME = "scan.timestamp-millis", "scan.timestamp"
_STREAM_ONLY = ("start", "start_tag")
_NOT_HERE = ("scan.watermark", "scan.file-creation-time-millis", "scan.creation-time-millis")
_STATES = (
    "default", "full", "latest", "latest-full", "from-snapshot", "from-snapshot-full", "from-timestamp", "incremental",
)  # fmt: skip
_PARTS = (*_SNAPSHOT, _TAG, _MILLIS, _TIME, *RANGE_KEYS)
_OURS = frozenset({*_PARTS, MODE, TAG_TO_SNAPSHOT, "scan.mode"})


def batch_options(options: SourceOptions) -> SourceOptions:
    """The options without those that choose a part of the history; the state is merged as in any batch read."""
    for name in _STREAM_ONLY:
        if getattr(options, name) is not None:
            raise StreamConfigError(
                f"Option '{name.replace('_', '.')}' is for streams: for a batch give 'scan.snapshot-id', "
                "'scan.tag-name', 'scan.timestamp-millis' or 'incremental-between'."
            )
    for key in _NOT_HERE:
        if key in options.table_options:
            raise StreamConfigError(
                f"Option '{key}' is not known to batch reads; they know {', '.join(sorted(_OURS - {'scan.mode'}))}."
            )
    OptionValues(options.table_options).one_of("scan.mode", _STATES, "default")
    kept = {key: value for key, value in options.table_options.items() if key not in _OURS}
    return replace(options, table_options=kept, raw=True, unmatched="drop", fail_on_data_loss=True)


def batch_splits(options: SourceOptions, stream: ResolvedStream) -> list[StreamSplit]:
    """The splits of the batch read that options ask for."""
    refuse_chain(stream, "batch reads")
    # The table itself may name the time zone.
    values = OptionValues({**zone_options(stream.schema.options), **options.table_options})
    chosen = [key for key in _PARTS if values.text(key) is not None]
    if len(chosen) > 1:
        raise StreamConfigError(f"Options {' and '.join(repr(key) for key in chosen)} are both set; give one of them.")
    between = between_of_options(values)
    if between is not None:
        return _splits_of_range(stream, between)
    snapshot = _state_at(stream, values, chosen[0] if chosen else None)
    splits = [] if snapshot is None else _state_of(stream, snapshot)
    # Records in bucket -2 are not part of the table's rows until a compaction assigns their buckets.
    return [split for split in splits if split.bucket != POSTPONE_BUCKET or split.mode is SplitMode.ROWS]


def _splits_of_range(stream: ResolvedStream, between: Between) -> list[StreamSplit]:
    planner = new_planner(stream.with_spec(replace(stream.spec, between=between)))
    state: PlannerState = planner.initial()
    splits: list[StreamSplit] = []
    while not state.ended:
        step = planner.step(state)
        state = step.state
        splits += [] if step.plan is None else step.plan.splits()
    return splits


def _state_of(stream: ResolvedStream, snapshot: Snapshot) -> list[StreamSplit]:
    from pypaimon.streaming.metadata.history import SnapshotRangeValidator
    from pypaimon.streaming.planning.snapshot_plans import SnapshotPlans

    schema = stream.schema.copy(new_options={**stream.schema.options, "changelog-producer": "none"})
    with SnapshotRangeValidator(stream.directory, False).reading(snapshot):
        return SnapshotPlans(stream.directory, schema, stream.options).full(snapshot).splits


def _state_at(stream: ResolvedStream, values: OptionValues, key: str | None) -> Snapshot | None:
    snapshots = stream.directory.snapshots
    if key is None:
        return snapshots.get_latest_snapshot()
    if key in (_MILLIS, _TIME):
        millis = values.integer(_MILLIS) if key == _MILLIS else values.local_timestamp_millis(_TIME)
        assert millis is not None
        found = snapshots.earlier_or_equal_time_mills(millis)
        if found is None:
            raise StreamConfigError(f"Option '{key}' = '{values.text(key)}': the table has no snapshot as old as that.")
        return found
    name = values.text(key)
    assert name is not None
    return snapshot_of_version(stream.directory, key, name)


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
