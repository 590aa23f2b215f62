"""What tests do with the tables of the documentation's examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pypaimon.streaming.example_tables import (
    EVENTS,
    ORDERS,
    append,
    catalog,
    change,
    create_orders,
    events,
    orders,
    write,
)
from support.tables.handles import batch_read
from support.tables.streamed_table import expire

__all__ = [
    "CHANGES",
    "COLUMNS",
    "EVENTS",
    "NEXT_CHANGES",
    "ORDERS",
    "append",
    "catalog",
    "change",
    "create_orders",
    "events",
    "expired_orders",
    "orders",
    "state_of",
    "write",
]

COLUMNS = ["id", "status", "amount"]
CHANGES = [(2, "-U", 1, "placed", 1.5), (3, "+U", 1, "paid", 1.5), (4, "-D", 2, "placed", None)]
"""What follows on the first plan of `orders`: snapshot, kind and values."""

NEXT_CHANGES = [
    ("-D", (1, "placed", 1.0)),
    ("+U", (2, "paid", 2.0)),
    ("+I", (7, "placed", 7.0)),
    ("-D", (3, "placed", 3.0)),
]
"""What follows on `expired_orders`, a commit each: kind and values."""


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
    return {row["id"]: row["status"] for row in batch_read(table, ["id", "status"])}
