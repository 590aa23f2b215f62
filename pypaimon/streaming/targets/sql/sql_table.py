"""`SqlTable`: a table of a SQL database, to which plans are applied in transactions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError, TargetError, UnsupportedTableError
from pypaimon.streaming.options.arguments import a_name, needed
from pypaimon.streaming.paimon.internals import TableSchema
from pypaimon.streaming.targets.changes import (
    RESERVED,
    AnyBatch,
    GivenKeys,
    TargetKeys,
    inserts,
    last_changes,
    quoted,
    refuse_reserved,
)
from pypaimon.streaming.targets.column_evolution import evolve_columns, refuse_other_columns
from pypaimon.streaming.targets.plan_transactions import (
    PlanTransactions,
    TransactionalTable,
    others_write,
    translate_errors,
)
from pypaimon.streaming.targets.sql.dialect import Dialect, Execute
from pypaimon.streaming.targets.target_state import Column, Saved, SavedState, is_of_older_release, refuse_two_positions

_POSITIONS = "_paimon_positions"
_GONE = "_paimon_gone"
LONGEST_NAME = 63
"""The longest name in Postgres, in bytes."""


def sql_plans(
    call: str, connection: Any, name: str, keys: GivenKeys, dialect: Dialect, replace: bool
) -> PlanTransactions:
    """The transactions of a target."""
    needed(f"{call}: connection", connection, f"a connection of {dialect.driver}", dialect.of_driver)
    return PlanTransactions(SqlTable(connection, a_name(f"{call}: table", name), keys, dialect), replace)


class SqlTable(TransactionalTable):
    """A table, and the row of positions next to it, in its schema. Calls block, one at a time."""

    def __init__(self, connection: Any, name: str, keys: GivenKeys, dialect: Dialect) -> None:
        self._connection = connection
        self.given_keys = TargetKeys(keys)
        self.keys: list[str] = []
        self._dialect = dialect
        self.where = f"{dialect.system}, table {name}"
        self._is_open = False
        self._is_lost = False
        self._known: SavedState | None = None
        self._followed: tuple[TableSchema, pa.Schema] | None = None
        self._columns: set[str] = set()
        self._kinds: dict[str, str] = {}
        self._expected = ""
        """The position that the open transaction replaces."""
        self._left: str | None = None
        """The position saved for a table that was dropped."""
        refuse_reserved("table", [name.rpartition(".")[2]])
        with self._translated():
            dialect.begin(connection, self._execute)
            self._schema, self._name = dialect.resolved(self._execute, name)
            self._table = f"{quoted(self._schema)}.{quoted(self._name)}"
            self._positions = f"{quoted(self._schema)}.{quoted(_POSITIONS)}"
            self._make_positions()
            connection.commit()

    def _make_positions(self) -> None:
        # A role that may not create tables can use one that another role has created.
        if not self._dialect.exists(self._execute, self._positions):
            try:
                columns, options = self._dialect.position_columns, self._dialect.table_options
                self._execute(f"CREATE TABLE {self._positions} ({columns}) {options}")
            except self._connection.Error:
                # Another program has created it at the same time.
                self._connection.rollback()
                if not self._dialect.exists(self._execute, self._positions):
                    raise
        former = self._dialect.positions(self._execute)
        if former is not None and self._found() is None:
            self._take_over(f"{quoted(former)}.{quoted(_POSITIONS)}")

    def _take_over(self, former: str) -> None:
        """Take over a position of an older release, saved in the default schema under the name that the caller gave."""
        mine = [
            row
            for row in self._execute(f"SELECT name, position, columns FROM {former}")
            if is_of_older_release(row[2]) and self._is_it(row[0])
        ]
        if mine:
            refuse_two_positions(self.where, [row[0] for row in mine])
            first, second, third = self._dialect.parameters
            self._execute(f"DELETE FROM {former} WHERE name = {first}", mine[0][0])
            query = f"INSERT INTO {self._positions} (name, position, columns) VALUES ({first}, {second}, {third})"
            self._execute(query, self._name, *mine[0][1:])

    def _is_it(self, name: str) -> bool:
        try:
            return self._dialect.resolved(self._execute, name) == (self._schema, self._name)
        except StreamConfigError:
            return False

    def saved(self) -> Saved | None:
        self._check()
        with self._reading():
            found = self._found()
            is_gone = not self._dialect.exists(self._execute, self._table)
            self._left = found[0] if found is not None and is_gone else None
            # A claim alone, where the table was made outside of its transaction.
            return None if found is None or is_gone or found == ("", None) else Saved(*found)

    def holds_rows(self) -> bool:
        with self._reading():
            there = self._dialect.exists(self._execute, self._table)
            return there and bool(self._execute(f"SELECT 1 FROM {self._table} LIMIT 1"))

    def begin(self, saved: Saved | None, *, replaces: bool = False) -> None:
        self._check()
        self._is_open = True
        columns = None if saved is None or replaces else saved.columns
        self._known = None if columns is None else SavedState.from_json(columns)
        self._followed = None
        self._expected = (self._left or "") if saved is None else saved.position
        with self._translated():
            if saved is None:
                self._claim()
            if replaces:
                self._drop()

    def _drop(self) -> None:
        if not self._dialect.alters_in_transactions and self._found() is not None:
            # The rows are gone before those of the new state are committed, so nothing may continue after them.
            name = f"name = {self._dialect.parameters[0]} {self._dialect.same_name}"
            self._execute(f"UPDATE {self._positions} SET position = '', columns = NULL WHERE {name}", self._name)
            self._expected = ""
        self._execute(f"DROP TABLE IF EXISTS {self._table}")

    def _claim(self) -> None:
        if self._found() is None:
            # The row is written first, so that a program that begins at the same time waits and then
            # conflicts.
            query = f"INSERT INTO {self._positions} (name, position) VALUES ({self._dialect.parameters[0]}, '')"
            self._execute(f"{query} {self._dialect.if_absent}", self._name)
        found = self._found(self._dialect.locking)
        if found is None or found[0] not in ("", self._left):
            raise others_write()

    def write(self, batch: AnyBatch) -> None:
        self.keys = self.given_keys.of_batch(batch)
        sets, removals = last_changes(batch, self.keys) if self.keys else (inserts(batch), None)
        rows = self._dialect.fitted(sets)
        with self._translated():
            self._follow_columns(batch, sets.schema)
            if batch.begins_state:
                self._execute(f"DELETE FROM {self._table}")
            elif removals is not None:
                self._delete([rows, self._dialect.fitted(removals.select(self.keys))])
            if rows.num_rows:
                self._dialect.insert(self._connection, self._table, rows, self._kinds)

    def save(self, position: str, before: Saved | None) -> Saved | None:
        saved = Saved(position, None if self._known is None else self._known.to_json())
        first, second, third = self._dialect.parameters
        with self._translated():
            found = self._found(self._dialect.locking)
            if found is None or found[0] != self._expected:
                return None
            name = f"name = {third} {self._dialect.same_name}"
            query = f"UPDATE {self._positions} SET position = {first}, columns = {second} WHERE {name}"
            self._execute(query, position, saved.columns, self._name)
        return saved

    def commit(self) -> None:
        with self._translated():
            self._connection.commit()
        self._is_open = False

    def roll_back(self) -> None:
        self._is_open = False
        with self._translated():
            self._roll_back()

    def _roll_back(self) -> None:
        try:
            self._connection.rollback()
        except self._connection.Error:
            # SQLite ends the transaction by itself if its disk is full, and its driver does not notice: the next
            # statement would be committed at once.
            self._is_lost = True
            self._execute("BEGIN")
            self._connection.rollback()
            self._is_lost = False

    def _check(self) -> None:
        if self._is_lost:
            raise TargetError(
                f"{self.where}: the connection was lost. Make another one, and a target "
                "with it: replicate(...) continues where the table stands."
            )

    def _found(self, locking: str = "") -> tuple[Any, ...] | None:
        name = f"name = {self._dialect.parameters[0]} {self._dialect.same_name}"
        query = f"SELECT position, columns FROM {self._positions} WHERE {name} {locking}"
        return next(iter(self._execute(query, self._name)), None)

    def _follow_columns(self, batch: AnyBatch, schema: pa.Schema) -> None:
        if self._followed is not None and self._followed[0] is batch.schema and self._followed[1] == schema:
            return
        self._dialect.refuse_columns(schema.names)
        self._kinds = {field.name: self._type(field) for field in schema}
        wanted = SavedState.of(batch, list(self._kinds.items()), self.keys)
        is_new = self._known is None
        primary_key = self._primary_key(batch) if is_new else ()
        alter = _SqlAlter(self._execute, self._table, self._dialect, primary_key)
        if self._known is not None and not self._dialect.alters_in_transactions:
            refuse_other_columns(self._known, wanted, "the table holds", "in another table", self._dialect.is_exact)
        evolve_columns(alter, batch, wanted, self._known)
        if is_new and self.keys and not primary_key:
            self._dialect.index(self._execute, _index_name(self._name), self._table, list(map(quoted, self.keys)))
        if is_new:
            self._dialect.made(self._execute, self._schema, self._name)
        self._known, self._followed = wanted, (batch.schema, schema)
        self._columns = self._dialect.columns(self._execute, self._table)

    def _primary_key(self, batch: AnyBatch) -> Sequence[str]:
        """The primary key of the table that is about to be created; empty: it is there, or gets an index instead.

        Other keys than the primary key of the source may hold nulls, which a primary key refuses.
        """
        is_its = self._dialect.has_primary_keys and {*self.keys} == {*batch.schema.primary_keys}
        return self.keys if is_its and not self._dialect.exists(self._execute, self._table) else ()

    def _type(self, field: pa.Field) -> str:
        kind = self._dialect.column_type(field.type, len(self.keys) if field.name in self.keys else 0)
        if kind is None:
            raise UnsupportedTableError(
                f"column '{field.name}' of type {field.type} cannot be written to {self._dialect.system}.",
                advice="Leave it out of the stream with with_projection(...).",
                option="with_projection",
            )
        return kind

    def _delete(self, changes: list[pa.Table]) -> None:
        gone = pa.concat_tables([each.select(self.keys) for each in changes])
        if gone.num_rows:
            has_nulls = any(column.null_count for column in gone.columns)
            keys, columns = list(map(quoted, self.keys)), {name.lower() for name in self._columns}
            with self._dialect.staged(self._connection, _GONE, gone, self._kinds):
                self._execute(self._dialect.delete(self._table, _GONE, keys, has_nulls, columns))

    def _execute(self, query: str, *given: str | None) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(query, given or None)
            return list(cursor.fetchall()) if cursor.description else []

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._translated():
            try:
                yield
            finally:
                if not self._is_open:
                    # An open transaction, even one that only reads, would hold a snapshot of the database.
                    self._roll_back()

    def _translated(self) -> AbstractContextManager[None]:
        return translate_errors(self.where, (self._connection.Error,))


class _SqlAlter:
    def __init__(self, execute: Execute, table: str, dialect: Dialect, primary_key: Sequence[str]) -> None:
        self._run = execute
        self._table = table
        self._dialect = dialect
        self._primary_key = primary_key

    def create(self, columns: Sequence[Column]) -> None:
        listed = ", ".join(f"{quoted(column.name)} {column.type}" for column in columns)
        if self._primary_key:
            listed += f", PRIMARY KEY ({', '.join(map(quoted, self._primary_key))})"
        self._run(f"CREATE TABLE IF NOT EXISTS {self._table} ({listed}) {self._dialect.table_options}")

    def is_exact(self, old: str, new: str) -> bool:
        return self._dialect.is_exact(old, new)

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


def _index_name(table: str) -> str:
    # Postgres cuts names after 63 bytes, and would take two for one.
    name = f"{RESERVED}{table}_keys"
    if len(name.encode()) <= LONGEST_NAME:
        return name
    return f"{RESERVED}{hashlib.sha256(table.encode()).hexdigest()[:32]}_keys"
