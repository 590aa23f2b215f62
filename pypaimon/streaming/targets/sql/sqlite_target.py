"""`SQLiteTarget`: a table of SQLite that follows a stream exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.targets.changes import quoted
from pypaimon.streaming.targets.column_evolution import is_wider
from pypaimon.streaming.targets.plan_transactions import TransactionTarget
from pypaimon.streaming.targets.sql.dialect import AdbcDialect, Execute
from pypaimon.streaming.targets.sql.sql_table import sql_plans
from pypaimon.streaming.targets.target_state import Column

_ROW_IDS = ("rowid", "_rowid_", "oid")
"""Names of the row number in SQLite, unless a column has the name."""


class SQLiteTarget(TransactionTarget):
    """A table of SQLite that follows a stream exactly once.

    The rows of a plan and the position after it are saved in one transaction: after a crash the program continues at
    `load_position()`, with nothing lost and nothing twice, also without keys. `replicate(builder, target)` begins
    there.

    A full state replaces all rows of the table. Columns are added, renamed, widened and dropped as in Paimon. Booleans
    are 0 and 1. Decimals, dates and times are text (times in ISO 8601, those with a time zone in UTC), because SQLite
    lacks such types. A NaN, which SQLite takes for NULL, is refused.

    Args:
        connection: Of `adbc_driver_sqlite.dbapi` (extra `sqlite`), without autocommit; nothing else may use it
            meanwhile.
        table: Its name, with or without its database (`main.orders`); made by the first batch if it is not there.
        keys: The key column, or several; default: the primary key of the table. Rows of a table without one are
            appended.
        replace: The state of the table may replace rows that another stream, or another program, has written.

    Raises:
        StreamConfigError: The connection commits by itself.
        TargetError: The database refuses.
    """

    def __init__(
        self, connection: Any, table: str, keys: str | Sequence[str] | None = None, *, replace: bool = False
    ) -> None:
        self._plans = sql_plans("SQLiteTarget", connection, table, keys, _SQLite(), replace)


class _SQLite(AdbcDialect):
    system = "SQLite"
    driver = "adbc_driver_sqlite.dbapi"
    parameters = ("?", "?", "?")
    locking = ""
    """Empty: SQLite has one writer at a time."""
    same_name = "COLLATE NOCASE"
    has_primary_keys = False
    """SQLite can neither drop nor change a column of a primary key."""

    def column_type(self, kind: pa.DataType, keys: int) -> str | None:
        if types.is_boolean(kind) or types.is_signed_integer(kind):
            return "INTEGER"
        if types.is_floating(kind):
            return "REAL"
        if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
            return "BLOB"
        texts = (types.is_string, types.is_large_string, types.is_date32, types.is_timestamp)
        return "TEXT" if any(each(kind) for each in (*texts, types.is_time, types.is_decimal)) else None

    def fitted(self, rows: pa.Table) -> pa.Table:
        for number, field in enumerate(rows.schema):
            column = rows.column(number)
            if types.is_time(field.type) or types.is_decimal(field.type):
                rows = rows.set_column(number, field.name, column.cast(pa.string()))
            elif types.is_floating(field.type) and pc.any(pc.is_nan(column)).as_py():
                raise StreamConfigError(
                    f"column '{field.name}' holds NaN, which SQLite takes for NULL: leave the rows out with "
                    "with_filter(...), or the column with with_projection(...)"
                )
        return rows

    def resolved(self, execute: Execute, name: str) -> tuple[str, str]:
        database, _, table = name.rpartition(".")
        known = [str(row[1]) for row in execute("PRAGMA database_list")]
        database = next((each for each in known if _same(each, database or "main")), database)
        if database not in known:
            raise StreamConfigError(f"table {name!r}: the connection has no database {database!r}, it has {known}")
        rows = execute(f"SELECT name FROM {quoted(database)}.sqlite_master WHERE type IN ('table', 'view')")
        return database, next((str(row[0]) for row in rows if _same(str(row[0]), table)), table)

    def positions(self, execute: Execute) -> str | None:
        return "main" if self.exists(execute, '"main"."_paimon_positions"') else None

    def refuse_columns(self, names: Sequence[str]) -> None:
        if {name.lower() for name in names} >= {*_ROW_IDS}:
            raise StreamConfigError(
                f"columns {list(_ROW_IDS)}: SQLite finds rows by one of these names, and the table has columns with "
                "all of them. Leave one out of the stream with with_projection(...)."
            )

    def is_exact(self, old: str, new: str) -> bool:
        # Decimals and times are text in SQLite.
        return is_wider(old, new)

    def exists(self, execute: Execute, table: str) -> bool:
        return bool(self.columns(execute, table))

    def columns(self, execute: Execute, table: str) -> set[str]:
        schema, _, name = table.rpartition(".")
        return {str(row[1]) for row in execute(f"PRAGMA {schema + '.' if schema else ''}table_info({name})")}

    def change_type(self, execute: Execute, table: str, column: Column) -> None:
        # SQLite cannot change a type, so the values move to another column.
        old, new = quoted(column.name), quoted(f"_paimon_{column.name}")
        execute(f"ALTER TABLE {table} ADD COLUMN {new} {column.type}")
        execute(f"UPDATE {table} SET {new} = CAST({old} AS {column.type})")
        execute(f"ALTER TABLE {table} DROP COLUMN {old}")
        execute(f"ALTER TABLE {table} RENAME COLUMN {new} TO {old}")

    def index(self, execute: Execute, name: str, table: str, keys: Sequence[str]) -> None:
        # SQLite takes the database before the name of the index, not of the table.
        database, dot, alone = table.rpartition(".")
        execute(f"CREATE INDEX IF NOT EXISTS {database}{dot}{quoted(name)} ON {alone} ({', '.join(keys)})")

    def delete(self, table: str, gone: str, keys: Sequence[str], has_nulls: bool, columns: set[str]) -> str:
        equal = " IS " if has_nulls else " = "
        same = " AND ".join(f"held.{key}{equal}gone.{key}" for key in keys)
        # SQLite does not reorder a CROSS JOIN, so that it looks up each key in the index of the table.
        row_id = next(each for each in _ROW_IDS if each not in columns)
        rows = f"SELECT held.{row_id} FROM {gone} AS gone CROSS JOIN {table} AS held WHERE {same}"
        return f"DELETE FROM {table} WHERE {row_id} IN ({rows})"


def _same(name: str, other: str) -> bool:
    # SQLite takes two names for one if they differ in the case of ASCII letters only.
    return name.encode().lower() == other.encode().lower()
