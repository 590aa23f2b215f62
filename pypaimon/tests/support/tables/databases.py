"""A database for tests of its streams: small tables, and what happens to them."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from pypaimon.streaming import database_stream_builder
from pypaimon.streaming.databases import DatabaseStreamBuilder
from support.tables.handles import batch_read, catalog_with_database, create_table, option_names, write_by_stream

COLUMNS = pa.schema([("k", pa.int64())])
_KEYED = pa.schema([pa.field("k", pa.int64(), nullable=False)])


class Database:
    """A database of a warehouse; its tables have a column `k`.

    Args:
        warehouse: The directory of the warehouse.
        catalog: pypaimon's catalog, if not one over the directory.
        name: The name of the database.
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
        """The rows of a table, by pypaimon's batch read."""
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
        catalog: pypaimon's catalog.
        files: The FileIO of its tables; None: their own.

    Attributes:
        fail_once: The next `get_table` raises this error; None: no error.
    """

    def __init__(self, catalog: Any, files: Any | None = None) -> None:
        self._catalog = catalog
        self._files = files
        self._hidden: list[str] = []
        self.fail_once: Exception | None = None

    def hide_once(self, name: str) -> None:
        """Leave a table out of the next listing."""
        self._hidden.append(name)

    @property
    def is_hidden(self) -> int:
        """The number of tables that the next listing leaves out."""
        return len(self._hidden)

    def list_tables(self, database: str) -> list[str]:
        names = self._catalog.list_tables(database)
        hidden, self._hidden = self._hidden, []
        return [name for name in names if name not in hidden]

    def get_table(self, identifier: Any) -> Any:
        error, self.fail_once = self.fail_once, None
        if error is not None:
            raise error
        table = self._catalog.get_table(identifier)
        if self._files is not None:
            table.file_io = self._files
        return table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)


def keys(batch: Any) -> list[int]:
    """The rows of a batch."""
    found: list[int] = batch.rows["k"].to_pylist()
    return found
