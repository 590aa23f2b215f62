"""Tables with two partitions, whose rows are divided into other numbers of buckets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import stream_read_builder, stream_write_builder, table_files
from pypaimon.streaming.metadata.paimon_table import PaimonTable

COLUMNS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("p", pa.int32(), nullable=False), ("v", pa.int64())]
)
KINDED = COLUMNS.append(pa.field("_row_kind", pa.string()))


def created(directory: Path, options: dict[str, str]) -> Any:
    catalog = CatalogFactory.create({"warehouse": str(directory)})
    catalog.create_database("d", False)
    keys = None if "bucket-key" in options else ["id", "p"]
    given = {"bucket": "2", "num-sorted-run.compaction-trigger": "3", **options}
    schema = Schema.from_pyarrow_schema(COLUMNS, partition_keys=["p"], primary_keys=keys, options=given)
    catalog.create_table("d.t", schema, False)
    return catalog.get_table("d.t")


def altered(table: Any, directory: Path, buckets: int) -> Any:
    catalog = CatalogFactory.create({"warehouse": str(directory)})
    catalog.alter_table("d.t", [SchemaChange.set_option("bucket", str(buckets))], False)
    return catalog.get_table("d.t")


def write(table: Any, value: int, keys: range, *, deletes: bool = False) -> None:
    keyed = bool(table.primary_keys)
    rows = [
        {"id": key, "p": p, "v": value, "_row_kind": "-D" if deletes and key % 5 == 0 else "+I"}
        for key in keys
        for p in (0, 1)
    ]
    columns = KINDED if keyed else COLUMNS
    with stream_write_builder(table).with_commit_user("writer").open_sync() as writer:
        writer.write(pa.Table.from_pylist([{name: row[name] for name in columns.names} for row in rows], columns))
        writer.commit()


def rows(table: Any, start: str) -> list[dict[str, Any]]:
    builder = stream_read_builder(table).with_start(start).with_end(latest=True)
    traits = PaimonTable(table).traits
    if traits.primary_key:
        builder.with_include_row_kind().with_raw("changelog-producer" not in table.table_schema.options)
    with builder.open_sync() as stream:
        return [row for batch in stream for row in batch.data.to_pylist()]


def state(table: Any) -> list[tuple[int, int, int]]:
    return sorted((row["p"], row["id"], row["v"]) for row in rows(table, "latest-full"))


def buckets_of(table: Any) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for each in table_files(table).buckets:
        found.setdefault(each.partition["p"], set()).add(each.bucket)
    return found
