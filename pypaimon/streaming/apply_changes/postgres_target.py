"""`PostgresTarget`: a table of PostgreSQL that follows a stream exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from pypaimon.streaming.apply_changes.adbc_table import AdbcTable, Execute
from pypaimon.streaming.apply_changes.changes import AnyBatch
from pypaimon.streaming.apply_changes.followed_columns import Column, quoted
from pypaimon.streaming.apply_changes.plan_transactions import PlanTransactions
from pypaimon.streaming.model.position import Position

_TYPES: tuple[tuple[Any, str], ...] = (
    (types.is_boolean, "BOOLEAN"),
    (types.is_int8, "SMALLINT"),
    (types.is_int16, "SMALLINT"),
    (types.is_int32, "INTEGER"),
    (types.is_int64, "BIGINT"),
    (types.is_float32, "REAL"),
    (types.is_float64, "DOUBLE PRECISION"),
    (types.is_string, "TEXT"),
    (types.is_large_string, "TEXT"),
    (types.is_binary, "BYTEA"),
    (types.is_large_binary, "BYTEA"),
    (types.is_fixed_size_binary, "BYTEA"),
    (types.is_date32, "DATE"),
    (types.is_time, "TIME"),
)


class PostgresTarget:
    """A table of PostgreSQL that follows a stream exactly once.

    The rows of a plan and the position after it are saved in one transaction: a program that dies goes on at
    `position()` with nothing lost and nothing twice, also without keys. `replicate(builder, target)` begins there.

    A full state replaces all rows of the table. Columns that are added, renamed, widened or dropped in Paimon are so
    here. Times with nanoseconds, and columns of arrays, maps and rows, are refused by their names.

    Args:
        connection: Of `adbc_driver_postgresql.dbapi` (extra `postgres`), without autocommit; nobody else may use it
            meanwhile.
        name: The table, with or without its schema; made by the first batch if it is not there.
        keys: The key column, or several; default: the primary key of the table. Rows of a table without one are
            appended.

    Raises:
        StreamConfigError: The connection commits by itself.
        TargetError: The database refuses.
    """

    def __init__(self, connection: Any, name: str, keys: str | Sequence[str] | None = None) -> None:
        self._plans = PlanTransactions(AdbcTable(connection, name, keys, _Postgres()))

    def position(self) -> Position | None:
        """Where to go on, `with_start(position=...)`; None: the table holds nothing yet, or is gone."""
        return self._plans.position()

    def apply(self, batch: AnyBatch) -> None:
        """Apply a batch; with the last one of a plan it is saved.

        An error takes back what was applied of the plan: open a new stream at `position()` then.

        Raises:
            StreamConfigError: A key column is missing, the keys do not contain the
                primary key, other columns are read than
                before, others have saved a position, or the batch does not go on where the table stands.
            UnsupportedTableError: A column has a type that the target cannot hold.
            TableChangedError: The Paimon table was rolled back since the position was saved.
            TargetError: The database refuses: the connection is lost, its disk is full, or whatever the message says.
        """
        self._plans.apply(batch)


class _Postgres:
    """What PostgreSQL does in its own way."""

    system = "PostgreSQL"
    parameters = ("$1", "$2", "$3")
    locking = "FOR UPDATE"

    def column_type(self, kind: pa.DataType) -> str | None:
        if types.is_decimal128(kind):
            return f"NUMERIC({kind.precision}, {kind.scale})"
        if types.is_timestamp(kind):
            # Postgres has microseconds.
            return None if kind.unit == "ns" else "TIMESTAMP" if kind.tz is None else "TIMESTAMPTZ"
        return next((name for is_of, name in _TYPES if is_of(kind)), None)

    def fitted(self, rows: pa.Table) -> pa.Table:
        return rows

    def exists(self, execute: Execute, table: str) -> bool:
        return execute("SELECT to_regclass($1)::TEXT", table) != [(None,)]

    def columns(self, execute: Execute, table: str) -> set[str]:
        of_table = "attrelid = $1::TEXT::REGCLASS AND attnum > 0 AND NOT attisdropped"
        query = f"SELECT attname::TEXT FROM pg_attribute WHERE {of_table}"
        return {str(row[0]) for row in execute(query, table)}

    def change_type(self, execute: Execute, table: str, column: Column) -> None:
        name = quoted(column.name)
        execute(f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {column.type} USING {name}::{column.type}")

    def index(self, name: str, table: str, keys: Sequence[str]) -> str:
        return f"CREATE INDEX IF NOT EXISTS {name} ON {table} ({', '.join(keys)})"

    def delete(self, table: str, gone: str, keys: Sequence[str], has_nulls: bool) -> str:
        # Nulls are equal, which no index knows.
        equal = " IS NOT DISTINCT FROM " if has_nulls else " = "
        same = " AND ".join(f"held.{key}{equal}gone.{key}" for key in keys)
        return f"DELETE FROM {table} AS held USING {gone} AS gone WHERE {same}"
