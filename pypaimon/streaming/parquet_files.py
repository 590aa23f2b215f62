"""Parquet files as record batches of their own columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


class ParquetSource:
    """One open Parquet file.

    Attributes:
        schema: The columns of the file, as Arrow gives them.
        num_rows: Rows in the file.
    """

    def __init__(self, stream: Any) -> None:
        self._file = pq.ParquetFile(stream)
        self.schema: pa.Schema = self._file.schema_arrow
        self.num_rows: int = self._file.metadata.num_rows

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """All rows in stored order; of the columns named, at least one."""
        return self._file.iter_batches(batch_size, columns=list(columns), use_threads=False)  # type: ignore[no-any-return]
