"""Avro data files as record batches of their own columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from pypaimon.streaming import avro_blocks


class AvroSource:
    """One Avro file, decoded as a whole.

    Attributes:
        schema: The columns of the file; logical types are not applied.
        num_rows: Rows in the file.
    """

    def __init__(self, stream: Any) -> None:
        container = avro_blocks.parse(stream.read())
        self._table = avro_blocks.to_arrow(container)
        self.schema: pa.Schema = self._table.schema
        self.num_rows: int = container.count

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """All rows in stored order; of the columns named, at least one."""
        yield from self._table.select(list(columns)).combine_chunks().to_batches(batch_size)
