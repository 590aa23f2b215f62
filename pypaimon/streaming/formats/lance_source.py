"""Lance files as record batches of their own columns, by the library `pylance` (extra `lance`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from pypaimon.streaming.formats.library_files import decoding, library, local_copy, rows_at_once


class LanceSource:
    """One Lance file, copied for the library, which takes paths.

    Attributes:
        schema: The columns of the file.
        num_rows: Rows in the file.
    """

    pads_char: ClassVar[bool] = False
    damage_words: ClassVar[tuple[str, ...]] = ()

    def __init__(self, stream: Any) -> None:
        self._open = library("lance.file", "lance").LanceFileReader
        self._copy = local_copy(stream, self)
        with decoding():
            reader = self._open(self._copy.name)
            self.schema: pa.Schema = reader.metadata().schema
            self.num_rows: int = reader.num_rows()

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """All rows in stored order; of the columns named, at least one."""
        with decoding():
            reader = self._open(self._copy.name, columns=list(columns))
            rows = rows_at_once(self.num_rows, batch_size, lambda most: reader.read_range(0, most).to_batches())
            batches = iter(reader.read_all(batch_size=rows).to_batches())
        while True:
            with decoding():
                batch = next(batches, None)
            if batch is None:
                return
            yield batch
