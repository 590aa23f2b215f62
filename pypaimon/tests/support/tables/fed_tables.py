"""Tables of every kind that the workers of a feed share differently, and random histories of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import compact, stream_write_builder
from support.tables.live_tables import batch_read

COLUMNS = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), pa.field("p", pa.string(), nullable=False), ("v", pa.int64())]
)
_EVOLUTION = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
KINDS: dict[str, tuple[list[str], list[str], dict[str, str]]] = {
    "unaware": ([], [], {"bucket": "-1"}),
    "unaware partitions": (["p"], [], {"bucket": "-1"}),
    "evolving": ([], [], {"bucket": "-1", **_EVOLUTION}),
    "fixed append": ([], [], {"bucket": "5", "bucket-key": "k"}),
    "fixed": ([], ["k"], {"bucket": "3"}),
    "partitions": (["p"], ["p", "k"], {"bucket": "1"}),
    "vectors": ([], ["k"], {"bucket": "2", "deletion-vectors.enabled": "true"}),
    "dynamic": ([], ["k"], {"bucket": "-1", "dynamic-bucket.target-row-num": "4"}),
    "postponed": ([], ["k"], {"bucket": "-2"}),
}
"""Partition columns, primary key and options by kind."""


class FedTable:
    """A table `db.t`.

    Attributes:
        handle: pypaimon's table.
    """

    def __init__(self, warehouse: Path, kind: str, **options: str) -> None:
        partitions, keys, given = KINDS[kind]
        self._catalog: Any = CatalogFactory.create({"warehouse": str(warehouse)})
        self._catalog.create_database("db", True)
        schema = Schema.from_pyarrow_schema(COLUMNS, partitions or None, keys or None, {**given, **options})
        self._catalog.create_table("db.t", schema, False)
        self.handle: Any = self._catalog.get_table("db.t")
        self._by_file = given["bucket"] == "-1" and not keys
        self._compactable = kind not in ("evolving", "postponed")
        self._next = 0

    def append(self, count: int, files: int = 1) -> None:
        """Commit so many rows with keys of their own; of a table without buckets in so many files of a partition."""
        rows = [{"k": key, "p": f"p{key % 4}", "v": key % 7} for key in range(self._next, self._next + count)]
        self._next += count
        if self._by_file:
            self._write_files([rows[part::files] for part in range(files)])
        else:
            self.write(rows)

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Commit rows."""
        with stream_write_builder(self.handle).open_sync() as writer:
            writer.write(pa.Table.from_pylist(rows, COLUMNS))
            writer.commit()

    def _write_files(self, parts: list[list[dict[str, Any]]]) -> None:
        builder = self.handle.new_batch_write_builder()
        messages = []
        for rows in filter(None, parts):
            writer = builder.new_write()
            writer.write_arrow(pa.Table.from_pylist(rows, COLUMNS))
            messages += writer.prepare_commit()
            writer.close()
        builder.new_commit().commit(messages)

    def set_buckets(self, buckets: int) -> None:
        """The option alone."""
        self._catalog.alter_table("db.t", [SchemaChange.set_option("bucket", str(buckets))], False)
        self.handle = self._catalog.get_table("db.t")

    def rescale(self, buckets: int) -> None:
        """Divide all rows into so many buckets: the option, and an overwrite of the rows with themselves."""
        rows = batch_read(self.handle)
        self.set_buckets(buckets)
        with stream_write_builder(self.handle).with_overwrite().open_sync() as writer:
            writer.write(pa.Table.from_pylist(rows, COLUMNS))
            writer.commit()

    def change(self, chance: random.Random, keyed: bool) -> None:
        """Something that happens to tables."""
        what = chance.randrange(6)
        if what == 0 and self._compactable:
            compact(self.handle)
        elif what == 1 and keyed and self._next:
            keys = chance.sample(range(self._next), min(self._next, 5))
            self.write([{"k": key, "p": f"p{key % 4}", "v": 100 + key} for key in keys])
        else:
            self.append(chance.randrange(1, 30), chance.randrange(1, 5))
