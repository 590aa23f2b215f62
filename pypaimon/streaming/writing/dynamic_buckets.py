"""Buckets of keys in tables with dynamic buckets: assigned here, kept in the table's index files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.commit.changes import AvroRecord
from pypaimon.streaming.commit.cleanup import discard
from pypaimon.streaming.commit.conflicts import KeyIndexes
from pypaimon.streaming.errors import CorruptTableError, StreamConfigError
from pypaimon.streaming.formats.binary_row_encoding import encoded_row
from pypaimon.streaming.merge.ordering import stable_order
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.index_manifests import HASH
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.paimon.internals import GenericRow
from pypaimon.streaming.paimon.write_internals import CommitMessage, IndexFileMeta, IndexManifestEntry

Hashes = npt.NDArray[np.int32]
Buckets = npt.NDArray[np.int16]

_MOST_BUCKETS = (1 << 15) - 1
"""Java stores bucket numbers in 16 bits and does not use the greatest one."""
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class BucketRules:
    """Limits of keys and buckets."""

    target: int = 2_000_000  # Number of keys of a full bucket (`dynamic-bucket.target-row-num`)
    # Number of buckets that are filled at the same time, each with the keys whose hash has the same remainder
    # (`dynamic-bucket.initial-buckets`). Java has an assigner for each of them.
    lanes: int = 1
    most: int | None = None  # Number of buckets of a partition (`dynamic-bucket.max-buckets`); None: not limited

    @staticmethod
    def of(options: TableOptions) -> BucketRules:
        target = option_keys.DYNAMIC_BUCKET_TARGET_ROW_NUM.of(options)
        limit = option_keys.DYNAMIC_BUCKET_MAX_BUCKETS
        most = None if limit.text(options) == "-1" else limit.of(options)
        lanes = option_keys.DYNAMIC_BUCKET_INITIAL_BUCKETS.of(options)
        return BucketRules(target, lanes if most is None else min(lanes, most), most)


class KeyBuckets:
    """The buckets of the keys of a partition, in 6 bytes for each key. Not for several threads.

    Keys of one hash are in the same bucket. If a hash is known in two buckets, the later one counts. New keys fill the
    buckets that have room, the lowest one first, then new buckets. If no further bucket is allowed, they are divided
    among all by their hashes.
    """

    def __init__(self, rules: BucketRules, known: Iterable[tuple[int, Hashes]] = ()) -> None:
        self._rules = rules
        self._counts: dict[int, int] = {}
        # Sorted hashes and their buckets. Each run is more than twice as long as the next one, so there are few.
        self._runs: list[tuple[Hashes, Buckets]] = []
        self.touched: set[int] = set()  # Buckets that got keys since `settle`
        given = [(bucket, hashes) for bucket, hashes in known if len(hashes)]
        for bucket, hashes in given:
            self._counts[bucket] = self._counts.get(bucket, 0) + len(hashes)
        if given:
            hashes = np.concatenate([each for _, each in given])
            buckets = np.concatenate([np.full(len(each), bucket, np.int16) for bucket, each in given])
            order = stable_order(hashes)
            hashes = hashes[order]
            last = np.ones(len(hashes), np.bool_)
            last[:-1] = hashes[1:] != hashes[:-1]
            self._runs.append((hashes[last], buckets[order][last]))

    def assign(self, hashes: Hashes) -> Buckets:
        """The bucket of each key. New keys are assigned one."""
        distinct, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        buckets = self._found(distinct)
        new = np.flatnonzero(buckets == _UNKNOWN)
        if len(new):
            self._place(distinct, new[np.argsort(first[new])], buckets)
            self._add(distinct[new], buckets[new])
        assigned: Buckets = buckets[inverse.reshape(-1)]
        return assigned

    def hashes_of(self, bucket: int) -> Hashes:
        found = [hashes[buckets == bucket] for hashes, buckets in self._runs]
        return np.sort(np.concatenate(found)) if found else np.zeros(0, np.int32)

    def settle(self) -> None:
        """The table has recorded all keys, so no bucket is touched."""
        self.touched = set()

    def _found(self, hashes: Hashes) -> Buckets:
        buckets = np.full(len(hashes), _UNKNOWN, np.int16)
        for known, theirs in self._runs:
            at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            there = known[at] == hashes
            buckets[there] = theirs[at[there]]
        return buckets

    def _place(self, hashes: Hashes, new: npt.NDArray[np.intp], buckets: Buckets) -> None:
        # As Java's `Math.abs(hash % lanes)`: the remainder has the sign of the hash.
        lanes = np.abs(np.fmod(hashes[new].astype(np.int64), self._rules.lanes))
        for lane in np.unique(lanes).tolist():
            rows = new[lanes == lane]
            for bucket, room in self._rooms(lane):
                taken, rows = rows[:room], rows[room:]
                buckets[taken] = bucket
                self._counts[bucket] = self._counts.get(bucket, 0) + len(taken)
                if not len(rows):
                    break
            if len(rows):
                full = np.array(self._of_lane(lane), np.int16)
                buckets[rows] = full[hashes[rows].astype(np.int64) // self._rules.lanes % len(full)]
        self.touched.update(np.unique(buckets[new]).tolist())

    def _rooms(self, lane: int) -> Iterator[tuple[int, int]]:
        """Buckets with room, and how many keys fit: existing ones first, then new ones."""
        for bucket in self._of_lane(lane):
            if self._counts[bucket] < self._rules.target:
                yield bucket, self._rules.target - self._counts[bucket]
        most = _MOST_BUCKETS if self._rules.most is None else self._rules.most
        for bucket in range(lane, most, self._rules.lanes):
            if bucket not in self._counts:
                yield bucket, self._rules.target
        if self._rules.most is None:
            raise StreamConfigError(
                f"All {_MOST_BUCKETS} buckets that a partition can have are full: raise "
                f"'dynamic-bucket.target-row-num', which is {self._rules.target}."
            )

    def _of_lane(self, lane: int) -> list[int]:
        return [bucket for bucket in sorted(self._counts) if bucket % self._rules.lanes == lane]

    def _add(self, hashes: Hashes, buckets: Buckets) -> None:
        self._runs.append((hashes, buckets))
        while len(self._runs) > 1 and len(self._runs[-2][0]) <= 2 * len(self._runs[-1][0]):
            (older, theirs), (newer, ours) = self._runs[-2:]
            merged = np.concatenate([older, newer])
            order = np.argsort(merged, kind="stable")
            self._runs[-2:] = [(merged[order], np.concatenate([theirs, ours])[order])]


_STORED = ">i4"


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An index file of one bucket."""

    bucket: int
    name: str
    count: int
    external_path: str | None = None

    @staticmethod
    def of(record: AvroRecord) -> IndexFile:
        return IndexFile(record["_BUCKET"], record["_FILE_NAME"], record["_ROW_COUNT"], record.get("_EXTERNAL_PATH"))


class PartitionIndex:
    """Reads and writes the index files of one partition."""

    def __init__(self, table: PaimonTable, partition: tuple[Any, ...]) -> None:
        self._directory = table.new_directory()
        self._partition = GenericRow(list(partition), table.partition_fields)
        self._paths = table.paths
        self.row = encoded_row(partition, table.partition_fields)
        (self._home,) = self._paths.partitions(pa.array([self.row], pa.binary()))

    def read(self, file: IndexFile) -> Hashes:
        path = self._paths.index_file(self._home, file.bucket, file.name, file.external_path)
        try:
            data = self._directory.store.read(path)
        except FileNotFoundError as error:
            raise CorruptTableError(path, "is named by the index manifest, and is missing") from error
        if len(data) != 4 * file.count:
            raise CorruptTableError(path, f"holds {len(data)} bytes, and {file.count} hashes were recorded")
        return np.frombuffer(data, _STORED).astype(np.int32)

    def begin_write(self, bucket: int, hashes: Hashes) -> tuple[IndexManifestEntry, Callable[[], None]]:
        """Write a new file of a bucket. One request. Returns its entry for an index manifest, and a call that waits
        until it is written and may raise `StoreError`.
        """
        name = f"index-{uuid4()}-0"
        data = hashes.astype(_STORED).tobytes()
        written = self._directory.store.begin_write_new(self._paths.index_file(self._home, bucket, name), data)
        file = IndexFileMeta(HASH, name, len(data), len(hashes))
        return IndexManifestEntry(int(EntryKind.ADD), self._partition, bucket, file), written


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

    The index of a partition is read when its first row is written, and kept as long as each commit has rows of it. If
    existing rows are replaced (`replaces`), no key has a bucket yet.
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
        """The buckets of keys. Raises StreamConfigError if all are full, and the table allows no further one."""
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
        Raises StoreError if the store failed. The files are deleted.
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
