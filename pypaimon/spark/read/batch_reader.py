"""`PaimonBatchReader`: `spark.read.format("pypaimon")`, of a state or of a range of the history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.between import RANGE_KEYS, Between, between_of_options
from pypaimon.streaming.options.option_key import OptionKey, TableOptions, one_of
from pypaimon.streaming.options.start import checked_mode
from pypaimon.streaming.options.stream_options import Unmatched
from pypaimon.streaming.spec.resolve import ResolvedStream

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pypaimon.streaming.planning.planner_state import PlannerState

_TIMES = (option_keys.SCAN_TIMESTAMP_MILLIS, option_keys.SCAN_TIMESTAMP)
_STREAM_ONLY = ("start", "start_tag")
_NOT_HERE = (
    option_keys.SCAN_WATERMARK,
    option_keys.SCAN_FILE_CREATION_TIME_MILLIS,
    option_keys.SCAN_CREATION_TIME_MILLIS,
)
_STATES = one_of(
    "default", "full", "latest", "latest-full", "from-snapshot", "from-snapshot-full", "from-timestamp", "incremental",
)  # fmt: skip
_MODE = replace(option_keys.SCAN_MODE, kind=_STATES)
_PARTS: tuple[OptionKey[Any, Any], ...] = (
    option_keys.SCAN_SNAPSHOT_ID, option_keys.SCAN_VERSION, option_keys.SCAN_TAG_NAME, *_TIMES, *RANGE_KEYS,
)  # fmt: skip
_SHOWN = {
    each.name
    for each in (
        *_PARTS,
        option_keys.INCREMENTAL_BETWEEN_SCAN_MODE,
        option_keys.INCREMENTAL_BETWEEN_TAG_TO_SNAPSHOT,
    )
}


def batch_options(options: SourceOptions) -> SourceOptions:
    """The options without those that choose a part of the history; the state is merged as in any batch read."""
    for name in _STREAM_ONLY:
        if getattr(options, name) is not None:
            raise StreamConfigError(
                f"Option '{name.replace('_', '.')}' is for streams: for a batch give 'scan.snapshot-id', "
                "'scan.tag-name', 'scan.timestamp-millis' or 'incremental-between'."
            )
    for key in _NOT_HERE:
        if key.set_as(options.table_options):
            raise StreamConfigError(
                f"Option '{key}' is not known to batch reads; they know {', '.join(sorted(_SHOWN))}."
            )
    # A version may be a tag, which no mode of a stream takes.
    if _MODE.of(options.table_options) != "default" and not option_keys.SCAN_VERSION.set_as(options.table_options):
        checked_mode(options.table_options)
    kept = {key: value for key, value in options.table_options.items() if key not in _SHOWN | {_MODE.name}}
    return replace(options, table_options=kept, raw=True, unmatched="drop", fail_on_data_loss=True)


def batch_splits(options: SourceOptions, stream: ResolvedStream) -> list[StreamSplit]:
    """The splits of the batch read that options ask for."""
    refuse_chain(stream, "batch reads")
    # The table itself may name the time zone.
    values = {**zone_options(stream.schema.options), **options.table_options}
    chosen = [key for key in _PARTS if key.set_as(values)]
    if len(chosen) > 1:
        names = "' and '".join(map(str, chosen))
        raise StreamConfigError(f"Options '{names}' are both set; give one of them.")
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

    schema = stream.schema.copy(new_options={**stream.schema.options, option_keys.CHANGELOG_PRODUCER.name: "none"})
    with SnapshotRangeValidator(stream.directory, False, is_batch=True).reading(snapshot):
        return SnapshotPlans(stream.directory, schema, stream.options).full(snapshot).splits


def _state_at(stream: ResolvedStream, values: TableOptions, key: OptionKey[Any, Any] | None) -> Snapshot | None:
    snapshots = stream.directory.snapshots
    if key is None:
        return snapshots.get_latest_snapshot()
    if key in _TIMES:
        found = snapshots.earlier_or_equal_time_mills(key.of(values))
        if found is None:
            raise StreamConfigError(f"Option '{key}' = '{key.text(values)}': the table has no snapshot as old as that.")
        return found
    name = key.text(values)
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
