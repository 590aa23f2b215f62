"""`DuckDBTarget`: a table of DuckDB that follows a stream exactly once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from pypaimon.streaming.lazy_imports import LazyModule
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.arguments import a_name, needed
from pypaimon.streaming.paimon.internals import TableSchema
from pypaimon.streaming.targets.changes import (
    AnyBatch,
    GivenKeys,
    TargetKeys,
    inserts,
    last_changes,
    quoted,
    refuse_reserved,
)
from pypaimon.streaming.targets.column_evolution import Alter, evolve_columns, is_equal_in
from pypaimon.streaming.targets.plan_transactions import (
    PlanTransactions,
    TransactionalTable,
    TransactionTarget,
    commit_conflict,
    others_write,
    translate_errors,
)
from pypaimon.streaming.targets.target_state import Column, Saved, SavedState, is_of_older_release, refuse_two_positions

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]
else:
    duckdb = LazyModule("duckdb")


class DuckDBTarget(TransactionTarget):
    """A table of DuckDB that follows a stream exactly once.

    The rows of a plan and the position after it are saved in one transaction: after a crash the program continues at
    `load_position()`, with nothing lost and nothing twice, also without keys. `replicate(builder, target)` begins
    there.

    A stream that begins earlier does no harm: plans that the table holds already are skipped. A full state replaces all
    rows of the table. Columns are added, renamed, widened and dropped as in Paimon
    (`with_on_schema_change("follow")`, or a new stream).

    Args:
        connection: The database; nothing else may use this connection meanwhile.
        table: Its name; made by the first batch if it is not there.
        keys: The key column, or several; default: the primary key of the table. Rows of a table without one are
            appended.
        replace: The state of the table may replace rows that another stream, or another program, has written.

    Raises:
        TargetError: The database refuses.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        table: str,
        keys: str | Sequence[str] | None = None,
        *,
        replace: bool = False,
    ) -> None:
        needed("DuckDBTarget: connection", connection, "a connection of duckdb", "execute", "register", "unregister")
        self._name = a_name("DuckDBTarget: table", table)
        with self._translated():
            self._plans = PlanTransactions(_TargetTable(connection, table, keys), replace)

    def load_position(self) -> Position | None:
        with self._translated():
            return super().load_position()

    def apply(self, batch: AnyBatch) -> None:
        with self._translated():
            super().apply(batch)

    def _translated(self) -> AbstractContextManager[None]:
        return translate_errors(f"DuckDB, table {self._name}", (duckdb.Error,))


_POSITIONS = "_paimon_positions"
_ROWS, _GONE = "_paimon_rows", "_paimon_gone"


class DuckDBTable(TransactionalTable):
    """A table, and the table of positions in its schema.

    Args:
        connection: The database. Nothing else uses the connection meanwhile.
        name: The name of the table, after its schema, or its database and schema, if it is not in the current one.
        keys: See `TargetKeys`.
        schema: The schema of the table, quoted; `name` is then the table alone, with any dots. None: see `name`.

    Attributes:
        given_keys: The keys of the caller.
        keys: The key columns of the last batch; empty: rows are appended.
        where: The name of the table in errors.
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
        """The position saved for a table that was dropped."""
        self._make_positions()

    def _make_positions(self) -> None:
        run = self._connection.execute
        columns = "name VARCHAR PRIMARY KEY, position VARCHAR, columns VARCHAR"
        run(f"CREATE TABLE IF NOT EXISTS {self._positions} ({columns})")
        run(f"ALTER TABLE {self._positions} ADD COLUMN IF NOT EXISTS columns VARCHAR")
        of_it = f"pragma_table_info('{_literal(self._positions)}')"
        if not run(f"SELECT 1 FROM {of_it} WHERE name = 'name' AND pk").fetchall():
            # An older release created the table without a key, by which programs that begin at the same time conflict.
            run(f"CREATE UNIQUE INDEX IF NOT EXISTS {_POSITIONS}_names ON {self._positions} (name)")
        self._take_over()

    def _take_over(self) -> None:
        """Take over a position of an older release, saved in the current schema under the name that the caller gave."""
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
            with suppress(Exception):
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
        with self._conflicts():
            self._connection.execute(
                # Written first, so that of two programs that begin at the same time one has a conflict.
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
            # An error here must not hide the first one.
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
        try:
            yield
        except duckdb.TransactionException as error:
            # DuckDB has one error class for conflicts and for a full disk.
            if re.search("conflict|constraint violation", str(error)):
                raise commit_conflict(self.where, error) from error
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
        if self._followed is not None and self._followed[0] is batch.schema and self._followed[1] == schema:
            return
        wanted = columns_of(self._connection, _ROWS, batch, self.keys)
        evolve_columns(self._alter(), batch, wanted, self._known)
        self._known, self._known_json = wanted, wanted.to_json()
        self._followed = batch.schema, schema

    def _alter(self) -> Alter:
        return DuckDBAlter(self._connection, self._table)

    def _delete(self, sets: pa.Table, removals: pa.Table) -> None:
        gone = _ROWS
        keys = [each.select(self.keys) for each in (sets, removals)]
        if removals.num_rows:
            gone = _GONE
            self._connection.register(gone, pa.concat_tables(keys))
        names = ", ".join(map(quoted, self.keys))
        # IN does not find nulls.
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
    try:
        connection.execute(f"SELECT 1 FROM {table} LIMIT 0")
    except duckdb.CatalogException:
        return False
    return True


def _current(connection: duckdb.DuckDBPyConnection) -> tuple[str, str]:
    (found,) = connection.execute("SELECT current_database(), current_schema()").fetchall()
    return str(found[0]), str(found[1])


def _resolved(connection: duckdb.DuckDBPyConnection, name: str) -> tuple[str, str, str]:
    """Database, schema and name of a table in DuckDB's spelling. The table need not exist."""
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
    return text.replace("'", "''")


def columns_of(
    connection: duckdb.DuckDBPyConnection, rows: str, batch: AnyBatch, keys: Sequence[str] | None
) -> SavedState:
    return SavedState.of(batch, described(connection, rows), keys)


class DuckDBAlter:
    """Alters one table.

    Args:
        table: The table, quoted.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, table: str) -> None:
        self._connection = connection
        self._table = table

    def create(self, columns: Sequence[Column]) -> None:
        # Not `AS SELECT ... LIMIT 0`: DuckDB 2.0 then does not find what is inserted in the same transaction, if it is
        # more rows than a row group has.
        listed = ", ".join(f"{quoted(column.name)} {column.type}" for column in columns)
        self._connection.execute(f"CREATE TABLE IF NOT EXISTS {self._table} ({listed})")

    def is_exact(self, old: str, new: str) -> bool:
        return is_equal_in(old, new)

    def lacks(self, columns: Sequence[Column]) -> list[Column]:
        # DuckDB ignores the case of names.
        present = {name.lower() for name, _ in described(self._connection, self._table)}
        return [column for column in columns if column.name.lower() not in present]

    def drop(self, name: str) -> None:
        self._execute(f"DROP COLUMN IF EXISTS {quoted(name)}")

    def add(self, column: Column) -> None:
        self._execute(f"ADD COLUMN {quoted(column.name)} {column.type}")

    def change_type(self, column: Column) -> None:
        self._execute(f"ALTER COLUMN {quoted(column.name)} TYPE {column.type}")

    def rename(self, old: str, new: str) -> None:
        self._execute(f"RENAME COLUMN {quoted(old)} TO {quoted(new)}")

    def _execute(self, change: str) -> None:
        self._connection.execute(f"ALTER TABLE {self._table} {change}")


def described(connection: duckdb.DuckDBPyConnection, relation: str) -> list[tuple[str, str]]:
    found = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return [(str(name), str(kind)) for name, kind, *_ in found]


class _TargetTable(DuckDBTable):
    """The table. Plans that share a transaction are committed outside of `DuckDBTarget.apply`."""

    def save(self, position: str, before: Saved | None) -> Saved | None:
        with translate_errors(self.where, (duckdb.Error,)):
            return super().save(position, before)

    def commit(self) -> None:
        with translate_errors(self.where, (duckdb.Error,)):
            super().commit()
