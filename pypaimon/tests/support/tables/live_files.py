"""Data files that are nowhere, for what chooses among files."""

from __future__ import annotations

from pypaimon.streaming.commit.changes import FileChange
from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.live_files import LiveFile
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.paimon.internals import DataFileMeta, GenericRow, SimpleStats, Timestamp

OPTIONS = CompactionOptions(
    trigger=3,
    levels=4,
    size_amplification=25,
    size_ratio=1,
    off_peak=None,
    interval_millis=None,
    total_bytes=None,
    incremental_bytes=None,
    force_rewrite=False,
    force_up_level_0=False,
    target_bytes=1000,
    small_bytes=700,
    min_files=5,
    open_bytes=1,
)


def live_file(
    name: str,
    *,
    size: int,
    level: int = 0,
    sequence: int = 0,
    made: int = 0,
    keys: tuple[int, int] = (0, 0),
    deletes: int | None = 0,
) -> LiveFile:
    """A file of one row."""
    meta = DataFileMeta(
        name, size, 1, GenericRow([keys[0]], []), GenericRow([keys[1]], []), SimpleStats.empty_stats(),
        SimpleStats.empty_stats(), sequence, sequence, 0, level, [], Timestamp.from_epoch_millis(made), deletes,
    )  # fmt: skip
    return LiveFile(meta, FileChange(EntryKind.ADD, b"", 0, 1, {}))
