"""A database for tests of its streams: small tables, and what happens to them, also at random."""

from __future__ import annotations

import random
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import database_stream_builder, stream_read_builder
from pypaimon.streaming.databases import DatabaseStreamBuilder
from support.tables.handles import batch_read, catalog_with_database, create_table, option_names, write_by_stream

COLUMNS = pa.schema([("k", pa.int64())])
_KEYED = pa.schema([pa.field("k", pa.int64(), nullable=False)])


class Database:
    """A database of a warehouse; its tables have a column `k`.

    Args:
        catalog: pypaimon's catalog, if not one over the directory.
    """

    def __init__(self, warehouse: Path, catalog: Any | None = None, name: str = "db") -> None:
        self.name = name
        self.catalog = catalog_with_database(warehouse, name, catalog)
        self.home = warehouse / f"{name}.db"

    def create(self, name: str, *rows: int, keyed: bool = False, **options: str) -> None:
        columns, keys = (_KEYED, ["k"]) if keyed else (COLUMNS, None)
        named = option_names(options)
        create_table(self.catalog, name, columns, database=self.name, primary_keys=keys, options=named)
        made = time.time_ns() // 1_000_000
        # The identity of a table is its time of creation in milliseconds. Two tables with the same one look alike after
        # a rename.
        while time.time_ns() // 1_000_000 == made:
            pass
        if rows:
            self.write(name, *rows)

    def write(self, name: str, *rows: int) -> None:
        write_by_stream(self.table(name), pa.table({"k": list(rows)}, schema=COLUMNS))

    def drop(self, name: str) -> None:
        self.catalog.drop_table(f"{self.name}.{name}", False)

    def rename(self, name: str, new: str) -> None:
        self.catalog.rename_table(f"{self.name}.{name}", f"{self.name}.{new}")

    def copy(self, name: str, new: str) -> None:
        """Copy the files of a table. The copy has the same identity."""
        shutil.copytree(self.home / name, self.home / new)

    def table(self, name: str) -> Any:
        return self.catalog.get_table(f"{self.name}.{name}")

    def rows(self, name: str) -> list[dict[str, Any]]:
        return batch_read(self.table(name))

    def stream(self, catalog: Any | None = None, **arguments: Any) -> DatabaseStreamBuilder:
        """A stream of all tables that polls often."""
        return (
            database_stream_builder(catalog or self.catalog, self.name, **arguments)
            .with_poll_interval_ms(10)
            .with_discovery_interval(0.05)
        )


class Doors:
    """A catalog that hides tables from a listing and whose tables are read through a FileIO of the test.

    Args:
        files: The FileIO of its tables; None: their own.

    Attributes:
        fail_once: The next `get_table` raises this error; None: no error.
        fail: Opening these tables raises these errors.
        failed: The names of the tables whose opening has failed.
        listing: While a test holds it, no table is listed.
        opening: While a test holds it, no table is opened.
    """

    def __init__(self, catalog: Any, files: Any | None = None) -> None:
        self._catalog = catalog
        self._files = files
        self._hidden: list[str] = []
        self.fail_once: Exception | None = None
        self.fail: dict[str, Exception] = {}
        self.failed: list[str] = []
        self.listing, self.opening = threading.Lock(), threading.Lock()

    def hide_once(self, name: str) -> None:
        """Leave a table out of the next listing."""
        self._hidden.append(name)

    @property
    def is_hidden(self) -> int:
        """The number of tables that the next listing leaves out."""
        return len(self._hidden)

    def list_tables(self, database: str) -> list[str]:
        with self.listing:
            names = self._catalog.list_tables(database)
        hidden, self._hidden = self._hidden, []
        return [name for name in names if name not in hidden]

    def get_table(self, identifier: Any) -> Any:
        name = identifier.rpartition(".")[2]
        error, self.fail_once = self.fail_once or self.fail.get(name), None
        if error is not None:
            self.failed.append(name)
            raise error
        with self.opening:
            table = self._catalog.get_table(identifier)
        if self._files is not None:
            table.file_io = self._files
        return table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)


SLOW_DOWN = OSError("AWS Error SLOW_DOWN during HeadObject: HTTP status 503")
"""An error that a store gives for now."""


def keys(batch: Any) -> list[int]:
    found: list[int] = batch.rows["k"].to_pylist()
    return found


def rows_of(database: Database, name: str) -> list[tuple[Any, ...]]:
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
    """Random changes of the tables of a database."""

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
