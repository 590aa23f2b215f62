"""Writers of buckets in the order of their rows: append tables, and the postponed bucket of primary-key tables."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pypaimon.streaming.paimon.internals import DataFileMeta
from pypaimon.streaming.writing.files.blob_encoder import BlobSource
from pypaimon.streaming.writing.files.bucket_files import BucketFiles
from pypaimon.streaming.writing.files.record_facts import AppendedFacts, Counter, KeyedFacts
from pypaimon.streaming.writing.files.rolling_files import MOST_PIECE_BYTES, RollingFiles
from pypaimon.streaming.writing.files.system_columns import RecordBuilder


class AppendBucket:
    """Writes the rows of one bucket of an append table.

    Args:
        tracked: Whether the numbers of every file begin with 0, because the commit assigns them (row tracking).
        blobs: Columns of blobs in files of their own, and how blobs are made of their values.
    """

    def __init__(
        self, files: BucketFiles, first: int, *, tracked: bool = False, blobs: Mapping[str, BlobSource] | None = None
    ) -> None:
        counter = Counter(first)
        self._files = files

        def facts() -> AppendedFacts:
            return AppendedFacts(Counter(0) if tracked else counter)

        self._rolling = RollingFiles(files, files.options.data, facts, blobs)
        self._pending: list[pa.RecordBatch] = []
        self.buffered_bytes = 0
        self._piece_bytes = min(MOST_PIECE_BYTES, files.options.target_bytes)

    @property
    def open_files(self) -> int:
        return self._rolling.open_files

    def add(self, batch: pa.RecordBatch) -> None:
        """Buffer rows; a full buffer is written."""
        self._pending.append(batch)
        self.buffered_bytes += batch.nbytes
        if self.buffered_bytes >= self._piece_bytes:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows to the open file."""
        if self._pending:
            self._rolling.write(self._table(self._pending))
        self._pending, self.buffered_bytes = [], 0

    def end_files(self) -> None:
        """Write the buffered rows, and end the open file."""
        self.flush()
        self._rolling.end_file()

    def take(self) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
        """All data and changelog files; the caller owns them from now on."""
        self.flush()
        return self._rolling.take(), []

    def abort(self) -> None:
        """Delete all files that were not taken, and the buffered rows."""
        self._pending, self.buffered_bytes = [], 0
        self._rolling.abort()

    def _table(self, batches: list[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches(batches)


class PostponedBucket(AppendBucket):
    """Writes the records of the postponed bucket: neither sorted nor merged, without changelog."""

    def __init__(self, files: BucketFiles, records: RecordBuilder) -> None:
        super().__init__(files, 0)
        self._records = records
        fields = files.table.key_fields
        self._rolling = RollingFiles(files, files.options.data, lambda: KeyedFacts(fields, files.options.thin))

    def _table(self, batches: list[pa.RecordBatch]) -> pa.Table:
        return self._records.records_of(super()._table(batches))
