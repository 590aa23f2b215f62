"""`table_files`: the data files of a table, bucket by bucket, and which of them a compaction would take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.compaction.chosen_partitions import ChosenPartitions
from pypaimon.streaming.compaction.compactable_tables import check_compactable, under_latest_schema
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.files_picture import Bar, picture
from pypaimon.streaming.compaction.live_entries import LiveEntries
from pypaimon.streaming.compaction.live_files import LiveBucket, LiveFile, live_buckets
from pypaimon.streaming.compaction.reports import FileCount, counted
from pypaimon.streaming.compaction.vector_index import VectorIndex
from pypaimon.streaming.compaction.work import planner
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.arguments import a_table

Place = tuple[bytes, int, int]
"""Serialised partition, bucket, and how many buckets the partition has."""


@dataclass(frozen=True, slots=True)
class BucketFiles:
    """The data files of one bucket.

    Attributes:
        partition: Values by partition column.
        bucket: Its number; 0 in tables without buckets.
        files: All of them.
        levels: They by level, lowest first. In tables without a primary key all are on level 0.
        sorted_runs: How many runs a reader merges: files of level 0, and levels above it. None: the table has no
            primary key.
        due: Those that a compaction would take now. None: such a table is not compacted here.
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
        table: Its full name.
        snapshot: Id of the snapshot; None: the table has none.
        buckets: Buckets with files, in the order of their partitions.
        not_compacted: Why such a table is not compacted here; None: it is.
    """

    table: str
    snapshot: int | None
    buckets: tuple[BucketFiles, ...] = ()
    not_compacted: str | None = None

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
        return picture(self.table, bars, self.not_compacted)


def table_files(
    table: Any,
    *,
    partition: Mapping[str, Any] | None = None,
    where: str | None = None,
    idle_seconds: float | None = None,
    full: bool = False,
) -> TableFiles:
    """Count the data files of a table, and tell what `compact` with the same arguments would take. Blocks.

    Reads snapshot, manifest lists and manifests; no data file.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it. Any table that is read, also one that is not
            compacted here.
        partition: As `compact` takes it.
        where: Likewise.
        idle_seconds: Likewise.
        full: Likewise.

    Raises:
        StreamConfigError: An option cannot be read, or `partition` or `where` names no partition column.
        CorruptTableError: A manifest is damaged.
        StoreError: The store failed (retriable).
    """
    chosen = ChosenPartitions(a_table("table_files: table", table), partition, where, idle_seconds)
    directory = TableDirectory.of(table)
    table, name = under_latest_schema(table, directory), table.identifier.get_full_name()
    snapshot = directory.snapshots.get_latest_snapshot()
    if snapshot is None:
        return TableFiles(name, None)
    buckets = list(chosen.idle(live_buckets(table, LiveEntries().look(directory, snapshot), chosen.among)))
    try:
        check_compactable(table, name)
    except UnsupportedTableError as error:
        return TableFiles(name, snapshot.id, tuple(_told(table, each, None) for each in buckets), str(error))
    buckets = list(VectorIndex.of(table, directory, snapshot).attached(buckets))
    due: defaultdict[Place, FileCount] = defaultdict(FileCount)
    for work in planner(table, FileReader(table, directory, lambda: None)).work(buckets, full=full):
        due[_place(work.bucket)] += counted(file.read for file in work.files)
    return TableFiles(name, snapshot.id, tuple(_told(table, each, due[_place(each)]) for each in buckets))


def _told(table: Any, bucket: LiveBucket, due: FileCount | None) -> BucketFiles:
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


def _place(bucket: LiveBucket) -> Place:
    return bucket.row, bucket.bucket, bucket.total_buckets
