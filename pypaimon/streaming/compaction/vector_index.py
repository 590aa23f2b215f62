"""`VectorIndex`: the deletion vectors of a table's files, and how they change when files are replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

import pyarrow as pa

from pypaimon.streaming.compaction.live_files import LiveBucket, serialised_row
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.files.deletion_vectors import encoded, framed, index_file, rows_of
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.index_manifests import DELETION_VECTORS, DeletionRange, IndexEntry, deletion_files
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.internals import DeletionFile
from pypaimon.streaming.paimon.write_internals import DeletionVectorMeta, IndexFileMeta, IndexManifestEntry

if TYPE_CHECKING:
    from pyroaring import BitMap

T = TypeVar("T")
Vector = tuple[DeletionRange, bytes]
"""A vector as it is stored in an index file, whatever its offset there."""


@dataclass(frozen=True, slots=True)
class IndexChange:
    """Changes of the index files of one bucket."""

    added: list[IndexManifestEntry]
    deleted: list[IndexManifestEntry]
    after: VectorIndex


class VectorIndex:
    """The index files with deletion vectors of one state of a table.

    A table with a primary key has one for each bucket. One without buckets has any number, each for many data files.
    """

    def __init__(self, table: PaimonTable, directory: TableDirectory, entries: Iterable[IndexEntry] = ()) -> None:
        self._table = table
        self._directory = directory
        self._entries = tuple(entries)
        self._keyed = table.is_primary_key_table
        self._bitmap64 = option_keys.DELETION_VECTORS_BITMAP64.of(table.options)
        self._paths = table.paths

    @staticmethod
    def of(table: PaimonTable, directory: TableDirectory, snapshot: Snapshot) -> VectorIndex:
        """The index of a snapshot; empty if the table has no deletion vectors. One request if it has some."""
        name = snapshot.index_manifest if table.traits.deletion_vectors else None
        if not name:
            return VectorIndex(table, directory)
        try:
            entries = directory.manifests.index_entries(name)
        except FileNotFoundError as error:
            raise CorruptTableError(name, "is the index manifest of a snapshot, and missing") from error
        return VectorIndex(table, directory, (each for each in entries if each.index_type == DELETION_VECTORS))

    def attached(self, buckets: Iterable[LiveBucket]) -> Iterator[LiveBucket]:
        found = deletion_files(self._entries, self._paths)
        for bucket in buckets:
            files = (
                replace(file, deletions=found.get((bucket.row, bucket.bucket, file.name))) for file in bucket.files
            )
            yield replace(bucket, files=tuple(files)) if found else bucket

    def changed(self, bucket: LiveBucket, gone: Set[str], superseded: Mapping[str, BitMap]) -> IndexChange:
        """Drop the vectors of some files of a bucket, and mark `superseded` rows of others, by the name of their file
        (without a primary key: of files that have no vector yet). Other vectors stay as they are.

        Costs a request for each index file that is read, and one for each that is written. If it fails, the new index
        files are deleted.
        """
        return self._replaced(bucket, gone, superseded) if self._keyed else self._without(bucket, gone, superseded)

    def applying(self, before: VectorIndex, after: VectorIndex) -> VectorIndex:
        """The index with the change that leads from one index to another."""
        kept = [each for each in self._entries if each not in before._entries or each in after._entries]
        new = [each for each in after._entries if each not in before._entries]
        return VectorIndex(self._table, self._directory, [*kept, *new])

    def of_bucket(self, bucket: LiveBucket) -> list[IndexManifestEntry]:
        """The entries of a bucket, to be deleted with all its files."""
        mine = (each for each in self._entries if (each.partition, each.bucket) == (bucket.row, bucket.bucket))
        return [self._entry(EntryKind.DELETE, bucket, each) for each in mine]

    def _replaced(self, bucket: LiveBucket, gone: Set[str], superseded: Mapping[str, BitMap]) -> IndexChange:
        mine = [each for each in self._entries if (each.partition, each.bucket) == (bucket.row, bucket.bucket)]
        if not superseded and not any(found.data_file in gone for each in mine for found in each.ranges):
            return IndexChange([], [], self)
        there = {file.name for file in bucket.files} - gone
        kept, marked = list[Vector](), dict(superseded)
        for entry in mine:
            ranges = tuple(found for found in entry.ranges if found.data_file in there)
            kept += self._read(entry, [each for each in ranges if each.data_file not in superseded], framed)
            for found, former in self._read(entry, [each for each in ranges if each.data_file in superseded], rows_of):
                marked[found.data_file] |= former
        kept += self._encoded(marked)
        # One file of a bucket replaces the other. It is empty if no vector is left, as Java's is.
        new = self._written(IndexEntry(bucket.row, bucket.bucket, DELETION_VECTORS, "", 0, 0, (), None), kept)
        after = [each for each in self._entries if each not in mine]
        deleted = [self._entry(EntryKind.DELETE, bucket, each) for each in mine]
        changed = VectorIndex(self._table, self._directory, [*after, new])
        return IndexChange([self._entry(EntryKind.ADD, bucket, new)], deleted, changed)

    def _without(self, bucket: LiveBucket, gone: Set[str], marked: Mapping[str, BitMap]) -> IndexChange:
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
                    new = self._written(entry, self._read(entry, kept, framed))
                    after.append(new)
                    added.append(self._entry(EntryKind.ADD, bucket, new))
            if marked:
                none = IndexEntry(bucket.row, bucket.bucket, DELETION_VECTORS, "", 0, 0, (), None)
                new = self._written(none, self._encoded(marked))
                after.append(new)
                added.append(self._entry(EntryKind.ADD, bucket, new))
        except BaseException:
            for each in added:
                self._table.file_io.delete_quietly(self._path(self._home(bucket.row), bucket.bucket, each.index_file))
            raise
        return IndexChange(added, deleted, VectorIndex(self._table, self._directory, after))

    def _encoded(self, marked: Mapping[str, BitMap]) -> Iterator[Vector]:
        for name, rows in marked.items():
            data, length = encoded(rows, bitmap64=self._bitmap64)
            yield DeletionRange(name, 0, length, len(rows)), data

    def _read(
        self, entry: IndexEntry, wanted: Sequence[DeletionRange], parse: Callable[[bytes, DeletionFile], T]
    ) -> list[tuple[DeletionRange, T]]:
        if not wanted:
            return []
        path = self._paths.index_file(self._home(entry.partition), entry.bucket, entry.file_name, entry.external_path)

        def pieces(data: bytes) -> list[tuple[DeletionRange, T]]:
            places = (DeletionFile(path, each.offset, each.length, each.cardinality) for each in wanted)
            return [(each, parse(data, place)) for each, place in zip(wanted, places, strict=True)]

        return self._directory.store.parse(path, pieces)

    def _written(self, entry: IndexEntry, vectors: Iterable[Vector]) -> IndexEntry:
        home = self._home(entry.partition)
        data, ranges = index_file(vectors)
        name = f"index-{uuid4()}-0"
        new = self._paths.index_file(home, entry.bucket, name)
        self._directory.store.begin_write_new(new, data)()
        return replace(
            entry, file_name=name, file_size=len(data), row_count=len(ranges), ranges=ranges, external_path=None
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
        return IndexManifestEntry(int(kind), serialised_row(bucket.row), bucket.bucket, file)
