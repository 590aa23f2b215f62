"""`DuckDBTarget`: a table of DuckDB that follows a stream exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from pypaimon.streaming.apply_changes.changes import AnyBatch, inserts, last_changes
from pypaimon.streaming.apply_changes.duckdb_columns import follow_columns
from pypaimon.streaming.apply_changes.followed_columns import Columns, quoted
from pypaimon.streaming.apply_changes.plan_transactions import PlanTransactions, Saved
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.late_modules import LateModule
from pypaimon.streaming.model.position import Position

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]
else:
    duckdb = LateModule("duckdb")

_POSITIONS = "_paimon_positions"
_ROWS, _GONE = "_paimon_rows", "_paimon_gone"


class DuckDBTarget:
    """A table of DuckDB that follows a stream exactly once.

    The rows of a plan and the position after it are saved in one transaction: a program that dies goes on at
    `position()` with nothing lost and nothing twice, also without keys. `replicate(builder, target)` begins there.

    A stream that begins elsewhere does no harm: plans that the table holds already are passed over. A full state
    replaces all rows of the table. Columns that are added, renamed, widened or dropped in Paimon
    (`with_on_schema_change("follow")`, or a new stream) are so here.

    Args:
        connection: The database; nobody else may use this connection meanwhile.
        name: The table; made by the first batch if it is not there.
        keys: Columns of the key; none: rows are appended, and deletes are refused.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, keys: Sequence[str] = ()) -> None:
        self._plans = PlanTransactions(_DuckDBTable(connection, name, keys))

    def position(self) -> Position | None:
        """Where to go on, `with_start(position=...)`; None: the table holds nothing yet, or is gone."""
        return self._plans.position()

    def apply(self, batch: AnyBatch) -> None:
        """Apply a batch; with the last one of a plan it is saved.

        An error takes back what was applied of the plan: open a new stream at `position()` then.

        Raises:
            StreamConfigError: A key column is missing, there are deletes but no keys, other columns are read than
                before, or the batch does not go on where the table stands: it is of another table, or what came before
                it is missing.
            TableChangedError: The Paimon table was rolled back since the position was saved.
        """
        self._plans.apply(batch)


class _DuckDBTable:
    """The table, and the row of positions beside it. The arguments are those of `DuckDBTarget`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, keys: Sequence[str]) -> None:
        self._connection = connection
        self._name = name
        self._table = ".".join(map(quoted, name.split(".")))
        self._keys = list(keys)
        self._known: Columns | None = None
        self._known_json: str | None = None
        self._followed: tuple[TableSchema, pa.Schema] | None = None
        connection.execute(f"CREATE TABLE IF NOT EXISTS {_POSITIONS} (name VARCHAR, position VARCHAR)")
        connection.execute(f"ALTER TABLE {_POSITIONS} ADD COLUMN IF NOT EXISTS columns VARCHAR")

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
        sets, removals = last_changes(batch, self._keys) if self._keys else (inserts(batch), None)
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
        self._known = follow_columns(self._connection, self._table, _ROWS, batch, self._known)
        self._known_json = self._known.to_json()
        self._followed = batch.schema, schema

    def _delete(self, sets: pa.Table, removals: pa.Table) -> None:
        """Delete what has the key of a change."""
        gone = _ROWS
        keys = [each.select(self._keys) for each in (sets, removals)]
        if removals.num_rows:
            gone = _GONE
            self._connection.register(gone, pa.concat_tables(keys))
        names = ", ".join(map(quoted, self._keys))
        if any(column.null_count for each in keys for column in each.columns):
            same = " AND ".join(
                f"{self._table}.{key} IS NOT DISTINCT FROM gone.{key}" for key in map(quoted, self._keys)
            )
            self._connection.execute(f"DELETE FROM {self._table} USING {gone} AS gone WHERE {same}")
        else:
            self._connection.execute(f"DELETE FROM {self._table} WHERE ({names}) IN (SELECT ({names}) FROM {gone})")

    def _exists(self) -> bool:
        import duckdb

        try:
            self._connection.execute(f"SELECT 1 FROM {self._table} LIMIT 0")
        except duckdb.CatalogException:
            return False
        return True
