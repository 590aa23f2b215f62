"""`RollingFiles`: rows into one file after the other; each file is closed once it is large enough.

Columns of blobs go to files of their own. Each file of rows is followed by the files of its blobs, as many of each
column as are needed, which together hold the same rows. So the commit gives all of them the same row ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from pypaimon.streaming.paimon.internals import DataFileMeta
from pypaimon.streaming.writing.files.blob_encoder import BlobSource
from pypaimon.streaming.writing.files.bucket_files import BucketFiles
from pypaimon.streaming.writing.files.file_options import FileKind, FileOptions
from pypaimon.streaming.writing.files.new_file import NewFile
from pypaimon.streaming.writing.files.record_facts import RecordFacts

MOST_PIECE_BYTES = 32 << 20
"""Bytes of rows, as Arrow counts them, after which a file is checked for its size. A row group of Parquet."""


class RollingFiles:
    """Files of one kind of one bucket. Owns them until `take`."""

    def __init__(
        self,
        files: BucketFiles,
        kind: FileKind,
        facts: Callable[[], RecordFacts],
        blobs: Mapping[str, BlobSource] | None = None,
        *,
        blob: BlobSource | None = None,
    ) -> None:
        self._files = files
        self._kind = kind
        self._facts = facts
        self._blob = blob
        self._blobs: dict[str, RollingFiles] = {}
        if blobs:
            options = FileOptions.of_blobs(files.table)
            of_blobs = BucketFiles(files.table, options, files.partition, files.bucket)
            self._blobs = {
                name: RollingFiles(of_blobs, options.data, facts, blob=source) for name, source in blobs.items()
            }
        self._open: NewFile | None = None
        self._done: list[DataFileMeta] = []

    @property
    def open_files(self) -> int:
        return (self._open is not None) + sum(blobs.open_files for blobs in self._blobs.values())

    def write(self, data: pa.Table) -> None:
        """Add rows, in their order."""
        piece_bytes = min(MOST_PIECE_BYTES, self._files.options.target_bytes)
        most = max(1, int(piece_bytes * data.num_rows / max(1, data.nbytes)))
        names = [name for name in data.schema.names if name not in self._blobs]
        while data.num_rows:
            if self._open is None:
                schema = pa.schema([data.schema.field(name) for name in names])
                self._open = NewFile(self._files, self._kind, schema, self._facts(), self._blob)
            left = self._open.rows_left
            count = most if left is None else min(most, left)
            piece = data.slice(0, count)
            self._open.write(piece.select(names))
            for name, blobs in self._blobs.items():
                blobs.write(piece.select([name]))
            data = data.slice(count)
            if self._open.full:
                self.end_file()

    def end_file(self) -> None:
        """Close the open file, if there is one, and those of its blobs."""
        if self._open is None:
            return
        closed = [self._open.close()]
        for blobs in self._blobs.values():
            blobs.end_file()
        # Nothing can fail from here on. Until here `_open` stays set, so that `abort` deletes this file and its blobs.
        for blobs in self._blobs.values():
            closed += blobs.take()
        self._done += closed
        self._open = None

    def take(self) -> list[DataFileMeta]:
        """Metadata of all files, which belong to the caller from now on."""
        self.end_file()
        taken, self._done = self._done, []
        return taken

    def abort(self) -> None:
        """Delete all files that were not taken."""
        if self._open is not None:
            self._open.abort()
            self._open = None
        for blobs in self._blobs.values():
            blobs.abort()
        for file in self._done:
            path = file.physical_path()
            for each in (path, *(f"{path.rpartition('/')[0]}/{name}" for name in file.extra_files)):
                self._files.table.file_io.delete_quietly(each)
        self._done = []
