"""`RollingFiles`: rows into one file after the other, each ended once it is large enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from pypaimon.streaming.internals import DataFileMeta
from pypaimon.streaming.writing.files.bucket_files import BucketFiles
from pypaimon.streaming.writing.files.file_options import FileKind
from pypaimon.streaming.writing.files.new_file import NewFile
from pypaimon.streaming.writing.files.record_facts import RecordFacts

MOST_PIECE_BYTES = 32 << 20
"""Bytes of rows, as Arrow counts them, after which it is looked whether a file is full. A row group of Parquet."""


class OpenFile(Protocol):
    """A file that is open, with those that belong to it.

    Attributes:
        count: How many they are.
    """

    @property
    def count(self) -> int: ...

    @property
    def full(self) -> bool:
        """Whether it is as large as files become."""

    @property
    def rows_left(self) -> int | None:
        """How many rows it can still take; None: any number."""

    def write(self, data: pa.Table) -> None:
        """Add rows."""

    def close(self) -> list[DataFileMeta]:
        """Finish it: the metadata of all."""

    def abort(self) -> None:
        """Delete all."""


class RollingFiles:
    """Files of one kind of one bucket. Owns them until `take`.

    Args:
        files: Where they belong.
        kind: What kind of files they are.
        facts: Makes what finds out about the records of one file.
    """

    def __init__(self, files: BucketFiles, kind: FileKind, facts: Callable[[], RecordFacts]) -> None:
        self._files = files
        self._kind = kind
        self._facts = facts
        self._open: OpenFile | None = None
        self._done: list[DataFileMeta] = []

    @property
    def open_files(self) -> int:
        """How many files are open."""
        return 0 if self._open is None else self._open.count

    def write(self, data: pa.Table) -> None:
        """Add rows, in their order.

        Raises:
            StoreError: They cannot be written.
        """
        piece_bytes = min(MOST_PIECE_BYTES, self._files.options.target_bytes)
        most = max(1, int(piece_bytes * data.num_rows / max(1, data.nbytes)))
        while data.num_rows:
            if self._open is None:
                self._open = self._opened(data.schema)
            left = self._open.rows_left
            count = most if left is None else min(most, left)
            self._open.write(data.slice(0, count))
            data = data.slice(count)
            if self._open.full:
                self.end_file()

    def end_file(self) -> None:
        """End the file that is open, if there is one."""
        if self._open is not None:
            self._done += self._open.close()
            self._open = None

    def _opened(self, schema: pa.Schema) -> OpenFile:
        return NewFile(self._files, self._kind, schema, self._facts())

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
        for file in self._done:
            path = file.physical_path()
            for each in (path, *(f"{path.rpartition('/')[0]}/{name}" for name in file.extra_files)):
                self._files.table.file_io.delete_quietly(each)
        self._done = []
