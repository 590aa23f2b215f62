"""`Dialect`: what differs between SQL databases; and `AdbcDialect`, what those with an ADBC driver have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.targets.changes import quoted
from pypaimon.streaming.targets.target_state import Column

_ROWS = "_paimon_rows"
_AUTOCOMMIT = "adbc.connection.autocommit"


class Execute(Protocol):
    def __call__(self, query: str, *given: str | None) -> list[tuple[Any, ...]]: ...


class Dialect(Protocol):
    """The SQL of one database."""

    system: str
    """Its name."""
    driver: str
    """The module of its connections."""
    of_driver: str
    """An attribute by which its connections are recognised."""
    parameters: tuple[str, str, str]
    """The first three parameters of a statement."""
    locking: str
    """Suffix of a SELECT that locks the rows it finds, and finds the newest committed ones."""
    same_name: str
    """Suffix of a comparison of names, so that it compares as the database does."""
    if_absent: str
    """Suffix of an INSERT that does nothing if the name is there."""
    position_columns: str
    """The columns of the table of positions."""
    table_options: str
    """Suffix of a CREATE TABLE."""
    has_primary_keys: bool
    """Whether a new table gets the primary key of its source, whose columns may be renamed and widened later."""
    alters_in_transactions: bool
    """Whether changes of tables are part of a transaction. False: each commits, and only columns are added."""

    def begin(self, connection: Any, execute: Execute) -> None:
        """Refuse a connection that cannot be used, and prepare it."""

    def column_type(self, kind: pa.DataType, keys: int) -> str | None:
        """The type of a column, or None if the database has no such type.

        Args:
            keys: The number of key columns, if this is one; otherwise 0.
        """

    def fitted(self, rows: pa.Table) -> pa.Table:
        """Rows in types that the driver takes."""

    def resolved(self, execute: Execute, name: str) -> tuple[str, str]:
        """Schema and name of a table in the spelling of the database. The table need not exist."""

    def positions(self, execute: Execute) -> str | None:
        """The schema in which the database finds a table of positions without a schema in its name, or None."""

    def refuse_columns(self, names: Sequence[str]) -> None: ...

    def is_exact(self, old: str, new: str) -> bool:
        """As `Alter.is_exact`."""

    def exists(self, execute: Execute, table: str) -> bool:
        """Whether a table exists. Its name is quoted."""

    def columns(self, execute: Execute, table: str) -> set[str]:
        """The names of the columns of a table, whose name is quoted."""

    def change_type(self, execute: Execute, table: str, column: Column) -> None: ...

    def made(self, execute: Execute, schema: str, name: str) -> None:
        """Refuse a table, which exists, if its rows cannot be rolled back."""

    def index(self, execute: Execute, name: str, table: str, keys: Sequence[str]) -> None:
        """Create an index, if it does not exist. Table and keys are quoted."""

    def insert(self, connection: Any, table: str, rows: pa.Table, kinds: Mapping[str, str]) -> None:
        """Insert rows into a table.

        Args:
            kinds: The types of the columns.
        """

    def staged(
        self, connection: Any, name: str, rows: pa.Table, kinds: Mapping[str, str]
    ) -> AbstractContextManager[None]:
        """A temporary table with rows."""

    def delete(self, table: str, gone: str, keys: Sequence[str], has_nulls: bool, columns: set[str]) -> str:
        """The statement that deletes the rows of a table whose keys are in another one.

        Args:
            table: The table, quoted.
            keys: The key columns, quoted.
            columns: The names of the columns of the table in lower case.
        """


class AdbcDialect:
    """What databases with an ADBC driver have in common."""

    of_driver = "adbc_connection"
    if_absent = "ON CONFLICT (name) DO NOTHING"
    position_columns = "name TEXT PRIMARY KEY, position TEXT, columns TEXT"
    table_options = ""
    alters_in_transactions = True

    def begin(self, connection: Any, execute: Execute) -> None:
        if connection.adbc_connection.get_option(_AUTOCOMMIT) == "true":
            raise StreamConfigError("the connection commits by itself: connect(...) without autocommit=True")

    def made(self, execute: Execute, schema: str, name: str) -> None:
        """Every table can roll back."""

    def insert(self, connection: Any, table: str, rows: pa.Table, kinds: Mapping[str, str]) -> None:
        names = ", ".join(quoted(name) for name in rows.schema.names)
        with self.staged(connection, _ROWS, rows, kinds), connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM {_ROWS}")

    @contextmanager
    def staged(self, connection: Any, name: str, rows: pa.Table, kinds: Mapping[str, str]) -> Iterator[None]:
        with connection.cursor() as cursor:
            cursor.adbc_ingest(name, rows, mode="create", temporary=True)
        yield
        # Not after an error, which ends the transaction: rolling it back drops the table.
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE {name}")
