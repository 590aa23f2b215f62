"""Tables of every kind that the workers of a feed share differently, and random histories of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import compact
from support.tables.handles import EVOLUTION, batch_read, write_by_stream
from support.tables.streamed_table import Table

COLUMNS = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), pa.field("p", pa.string(), nullable=False), ("v", pa.int64())]
)
KINDS: dict[str, tuple[list[str], list[str], dict[str, str]]] = {
    "unaware": ([], [], {"bucket": "-1"}),
    "unaware partitions": (["p"], [], {"bucket": "-1"}),
    "evolving": ([], [], {"bucket": "-1", **EVOLUTION}),
    "fixed append": ([], [], {"bucket": "5", "bucket-key": "k"}),
    "fixed": ([], ["k"], {"bucket": "3"}),
    "partitions": (["p"], ["p", "k"], {"bucket": "1"}),
    "vectors": ([], ["k"], {"bucket": "2", "deletion-vectors.enabled": "true"}),
    "dynamic": ([], ["k"], {"bucket": "-1", "dynamic-bucket.target-row-num": "4"}),
    "postponed": ([], ["k"], {"bucket": "-2"}),
}
"""Partition columns, primary key and options by kind."""


class FedTable:
    """The history of a `Table` `db.t` of one of `KINDS`."""

    def __init__(self, warehouse: Path, kind: str) -> None:
        partitions, keys, options = KINDS[kind]
        self._table = Table(warehouse, columns=COLUMNS, primary_keys=keys, partition_keys=partitions, **options)
        self.handle: Any = self._table.handle()
        self._by_file = options["bucket"] == "-1" and not keys
        self._compactable = kind not in ("evolving", "postponed")
        self._next = 0

    def append(self, count: int, files: int = 1) -> None:
        """Commit `count` rows with new keys.

        Args:
            files: The number of files per partition, if the table has no buckets.
        """
        rows = [{"k": key, "p": f"p{key % 4}", "v": key % 7} for key in range(self._next, self._next + count)]
        self._next += count
        if self._by_file:
            self._table.write_files(_arrow(part) for part in (rows[part::files] for part in range(files)) if part)
        else:
            self._write(rows)

    def set_buckets(self, buckets: int) -> None:
        """Change the option `bucket`, but no rows."""
        self._table.catalog.alter_table("db.t", [SchemaChange.set_option("bucket", str(buckets))], False)
        self.handle = self._table.handle()

    def rescale(self, buckets: int) -> None:
        """Change the number of buckets: set the option, then overwrite the rows with themselves."""
        rows = batch_read(self.handle)
        self.set_buckets(buckets)
        self._write(rows, overwrite=True)

    def change(self, chance: random.Random, keyed: bool) -> None:
        """Compact the table, update rows or append some."""
        what = chance.randrange(6)
        if what == 0 and self._compactable:
            compact(self.handle)
        elif what == 1 and keyed and self._next:
            keys = chance.sample(range(self._next), min(self._next, 5))
            self._write([{"k": key, "p": f"p{key % 4}", "v": 100 + key} for key in keys])
        else:
            self.append(chance.randrange(1, 30), chance.randrange(1, 5))

    def _write(self, rows: list[dict[str, Any]], overwrite: bool = False) -> None:
        self._table.write(_arrow(rows), overwrite=overwrite, table=self.handle, by=write_by_stream)


def _arrow(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, COLUMNS)
