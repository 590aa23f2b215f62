"""The tables of the documentation's examples: `python -m pypaimon.streaming.example_tables DIRECTORY` creates them.

`db.orders` is a primary-key table whose writer gives the kind of each row in the column `op`; `db.events` is an append
table. A table that exists already is left as it is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import date
from typing import Any

import pyarrow as pa
from pypaimon.catalog.catalog_factory import CatalogFactory
from pypaimon.schema.schema import Schema

from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.handles import WritableTable

ORDERS = pa.schema([("id", pa.int64()), ("status", pa.string()), ("amount", pa.float64()), ("op", pa.string())])
EVENTS = pa.schema([("day", pa.date32()), ("value", pa.int64())])


def catalog(warehouse: Any) -> Any:
    """A catalog in a directory, with a database `db`."""
    found = CatalogFactory.create({"warehouse": str(warehouse)})
    found.create_database("db", True)
    return found


def write(table: WritableTable, rows: Sequence[dict[str, Any]], schema: pa.Schema) -> None:
    """Write rows in one commit."""
    builder = table.new_batch_write_builder()
    writer, commit = builder.new_write(), builder.new_commit()
    writer.write_arrow(pa.Table.from_pylist(list(rows), schema=schema))
    commit.commit(writer.prepare_commit())
    writer.close()
    commit.close()


def create_orders(catalog: Any, name: str = "db.orders") -> WritableTable:
    """Orders by id in two buckets, without a snapshot; their writer gives the kind of each row."""
    options = {"bucket": "2", option_keys.CHANGELOG_PRODUCER.name: "input", option_keys.ROWKIND_FIELD.name: "op"}
    catalog.create_table(name, Schema.from_pyarrow_schema(ORDERS, primary_keys=["id"], options=options), False)
    table: WritableTable = catalog.get_table(name)
    return table


def change(table: WritableTable, kind: str, *rows: tuple[int, str, float | None]) -> None:
    """Write orders of one row kind in one commit."""
    write(table, [{"id": id_, "status": status, "amount": sum_, "op": kind} for id_, status, sum_ in rows], ORDERS)


def orders(catalog: Any, name: str = "db.orders") -> WritableTable:
    """Orders with four snapshots: two orders are placed, then one is paid, and the other one deleted."""
    table = create_orders(catalog, name)
    change(table, "+I", (1, "placed", 1.5), (2, "placed", None))
    change(table, "-U", (1, "placed", 1.5))
    change(table, "+U", (1, "paid", 1.5))
    change(table, "-D", (2, "placed", None))
    return table


def events(catalog: Any, name: str = "db.events", commits: int = 3, **options: str) -> WritableTable:
    """An append table, partitioned by day: each commit writes one value for each of three days."""
    schema = Schema.from_pyarrow_schema(EVENTS, partition_keys=["day"], options=options)
    catalog.create_table(name, schema, False)
    table: WritableTable = catalog.get_table(name)
    for number in range(commits):
        append(table, number)
    return table


def append(table: WritableTable, number: int) -> None:
    """Write one more commit of events."""
    write(table, [{"day": date(2026, 11, 20 + day), "value": number * 10 + day} for day in range(3)], EVENTS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Create those of both tables that a warehouse lacks."""
    parser = argparse.ArgumentParser(prog="python -m pypaimon.streaming.example_tables", description=__doc__)
    parser.add_argument("directory", help="the warehouse; it is created if it does not exist")
    warehouse = catalog(parser.parse_args(arguments).directory)
    there = warehouse.list_tables("db")
    for create, name in ((orders, "orders"), (events, "events")):
        if name not in there:
            create(warehouse)
        print(f"db.{name}" + (" exists already" if name in there else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
