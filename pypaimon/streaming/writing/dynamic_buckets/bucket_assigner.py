"""`BucketAssigner`: gives each key of a table with dynamic buckets its bucket; of a table there is one at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pypaimon.streaming.commit.changes import AvroRecord
from pypaimon.streaming.commit.cleanup import discard
from pypaimon.streaming.commit.conflicts import KeyIndexes
from pypaimon.streaming.metadata.index_manifests import HASH
from pypaimon.streaming.write_internals import CommitMessage
from pypaimon.streaming.writing.dynamic_buckets.index_files import IndexFile, PartitionIndex
from pypaimon.streaming.writing.dynamic_buckets.key_buckets import BucketRules, Buckets, Hashes, KeyBuckets


@dataclass(slots=True)
class _Partition:
    """A partition that rows came of.

    Attributes:
        values: Values of its columns.
        index: Its index files.
        names: Of those that its keys were read from.
        keys: Its keys.
        written: Files of the commit that is under way.
        used: Whether that commit holds rows of it.
    """

    values: tuple[Any, ...]
    index: PartitionIndex
    names: frozenset[str]
    keys: KeyBuckets
    written: list[IndexFile] = field(default_factory=list)
    used: bool = True


class BucketAssigner:
    """Assigns buckets from what the table's index files say, and writes those that change. Not for several threads.

    The index of a partition is read when its first row comes, and kept as long as each commit holds rows of it.

    Args:
        table: pypaimon's table.
        replaces: Whether what is there is replaced, so that no key has a bucket yet.

    Raises:
        StreamConfigError: An option of the table cannot be read.
    """

    def __init__(self, table: Any, *, replaces: bool) -> None:
        self.replaces = replaces
        self._table = table
        self._rules = BucketRules.of(table)
        self._there: dict[bytes, list[IndexFile]] = {}
        self._partitions: dict[bytes, _Partition] = {}

    def follow(self, index: Iterable[AvroRecord]) -> None:
        """Go on from the index files of a later snapshot, unless what is there is replaced.

        Partitions whose files are others now are read again, but for those that the commit under way holds rows of:
        it cannot be made any more, as it finds out.

        Args:
            index: Records of the index manifest.
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

        Args:
            partition: Values of the partition columns.
            hashes: Of the keys, in the order in which they came.

        Raises:
            StreamConfigError: No bucket has room, and no more can be made.
            CorruptTableError: An index file is damaged.
            StoreError: The store failed.
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
        """The index files that the buckets of the commit's rows depend on."""
        if self.replaces:
            return {}
        return {row: each.names for row, each in self._partitions.items() if each.used}

    def messages(self) -> list[Any]:
        """Write the index files of the buckets that got new keys: pypaimon's commit messages, which own them.

        Raises:
            StoreError: The store failed; what was written is deleted.
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
        """The commit came about, and the table has the files that were written for it."""
        used = {row: each for row, each in self._partitions.items() if each.used}
        # A commit without rows lets nothing go.
        self._partitions = used or self._partitions
        for row, each in used.items():
            buckets = {file.bucket for file in each.written}
            kept = [file for file in self._there.get(row, ()) if file.bucket not in buckets]
            self._there[row] = [*kept, *each.written]
            each.names, each.written, each.used = self._names(row), [], False
            each.keys.settle()

    def _names(self, row: bytes) -> frozenset[str]:
        return frozenset(each.name for each in self._there.get(row, ()))
