"""Tables with blobs, written by pypaimon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from pypaimon.streaming import StreamReadBuilder
from support.tables.handles import EVOLUTION, option_names
from support.tables.streamed_table import Table

COLUMNS = pa.schema([("id", pa.int32()), ("name", pa.string()), ("b", pa.large_binary())])


def blob_table(
    warehouse: Path, name: str = "t", *, columns: pa.Schema = COLUMNS, catalog: Any = None, **options: str
) -> Table:
    """A table `db.<name>`, by default of an id, a name and a blob `b`."""
    return Table(warehouse, name, columns=columns, catalog=catalog, **(EVOLUTION | option_names(options)))


def batches(builder: StreamReadBuilder) -> list[pa.RecordBatch]:
    """All batches of a stream that ends."""
    read = builder.new_read()
    with builder.new_streaming_scan() as scan:
        return [batch for plan in scan.stream_sync() for batch in read.iter_batches(plan.splits())]


def rows(builder: StreamReadBuilder) -> list[dict[str, Any]]:
    """All rows of a stream that ends."""
    return [row for batch in batches(builder) for row in batch.to_pylist()]
