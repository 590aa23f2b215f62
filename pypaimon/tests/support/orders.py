"""A primary-key table with a changelog and an append table, small and always the same."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from tables import expire

ORDERS = pa.schema([("id", pa.int64()), ("status", pa.string()), ("amount", pa.float64()), ("kind", pa.string())])
EVENTS = pa.schema([("day", pa.date32()), ("value", pa.int64())])
COLUMNS = ["id", "status", "amount"]
CHANGES = [
    (2, "-U", 1, "placed", 1.5),
    (3, "+U", 1, "paid", 1.5),
    (4, "-D", 2, "placed", None),
]
"""What follows on the first plan of `orders`: snapshot, kind and values."""

NEXT_CHANGES = [
    ("-D", (1, "placed", 1.0)),
    ("+U", (2, "paid", 2.0)),
    ("+I", (7, "placed", 7.0)),
    ("-D", (3, "placed", 3.0)),
]
"""What follows on `expired_orders`, a commit each: kind and values."""


def catalog(warehouse: Any) -> Any:
    """A catalog over a directory, with a database `db`."""
    found = CatalogFactory.create({"warehouse": str(warehouse)})
    found.create_database("db", True)
    return found


def write(table: Any, rows: Sequence[dict[str, Any]], schema: pa.Schema) -> None:
    """One commit."""
    builder = table.new_batch_write_builder()
    writer, commit = builder.new_write(), builder.new_commit()
    writer.write_arrow(pa.Table.from_pylist(list(rows), schema=schema))
    commit.commit(writer.prepare_commit())
    writer.close()
    commit.close()


def change(table: Any, kind: str, *rows: tuple[int, str, float | None]) -> None:
    """One commit of orders of one kind."""
    write(table, [dict(zip(COLUMNS, row, strict=True)) | {"kind": kind} for row in rows], ORDERS)


def create_orders(catalog: Any, name: str = "db.orders") -> Any:
    """Orders by id in two buckets, without a snapshot; their writer says what each row is."""
    options = {"bucket": "2", "changelog-producer": "input", "rowkind.field": "kind"}
    catalog.create_table(name, Schema.from_pyarrow_schema(ORDERS, primary_keys=["id"], options=options), False)
    return catalog.get_table(name)


def orders(catalog: Any, name: str = "db.orders") -> Any:
    """Orders with four snapshots: two of them placed, one then paid, the other one deleted."""
    table = create_orders(catalog, name)
    change(table, "+I", (1, "placed", 1.5), (2, "placed", None))
    for _, kind, *row in CHANGES:
        change(table, kind, (row[0], row[1], row[2]))
    return table


def expired_orders(catalog: Any) -> Any:
    """Orders of which most were last changed in snapshots that have expired."""
    table = create_orders(catalog)
    change(table, "+I", *((number, "placed", float(number)) for number in range(1, 6)))
    change(table, "+U", (5, "paid", 5.0))
    change(table, "-D", (4, "placed", 4.0))
    change(table, "+I", (6, "placed", 6.0))
    expire(Path(table.table_path), 4)
    return table


def state_of(table: Any) -> dict[int, str]:
    """The table as pypaimon's own batch read gives it."""
    reader = table.new_read_builder().with_projection(["id", "status"])
    rows = reader.new_read().to_arrow(reader.new_scan().plan().splits()).to_pylist()
    return {row["id"]: row["status"] for row in rows}


def events(catalog: Any, name: str = "db.events", commits: int = 3, **options: str) -> Any:
    """An append table, partitioned by day: each commit writes one value for each of three days."""
    schema = Schema.from_pyarrow_schema(EVENTS, partition_keys=["day"], options=options)
    catalog.create_table(name, schema, False)
    table = catalog.get_table(name)
    for number in range(commits):
        append(table, number)
    return table


def append(table: Any, number: int) -> None:
    """One commit of events more."""
    write(table, [{"day": date(2026, 11, 20 + day), "value": number * 10 + day} for day in range(3)], EVENTS)
