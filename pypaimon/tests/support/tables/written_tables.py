"""Tables that are written by a writer of this library, and what they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon import Schema

from pypaimon.streaming import StreamWriteBuilder, stream_write_builder
from support.tables.streamed_table import Table

USER = "writer"
KEYED = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
KINDS = pa.schema([("_row_kind", pa.string()), *KEYED])


class Written(Table):
    """A table `db.<name>` of (k, v), with a primary key `k` unless told otherwise, and no column of row kinds."""

    def __init__(
        self, warehouse: Path, name: str = "w", *, keyed: bool = True, catalog: Any = None, **options: str
    ) -> None:
        self._keyed = keyed
        options = {"bucket": "2", **options} if keyed else options
        super().__init__(warehouse, name, primary_key=False, catalog=catalog, **options)

    def create(self) -> None:
        """Create it, again after `drop`."""
        keys = ["k"] if self._keyed else None
        schema = Schema.from_pyarrow_schema(KEYED, primary_keys=keys, options=self.options)
        self.catalog.create_table(self.name, schema, False)

    def writer(self, user: str = USER, **options: str) -> StreamWriteBuilder:
        """A builder of writers on a fresh handle."""
        return stream_write_builder(self.handle(**options)).with_commit_user(user)

    def rows(self) -> list[tuple[Any, ...]]:
        """What it holds, sorted, by pypaimon's own batch read."""
        builder = self.handle().new_read_builder()
        found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        return sorted(zip(*(found[name].to_pylist() for name in found.schema.names), strict=True), key=str)

    def data_files(self) -> list[Path]:
        """Every data file that lies in its directory."""
        return sorted(path for path in self.path.rglob("*.parquet") if path.parent.name.startswith("bucket"))


def rows(*keys: int, value: str = "v") -> pa.Table:
    """Rows of keys."""
    return pa.table({"k": list(keys), "v": [f"{value}{key}" for key in keys]}, schema=KEYED)


def changes(*given: tuple[str, int, str]) -> pa.Table:
    """Rows with their kinds."""
    kinds, keys, values = zip(*given, strict=True)
    return pa.table({"_row_kind": list(kinds), "k": list(keys), "v": list(values)}, schema=KINDS)
