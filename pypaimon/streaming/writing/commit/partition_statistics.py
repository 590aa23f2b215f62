"""`partition_statistics`: what a commit changes in each partition, as catalogs keep count of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.write_internals import PartitionStatistics
from pypaimon.streaming.writing.commit.file_changes import FileChange


def partition_statistics(files: Iterable[FileChange], paths: FilePaths) -> list[Any]:
    """pypaimon's `PartitionStatistics`, one for each partition that is touched; what goes counts negative.

    Args:
        files: Data files that come and go.
        paths: Of the table: its names of partitions are the catalog's.
    """
    found: dict[bytes, Any] = {}
    for each in files:
        sign = 1 if each.kind == EntryKind.ADD else -1
        made = found.get(each.partition)
        if made is None:
            made = found[each.partition] = PartitionStatistics(paths.values(each.partition), 0, 0, 0, 0, 0)
        made.record_count += each.rows
        made.file_size_in_bytes += sign * each.file["_FILE_SIZE"]
        made.file_count += sign
        # Stored is what clocks of the writer showed.
        stored = each.file["_CREATION_TIME"]
        created = 0 if stored is None else paths.zone.millis(stored)
        made.last_file_creation_time = max(made.last_file_creation_time, created)
        made.total_buckets = each.total_buckets
    return list(found.values())
