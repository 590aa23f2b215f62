"""`write_state`: what a writer must know about existing files, read once, in columns, before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache

from pypaimon.streaming.concurrency.forking import cache_lock
from pypaimon.streaming.formats.binary_row_encoding import all_forms
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.manifests import live
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.paimon.write_internals import BucketMode

NO_SEQUENCE = -1
"""The number before the first sequence number."""

_MAX_SUMMARIES = 1 << 16


@dataclass(frozen=True, slots=True)
class WriteState:
    """What existing files imply for new ones."""

    # The greatest sequence number of the table; -1 if there is none. Numbers must grow only within a bucket, so one
    # number is enough for all of them.
    sequence: int = NO_SEQUENCE
    # Partitions that have another number of buckets than the table, and that number. The keys are serialised rows, in
    # all forms of their bytes.
    rescaled: Mapping[bytes, int] = field(default_factory=dict)
    # Id of the snapshot that was read, 0 for none; None in tables where none of this matters
    snapshot: int | None = None


@dataclass(frozen=True, slots=True)
class _Summary:
    sequence: int
    bucket_counts: frozenset[int]


# Manifests are immutable and their names unique, so a process that plans many batches reads only new ones.
_summaries: LRUCache[str, _Summary] = LRUCache(_MAX_SUMMARIES)
_lock = cache_lock(_summaries)


def write_state(table: PaimonTable) -> WriteState:
    """What a writer must know about the existing files of a table.

    Costs the latest snapshot, two manifest lists, and each manifest that this process has not read yet. It costs
    nothing for a table whose buckets do not number their rows.
    """
    if table.bucket_mode not in (BucketMode.HASH_FIXED, BucketMode.HASH_DYNAMIC):
        return WriteState()
    directory = table.new_directory()
    snapshot = directory.snapshots.get_latest_snapshot()
    if snapshot is None:
        return WriteState(snapshot=0)
    manifests = pa.concat_tables(directory.manifests.manifest_lists(snapshot.state_lists))
    summaries = _summaries_of(directory, manifests)
    sequence = max((each.sequence for each in summaries), default=NO_SEQUENCE)
    if all(each.bucket_counts <= {table.total_buckets} for each in summaries):
        return WriteState(sequence, snapshot=snapshot.id)
    return WriteState(sequence, _rescaled(table, directory.manifests.entries(manifests)), snapshot.id)


def _summaries_of(directory: TableDirectory, manifests: pa.Table) -> list[_Summary]:
    paths = [f"{directory.table.table_path}/{name}" for name in manifests["file_name"].to_pylist()]
    with _lock.held:
        found = {path: _summaries.get(path) for path in paths}
    missing = [index for index, path in enumerate(paths) if found[path] is None]
    directory.manifests.prefetch(manifests.take(pa.array(missing, pa.int64())))
    for index in missing:
        found[paths[index]] = _summary(directory.manifests.entries(manifests.slice(index, 1)))
    with _lock.held:
        _summaries.update({path: each for path, each in found.items() if each is not None})
    return [each for each in found.values() if each is not None]


def _summary(entries: pa.Table) -> _Summary:
    added = entries.filter(pc.equal(entries["kind"], EntryKind.ADD))
    greatest = pc.max(added["max_sequence_number"]).as_py()
    counts = frozenset(pc.unique(added["total_buckets"]).to_pylist())
    return _Summary(NO_SEQUENCE if greatest is None else greatest, counts)


def _rescaled(table: PaimonTable, entries: pa.Table) -> dict[bytes, int]:
    there = live(entries).select(["partition", "total_buckets"])
    others = there.filter(pc.not_equal(there["total_buckets"], table.total_buckets))
    pairs = others.group_by(["partition", "total_buckets"]).aggregate([]).to_pylist()
    fields = table.partition_fields
    return {row: pair["total_buckets"] for pair in pairs for row in all_forms([pair["partition"]], fields)}
