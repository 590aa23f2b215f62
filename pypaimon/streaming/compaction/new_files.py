"""`CompactedFiles`: what a compaction writes, in pieces as large as row groups are to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from pypaimon.streaming.compaction.live_files import LiveBucket
from pypaimon.streaming.internals import DataFileMeta
from pypaimon.streaming.writing.files.bucket_files import BucketFiles
from pypaimon.streaming.writing.files.file_options import FileKind, FileOptions
from pypaimon.streaming.writing.files.record_facts import RecordFacts
from pypaimon.streaming.writing.files.rolling_files import MOST_PIECE_BYTES, RollingFiles


class CompactedFiles:
    """New files of one bucket. Owns them until `take`; deletes them when a context ends with an error.

    Args:
        table: pypaimon's table.
        options: How they are made.
        kind: Data or changelog, of these options.
        bucket: Where they belong.
        facts: Makes what finds out about the records of one file.
    """

    def __init__(
        self, table: Any, options: FileOptions, kind: FileKind, bucket: LiveBucket, facts: Callable[[], RecordFacts]
    ) -> None:
        files = BucketFiles(table, options, bucket.partition, bucket.bucket)
        self._rolling = RollingFiles(files, kind, facts)
        self._piece = min(MOST_PIECE_BYTES, options.target_bytes)
        self._pending: list[pa.Table] = []
        self._bytes = 0

    def write(self, rows: pa.Table) -> None:
        """Add rows.

        Raises:
            BadRowError: A value cannot be in its column.
            StoreError: They cannot be written.
        """
        self._pending.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= self._piece:
            self._flush()

    def take(self) -> list[DataFileMeta]:
        """Finish the files: their metadata, which belongs to the caller from now on."""
        self._flush()
        return self._rolling.take()

    def abort(self) -> None:
        """Delete what was not taken."""
        self._rolling.abort()

    def _flush(self) -> None:
        if self._pending:
            self._rolling.write(pa.concat_tables(self._pending))
        self._pending, self._bytes = [], 0
