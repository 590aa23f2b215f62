"""`table_files`: the data files of a table, bucket by bucket, and which of them a compaction would take now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from html import escape
from typing import Any

import pyarrow as pa

from pypaimon.streaming.compaction.chosen_partitions import ChosenPartitions, MixedPartitions
from pypaimon.streaming.compaction.compaction_options import check_compactable, under_latest_schema
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.live_files import LiveBucket, LiveEntries, LiveFile, live_buckets
from pypaimon.streaming.compaction.reports import FileCount, SkippedPartition, counted
from pypaimon.streaming.compaction.task_pickers import task_picker
from pypaimon.streaming.compaction.vector_index import VectorIndex
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options.arguments import a_table
from pypaimon.streaming.paimon.handles import WritableTable

_MOST_BARS = 40
_COLOURS = ("#e4572e", "#f3a712", "#a8c686", "#669bbc", "#29335c", "#1b2a49")
"""By level, from 0 up. Higher levels have the last one."""

_Place = tuple[bytes, int, int]
"""Serialised partition, bucket, and number of buckets of the partition."""


@dataclass(frozen=True, slots=True)
class BucketFiles:
    """The data files of one bucket.

    Attributes:
        partition: Values by partition column.
        bucket: Number of the bucket; 0 in tables without buckets.
        files: All files.
        levels: The files by level, lowest first. In tables without a primary key all are on level 0,
            unless `clustering.incremental` sorts them.
        sorted_runs: Number of runs that a reader merges: files of level 0, and levels above it. None: the table has no
            primary key.
        due: The files that a compaction would take now. None: such a table or partition is not compacted here.
    """

    partition: Mapping[str, Any]
    bucket: int
    files: FileCount
    levels: Mapping[int, FileCount]
    sorted_runs: int | None
    due: FileCount | None

    @property
    def name(self) -> str:
        """Partition and bucket in one text: `day=2026-11-21, bucket 0`."""
        return ", ".join([*(f"{name}={value}" for name, value in self.partition.items()), f"bucket {self.bucket}"])


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The data files of a table at one snapshot. A notebook shows them as a picture.

    Attributes:
        table: Full name of the table.
        snapshot_id: Id of the snapshot; None: the table has no snapshot.
        buckets: Buckets with files, in the order of their partitions.
        not_compacted: Why such a table is not compacted here; None: it is.
        skipped: Partitions that are not compacted, although the rest of the table is.
    """

    table: str
    snapshot_id: int | None
    buckets: tuple[BucketFiles, ...] = ()
    not_compacted: str | None = None
    skipped: tuple[SkippedPartition, ...] = ()

    @property
    def files(self) -> FileCount:
        """All files."""
        return sum((each.files for each in self.buckets), FileCount())

    @property
    def due(self) -> FileCount:
        """All files that a compaction would take now."""
        return sum((each.due or FileCount() for each in self.buckets), FileCount())

    def _repr_html_(self) -> str:
        bars = [Bar(each.name, each.levels, each.due or FileCount()) for each in self.buckets]
        return html_bars(self.table, bars, self.not_compacted)


def table_files(
    table: WritableTable,
    *,
    partition: Mapping[str, Any] | None = None,
    where: str | None = None,
    partition_idle_time: float | timedelta | None = None,
    full: bool = False,
) -> TableFiles:
    """Count the data files of a table, and those that `compact` with the same arguments would take. Blocks.

    Reads the snapshot, manifest lists and manifests, and no data files.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` returns it. It may be one that cannot be compacted here.
        partition: As `compact` takes it.
        where: As `compact` takes it.
        partition_idle_time: As `compact` takes it.
        full: As `compact` takes it.

    Raises:
        StreamConfigError: An option cannot be read, or `partition` or `where` names another column than those of
            partitions.
        CorruptTableError: A manifest is damaged.
        StoreError: The store failed (retriable).
    """
    given = PaimonTable(a_table("table_files: table", table))
    chosen = ChosenPartitions(given, partition, where, partition_idle_time)
    directory, name = given.new_directory(), given.name
    latest = under_latest_schema(given, directory)
    snapshot = directory.snapshots.get_latest_snapshot()
    if snapshot is None:
        return TableFiles(name, None)
    entries = LiveEntries().look(directory, snapshot)
    buckets = list(chosen.idle(live_buckets(latest, entries, chosen.among)))
    try:
        check_compactable(latest)
        mixed = MixedPartitions(latest, entries, chosen.living(latest, latest.zone.now()))
        compactable = set(mixed.others(pa.array(list({each.row for each in buckets}), pa.binary())).to_pylist())
        due: defaultdict[_Place, FileCount] = defaultdict(FileCount)
        index = VectorIndex.of(latest, directory, snapshot)
        found = index.attached(each for each in buckets if each.row in compactable)
        for task in task_picker(latest, FileReader(latest, directory, lambda: None)).tasks(found, full=full):
            due[_place(task.bucket)] += counted(file.read for file in task.files)
    except UnsupportedTableError as error:
        return TableFiles(name, snapshot.id, tuple(_described(latest, each, None) for each in buckets), str(error))
    described = (_described(latest, each, due[_place(each)] if each.row in compactable else None) for each in buckets)
    return TableFiles(name, snapshot.id, tuple(described), skipped=mixed.skipped)


def _described(table: PaimonTable, bucket: LiveBucket, due: FileCount | None) -> BucketFiles:
    levels: dict[int, list[LiveFile]] = {}
    for file in sorted(bucket.files, key=lambda file: file.level):
        levels.setdefault(file.level, []).append(file)
    return BucketFiles(
        dict(zip(table.partition_keys, bucket.partition, strict=True)),
        bucket.bucket,
        counted(file.read for file in bucket.files),
        {level: counted(file.read for file in files) for level, files in levels.items()},
        sum(len(files) if level == 0 else 1 for level, files in levels.items()) if table.is_primary_key_table else None,
        due,
    )


def _place(bucket: LiveBucket) -> _Place:
    return bucket.row, bucket.bucket, bucket.total_buckets


# The picture for notebooks


@dataclass(frozen=True, slots=True)
class Bar:
    """One bucket in the picture."""

    name: str
    levels: Mapping[int, FileCount]
    due: FileCount

    @property
    def size(self) -> int:
        return sum(each.bytes for each in self.levels.values())


def html_bars(title: str, bars: Sequence[Bar], note: str | None) -> str:
    """HTML with a bar for each bucket: its length shows the bytes, its colours the levels.

    Buckets with most files to compact come first. At most 40 are drawn, and a note says how many are left out.
    """
    drawn = sorted(bars, key=lambda bar: (-bar.due.files, -bar.size))[:_MOST_BARS]
    longest = max((bar.size for bar in drawn), default=0) or 1
    rows = "".join(_row(bar, longest) for bar in drawn)
    below = [f"{len(bars) - len(drawn)} more buckets"] if len(bars) > len(drawn) else []
    below += [note] if note is not None else []
    levels = sorted({level for bar in drawn for level in bar.levels})
    legend = " ".join(f'<span style="color:{_colour(level)}">&#9632;</span> level {level}' for level in levels)
    notes = "".join(f"<div>{escape(each)}</div>" for each in below)
    return f"<div><b>{escape(title)}</b> {legend}<table>{rows}</table>{notes}</div>"


def _row(bar: Bar, longest: int) -> str:
    parts = "".join(
        f'<span title="level {level}: {_words(files)}" style="display:inline-block;height:1em;'
        f'width:{30 * files.bytes / longest:.2f}em;background:{_colour(level)}"></span>'
        for level, files in bar.levels.items()
    )
    files = sum(bar.levels.values(), FileCount())
    due = f"{bar.due.files} to compact" if bar.due.files else ""
    cells = [escape(bar.name), parts, _words(files), due]
    return "<tr>" + "".join(f'<td style="text-align:left;white-space:nowrap">{cell}</td>' for cell in cells) + "</tr>"


def _words(files: FileCount) -> str:
    return f"{files.files:,} file{'' if files.files == 1 else 's'}, {_size(files.bytes)}"


def _size(size: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def _colour(level: int) -> str:
    return _COLOURS[min(level, len(_COLOURS) - 1)]
