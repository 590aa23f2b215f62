"""The data files of a table, bucket by bucket, as a compaction picks, reads and replaces them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.commit.changes import FileChange, changes_of
from pypaimon.streaming.errors import CorruptTableError, TableChangedError
from pypaimon.streaming.formats.binary_row import decode
from pypaimon.streaming.formats.binary_row_encoding import StoredRow
from pypaimon.streaming.metadata.data_file_meta import DataFiles, bound_fields
from pypaimon.streaming.metadata.manifests import live
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.paimon.internals import BinaryRow, DataFileMeta, DeletionFile, SimpleStats
from pypaimon.streaming.paimon.write_internals import CommitMessage, IndexManifestEntry

if TYPE_CHECKING:
    from pyroaring import BitMap

_PLACE = ["partition", "bucket", "total_buckets"]
_MADE_TOGETHER = 1024


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of the table."""

    read: DataFileMeta  # Its metadata for readers: with path and decoded keys, without statistics
    stored: FileChange
    deletions: DeletionFile | None = None  # The place of its deletion vector; None: it has none

    @property
    def name(self) -> str:
        return str(self.read.file_name)

    @property
    def size(self) -> int:
        return int(self.read.file_size)

    @property
    def level(self) -> int:
        """Its level; 0 in tables without a primary key, unless `clustering.incremental` sorts them."""
        return int(self.read.level)

    @property
    def deleted_ratio(self) -> float:
        """The part of its rows that its deletion vector removes; 0 if the vector does not say how many."""
        deleted = None if self.deletions is None else self.deletions.cardinality
        return (deleted or 0) / max(1, int(self.read.row_count))

    @property
    def made_millis(self) -> int:
        """Creation time, in milliseconds since 1970 of the local clock; 0 if it is not known."""
        time = self.read.creation_time
        return 0 if time is None else int(time.get_millisecond())

    def replaced(self) -> DataFileMeta:
        """Its metadata exactly as in the manifests, so that an entry that deletes or moves it names the same file."""
        file = self.stored.file
        return replace(
            self.read,
            min_key=serialised_row(file["_MIN_KEY"]),
            max_key=serialised_row(file["_MAX_KEY"]),
            key_stats=_stats(file["_KEY_STATS"]),
            value_stats=_stats(file["_VALUE_STATS"]),
            value_stats_cols=file["_VALUE_STATS_COLS"],
            extra_files=file["_EXTRA_FILES"],
        )

    def moved(self, level: int) -> DataFileMeta:
        return replace(self.replaced(), level=level)


@dataclass(frozen=True, slots=True)
class LiveBucket:
    """The files of one bucket."""

    partition: StoredRow
    bucket: int
    total_buckets: int
    files: tuple[LiveFile, ...]

    @property
    def row(self) -> bytes:
        return self.partition.row


@dataclass(slots=True)
class CompactionResult:
    """What a task makes of one bucket."""

    bucket: LiveBucket
    before: list[LiveFile] = field(default_factory=list)
    after: list[DataFileMeta] = field(default_factory=list)
    changelog: list[DataFileMeta] = field(default_factory=list)
    # Positions of replaced records in files that stay, by name of the file; of data evolution those of deleted rows in
    # the new files
    superseded: dict[str, BitMap] = field(default_factory=dict)
    index_added: list[IndexManifestEntry] = field(default_factory=list)
    index_deleted: list[IndexManifestEntry] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.before or self.after or self.changelog or self.superseded)

    @property
    def rewritten(self) -> set[str]:
        """Names of the files that are removed from every level."""
        return {file.name for file in self.before} - {str(file.file_name) for file in self.after}

    def message(self) -> CommitMessage:
        bucket = self.bucket
        return CommitMessage(
            bucket.partition,
            bucket.bucket,
            [],
            total_buckets=bucket.total_buckets,
            compact_before=[file.replaced() for file in self.before],
            compact_after=self.after,
            compact_changelog_files=self.changelog,
            compact_index_adds=self.index_added,
            compact_index_deletes=self.index_deleted,
        )


def live_buckets(
    table: PaimonTable, entries: pa.Table, wanted: Callable[[pa.Array], pa.Array] | None = None
) -> Iterator[LiveBucket]:
    """The buckets of live manifest entries, in the order of their partitions, of the `wanted` ones (serialised rows;
    None: all).

    Objects are made for about a thousand files at a time, because a table may have a million files of which few are
    due.
    """
    entries = entries.combine_chunks()
    rows = pc.unique(entries["partition"].combine_chunks())
    if wanted is not None:
        rows = wanted(rows)
        entries = entries.filter(pc.is_in(entries["partition"], value_set=rows))
    values = {row: StoredRow(decode(row, table.partition_fields), row) for row in rows.to_pylist()}
    order = pc.sort_indices(entries, [(name, "ascending") for name in _PLACE])
    for start, stop in _blocks(entries.select(_PLACE).take(order)):
        block = entries.take(order.slice(start, stop - start)).combine_chunks()
        metas = DataFiles(block, table.paths, bound_fields(table.schema)).make(0, block.num_rows)
        files = [LiveFile(meta, change) for meta, change in zip(metas, changes_of(block), strict=True)]
        for (row, bucket, total), members in groupby(files, key=_bucket):
            yield LiveBucket(values[row], bucket, total, tuple(members))


def of_known_schemas(buckets: Iterable[LiveBucket], schema_id: int) -> Iterator[LiveBucket]:
    """The same buckets. Raises TableChangedError at a file that was written under a newer schema."""
    for bucket in buckets:
        newest = max(file.read.schema_id for file in bucket.files)
        if newest > schema_id:
            raise TableChangedError(
                f"Files of schema {newest} appeared while the table was read under schema {schema_id}.",
                advice="Compact it again.",
            )
        yield bucket


def _blocks(places: pa.Table) -> Iterator[tuple[int, int]]:
    """First and last row of each block of entries: whole buckets, at least `_MADE_TOGETHER` files if there are more."""
    codes = [
        places["partition"].combine_chunks().dictionary_encode().indices.to_numpy(),
        *(places[name].to_numpy() for name in _PLACE[1:]),
    ]
    changes = np.any([np.diff(code) != 0 for code in codes], axis=0)
    start = 0
    for end in (np.flatnonzero(changes) + 1).tolist():
        if end - start >= _MADE_TOGETHER:
            yield start, end
            start = end
    yield start, places.num_rows


def local_millis(now: datetime) -> float:
    """A local time as in `LiveFile.made_millis`: milliseconds as if its clock were that of UTC."""
    return now.replace(tzinfo=timezone.utc).timestamp() * 1000


def _bucket(file: LiveFile) -> tuple[bytes, int, int]:
    return file.stored.partition, file.stored.bucket, file.stored.total_buckets


def serialised_row(data: bytes) -> Any:
    """A row for objects of pypaimon, which take it in place of a `GenericRow`, though they are not annotated so."""
    return BinaryRow(data, [])


def _stats(record: Any) -> SimpleStats:
    least, greatest = (serialised_row(record[name]) for name in ("_MIN_VALUES", "_MAX_VALUES"))
    return SimpleStats(least, greatest, record["_NULL_COUNTS"])


Place = tuple[bytes, int]
"""Serialised partition, and bucket."""

_MOST_SNAPSHOTS = 100
"""Changes of snapshots are read one after the other. After more of them, reading all manifests takes less time."""


class LiveEntries:
    """Entries of manifests, in columns. After the first read, the number of requests depends on the changes alone.

    Args:
        by_partition: Whether a change in one bucket makes all buckets of its partition changed ones.
    """

    def __init__(self, *, by_partition: bool = False) -> None:
        self._by_partition = by_partition
        self._at: Snapshot | None = None
        self._entries: pa.Table | None = None

    def forget(self) -> None:
        """Make the next call of `look` return everything."""
        self._at = self._entries = None

    @property
    def everything(self) -> pa.Table:
        """All entries of the snapshot of the last `look`, which must have returned."""
        assert self._entries is not None
        return self._entries

    def look(self, directory: TableDirectory, snapshot: Snapshot) -> pa.Table:
        """The entries of a snapshot in buckets that have changed since the last call; all entries at first.

        Costs two manifest lists and their manifests at first, if the snapshot of the last call is gone, and after more
        than a hundred others; otherwise each snapshot since, its list of changes and their manifests.
        """
        changed = self._changed(directory, snapshot)
        if changed is not None:
            return changed
        try:
            self._entries = live(_entries(directory, snapshot.state_lists))
        except FileNotFoundError as error:
            detail = f"is missing, though snapshot {snapshot.id} needs it"
            raise CorruptTableError(str(error.filename or error), detail) from error
        self._at = snapshot
        return self._entries

    def _changed(self, directory: TableDirectory, snapshot: Snapshot) -> pa.Table | None:
        """As `look`, from the changes of each snapshot since the last call; None: some of these are gone."""
        since = self._since(directory, snapshot)
        if since is None or self._entries is None:
            return None
        entries, places = self._entries, set[Place | bytes]()
        for each in since:
            try:
                changes = _entries(directory, [each.delta_manifest_list])
            except FileNotFoundError:
                # The snapshot has expired meanwhile: its own file is deleted last.
                return None
            places.update(self._places(changes))
            entries = live(pa.concat_tables([entries, changes]))
        self._entries, self._at = entries.combine_chunks(), snapshot
        return entries.filter(pa.array([each in places for each in self._places(entries)], pa.bool_()))

    def _places(self, entries: pa.Table) -> Iterable[Place | bytes]:
        partitions: list[bytes] = entries["partition"].to_pylist()
        return partitions if self._by_partition else zip(partitions, entries["bucket"].to_pylist(), strict=True)

    def _since(self, directory: TableDirectory, snapshot: Snapshot) -> list[Snapshot] | None:
        """The snapshots since the last call; None: this is another history, or some are gone."""
        last = self._at
        if last is None or not 0 <= snapshot.id - last.id <= _MOST_SNAPSHOTS:
            return None
        there = directory.snapshots.try_get(last.id)
        if there is None or not there.is_same_commit(last):
            return None
        numbers = range(last.id + 1, snapshot.id + 1)
        found = directory.snapshots.get_snapshots_batch(numbers)
        since = [each for number in numbers if (each := found[number]) is not None]
        return since if len(since) == len(numbers) else None


def _entries(directory: TableDirectory, lists: Sequence[str]) -> pa.Table:
    manifests = pa.concat_tables(directory.manifests.manifest_lists(lists))
    return directory.manifests.entries(manifests)
