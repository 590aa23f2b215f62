"""`CopiedTable`: a table that is copied to DuckDB, with the row that records its source and position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.targets.changes import quoted
from pypaimon.streaming.targets.column_evolution import Alter
from pypaimon.streaming.targets.sql.duckdb_target import DuckDBAlter, DuckDBTable, described, is_there
from pypaimon.streaming.targets.target_state import Column, Saved, SavedState

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]

_NAMES = "_paimon_tables"


class CopiedTables:
    """The tables of a DuckDB schema that are copies, with their sources and positions.

    Args:
        connection: The connection, which nobody else uses at the same time.
        schema: Name of the schema, which is created if needed; `database.schema` in another database than the current.

    Attributes:
        location: The warehouse that is copied, if known; saved with the rows.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, schema: str) -> None:
        self.connection = connection
        parts = schema.split(".")
        if len(parts) == 1:
            (current,) = connection.execute("SELECT current_database()").fetchall()[0]
            parts = [str(current), schema]
        self.schema = ".".join(map(quoted, parts))
        self.rows = f"{self.schema}.{_NAMES}"
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {self.rows} "
            "(name VARCHAR, source VARCHAR, position VARCHAR, columns VARCHAR, is_dropped BOOLEAN)"
        )
        # Older releases made the table without it.
        connection.execute(f"ALTER TABLE {self.rows} ADD COLUMN IF NOT EXISTS location VARCHAR")
        self.location: str | None = None

    def positions(self, source: str) -> dict[str, Position]:
        """The positions of the copies of a database, without tables that were dropped there."""
        query = f"SELECT name, position FROM {self.rows} WHERE source = ? AND NOT is_dropped"
        found = self.connection.execute(query, [source]).fetchall()
        return {name: Position.from_json(text) for name, text in found if self.is_there(name)}

    def locations(self, source: str) -> list[str]:
        """The warehouses that are recorded for the copies of a database."""
        query = f"SELECT DISTINCT location FROM {self.rows} WHERE source = ? AND location IS NOT NULL"
        return [str(row[0]) for row in self.connection.execute(query, [source]).fetchall()]

    def row(self, name: str) -> tuple[str, Saved, bool] | None:
        """The source database of a copy, its saved state, and whether its source was dropped."""
        query = f"SELECT source, position, columns, is_dropped FROM {self.rows} WHERE name = ?"
        found = self.connection.execute(query, [name]).fetchone()
        return None if found is None else (found[0], Saved(found[1], found[2]), bool(found[3]))

    def place(self, name: str) -> str:
        """The quoted name of a table with its schema."""
        return f"{self.schema}.{quoted(name)}"

    def is_there(self, name: str) -> bool:
        """Whether a table or view of that name exists."""
        return is_there(self.connection, self.place(name))

    def refuse_another(self, name: str, source: str) -> None:
        """Refuse a table or view that was not made by this copy.

        Raises:
            StreamConfigError: The table or view was not made by this copy.
        """
        row = self.row(name)
        if row is None and self.is_there(name):
            raise StreamConfigError(
                f"a table {self.place(name)} already exists that was not copied here: rename or drop it, leave the "
                "table out with exclude, or copy into another schema"
            )
        if row is not None and row[0] != source:
            raise StreamConfigError(
                f"{self.place(name)} is a copy of a table of database '{row[0]}': copy each database into a schema of "
                "its own"
            )


class CopiedTable(DuckDBTable):
    """One copied table, for the transactions of its plans.

    Args:
        tables: The copies of its schema.
        source: The database that it is copied from.
        name: Name of the table, in the source and in DuckDB.
        identity: The identity of the source. A copy of an earlier table of the same name is replaced.
        drop_columns: Whether columns that are dropped in the source are dropped here too. Otherwise they stay, as null.
    """

    def __init__(
        self,
        tables: CopiedTables,
        source: str,
        name: str,
        identity: str,
        *,
        drop_columns: bool,
    ) -> None:
        self._tables = tables
        self._source = source
        self._identity = identity
        self._drop_columns = drop_columns
        super().__init__(tables.connection, name, None, tables.schema)

    def saved(self) -> Saved | None:
        row = self._tables.row(self._name)
        if row is None or row[2] or row[0] != self._source or not self._exists():
            return None
        return row[1] if Position.from_json(row[1].position).table == self._identity else None

    def begin(self, saved: Saved | None, *, replaces: bool = False) -> None:
        super().begin(saved)
        if saved is None:
            # The copy of an earlier table of this name.
            self._connection.execute(f"DROP TABLE IF EXISTS {self._table}")

    def holds_rows(self) -> bool:
        """False: rows of an earlier copy of this name are replaced. A table that is not a copy is refused."""
        self._tables.refuse_another(self._name, self._source)
        return False

    def _claim(self) -> None:
        """Nothing to do: if two programs start at the same time, DuckDB lets only one create the table."""

    def save(self, position: str, before: Saved | None) -> Saved | None:
        rows, saved = self._tables.rows, Saved(position, self._known_json)
        if before is None:
            # There is a row if the source was dropped or re-created.
            self._connection.execute(f"DELETE FROM {rows} WHERE name = ?", [self._name])
            given = [self._name, self._source, position, saved.columns, self._tables.location]
            columns = "name, source, position, columns, is_dropped, location"
            self._connection.execute(f"INSERT INTO {rows} ({columns}) VALUES (?, ?, ?, ?, false, ?)", given)
            return saved
        found = self._connection.execute(
            f"UPDATE {rows} SET position = ?, columns = ?, location = ? WHERE name = ? AND source = ? AND position = ?",
            [position, saved.columns, self._tables.location, self._name, self._source, before.position],
        ).fetchall()
        # No row is updated if another program has saved a position.
        return saved if found == [(1,)] else None

    def _make_positions(self) -> None:
        """Nothing to do: one table holds the positions of all copies, and it exists."""

    def _alter(self) -> Alter:
        return _CopyAlter(self._connection, self._table, self._known, drops=self._drop_columns)


class _CopyAlter(DuckDBAlter):
    """Alters the columns of a copy; columns that are dropped in the source may stay."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, table: str, known: SavedState | None, *, drops: bool
    ) -> None:
        super().__init__(connection, table)
        self._drops = drops
        self._types = {} if known is None else {column.field_id: column.type for column in known.columns}

    def drop(self, name: str) -> None:
        kind = self._present().get(name.lower())
        super().drop(name)
        if kind is not None and not self._drops:
            # The values are gone in the source, so the column stays without them.
            self._execute(f"ADD COLUMN {quoted(name)} {kind}")

    def lacks(self, columns: Sequence[Column]) -> list[Column]:
        new = [column for column in columns if column.field_id not in self._types]
        for column in new:
            if self._types and column.name.lower() in self._present():
                # A column of this name was dropped in the source and stayed here; the new one is different.
                super().drop(column.name)
        return super().lacks(columns)

    def rename(self, old: str, new: str) -> None:
        if old.lower() != new.lower() and new.lower() in self._present():
            super().drop(new)
        super().rename(old, new)

    def _present(self) -> dict[str, str]:
        return {name.lower(): kind for name, kind in described(self._connection, self._table)}
