"""What a batch read holds: the state at one snapshot, or a range of the table's history (`incremental-between`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pypaimon.spark.options.source_options import SourceOptions
from pypaimon.spark.read.source_stream import new_planner, refuse_chain
from pypaimon.spark.read.time_travel import snapshot_of_version
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.model.plan import SplitMode, StreamSplit
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.model.time_zone import zone_options
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.between import RANGE_KEYS, Between, between_of_options
from pypaimon.streaming.options.option_key import OptionKey, TableOptions, one_of
from pypaimon.streaming.spec.resolve import ResolvedStream

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
        if key.set_as(options.table_options):
            raise StreamConfigError(
                f"Option '{key}' is not known to batch reads; they know {', '.join(sorted(_SHOWN))}."
            )
    _MODE.of(options.table_options)
    kept = {key: value for key, value in options.table_options.items() if key not in _SHOWN | {_MODE.name}}
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
    values = {**zone_options(stream.schema.options), **options.table_options}
    chosen = [key for key in _PARTS if key.set_as(values)]
    if len(chosen) > 1:
        names = "' and '".join(map(str, chosen))
        raise StreamConfigError(f"Options '{names}' are both set; give one of them.")
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
    state, splits = planner.initial(), list[StreamSplit]()
    while not state.ended:
        step = planner.step(state)
        state = step.state
        splits += [] if step.plan is None else step.plan.splits()
    return splits


def _state(stream: ResolvedStream, snapshot: Snapshot) -> list[StreamSplit]:
    """Everything that is committed at a snapshot, including rows whose changelog no compaction has produced yet."""
    from pypaimon.streaming.metadata.history import SnapshotRangeValidator
    from pypaimon.streaming.planning.snapshot_plans import SnapshotPlans

    schema = stream.schema.copy(new_options={**stream.schema.options, option_keys.CHANGELOG_PRODUCER.name: "none"})
    with SnapshotRangeValidator(stream.directory, False).reading(snapshot):
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
