"""`gone`: which work of a compaction others have made void meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pypaimon.streaming.compaction.live_entries import LiveEntries
from pypaimon.streaming.compaction.live_files import live_buckets
from pypaimon.streaming.compaction.vector_index import VectorIndex
from pypaimon.streaming.compaction.work import Work
from pypaimon.streaming.metadata.table_directory import TableDirectory

_NOT_THERE = object()


def gone(table: Any, work: Iterable[Work]) -> list[Work]:
    """Work of which a file that is read, or its deletion vector, is not in the latest snapshot any more.

    Reads all manifests of that snapshot.

    Args:
        table: pypaimon's table.
        work: What was planned at an earlier snapshot.

    Raises:
        CorruptTableError: A file of the metadata is damaged or missing.
        StoreError: The store failed.
    """
    directory = TableDirectory.of(table)
    snapshot = directory.snapshots.get_latest_snapshot()
    if snapshot is None:
        return list(work)
    buckets = live_buckets(table, LiveEntries().look(directory, snapshot))
    attached = VectorIndex.of(table, directory, snapshot).attached(buckets)
    there = {file.stored.identity: file.deletions for bucket in attached for file in bucket.files}
    return [
        each
        for each in work
        if any(there.get(file.stored.identity, _NOT_THERE) != file.deletions for file in each.files_read)
    ]
