"""Mosaic files as record batches of their own columns, by the library `paimon-mosaic` (extra `mosaic`)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from pypaimon.streaming.formats.library_files import decoding, library, local_copy


class MosaicSource:
    """One Mosaic file, one row group in memory at a time.

    The library reads from several threads, and tells nothing of an error of a read: so it reads a copy.

    Attributes:
        schema: The columns of the file.
        num_rows: Rows in the file.
    """

    pads_char: ClassVar[bool] = False
    damage_words: ClassVar[tuple[str, ...]] = ()

    def __init__(self, stream: Any) -> None:
        self._open = library("mosaic", "mosaic").MosaicReader.from_input_file
        self._copy = local_copy(stream, self)
        with decoding():
            reader = self._reader()
            self.schema: pa.Schema = reader.schema
            self.num_rows: int = sum(map(reader.row_group_num_rows, range(reader.num_row_groups)))

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """All rows in stored order; of the columns named, at least one."""
        with decoding():
            reader = self._reader()
            reader.project(list(columns))
        for group in range(reader.num_row_groups):
            with decoding():
                batch = reader.read_row_group(group)
            for start in range(0, batch.num_rows, batch_size):
                yield batch.slice(start, batch_size)

    def _reader(self) -> Any:
        descriptor = self._copy.fileno()
        return self._open(lambda offset, length: os.pread(descriptor, length, offset), os.fstat(descriptor).st_size)
