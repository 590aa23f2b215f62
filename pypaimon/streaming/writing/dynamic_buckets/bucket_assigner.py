"""`BucketAssigner`: assigns buckets to the keys of a table with dynamic buckets. A table has one at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pypaimon.streaming.commit.changes import AvroRecord
from pypaimon.streaming.commit.cleanup import discard
from pypaimon.streaming.commit.conflicts import KeyIndexes
from pypaimon.streaming.metadata.index_manifests import HASH
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.paimon.write_internals import CommitMessage
from pypaimon.streaming.writing.dynamic_buckets.index_files import IndexFile, PartitionIndex
from pypaimon.streaming.writing.dynamic_buckets.key_buckets import BucketRules, Buckets, Hashes, KeyBuckets


@dataclass(slots=True)
class _Partition:
    """A partition to which rows were written."""

    values: tuple[Any, ...]
    index: PartitionIndex
    names: frozenset[str]
    keys: KeyBuckets
    written: list[IndexFile] = field(default_factory=list)
    used: bool = True


class BucketAssigner:
    """Assigns buckets from the table's index files, and writes new index files. Not for several threads.

    The index of a partition is read when its first row is written, and kept as long as each commit has rows of it.

    Args:
        replaces: Whether existing rows are replaced, so that keys do not have a bucket yet.
    """

    def __init__(self, table: PaimonTable, *, replaces: bool) -> None:
        self.replaces = replaces
        self._table = table
        self._rules = BucketRules.of(table.options)
        self._there: dict[bytes, list[IndexFile]] = {}
        self._partitions: dict[bytes, _Partition] = {}

    def follow(self, index: Iterable[AvroRecord]) -> None:
        """Continue from the index files of a later snapshot, unless existing rows are replaced.

        Partitions whose index files have changed are read again, except those with rows in the current commit: that
        commit cannot be made any more, which its conflict check will find.
        """
        there = defaultdict(list)
        for each in () if self.replaces else index:
            if each["_INDEX_TYPE"] == HASH:
                there[each["_PARTITION"]].append(IndexFile.of(each))
        self._there = dict(there)
        self._partitions = {
            row: each for row, each in self._partitions.items() if each.used or each.names == self._names(row)
        }

    def buckets_of(self, partition: tuple[Any, ...], hashes: Hashes) -> Buckets:
        """The buckets of keys.

        Raises:
            StreamConfigError: All buckets are full, and the table allows no further one.
        """
        index = PartitionIndex(self._table, partition)
        found = self._partitions.get(index.row)
        if found is None:
            keys = KeyBuckets(self._rules, ((each.bucket, index.read(each)) for each in self._there.get(index.row, ())))
            found = self._partitions[index.row] = _Partition(partition, index, self._names(index.row), keys)
        found.used = True
        return found.keys.assign(hashes)

    @property
    def read(self) -> KeyIndexes:
        """The index files that decided the buckets of the commit's rows."""
        if self.replaces:
            return {}
        return {row: each.names for row, each in self._partitions.items() if each.used}

    def messages(self) -> list[Any]:
        """Write the index files of the buckets that got new keys. Returns pypaimon's commit messages, which own them.

        Raises:
            StoreError: The store failed. The files are deleted.
        """
        messages, writes = [], []
        for each in self._partitions.values():
            for bucket in sorted(each.keys.touched):
                entry, written = each.index.begin_write(bucket, each.keys.hashes_of(bucket))
                each.written.append(IndexFile(bucket, entry.index_file.file_name, entry.index_file.row_count))
                messages.append(CommitMessage(each.values, bucket, [], index_adds=[entry]))
                writes.append(written)
        try:
            for written in writes:
                written()
        except BaseException:
            discard(self._table, messages)
            raise
        return messages

    def note_committed(self) -> None:
        """The commit was made, so the table has its index files now."""
        used = {row: each for row, each in self._partitions.items() if each.used}
        # A commit without rows does not make the assigner forget its partitions.
        self._partitions = used or self._partitions
        for row, each in used.items():
            buckets = {file.bucket for file in each.written}
            kept = [file for file in self._there.get(row, ()) if file.bucket not in buckets]
            self._there[row] = [*kept, *each.written]
            each.names, each.written, each.used = self._names(row), [], False
            each.keys.settle()

    def _names(self, row: bytes) -> frozenset[str]:
        return frozenset(each.name for each in self._there.get(row, ()))
