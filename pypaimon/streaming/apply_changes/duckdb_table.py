"""`DuckDBTable`: a table of DuckDB, to which plans are applied in transactions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from pypaimon.streaming.apply_changes.changes import AnyBatch, inserts, last_changes, refuse_reserved
from pypaimon.streaming.apply_changes.duckdb_columns import DuckDBAlter, columns_of
from pypaimon.streaming.apply_changes.followed_columns import Alter, follow, quoted
from pypaimon.streaming.apply_changes.keys import GivenKeys, TargetKeys
from pypaimon.streaming.apply_changes.plan_transactions import TransactionalTable, others_write
from pypaimon.streaming.apply_changes.refusals import same_moment
from pypaimon.streaming.apply_changes.saved_state import (
    Saved,
    SavedState,
    is_of_older_release,
    refuse_two_positions,
)
from pypaimon.streaming.internals import TableSchema

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]

_POSITIONS = "_paimon_positions"
_ROWS, _GONE = "_paimon_rows", "_paimon_gone"


class DuckDBTable(TransactionalTable):
    """The table, and the row of positions next to it, in its schema.

    Args:
        connection: The database; nobody else uses it meanwhile.
        name: The table; with its schema, or its database and its schema, before dots where it is in another than the
            current one.
        keys: See `TargetKeys`.
        schema: The schema that it is in, quoted; the name has no other dots then than its own. None: see `name`.

    Attributes:
        given_keys: As given.
        keys: Columns of the key, as the last batch has them; none: rows are appended.
        where: What the table is called, as an error says it.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, name: str, keys: GivenKeys, schema: str | None = None
    ) -> None:
        self._connection = connection
        self.where = f"DuckDB, table {name}"
        self._name = name
        self._schema = schema or ""
        if schema is None:
            refuse_reserved("table", [name.rpartition(".")[2]])
            *place, self._name = _resolved(connection, name)
            self._schema = ".".join(map(quoted, place))
        self._table = f"{self._schema}.{quoted(self._name)}"
        self._positions = f"{self._schema}.{_POSITIONS}"
        self.given_keys = TargetKeys(keys)
        self.keys: list[str] = []
        self._known: SavedState | None = None
        self._known_json: str | None = None
        self._followed: tuple[TableSchema, pa.Schema] | None = None
        self._left: str | None = None
        """The position that is saved of a table that is gone."""
        self._make_positions()

    def _make_positions(self) -> None:
        run = self._connection.execute
        columns = "name VARCHAR PRIMARY KEY, position VARCHAR, columns VARCHAR"
        run(f"CREATE TABLE IF NOT EXISTS {self._positions} ({columns})")
        run(f"ALTER TABLE {self._positions} ADD COLUMN IF NOT EXISTS columns VARCHAR")
        of_it = f"pragma_table_info('{_literal(self._positions)}')"
        if not run(f"SELECT 1 FROM {of_it} WHERE name = 'name' AND pk").fetchall():
            # An older release made it, without what makes two programs that begin at the same time conflict.
            run(f"CREATE UNIQUE INDEX IF NOT EXISTS {_POSITIONS}_names ON {self._positions} (name)")
        self._take_over()

    def _take_over(self) -> None:
        """Older releases keep the position in the current schema, under the name as it was given."""
        run = self._connection.execute
        current = ".".join(map(quoted, _current(self._connection)))
        here, there = self._positions, f"{current}.{_POSITIONS}"
        if not is_there(self._connection, there) or self._row() is not None:
            return
        mine = [
            row
            for row in run(f"SELECT name, position, columns FROM {there}").fetchall()
            if is_of_older_release(row[2]) and ".".join(map(quoted, _resolved(self._connection, row[0]))) == self._table
        ]
        if not mine:
            return
        refuse_two_positions(self.where, [row[0] for row in mine])
        name, position, columns = mine[0]
        run("BEGIN")
        try:
            run(f"DELETE FROM {there} WHERE name = ?", [name])
            query = f"INSERT INTO {here} (name, position, columns) VALUES (?, ?, ?)"
            run(query, [self._name, position, columns])
            run("COMMIT")
        except BaseException:
            run("ROLLBACK")
            raise

    def _row(self) -> tuple[str, str | None] | None:
        query = f"SELECT position, columns FROM {self._positions} WHERE lower(name) = lower(?)"
        return next(iter(self._connection.execute(query, [self._name]).fetchall()), None)

    def saved(self) -> Saved | None:
        found = self._row()
        is_gone = not self._exists()
        self._left = found[0] if found is not None and is_gone else None
        return None if found is None or is_gone else Saved(*found)

    def holds_rows(self) -> bool:
        return self._exists() and bool(self._connection.execute(f"SELECT 1 FROM {self._table} LIMIT 1").fetchall())

    def begin(self, saved: Saved | None, *, replaces: bool = False) -> None:
        columns = None if saved is None or replaces else saved.columns
        if columns is None or columns != self._known_json:
            self._known_json = columns
            self._known = None if columns is None else SavedState.from_json(columns)
            self._followed = None
        self._connection.execute("BEGIN")
        if saved is None:
            self._claim()
        if replaces:
            self._connection.execute(f"DROP TABLE IF EXISTS {self._table}")

    def _claim(self) -> None:
        """Write the row of positions first: of two programs that begin at the same time one has a conflict by it."""
        with self._conflicts():
            self._connection.execute(
                f"INSERT INTO {self._positions} (name, position) SELECT ?, '' "
                f"WHERE NOT EXISTS (SELECT 1 FROM {self._positions} WHERE lower(name) = lower(?))",
                [self._name, self._name],
            )
        row = self._row()
        if row is not None and row[0] not in ("", self._left):
            raise others_write()

    def write(self, batch: AnyBatch) -> None:
        try:
            with self._conflicts():
                self._write(batch)
        finally:
            # Whatever goes wrong with it must not hide the error that came before.
            with suppress(Exception):
                for view in (_ROWS, _GONE):
                    self._connection.unregister(view)

    def save(self, position: str, before: Saved | None) -> Saved | None:
        saved = Saved(position, self._known_json)
        given: list[str | None] = [position]
        new = "position = ?"
        if before is None or saved.columns != before.columns:
            new, given = "position = ?, columns = ?", [position, saved.columns]
        was = (self._left or "") if before is None else before.position
        query = f"UPDATE {self._positions} SET {new} WHERE lower(name) = lower(?) AND position = ?"
        found = self._connection.execute(query, [*given, self._name, was]).fetchall()
        return saved if found == [(1,)] else None

    def commit(self) -> None:
        with self._conflicts():
            self._connection.execute("COMMIT")

    @contextmanager
    def _conflicts(self) -> Iterator[None]:
        """DuckDB raises one error for conflicts and for a disk that is full."""
        import duckdb

        try:
            yield
        except duckdb.TransactionException as error:
            if re.search("conflict|constraint violation", str(error)):
                raise same_moment(self.where, error) from error
            raise

    def roll_back(self) -> None:
        self._followed = None
        self._connection.execute("ROLLBACK")

    def _write(self, batch: AnyBatch) -> None:
        self.keys = self.given_keys.of_batch(batch)
        sets, removals = last_changes(batch, self.keys) if self.keys else (inserts(batch), None)
        self._connection.register(_ROWS, sets)
        self._follow_columns(batch, sets.schema)
        if batch.begins_state:
            self._connection.execute(f"DELETE FROM {self._table}")
        elif removals is not None:
            self._delete(sets, removals)
        self._connection.execute(f"INSERT INTO {self._table} BY NAME SELECT * FROM {_ROWS}")

    def _follow_columns(self, batch: AnyBatch, schema: pa.Schema) -> None:
        """Make the table fit, unless it was made so for rows just like these."""
        if self._followed is not None and self._followed[0] is batch.schema and self._followed[1] == schema:
            return
        wanted = columns_of(self._connection, _ROWS, batch, self.keys)
        follow(self._alter(), batch, wanted, self._known)
        self._known, self._known_json = wanted, wanted.to_json()
        self._followed = batch.schema, schema

    def _alter(self) -> Alter:
        return DuckDBAlter(self._connection, self._table)

    def _delete(self, sets: pa.Table, removals: pa.Table) -> None:
        """Delete what has the key of a change."""
        gone = _ROWS
        keys = [each.select(self.keys) for each in (sets, removals)]
        if removals.num_rows:
            gone = _GONE
            self._connection.register(gone, pa.concat_tables(keys))
        names = ", ".join(map(quoted, self.keys))
        if any(column.null_count for each in keys for column in each.columns):
            same = " AND ".join(
                f"{self._table}.{key} IS NOT DISTINCT FROM gone.{key}" for key in map(quoted, self.keys)
            )
            self._connection.execute(f"DELETE FROM {self._table} USING {gone} AS gone WHERE {same}")
        else:
            self._connection.execute(f"DELETE FROM {self._table} WHERE ({names}) IN (SELECT ({names}) FROM {gone})")

    def _exists(self) -> bool:
        return is_there(self._connection, self._table)


def is_there(connection: duckdb.DuckDBPyConnection, table: str) -> bool:
    """Whether there is a table or view of that name, quoted."""
    import duckdb

    try:
        connection.execute(f"SELECT 1 FROM {table} LIMIT 0")
    except duckdb.CatalogException:
        return False
    return True


def _current(connection: duckdb.DuckDBPyConnection) -> tuple[str, str]:
    """The current database and schema."""
    (found,) = connection.execute("SELECT current_database(), current_schema()").fetchall()
    return str(found[0]), str(found[1])


def _resolved(connection: duckdb.DuckDBPyConnection, name: str) -> tuple[str, str, str]:
    """Database, schema and name of a table, as DuckDB spells them, whatever way they are given. It may not be there."""
    *place, table = name.split(".")
    current_database, current_schema = _current(connection)
    if len(place) > 1:
        database, schema = place[-2:]
    elif not place:
        database, schema = current_database, current_schema
    else:
        query = "SELECT 1 FROM duckdb_schemas() WHERE lower(database_name) = lower(?) AND lower(schema_name) = lower(?)"
        is_schema = bool(connection.execute(query, [current_database, place[0]]).fetchall())
        named = "SELECT 1 FROM duckdb_databases() WHERE lower(database_name) = lower(?)"
        is_database = not is_schema and bool(connection.execute(named, place).fetchall())
        database, schema = (place[0], "main") if is_database else (current_database, place[0])
    query = (
        "SELECT table_catalog, table_schema, table_name FROM information_schema.tables WHERE "
        "lower(table_catalog) = lower(?) AND lower(table_schema) = lower(?) AND lower(table_name) = lower(?)"
    )
    found = connection.execute(query, [database, schema, table]).fetchall()
    return (str(found[0][0]), str(found[0][1]), str(found[0][2])) if found else (database, schema, table)


def _literal(text: str) -> str:
    """A text inside of quotes in SQL."""
    return text.replace("'", "''")
