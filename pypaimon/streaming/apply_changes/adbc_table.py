"""`AdbcTable`: a table of a database behind ADBC, to which plans are applied in transactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import pyarrow as pa

from pypaimon.streaming.apply_changes.changes import AnyBatch, inserts, last_changes
from pypaimon.streaming.apply_changes.followed_columns import Column, Columns, follow, quoted
from pypaimon.streaming.apply_changes.keys import GivenKeys, TargetKeys
from pypaimon.streaming.apply_changes.plan_transactions import Saved
from pypaimon.streaming.apply_changes.refusals import translated
from pypaimon.streaming.errors import StreamConfigError, TargetError, UnsupportedTableError
from pypaimon.streaming.internals import TableSchema

_POSITIONS = "_paimon_positions"
_ROWS, _GONE = "_paimon_rows", "_paimon_gone"
_AUTOCOMMIT = "adbc.connection.autocommit"


class Execute(Protocol):
    """Runs a statement; the rows that it gives."""

    def __call__(self, query: str, *given: str | None) -> list[tuple[Any, ...]]: ...


class Dialect(Protocol):
    """What one database does in its own way."""

    system: str
    """What it is called."""
    parameters: tuple[str, str, str]
    """The first three parameters of a statement."""
    locking: str
    """What stands behind a SELECT so that nobody else changes what it finds, and it finds what they have committed."""

    def column_type(self, kind: pa.DataType) -> str | None:
        """The type of a column; None where it has none."""

    def fitted(self, rows: pa.Table) -> pa.Table:
        """Rows as its driver takes them.

        Raises:
            StreamConfigError: It cannot hold a value.
        """

    def exists(self, execute: Execute, table: str) -> bool:
        """Whether a table, quoted, is there."""

    def columns(self, execute: Execute, table: str) -> set[str]:
        """The names of the columns of a table, quoted."""

    def change_type(self, execute: Execute, table: str, column: Column) -> None:
        """Give a column another type."""

    def index(self, name: str, table: str, keys: Sequence[str]) -> str:
        """The statement that makes an index of a table, if there is none of its name; all names are quoted."""

    def delete(self, table: str, gone: str, keys: Sequence[str], has_nulls: bool) -> str:
        """The statement that deletes the rows of a table whose keys are in another one; all names are quoted."""


class AdbcTable:
    """A table, and the row of positions beside it. Calls block, one at a time.

    Args:
        connection: Of the driver's module `dbapi`, without autocommit; nobody else uses it.
        name: The table.
        keys: See `TargetKeys`.
        dialect: Of the database.

    Raises:
        StreamConfigError: The connection commits by itself.
        TargetError: The database refuses.
    """

    def __init__(self, connection: Any, name: str, keys: GivenKeys, dialect: Dialect) -> None:
        self._connection = connection
        self._name = name
        self._table = ".".join(map(quoted, name.split(".")))
        self._given = TargetKeys(keys)
        self.keys: list[str] = []
        self._dialect = dialect
        self._is_open = False
        self._is_lost = False
        self._known: Columns | None = None
        self._followed: tuple[TableSchema, pa.Schema] | None = None
        with self._translated():
            if connection.adbc_connection.get_option(_AUTOCOMMIT) == "true":
                raise StreamConfigError("the connection commits by itself: connect(...) without autocommit=True")
            self._execute(
                f"CREATE TABLE IF NOT EXISTS {_POSITIONS} (name TEXT PRIMARY KEY, position TEXT, columns TEXT)"
            )
            connection.commit()

    def saved(self) -> Saved | None:
        """What was saved, as committed."""
        self._check()
        with self._translated():
            try:
                found = self._found()
                return Saved(*found) if found and self._dialect.exists(self._execute, self._table) else None
            finally:
                if not self._is_open:
                    # A transaction that only reads would hold a snapshot of the database.
                    self._roll_back()

    def begin(self, saved: Saved | None) -> None:
        """Begin a transaction."""
        self._check()
        self._is_open = True
        self._known = None if saved is None or saved.columns is None else Columns.from_json(saved.columns)
        self._followed = None

    def write(self, batch: AnyBatch) -> None:
        """Write the rows of a batch."""
        self.keys = self._given.of(batch)
        sets, removals = last_changes(batch, self.keys) if self.keys else (inserts(batch), None)
        rows = self._dialect.fitted(sets)
        with self._translated():
            self._follow_columns(batch, sets.schema)
            if batch.begins_state:
                self._execute(f"DELETE FROM {self._table}")
            elif removals is not None:
                self._delete([rows, self._dialect.fitted(removals.select(self.keys))])
            if rows.num_rows:
                names = ", ".join(quoted(name) for name in rows.schema.names)
                with self._staged(_ROWS, rows):
                    self._execute(f"INSERT INTO {self._table} ({names}) SELECT {names} FROM {_ROWS}")

    def save(self, position: str, before: Saved | None) -> Saved | None:
        """Save a position in the place of what was saved before; None: that was changed by others."""
        saved = Saved(position, None if self._known is None else self._known.to_json())
        first, second, third = self._dialect.parameters
        with self._translated():
            if before is None:
                self._execute(f"DELETE FROM {_POSITIONS} WHERE name = {first}", self._name)
                query = f"INSERT INTO {_POSITIONS} (name, position, columns) VALUES ({first}, {second}, {third})"
                self._execute(query, self._name, position, saved.columns)
                return saved
            found = self._found(self._dialect.locking)
            if found is None or found[0] != before.position:
                return None
            query = f"UPDATE {_POSITIONS} SET position = {first}, columns = {second} WHERE name = {third}"
            self._execute(query, position, saved.columns, self._name)
        return saved

    def commit(self) -> None:
        """End the transaction."""
        with self._translated():
            self._connection.commit()
        self._is_open = False

    def roll_back(self) -> None:
        """Take back the transaction."""
        self._is_open = False
        with self._translated():
            self._roll_back()

    def _roll_back(self) -> None:
        try:
            self._connection.rollback()
        except self._connection.Error:
            # SQLite has ended the transaction by itself where its disk is full, which its driver does not know: what
            # is written next would be committed at once.
            self._is_lost = True
            self._execute("BEGIN")
            self._connection.rollback()
            self._is_lost = False

    def _check(self) -> None:
        if self._is_lost:
            raise TargetError(
                f"{self._dialect.system}, table {self._name}: the connection was lost. Make another one, and a target "
                "of it: replicate(...) goes on where the table stands."
            )

    def _found(self, locking: str = "") -> tuple[Any, ...] | None:
        query = f"SELECT position, columns FROM {_POSITIONS} WHERE name = {self._dialect.parameters[0]} {locking}"
        return next(iter(self._execute(query, self._name)), None)

    def _follow_columns(self, batch: AnyBatch, schema: pa.Schema) -> None:
        """Make the table fit, unless it was made so for rows just like these."""
        if self._followed is not None and self._followed[0] is batch.schema and self._followed[1] == schema:
            return
        wanted = Columns.of(batch, [(field.name, self._type(field)) for field in schema])
        is_new = self._known is None
        follow(_AdbcAlter(self._execute, self._table, self._dialect), batch, wanted, self._known)
        if is_new and self.keys:
            name = f"_paimon_{self._name.rpartition('.')[2]}_keys"
            self._execute(self._dialect.index(quoted(name), self._table, list(map(quoted, self.keys))))
        self._known, self._followed = wanted, (batch.schema, schema)

    def _type(self, field: pa.Field) -> str:
        kind = self._dialect.column_type(field.type)
        if kind is None:
            raise UnsupportedTableError(
                f"column '{field.name}' of type {field.type} cannot be written to {self._dialect.system}: leave it out "
                "of the stream with with_projection(...)"
            )
        return kind

    def _delete(self, changes: list[pa.Table]) -> None:
        """Delete what has the key of a change."""
        gone = pa.concat_tables([each.select(self.keys) for each in changes])
        if gone.num_rows:
            has_nulls = any(column.null_count for column in gone.columns)
            with self._staged(_GONE, gone):
                self._execute(self._dialect.delete(self._table, _GONE, list(map(quoted, self.keys)), has_nulls))

    @contextmanager
    def _staged(self, name: str, rows: pa.Table) -> Iterator[None]:
        """Rows in a table of this connection, for as long as it takes."""
        with self._connection.cursor() as cursor:
            cursor.adbc_ingest(name, rows, mode="create", temporary=True)
        yield
        self._execute(f"DROP TABLE {name}")

    def _execute(self, query: str, *given: str | None) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(query, given or None)
            return list(cursor.fetchall()) if cursor.description else []

    def _translated(self) -> AbstractContextManager[None]:
        return translated(f"{self._dialect.system}, table {self._name}", (self._connection.Error,))


class _AdbcAlter:
    """Changes of one table."""

    def __init__(self, execute: Execute, table: str, dialect: Dialect) -> None:
        self._run = execute
        self._table = table
        self._dialect = dialect

    def create(self, columns: Sequence[Column]) -> None:
        listed = ", ".join(f"{quoted(column.name)} {column.type}" for column in columns)
        self._run(f"CREATE TABLE IF NOT EXISTS {self._table} ({listed})")

    def lacks(self, columns: Sequence[Column]) -> list[Column]:
        present = self._dialect.columns(self._run, self._table)
        return [column for column in columns if column.name not in present]

    def drop(self, name: str) -> None:
        if name in self._dialect.columns(self._run, self._table):
            self._run(f"ALTER TABLE {self._table} DROP COLUMN {quoted(name)}")

    def add(self, column: Column) -> None:
        self._run(f"ALTER TABLE {self._table} ADD COLUMN {quoted(column.name)} {column.type}")

    def change_type(self, column: Column) -> None:
        self._dialect.change_type(self._run, self._table, column)

    def rename(self, old: str, new: str) -> None:
        self._run(f"ALTER TABLE {self._table} RENAME COLUMN {quoted(old)} TO {quoted(new)}")
