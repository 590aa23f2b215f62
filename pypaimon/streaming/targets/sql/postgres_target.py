"""`PostgresTarget`: a table of PostgreSQL that follows a stream exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.targets.changes import quoted
from pypaimon.streaming.targets.column_evolution import is_equal_in
from pypaimon.streaming.targets.plan_transactions import TransactionTarget
from pypaimon.streaming.targets.sql.dialect import AdbcDialect, Execute
from pypaimon.streaming.targets.sql.sql_table import LONGEST_NAME, sql_plans
from pypaimon.streaming.targets.target_state import Column

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

_OF_THE_SYSTEM = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")


class PostgresTarget(TransactionTarget):
    """A table of PostgreSQL that follows a stream exactly once.

    The rows of a plan and the position after it are saved in one transaction: after a crash the program continues at
    `load_position()`, with nothing lost and nothing twice, also without keys. `replicate(builder, target)` begins
    there.

    A full state replaces all rows of the table. Columns are added, renamed, widened and dropped as in Paimon. Times
    with nanoseconds, and columns of arrays, maps and rows, are refused. The table is made with the primary key of its
    source. One that is there already keeps the keys that it has. A changed row is deleted and inserted, so foreign
    keys to the table have to be `DEFERRABLE INITIALLY DEFERRED`.

    Args:
        connection: Of `adbc_driver_postgresql.dbapi` (extra `postgres`), without autocommit; nothing else may use it
            meanwhile.
        table: Its name, with or without its schema; made by the first batch if it is not there.
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
        self._plans = sql_plans("PostgresTarget", connection, table, keys, _Postgres(), replace)


class _Postgres(AdbcDialect):
    system = "PostgreSQL"
    driver = "adbc_driver_postgresql.dbapi"
    parameters = ("$1", "$2", "$3")
    locking = "FOR UPDATE"
    same_name = ""
    has_primary_keys = True

    def column_type(self, kind: pa.DataType, keys: int) -> str | None:
        if types.is_decimal128(kind):
            return f"NUMERIC({kind.precision}, {kind.scale})"
        if types.is_timestamp(kind):
            # Postgres stores microseconds.
            return None if kind.unit == "ns" else "TIMESTAMP" if kind.tz is None else "TIMESTAMPTZ"
        return next((name for is_of, name in _TYPES if is_of(kind)), None)

    def fitted(self, rows: pa.Table) -> pa.Table:
        return rows

    def resolved(self, execute: Execute, name: str) -> tuple[str, str]:
        *place, table = name.split(".")
        for each in (*place, table):
            _refuse_long("table", each)
        of_it = "c.relnamespace = n.oid AND c.oid = to_regclass($1)"
        query = f"SELECT n.nspname::TEXT, c.relname::TEXT FROM pg_class c, pg_namespace n WHERE {of_it}"
        found = execute(query, ".".join(map(quoted, name.split("."))))
        if found:
            return str(found[0][0]), str(found[0][1])
        schema = place[-1] if place else execute("SELECT current_schema()::TEXT")[0][0]
        if schema is None:
            raise StreamConfigError(
                f"table {name!r}: no schema of the search_path exists; name the table with its schema"
            )
        return str(schema), table

    def positions(self, execute: Execute) -> str | None:
        found = execute(
            "SELECT n.nspname::TEXT FROM pg_class c, pg_namespace n WHERE c.relnamespace = n.oid "
            "AND c.oid = to_regclass('_paimon_positions') AND has_table_privilege(c.oid, 'SELECT, DELETE')"
        )
        return str(found[0][0]) if found else None

    def refuse_columns(self, names: Sequence[str]) -> None:
        for name in names:
            _refuse_long("column", name)
            if name in _OF_THE_SYSTEM:
                raise StreamConfigError(
                    f"column {name!r}: PostgreSQL has a column of this name in every table. Rename it, or leave it out "
                    "of the stream with with_projection(...)."
                )

    def is_exact(self, old: str, new: str) -> bool:
        return is_equal_in(old, new)

    def exists(self, execute: Execute, table: str) -> bool:
        return execute("SELECT to_regclass($1)::TEXT", table) != [(None,)]

    def columns(self, execute: Execute, table: str) -> set[str]:
        of_table = "attrelid = $1::TEXT::REGCLASS AND attnum > 0 AND NOT attisdropped"
        query = f"SELECT attname::TEXT FROM pg_attribute WHERE {of_table}"
        return {str(row[0]) for row in execute(query, table)}

    def change_type(self, execute: Execute, table: str, column: Column) -> None:
        name = quoted(column.name)
        execute(f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {column.type} USING {name}::{column.type}")

    def index(self, execute: Execute, name: str, table: str, keys: Sequence[str]) -> None:
        execute(f"CREATE INDEX IF NOT EXISTS {quoted(name)} ON {table} ({', '.join(keys)})")

    def delete(self, table: str, gone: str, keys: Sequence[str], has_nulls: bool, columns: set[str]) -> str:
        # Nulls are equal here. Postgres uses no index for IS NOT DISTINCT FROM.
        equal = " IS NOT DISTINCT FROM " if has_nulls else " = "
        same = " AND ".join(f"held.{key}{equal}gone.{key}" for key in keys)
        return f"DELETE FROM {table} AS held USING {gone} AS gone WHERE {same}"


def _refuse_long(what: str, name: str) -> None:
    if len(name.encode()) > LONGEST_NAME:
        raise StreamConfigError(
            f"{what} {name!r}: PostgreSQL cuts names after {LONGEST_NAME} bytes, and would take this one for another. "
            "Give it a shorter name."
        )
