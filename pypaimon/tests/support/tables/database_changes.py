"""What happens to the tables of a database, at random: rows, tables and columns that come, go and are renamed."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import stream_read_builder
from support.tables.databases import Database
from support.tables.handles import write_by_stream


def rows_of(database: Database, name: str) -> list[tuple[Any, ...]]:
    """What a table holds."""
    with stream_read_builder(database.table(name)).with_end(latest=True).open_sync() as stream:
        return sorted((tuple(row.values()) for batch in stream for row in batch.rows.to_pylist()), key=str)


def as_dicts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in an order of their own, with their columns by name."""
    return sorted((dict(sorted(row.items())) for row in rows), key=str)


def alter(database: Database, name: str, *changes: Any) -> None:
    database.catalog.alter_table(f"db.{name}", list(changes))


def write(database: Database, name: str, **columns: list[Any]) -> None:
    write_by_stream(database.table(name), pa.table(columns))


class DatabaseChanges:
    """Random changes of the tables of a database.

    Args:
        database: It.
        seed: Draws them.
    """

    def __init__(self, database: Database, seed: int) -> None:
        self._database = database
        self._random = random.Random(seed)
        self._columns: dict[str, list[str]] = {}
        self._made = 0
        for _ in range(3):
            self._create()

    @property
    def tables(self) -> list[str]:
        return sorted(self._columns)

    def change(self) -> None:
        """Some rows everywhere, and something else at one table."""
        name = self._random.choice(self.tables)
        what = self._random.choice([self._create, self._drop, self._rename, self._replace, self._add, self._take])
        if len(self._columns) < 2:
            what = self._create
        elif len(self._columns) > 5:
            what = self._drop
        what(*(() if what == self._create else (name,)))
        for each in self.tables:
            self._write(each)

    def _create(self, name: str | None = None) -> None:
        self._made += 1
        name = name or f"t{self._made}"
        self._columns[name] = ["k"]
        options = {"keyed": True, "bucket": "1"} if self._made % 2 else {}
        self._database.create(name, *range(self._made % 3), **options)

    def _drop(self, name: str) -> None:
        self._database.drop(name)
        del self._columns[name]

    def _replace(self, name: str) -> None:
        self._drop(name)
        self._create(name)

    def _rename(self, name: str) -> None:
        self._made += 1
        self._database.rename(name, f"t{self._made}")
        self._columns[f"t{self._made}"] = self._columns.pop(name)

    def _add(self, name: str) -> None:
        self._made += 1
        alter(self._database, name, SchemaChange.add_column(f"c{self._made}", AtomicType("BIGINT")))
        self._columns[name].append(f"c{self._made}")

    def _take(self, name: str) -> None:
        if len(self._columns[name]) > 1:
            alter(self._database, name, SchemaChange.drop_column(self._columns[name].pop()))

    def _write(self, name: str) -> None:
        columns = {each: [self._random.randrange(50) for _ in range(5)] for each in self._columns[name]}
        write(self._database, name, **columns)
