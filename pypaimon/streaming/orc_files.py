"""ORC files as record batches of their own columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc


class OrcSource:
    """One open ORC file.

    Attributes:
        schema: The columns of the file, as Arrow gives them.
        num_rows: Rows in the file.
    """

    def __init__(self, stream: Any) -> None:
        self._file = orc.ORCFile(stream)
        self.schema: pa.Schema = self._file.schema
        self.num_rows: int = self._file.nrows

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """All rows in stored order; of the columns named, at least one. One stripe is in memory at a time."""
        for index in range(self._file.nstripes):
            stripe = self._file.read_stripe(index, columns=list(columns))
            for start in range(0, stripe.num_rows, batch_size):
                yield stripe.slice(start, batch_size)
