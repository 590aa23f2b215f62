"""`VectorIndex`: the deletion vectors of a table's files, and what stays of them once files are replaced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

import pyarrow as pa

from pypaimon.streaming.compaction.live_files import LiveBucket, LiveFile
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.files.deletion_vectors import framed
from pypaimon.streaming.internals import DeletionFile, GenericRow
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.file_paths import FilePaths
from pypaimon.streaming.metadata.index_manifests import DELETION_VECTORS, DeletionRange, IndexEntry, deletion_files
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.write_internals import DeletionVectorMeta, IndexFileMeta, IndexManifestEntry

_VERSION = b"\x01"


@dataclass(frozen=True, slots=True)
class IndexChange:
    """What becomes of the index files of one bucket.

    Attributes:
        added: Files with the vectors that stay.
        deleted: Files that held vectors of replaced files.
        after: The index of the table afterwards.
    """

    added: list[IndexManifestEntry]
    deleted: list[IndexManifestEntry]
    after: VectorIndex


class VectorIndex:
    """The index files with deletion vectors of one state of a table without a primary key and without buckets.

    Args:
        table: pypaimon's table.
        directory: Where it lies.
        entries: Its index files of deletion vectors.
    """

    def __init__(self, table: Any, directory: TableDirectory, entries: Iterable[IndexEntry] = ()) -> None:
        self._table = table
        self._directory = directory
        self._entries = tuple(entries)
        self._paths = FilePaths.of(str(table.table_path), table.table_schema)

    @staticmethod
    def of(table: Any, directory: TableDirectory, snapshot: Snapshot) -> VectorIndex:
        """That of a snapshot; empty where the table has no deletion vectors. One request if it has some.

        Raises:
            CorruptTableError: The index manifest is missing or damaged.
            StoreError: The store failed.
        """
        name = snapshot.index_manifest if table.options.deletion_vectors_enabled() else None
        if not name:
            return VectorIndex(table, directory)
        try:
            entries = directory.manifests.index_entries(name)
        except FileNotFoundError as error:
            raise CorruptTableError(name, "is the index manifest of a snapshot, and missing") from error
        return VectorIndex(table, directory, (each for each in entries if each.index_type == DELETION_VECTORS))

    def attached(self, buckets: Iterable[LiveBucket]) -> Iterator[LiveBucket]:
        """Buckets whose files know their deletion vectors."""
        found = deletion_files(self._entries, self._paths)
        for bucket in buckets:
            files = (
                replace(file, deletions=found.get((bucket.row, bucket.bucket, file.name))) for file in bucket.files
            )
            yield replace(bucket, files=tuple(files)) if found else bucket

    def without(self, bucket: LiveBucket, files: Iterable[LiveFile]) -> IndexChange:
        """Drop the vectors of files of a bucket. Other vectors of their index files are written anew, as they are.

        Costs a request for each index file that is read, and one for each that is written.

        Raises:
            CorruptTableError: An index file is missing or damaged.
            StoreError: The store failed. Nothing is left of what was written.
        """
        gone = {file.name for file in files}
        added, deleted, after = list[IndexManifestEntry](), list[IndexManifestEntry](), list[IndexEntry]()
        try:
            for entry in self._entries:
                here = (entry.partition, entry.bucket) == (bucket.row, bucket.bucket)
                kept = tuple(each for each in entry.ranges if each.data_file not in gone)
                if not here or len(kept) == len(entry.ranges):
                    after.append(entry)
                    continue
                deleted.append(self._entry(EntryKind.DELETE, bucket, entry))
                if kept:
                    new = self._rewritten(entry, kept)
                    after.append(new)
                    added.append(self._entry(EntryKind.ADD, bucket, new))
        except BaseException:
            for each in added:
                self._table.file_io.delete_quietly(self._path(self._home(bucket.row), bucket.bucket, each.index_file))
            raise
        return IndexChange(added, deleted, VectorIndex(self._table, self._directory, after))

    def _rewritten(self, entry: IndexEntry, kept: Iterable[DeletionRange]) -> IndexEntry:
        """A new index file with some of the vectors of another one."""
        home = self._home(entry.partition)
        path = self._paths.index_file(home, entry.bucket, entry.file_name, entry.external_path)
        parts, ranges, size = [_VERSION], list[DeletionRange](), len(_VERSION)
        try:
            pieces = self._directory.store.parse(path, partial(_pieces, path=path, kept=tuple(kept)))
        except FileNotFoundError as error:
            raise CorruptTableError(path, "is named by the index manifest, and missing") from error
        for found, piece in pieces:
            ranges.append(replace(found, offset=size))
            parts.append(piece)
            size += len(piece)
        name = f"index-{uuid4()}-0"
        new = self._paths.index_file(home, entry.bucket, name)
        self._directory.store.begin_write_new(new, b"".join(parts))()
        return replace(
            entry, file_name=name, file_size=size, row_count=len(ranges), ranges=tuple(ranges), external_path=None
        )

    def _home(self, row: bytes) -> str:
        (home,) = self._paths.partitions(pa.array([row], pa.binary()))
        return home

    def _path(self, home: str, bucket: int, file: IndexFileMeta) -> str:
        return self._paths.index_file(home, bucket, file.file_name, file.external_path)

    def _entry(self, kind: EntryKind, bucket: LiveBucket, entry: IndexEntry) -> IndexManifestEntry:
        ranges = {
            each.data_file: DeletionVectorMeta(each.data_file, each.offset, each.length, each.cardinality)
            for each in entry.ranges
        }
        file = IndexFileMeta(
            entry.index_type, entry.file_name, entry.file_size, entry.row_count, ranges, entry.external_path
        )
        partition = GenericRow(list(bucket.partition), self._table.partition_keys_fields)
        return IndexManifestEntry(int(kind), partition, bucket.bucket, file)


def _pieces(data: bytes, path: str, kept: tuple[DeletionRange, ...]) -> list[tuple[DeletionRange, bytes]]:
    return [(each, framed(data, DeletionFile(path, each.offset, each.length, each.cardinality))) for each in kept]
