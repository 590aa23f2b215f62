"""Tables with blobs, written by pypaimon."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema

from pypaimon.streaming import StreamReadBuilder, stream_read_builder
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.stores.fault_file_io import SCHEME

COLUMNS = pa.schema([("id", pa.int32()), ("name", pa.string()), ("b", pa.large_binary())])
EVOLUTION = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}


class BlobTable:
    """A table `db.t` of id, name and a blob `b`.

    Attributes:
        path: Its directory.
    """

    def __init__(self, warehouse: Path, name: str = "t", **options: str) -> None:
        self._catalog = CatalogFactory.create({"warehouse": str(warehouse)})
        self._catalog.create_database("db", True)
        self._name = f"db.{name}"
        given = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
        schema = Schema.from_pyarrow_schema(COLUMNS, options={**EVOLUTION, **given})
        self._catalog.create_table(self._name, schema, False)
        self.path = Path(self.handle().table_path)

    def handle(self, file_io: Any = None, **options: str) -> Any:
        """A fresh handle; through a FileIO as in an object store."""
        table = self._catalog.get_table(self._name)
        table = table.copy({key.replace("_", "-"): value for key, value in options.items()}) if options else table
        if file_io is not None:
            table.file_io, table.table_path = file_io, SCHEME + str(table.table_path)
            TableDirectory.of(table).store._common.sleep = lambda _: None
        return table

    def write(self, rows: Iterable[tuple[int, str | None, bytes | None]]) -> None:
        """Commit rows."""
        builder = self.handle().new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        ids, names, blobs = zip(*rows, strict=True)
        writer.write_arrow(pa.table({"id": ids, "name": names, "b": blobs}, schema=COLUMNS))
        commit.commit(writer.prepare_commit())
        writer.close()
        commit.close()

    def builder(self, file_io: Any = None, **options: str) -> StreamReadBuilder:
        """A builder that reads all that is there."""
        return stream_read_builder(self.handle(file_io, **options)).with_start("latest-full").with_end(latest=True)

    def files(self, suffix: str) -> list[Path]:
        """Its files whose names end so."""
        return sorted(self.path.rglob(f"*{suffix}"))


def batches(builder: StreamReadBuilder) -> list[pa.RecordBatch]:
    """All that is read, as it comes."""
    read = builder.new_read()
    with builder.new_streaming_scan() as scan:
        return [batch for plan in scan.stream_sync() for batch in read.iter_batches(plan.splits())]


def rows(builder: StreamReadBuilder) -> list[dict[str, Any]]:
    """The rows of all that is read."""
    return [row for batch in batches(builder) for row in batch.to_pylist()]
