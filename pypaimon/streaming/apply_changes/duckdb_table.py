"""`DuckDBTable`: a table of DuckDB, to which plans are applied in transactions."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from pypaimon.streaming.apply_changes.changes import AnyBatch, inserts, last_changes
from pypaimon.streaming.apply_changes.duckdb_columns import DuckDBAlter, columns_of
from pypaimon.streaming.apply_changes.followed_columns import Alter, Columns, follow, quoted
from pypaimon.streaming.apply_changes.keys import GivenKeys, TargetKeys
from pypaimon.streaming.apply_changes.plan_transactions import Saved
from pypaimon.streaming.internals import TableSchema

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]

_POSITIONS = "_paimon_positions"
_ROWS, _GONE = "_paimon_rows", "_paimon_gone"


class DuckDBTable:
    """The table, and the row of positions beside it.

    Args:
        connection: The database; nobody else uses it meanwhile.
        name: The table, with its schema before a dot where it lies in another than the current one.
        keys: See `TargetKeys`.
        schema: Where it lies, quoted; the name has no other dots then than its own. None: see `name`.

    Attributes:
        keys: Columns of the key, as the last batch has them; none: rows are appended.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, name: str, keys: GivenKeys, schema: str | None = None
    ) -> None:
        self._connection = connection
        self._name = name
        self._table = ".".join(map(quoted, name.split("."))) if schema is None else f"{schema}.{quoted(name)}"
        self._given = TargetKeys(keys)
        self.keys: list[str] = []
        self._known: Columns | None = None
        self._known_json: str | None = None
        self._followed: tuple[TableSchema, pa.Schema] | None = None
        self._make_positions()

    def _make_positions(self) -> None:
        self._connection.execute(f"CREATE TABLE IF NOT EXISTS {_POSITIONS} (name VARCHAR, position VARCHAR)")
        self._connection.execute(f"ALTER TABLE {_POSITIONS} ADD COLUMN IF NOT EXISTS columns VARCHAR")

    def saved(self) -> Saved | None:
        query = f"SELECT position, columns FROM {_POSITIONS} WHERE name = ?"
        found = self._connection.execute(query, [self._name]).fetchone()
        return None if found is None or not self._exists() else Saved(*found)

    def begin(self, saved: Saved | None) -> None:
        columns = None if saved is None else saved.columns
        if columns is None or columns != self._known_json:
            self._known_json = columns
            self._known = None if columns is None else Columns.from_json(columns)
            self._followed = None
        self._connection.execute("BEGIN")

    def write(self, batch: AnyBatch) -> None:
        try:
            self._write(batch)
        finally:
            # Whatever goes wrong with it must not hide the error that came before.
            with suppress(Exception):
                for view in (_ROWS, _GONE):
                    self._connection.unregister(view)

    def save(self, position: str, before: Saved | None) -> Saved | None:
        saved = Saved(position, self._known_json)
        if before is None:
            self._connection.execute(f"DELETE FROM {_POSITIONS} WHERE name = ?", [self._name])
            query = f"INSERT INTO {_POSITIONS} (name, position, columns) VALUES (?, ?, ?)"
            self._connection.execute(query, [self._name, position, saved.columns])
            return saved
        given: list[str | None] = [position]
        new = "position = ?"
        if saved.columns != before.columns:
            new, given = "position = ?, columns = ?", [position, saved.columns]
        query = f"UPDATE {_POSITIONS} SET {new} WHERE name = ? AND position = ?"
        found = self._connection.execute(query, [*given, self._name, before.position]).fetchone()
        return saved if found == (1,) else None

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def roll_back(self) -> None:
        self._followed = None
        self._connection.execute("ROLLBACK")

    def _write(self, batch: AnyBatch) -> None:
        self.keys = self._given.of(batch)
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
        wanted = columns_of(self._connection, _ROWS, batch)
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
