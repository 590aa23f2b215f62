"""`RecordWriter`: writes Arrow batches with row kinds to new files of a table, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pypaimon.streaming.commit.cleanup import discard
from pypaimon.streaming.errors import BadRowError, UnsupportedTableError
from pypaimon.streaming.formats.binary_row_encoding import encoded_row
from pypaimon.streaming.formats.registry import check_format
from pypaimon.streaming.merge.engines.factory import merge_engine
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.partition_times import PartitionTimes
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.table_kinds import ChangelogProducer
from pypaimon.streaming.paimon.write_internals import BucketMode, CommitMessage
from pypaimon.streaming.writing.blob_forms import blob_sources
from pypaimon.streaming.writing.dynamic_buckets import BucketAssigner
from pypaimon.streaming.writing.files.bucket_writers import MOST_FLUSH_BYTES, AppendBucket, KeyedBucket, PostponedBucket
from pypaimon.streaming.writing.files.file_options import BucketFiles, FileOptions
from pypaimon.streaming.writing.files.merged_changelogs import merged_changelogs
from pypaimon.streaming.writing.files.record_facts import RecordBuilder
from pypaimon.streaming.writing.routing import Router
from pypaimon.streaming.writing.write_state import WriteState, write_state

_STRICT, _FORMATTER = option_keys.PARTITION_TIMESTAMP_FORMAT_STRICT, option_keys.PARTITION_TIMESTAMP_FORMATTER
_PATTERN = option_keys.PARTITION_TIMESTAMP_PATTERN


_MOST_OPEN_FILES = 100

_Bucket = AppendBucket | KeyedBucket


class RecordWriter:
    """Writes the rows of one commit, or of one task of it. Not for several threads.

    Args:
        state: What the table holds already; None: it is read when the first row is written.
        buffer_bytes: Bytes of rows, as Arrow counts them, that are held in memory before they are written to files.
            None: the table's `write-buffer-size`, or 256 MB. While a bucket is flushed, about twice its rows are in
            memory in addition.

    Raises:
        UnsupportedTableError: The table's format, one of its types, or its merge engine is not supported.
    """

    def __init__(
        self,
        table: PaimonTable,
        user: str,
        overwrite: bool,
        state: WriteState | None = None,
        buffer_bytes: int | None = None,
        assigner: BucketAssigner | None = None,
    ) -> None:
        self._table = table
        self._overwrite = overwrite
        self._state = state
        self._bound = buffer_bytes if buffer_bytes is not None else option_keys.WRITE_BUFFER_SIZE.of(table.options)
        self._flushes_once = table.traits.snapshot_ordering
        self._options = FileOptions.of(table, user)
        self._blobs = blob_sources(table)
        for format_ in {self._options.data.format, self._options.changelog.format}:
            check_format(format_, [field for field in table.fields if field.name not in self._blobs])
        self._engine = merge_engine(table.schema) if table.is_primary_key_table else None
        self._router = Router(table, assigner)
        self._times = NewPartitions.of(table)
        self._buckets: dict[tuple[Any, ...], _Bucket] = {}
        # Buckets with open files.
        self._open: set[_Bucket] = set()
        self._places: dict[tuple[Any, ...], tuple[tuple[Any, ...], int]] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows: the table's columns, followed by `VALUE_KIND` for a primary-key table. Raises
        UnsupportedTableError if a partition cannot be written, or the rows of a commit do not fit into memory in a
        table with `sequence.snapshot-ordering`, BadRowError if the values of a partition are not a time, with
        `partition.timestamp-format.strict`.
        """
        if self._flushes_once:
            self._check_room(batch.nbytes)
        for partition, bucket, rows in self._router.parts(batch):
            into = self._bucket(partition, bucket)
            into.add(rows)
            self._bound_open_files(into)
        if self.buffered_bytes > self._bound:
            self._make_room()

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the rows that are held in memory, as Arrow counts them."""
        return sum(bucket.buffered_bytes for bucket in self._buckets.values())

    @property
    def buckets_of(self) -> int | None:
        """The snapshot from which rows took their number of buckets; None: they have no such number."""
        return None if self._state is None or not self._places else self._state.snapshot

    def prepare(self) -> list[CommitMessage]:
        """Finish the files. Returns pypaimon's commit messages, which own them from now on. Raises StoreError if a file
        cannot be written. Files that were taken from buckets are deleted; `abort` deletes the others.
        """
        self._open.clear()
        for bucket in self._buckets.values():
            bucket.end_files()
        taken = [(self._places[key], bucket.take()) for key, bucket in self._buckets.items()]
        messages = [
            CommitMessage(partition, number, data, changelog_files=changelog, total_buckets=self._table.total_buckets)
            for (partition, number), (data, changelog) in taken
            if data or changelog
        ]
        try:
            return merged_changelogs(self._table, messages)
        except BaseException:
            discard(self._table, messages)
            raise

    def close(self) -> None:
        """Forget everything. Call it after `prepare` or `abort`."""
        self._open.clear()
        self._buckets.clear()

    def abort(self) -> None:
        for bucket in self._buckets.values():
            bucket.abort()
        self.close()

    def _check_room(self, more: int) -> None:
        # Snapshots decide which record is the newer one, so two records of a key in one commit must be merged
        # before they are written: neither would be the newer one.
        bound = min(self._bound, MOST_FLUSH_BYTES)
        if self.buffered_bytes + more > bound:
            raise UnsupportedTableError(
                f"The table has 'sequence.snapshot-ordering', and the rows of one commit need more than the {bound} "
                "bytes of memory in which they must be together. Commit more often, or raise the bound "
                f"(with_memory_limit, or 'write-buffer-size' of the table), up to {MOST_FLUSH_BYTES} bytes."
            )

    def _make_room(self) -> None:
        held = self.buffered_bytes
        for bucket in sorted(self._buckets.values(), key=lambda each: each.buffered_bytes, reverse=True):
            # Down to half of the bound: the next rows would otherwise flush again at once, into small files.
            if held <= self._bound // 2:
                break
            held -= bucket.buffered_bytes
            bucket.flush()
            if self._bound_open_files(bucket):
                held = self.buffered_bytes

    def _bound_open_files(self, written: _Bucket) -> bool:
        if not written.open_files:
            self._open.discard(written)
            return False
        if written in self._open:
            return False
        self._open.add(written)
        if sum(bucket.open_files for bucket in self._open) <= _MOST_OPEN_FILES:
            return False
        for bucket in self._open:
            bucket.end_files()
        self._open.clear()
        return True

    def _bucket(self, partition: tuple[Any, ...], bucket: int) -> _Bucket:
        key = (*map(_distinct, partition), bucket)
        found = self._buckets.get(key)
        if found is None:
            if self._times is not None:
                self._times.check(partition)
            self._places[key] = (partition, bucket)
            found = self._buckets[key] = self._made(BucketFiles(self._table, self._options, partition, bucket))
        return found

    def _made(self, files: BucketFiles) -> _Bucket:
        table = self._table
        mode, keys = table.bucket_mode, table.key_names
        # As in Java each writer numbers from 0 here: files without buckets have no order.
        if mode == BucketMode.BUCKET_UNAWARE:
            tracked = option_keys.ROW_TRACKING_ENABLED.of(table.options)
            return AppendBucket(files, 0, tracked=tracked, blobs=self._blobs)
        if mode == BucketMode.POSTPONE_MODE:
            return PostponedBucket(files, RecordBuilder(keys, 0))
        first = self._last_sequence(files.partition) + 1
        if self._engine is None:
            return AppendBucket(files, first)
        # An overwrite has no changelog in Java either.
        changelog = not self._overwrite and table.traits.producer is ChangelogProducer.INPUT
        return KeyedBucket(
            files, self._engine, table.traits.merge_engine.keeps_newest, RecordBuilder(keys, first), changelog
        )

    def _last_sequence(self, partition: tuple[Any, ...]) -> int:
        """The greatest sequence number before the new rows of a partition. Raises UnsupportedTableError if the rows of
        the partition are divided into another number of buckets.
        """
        if self._state is None:
            self._state = write_state(self._table)
        rescaled = self._state.rescaled
        row = encoded_row(partition, self._table.partition_fields) if rescaled else b""
        if row in rescaled and not self._overwrite:
            buckets = rescaled[row]
            values = dict(zip(self._table.partition_keys, partition, strict=True))
            raise UnsupportedTableError(
                f"The rows of partition {values} are divided into {buckets} buckets, and the table's option 'bucket' "
                f"is {self._table.total_buckets}: rows of one key would be in two buckets. Rescale the table "
                f"(paimon-stream rescale {self._table.name} {self._table.total_buckets}), or set 'bucket' back."
            )
        return self._state.sequence


class NewPartitions:
    """The rule of Java's `PartitionTimestampValidator` for new partitions."""

    def __init__(self, table: PaimonTable) -> None:
        self._fields = table.partition_fields
        self._times = PartitionTimes(table)

    @staticmethod
    def of(table: PaimonTable) -> NewPartitions | None:
        """The rule of a table; None: its partitions are not checked."""
        options = table.options
        has_format = _PATTERN.of(options) is not None or _FORMATTER.of(options) is not None
        return NewPartitions(table) if _STRICT.of(options) and has_format and table.partition_keys else None

    def check(self, partition: Sequence[Any]) -> None:
        """Raise BadRowError if the values of a partition are not a time."""
        row = encoded_row(partition, self._fields)
        if not self._times.is_time(row):
            raise BadRowError(
                f"Partition {self._times.values(row)} has the time {self._times.text(row)!r}, which does not match the "
                f"table's options '{_FORMATTER}' or '{_PATTERN}', and '{_STRICT}' is 'true'. Correct the rows or the "
                "options."
            )


def _distinct(value: Any) -> Any:
    # As a key of a dict NaN is not equal to itself, and 0.0 equals -0.0.
    return repr(value) if isinstance(value, float) else value
