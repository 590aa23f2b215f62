"""What a batch read holds: the state at one snapshot, or a range of the table's history (`incremental-between`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pypaimon.spark.options.source_options import SourceOptions
from pypaimon.spark.read.source_stream import new_planner, refuse_chain
from pypaimon.spark.read.time_travel import snapshot_of_version
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.model.plan import SplitMode, StreamSplit
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.model.time_zone import zone_options
from pypaimon.streaming.options.between import (
    MODE,
    RANGE_KEYS,
    TAG_TO_SNAPSHOT,
    Between,
    between_of_options,
)
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.spec.resolve import ResolvedStream

if TYPE_CHECKING:
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
    """The options without those that choose a part of the history; the state is merged as in any batch read.

    Raises:
        StreamConfigError: An option is of streams only.
    """
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
    """The splits of the batch read that options ask for.

    Args:
        options: The options as they were given.
        stream: Made from `batch_options`.

    Raises:
        PaimonStreamError: The range does not exist, or options contradict each other.
        UnsupportedTableError: It is a chain table, whose rows are in several branches.
    """
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
    splits = [] if snapshot is None else _state(stream, snapshot)
    # Records in bucket -2 are not part of the table's rows until a compaction assigns their buckets.
    return [split for split in splits if split.bucket != POSTPONE_BUCKET or split.mode is SplitMode.ROWS]


def _splits_of_range(stream: ResolvedStream, between: Between) -> list[StreamSplit]:
    """All plans of the stream that reads a range."""
    planner = new_planner(stream.with_spec(replace(stream.spec, between=between)))
    state: PlannerState = planner.initial()
    splits: list[StreamSplit] = []
    while not state.ended:
        step = planner.step(state)
        state = step.state
        splits += [] if step.plan is None else step.plan.splits()
    return splits


def _state(stream: ResolvedStream, snapshot: Snapshot) -> list[StreamSplit]:
    """Everything that is committed at a snapshot, including rows whose changelog no compaction has produced yet."""
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
