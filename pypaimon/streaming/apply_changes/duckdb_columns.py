"""The columns of a table of DuckDB, kept as those of the rows that are written to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pypaimon.streaming.apply_changes.changes import AnyBatch
from pypaimon.streaming.apply_changes.exact_casts import is_equal_in
from pypaimon.streaming.apply_changes.followed_columns import quoted
from pypaimon.streaming.apply_changes.saved_state import Column, SavedState

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]


def columns_of(
    connection: duckdb.DuckDBPyConnection, rows: str, batch: AnyBatch, keys: Sequence[str] | None
) -> SavedState:
    """The columns of a batch, with their types in DuckDB.

    Args:
        connection: The database.
        rows: A view of the rows.
        batch: They are of this batch.
        keys: The columns of the target's key.
    """
    return SavedState.of(batch, described(connection, rows), keys)


class DuckDBAlter:
    """Changes of one table.

    Args:
        connection: The database.
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
        # DuckDB does not tell names by case.
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
    """The names and types of the columns of a table or view."""
    found = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return [(str(name), str(kind)) for name, kind, *_ in found]
