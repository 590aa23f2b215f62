"""Where targets of each kind lie in tests: how they are opened, and the rows that they hold."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import adbc_driver_postgresql.dbapi as adbc_postgres
import adbc_driver_sqlite.dbapi as adbc_sqlite
import duckdb
import pyarrow.parquet as pq
import pymysql
import pymysql.cursors
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from pypaimon.streaming import (
    DeltaTarget,
    DuckDBTarget,
    IcebergTarget,
    MySQLTarget,
    ParquetTarget,
    PostgresTarget,
    SQLiteTarget,
)
from pypaimon.streaming.targets import Target

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

Keys = str | Sequence[str] | None
Rows = list[dict[str, Any]]


class Place(Protocol):
    """Of targets of one kind, told apart by their names. It can be pickled."""

    def opened(self, keys: Keys, name: str = "copy", *, replace: bool = False) -> Target:
        """A target; what it is connected to is closed when it is let go."""

    def held(self, name: str = "copy") -> Rows:
        """The rows of a target; none where it is not there."""


@dataclass(frozen=True)
class DuckDBPlace:
    """A database of DuckDB for each target."""

    directory: Path

    def connected(self, name: str = "copy") -> duckdb.DuckDBPyConnection:
        return duckdb.connect(str(self.directory / f"{name}.duckdb"))

    def opened(self, keys: Keys, name: str = "copy", *, replace: bool = False) -> Target:
        target = DuckDBTarget(connection := self.connected(name), "copy", keys, replace=replace)
        weakref.finalize(target, connection.close)
        return target

    def execute(self, query: str) -> None:
        with self.connected() as connection:
            connection.execute(query)

    def held(self, name: str = "copy") -> Rows:
        with self.connected(name) as connection:
            try:
                return list(connection.sql("FROM copy").to_arrow_table().to_pylist())
            except duckdb.CatalogException:
                return []


@dataclass(frozen=True)
class SQLitePlace:
    """A database of SQLite."""

    directory: Path

    def connected(self) -> Any:
        return adbc_sqlite.connect(str(self.directory / "copy.sqlite"))

    def opened(self, keys: Keys, name: str = "copy", *, replace: bool = False) -> Target:
        target = SQLiteTarget(connection := self.connected(), name, keys, replace=replace)
        weakref.finalize(target, connection.close)
        return target

    def execute(self, query: str) -> None:
        with self.connected() as connection:
            _execute(connection, query)

    def held(self, name: str = "copy") -> Rows:
        with self.connected() as connection:
            return _selected(connection, name)


@dataclass(frozen=True)
class PostgresPlace:
    """A schema in the database of a server.

    Attributes:
        alone: Whether a target is opened once all other connections have ended.
    """

    address: str
    schema: str
    alone: bool = False

    def connected(self) -> Any:
        return adbc_postgres.connect(self.address)

    def opened(self, keys: Keys, name: str = "copy", *, replace: bool = False) -> Target:
        if self.alone:
            self.end_others()
        connection = self.connected()
        _execute(connection, f'CREATE SCHEMA IF NOT EXISTS "{self.schema}"')
        target = PostgresTarget(connection, f"{self.schema}.{name}", keys, replace=replace)
        weakref.finalize(target, connection.close)
        return target

    def end_others(self) -> None:
        """Have the server end all connections, with what it still does for processes that died."""
        self.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )

    def execute(self, query: str) -> None:
        """Run a statement in the schema."""
        with self.connected() as connection:
            _execute(connection, f'SET search_path = "{self.schema}", public')
            _execute(connection, query)

    def held(self, name: str = "copy") -> Rows:
        with self.connected() as connection:
            return _selected(connection, f'{self.schema}"."{name}')


@dataclass(frozen=True)
class MySQLPlace:
    """A database of a server of MySQL."""

    socket: str
    database: str

    def connected(self, database: str | None = "", **settings: Any) -> Any:
        database = self.database if database == "" else database
        given = {"user": "root", "unix_socket": self.socket, "database": database, "charset": "utf8mb4", **settings}
        return pymysql.connect(**given)

    def opened(self, keys: Keys, name: str = "copy", *, replace: bool = False) -> Target:
        target = MySQLTarget(connection := self.connected(), name, keys, replace=replace)
        weakref.finalize(target, connection.close)
        return target

    def execute(self, query: str, database: str | None = "") -> list[tuple[Any, ...]]:
        with closing(self.connected(database)) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            found = list(cursor.fetchall())
            connection.commit()
        return found

    def held(self, name: str = "copy") -> Rows:
        with closing(self.connected()) as connection, connection.cursor(pymysql.cursors.DictCursor) as cursor:
            try:
                cursor.execute(f"SELECT * FROM `{name}`")
            except pymysql.err.ProgrammingError:
                return []
            return list(cursor.fetchall())

    def primary_key(self, name: str) -> list[str]:
        return [row[4] for row in self.execute(f"SHOW INDEX FROM `{name}` WHERE Key_name = 'PRIMARY'")]


@dataclass(frozen=True)
class ParquetPlace:
    """A directory for each target."""

    directory: Path

    def opened(self, keys: Keys, name: str = "copy", *, replace: bool = False) -> Target:
        assert not keys
        return ParquetTarget(self.directory / name, replace=replace)

    def held(self, name: str = "copy") -> Rows:
        files = sorted((self.directory / name).glob("plan-*.parquet"))
        return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


@dataclass(frozen=True)
class DeltaPlace:
    """A directory for each target."""

    directory: Path

    def opened(self, keys: Keys, name: str = "copy", *, replace: bool = False) -> Target:
        return DeltaTarget(self.directory / name, keys, replace=replace)

    def held(self, name: str = "copy") -> Rows:
        path = self.directory / name
        if not DeltaTable.is_deltatable(str(path)):
            return []
        # Files that deltalake opens in Python end an interpreter that exits meanwhile.
        files = SubTreeFileSystem(str(path), LocalFileSystem())
        return list(DeltaTable(path).to_pyarrow_table(filesystem=files).to_pylist())


@dataclass(frozen=True)
class IcebergPlace:
    directory: Path

    def catalog(self) -> SqlCatalog:
        """It, to be closed."""
        # With SQLAlchemy it takes each process half a second that has no table of Iceberg.
        from pyiceberg.catalog.sql import SqlCatalog

        where = {"uri": f"sqlite:///{self.directory}/catalog.sqlite", "warehouse": f"file://{self.directory}/iceberg"}
        return SqlCatalog("it", **where)

    @contextmanager
    def connected(self) -> Iterator[SqlCatalog]:
        with closing(self.catalog()) as catalog:
            yield catalog

    def opened(self, keys: Keys, name: str = "copy", *, replace: bool = False) -> Target:
        target = IcebergTarget(catalog := self.catalog(), f"db.{name}", keys, replace=replace)
        weakref.finalize(target, catalog.close)
        return target

    def held(self, name: str = "copy") -> Rows:
        with self.connected() as catalog:
            there = catalog.table_exists(f"db.{name}")
            return list(catalog.load_table(f"db.{name}").scan().to_arrow().to_pylist()) if there else []


LOCAL_PLACES: dict[str, Any] = {
    "DuckDB": DuckDBPlace,
    "SQLite": SQLitePlace,
    "Parquet": ParquetPlace,
    "Delta": DeltaPlace,
    "Iceberg": IcebergPlace,
}
"""The places that need no server, by kind."""


def _execute(connection: Any, query: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(query)
        if cursor.description:
            cursor.fetchall()
    connection.commit()


def _selected(connection: Any, name: str) -> Rows:
    with connection.cursor() as cursor:
        try:
            cursor.execute(f'SELECT * FROM "{name}"')
        except connection.Error:
            return []
        return list(cursor.fetch_arrow_table().to_pylist())
