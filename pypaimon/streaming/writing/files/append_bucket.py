"""`AppendBucket`: rows of one bucket of an append table, and records of a postponed bucket: in the order they come."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pypaimon.streaming.internals import DataFileMeta
from pypaimon.streaming.writing.files.blob_encoder import BlobSource
from pypaimon.streaming.writing.files.bucket_files import BucketFiles
from pypaimon.streaming.writing.files.record_facts import AppendedFacts, Counter, KeyedFacts
from pypaimon.streaming.writing.files.rolling_files import MOST_PIECE_BYTES, RollingFiles
from pypaimon.streaming.writing.files.system_columns import Records


class AppendBucket:
    """Writes the rows of one bucket of an append table.

    Args:
        files: Where they belong.
        first: Sequence number of the first row.
        tracked: Whether every file begins with number 0, so that the commit gives it the snapshot's (row tracking).
        blobs: Columns that lie in files of their own, with how their values are taken.

    Attributes:
        buffered_bytes: Bytes of the rows that are in no file yet.
        open_files: How many files are open.
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
        """Take rows; enough of them go to a file."""
        self._pending.append(batch)
        self.buffered_bytes += batch.nbytes
        if self.buffered_bytes >= self._piece_bytes:
            self.flush()

    def flush(self) -> None:
        """Write what is held to the file that is open."""
        if self._pending:
            self._rolling.write(self._table(self._pending))
        self._pending, self.buffered_bytes = [], 0

    def end_files(self) -> None:
        """Write what is held, and end the file that is open."""
        self.flush()
        self._rolling.end_file()

    def take(self) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
        """All files, data and changelog, which belong to the caller from now on."""
        self.flush()
        return self._rolling.take(), []

    def abort(self) -> None:
        """Delete all files that were not taken, and forget the rows."""
        self._pending, self.buffered_bytes = [], 0
        self._rolling.abort()

    def _table(self, batches: list[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches(batches)


class PostponedBucket(AppendBucket):
    """Writes the records of the postponed bucket: neither sorted nor merged, without changelog.

    Args:
        files: Where they belong.
        records: Gives them their system columns.
    """

    def __init__(self, files: BucketFiles, records: Records) -> None:
        super().__init__(files, 0)
        self._records = records
        fields = files.table.trimmed_primary_keys_fields
        self._rolling = RollingFiles(files, files.options.data, lambda: KeyedFacts(fields, files.options.thin))

    def _table(self, batches: list[pa.RecordBatch]) -> pa.Table:
        return self._records.of(super()._table(batches))
