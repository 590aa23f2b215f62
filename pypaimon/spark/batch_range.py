"""What a batch read holds: the state at one snapshot, or what happened between two (`incremental-between`)."""

from __future__ import annotations

from dataclasses import replace

from pypaimon.spark.engine_builder import EngineReadBuilder
from pypaimon.spark.options import SourceOptions
from pypaimon.spark.time_travel import snapshot_of_version, snapshot_with_id
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.plan import SplitMode, StreamSplit
from pypaimon.streaming.planning.follow_up import ChangelogFollowUpScanner, DeltaFollowUpScanner, FollowUpScanner
from pypaimon.streaming.planning.incremental_diff import IncrementalDiffScanner
from pypaimon.streaming.planning.snapshot_plans import SnapshotPlans
from pypaimon.streaming.position import POSTPONE_BUCKET
from pypaimon.streaming.settings.option_values import OptionValues
from pypaimon.streaming.settings.table_traits import ChangelogProducer

_SNAPSHOT, _TAG = ("scan.snapshot-id", "scan.version"), "scan.tag-name"
_MILLIS, _TIME = "scan.timestamp-millis", "scan.timestamp"
_BETWEEN, _BETWEEN_TIMES = "incremental-between", "incremental-between-timestamp"
_MODE = "incremental-between-scan-mode"
_STREAM_ONLY = ("start", "start_tag")
_NOT_HERE = ("scan.watermark", "scan.file-creation-time-millis", "scan.creation-time-millis", "incremental-to-auto-tag")
_STATES = (
    "default", "full", "latest", "latest-full", "from-snapshot", "from-snapshot-full", "from-timestamp", "incremental",
)  # fmt: skip
_OURS = frozenset({*_SNAPSHOT, _TAG, _MILLIS, _TIME, _BETWEEN, _BETWEEN_TIMES, _MODE, "scan.mode"})


def batch_options(options: SourceOptions) -> SourceOptions:
    """The options without those that say which part of the history is read, for a state that is merged as it is.

    Raises:
        StreamConfigError: An option is for streams only.
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
    return replace(options, table_options=kept, raw=True, unmatched="drop")


def batch_splits(options: SourceOptions, builder: EngineReadBuilder) -> list[StreamSplit]:
    """The splits of the batch read that options ask for.

    Args:
        options: The options as they were given.
        builder: Made from `batch_options`.

    Raises:
        PaimonStreamError: The range is not there, or the options contradict each other.
    """
    values = OptionValues(options.table_options)
    chosen = [
        key for key in (*_SNAPSHOT, _TAG, _MILLIS, _TIME, _BETWEEN, _BETWEEN_TIMES) if values.text(key) is not None
    ]
    if len(chosen) > 1:
        raise StreamConfigError(f"Options {' and '.join(repr(key) for key in chosen)} are both set; give one of them.")
    if chosen and chosen[0] in (_BETWEEN, _BETWEEN_TIMES):
        return _between(builder, values, chosen[0])
    snapshot = _state_at(builder, values, chosen[0] if chosen else None)
    return [] if snapshot is None else _state(builder, snapshot)


def _plans(builder: EngineReadBuilder) -> SnapshotPlans:
    return SnapshotPlans(builder.directory, builder.schema, builder.options)


def _state(builder: EngineReadBuilder, snapshot: Snapshot) -> list[StreamSplit]:
    """All that is committed at a snapshot, also what no compaction has turned into changelog yet.

    Records that wait in bucket -2 belong to no row yet.
    """
    schema = builder.schema.copy(new_options={**builder.schema.options, "changelog-producer": "none"})
    splits = SnapshotPlans(builder.directory, schema, builder.options).full(snapshot).splits
    return [split for split in splits if split.bucket != POSTPONE_BUCKET or split.mode is SplitMode.ROWS]


def _state_at(builder: EngineReadBuilder, values: OptionValues, key: str | None) -> Snapshot | None:
    snapshots = builder.directory.snapshots
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
    return snapshot_of_version(builder.directory, key, name)


def _between(builder: EngineReadBuilder, values: OptionValues, key: str) -> list[StreamSplit]:
    """What happened after the first and up to the second of two snapshots, tags or times."""
    text = values.text(key) or ""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise StreamConfigError(f"Option '{key}' = '{text}': give two, 'start,end'; the start itself is left out.")
    mode = values.one_of(_MODE, ("auto", "delta", "changelog", "diff"), "auto")
    first, last = (_end(builder, key, part) for part in parts)
    if first is not None and last is not None and first.id > last.id:
        raise StreamConfigError(f"Option '{key}' = '{text}': the start lies after the end; swap them.")
    if last is None or (first is not None and first.id == last.id):
        return []
    tags = key == _BETWEEN and not all(part.isdecimal() for part in parts)
    if mode == "diff" or (tags and mode == "auto"):
        if first is None:
            return _state(builder, last)
        return IncrementalDiffScanner(builder.table, _plans(builder)).scan(first, last).splits()
    scanner: FollowUpScanner = DeltaFollowUpScanner()
    if mode == "changelog" or (mode == "auto" and builder.traits.producer is not ChangelogProducer.NONE):
        scanner = ChangelogFollowUpScanner()
    plans = _plans(builder)
    splits: list[StreamSplit] = []
    for snapshot_id in range(1 if first is None else first.id + 1, last.id + 1):
        snapshot = snapshot_with_id(builder.directory, snapshot_id)
        if scanner.should_scan(snapshot):
            planned = plans.delta(snapshot) if isinstance(scanner, DeltaFollowUpScanner) else plans.changelog(snapshot)
            splits += planned.splits
    return splits


def _end(builder: EngineReadBuilder, key: str, part: str) -> Snapshot | None:
    """One end of a range; None before the first snapshot."""
    if key == _BETWEEN_TIMES:
        if not part.isdecimal():
            raise StreamConfigError(f"Option '{key}': '{part}' is no time; give epoch milliseconds, 'start,end'.")
        return builder.directory.snapshots.earlier_or_equal_time_mills(int(part))
    return None if part.isdecimal() and int(part) == 0 else snapshot_of_version(builder.directory, key, part)
