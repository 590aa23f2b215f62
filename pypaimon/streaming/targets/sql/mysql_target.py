"""`MySQLTarget`: a table of MySQL or MariaDB that follows a stream exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.targets.changes import quoted
from pypaimon.streaming.targets.plan_transactions import TransactionTarget
from pypaimon.streaming.targets.sql.dialect import Execute
from pypaimon.streaming.targets.sql.sql_table import sql_plans
from pypaimon.streaming.targets.target_state import Column

_TYPES: tuple[tuple[Any, str], ...] = (
    (types.is_boolean, "BOOLEAN"),
    (types.is_int8, "TINYINT"),
    (types.is_int16, "SMALLINT"),
    (types.is_int32, "INT"),
    (types.is_int64, "BIGINT"),
    (types.is_float32, "FLOAT"),
    (types.is_float64, "DOUBLE"),
    (types.is_string, "LONGTEXT"),
    (types.is_large_string, "LONGTEXT"),
    (types.is_binary, "LONGBLOB"),
    (types.is_large_binary, "LONGBLOB"),
    (types.is_fixed_size_binary, "LONGBLOB"),
    (types.is_date32, "DATE"),
    (types.is_time, "TIME(6)"),
)
_LONGEST_NAME = 64
_INDEXED_BYTES = 3072
"""The largest key of an index of InnoDB."""
_NO_TABLE = 1146
_SQL_MODE = "SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES,STRICT_ALL_TABLES')"


class MySQLTarget(TransactionTarget):
    """A table of MySQL or MariaDB that follows a stream exactly once. It is tested with MariaDB 11.4.

    The rows of a plan and the position after it are saved in one transaction: after a crash the program continues at
    `load_position()`, with nothing lost and nothing twice, also without keys. `replicate(builder, target)` begins
    there.

    A full state replaces all rows of the table. Columns are added as in Paimon; a column that is renamed, dropped or
    given another type is refused, because MySQL commits with each change of a table. The table is made with the
    primary key of its source. Times with a time zone are UTC. Columns of arrays, maps and rows, times with
    nanoseconds, and NaN and infinity are refused, and so is text of a key that is longer than its index allows.

    Args:
        connection: Of `pymysql` (extra `mysql`), with `charset="utf8mb4"` and without autocommit; nothing else may use
            it meanwhile. It gets the `sql_mode` that the target needs.
        table: Its name, with or without its database; made by the first batch if it is not there.
        keys: The key column, or several; default: the primary key of the table. Rows of a table without one are
            appended.
        replace: The state of the table may replace rows that another stream, or another program, has written. Until
            the first plan is committed the table is empty.

    Raises:
        StreamConfigError: The connection commits by itself, or has another character set; or the table cannot roll
            back.
        TargetError: The database refuses.
    """

    def __init__(
        self, connection: Any, table: str, keys: str | Sequence[str] | None = None, *, replace: bool = False
    ) -> None:
        self._plans = sql_plans("MySQLTarget", connection, table, keys, _MySQL(), replace)


class _MySQL:
    system = "MySQL"
    driver = "pymysql"
    of_driver = "get_autocommit"
    parameters = ("%s", "%s", "%s")
    locking = "FOR UPDATE"
    same_name = ""
    if_absent = "ON DUPLICATE KEY UPDATE name = name"
    position_columns = (
        f"name VARCHAR({_LONGEST_NAME}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, "
        "position LONGTEXT, columns LONGTEXT"
    )
    table_options = "ENGINE=InnoDB"
    has_primary_keys = True
    alters_in_transactions = False

    def __init__(self) -> None:
        self._collation = ""

    def begin(self, connection: Any, execute: Execute) -> None:
        if connection.get_autocommit():
            raise StreamConfigError("the connection commits by itself: connect(...) without autocommit=True")
        if connection.charset != "utf8mb4":
            raise StreamConfigError(
                f"the connection has the character set {connection.charset!r}: give charset='utf8mb4'"
            )
        execute(_SQL_MODE)
        # Keys that differ in case or in spaces at their end are two keys in Paimon.
        is_mariadb = "mariadb" in str(execute("SELECT VERSION()")[0][0]).lower()
        self._collation = "utf8mb4_nopad_bin" if is_mariadb else "utf8mb4_0900_bin"

    def column_type(self, kind: pa.DataType, keys: int) -> str | None:
        if types.is_decimal128(kind):
            return f"DECIMAL({kind.precision}, {kind.scale})"
        if types.is_timestamp(kind):
            return None if kind.unit == "ns" else "DATETIME(6)"
        found = next((name for is_of, name in _TYPES if is_of(kind)), None)
        if found == "LONGTEXT":
            length = min(_INDEXED_BYTES // keys // 4, 255) if keys else 0
            name = f"VARCHAR({length})" if keys else found
            return f"{name} CHARACTER SET utf8mb4 COLLATE {self._collation}"
        if found == "LONGBLOB" and keys:
            return f"VARBINARY({min(_INDEXED_BYTES // keys, 1024)})"
        return found

    def fitted(self, rows: pa.Table) -> pa.Table:
        for number, field in enumerate(rows.schema):
            column = rows.column(number)
            if types.is_floating(field.type) and pc.all(pc.is_finite(column)).as_py() is False:
                raise StreamConfigError(
                    f"column '{field.name}' holds NaN or infinity, which MySQL lacks: leave the rows out with "
                    "with_filter(...), or the column with with_projection(...)"
                )
            if types.is_timestamp(field.type) and field.type.tz is not None:
                rows = rows.set_column(number, field.name, column.cast(pa.timestamp(field.type.unit)))
        return rows

    def resolved(self, execute: Execute, name: str) -> tuple[str, str]:
        database, _, table = name.rpartition(".")
        for what in (database, table):
            _refuse_name("table", what)
        found = execute("SELECT DATABASE(), @@lower_case_table_names")[0]
        database = database or found[0]
        if database is None:
            raise StreamConfigError(f"table {name!r}: the connection has no database; name the table with its database")
        return (database.lower(), table.lower()) if found[1] else (database, table)

    def positions(self, execute: Execute) -> str | None:
        return None

    def refuse_columns(self, names: Sequence[str]) -> None:
        for name in names:
            _refuse_name("column", name)
        lower = [name.lower() for name in names]
        same = [name for name in names if lower.count(name.lower()) > 1]
        if same:
            raise StreamConfigError(
                f"columns {same} differ only in case, which MySQL takes for one: leave all but one out of the stream "
                "with with_projection(...)."
            )

    def is_exact(self, old: str, new: str) -> bool:
        return False

    def exists(self, execute: Execute, table: str) -> bool:
        return bool(self.columns(execute, table))

    def columns(self, execute: Execute, table: str) -> set[str]:
        try:
            return {str(row[0]) for row in execute(f"SHOW COLUMNS FROM {table}")}
        except Exception as error:
            if error.args[:1] != (_NO_TABLE,):
                raise
            return set()

    def change_type(self, execute: Execute, table: str, column: Column) -> None:
        raise NotImplementedError

    def made(self, execute: Execute, schema: str, name: str) -> None:
        """Refuse a table that cannot roll back."""
        query = "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
        engine = execute(query, schema, name)[0][0]
        if engine != "InnoDB":
            raise StreamConfigError(
                f"table {schema}.{name} has the engine {engine}, which cannot roll back: use InnoDB"
            )

    def index(self, execute: Execute, name: str, table: str, keys: Sequence[str]) -> None:
        indexes = {str(row[2]) for row in execute(f"SHOW INDEX FROM {table}")}
        if name not in indexes:
            execute(f"ALTER TABLE {table} ADD INDEX {quoted(name)} ({', '.join(keys)})")

    def delete(self, table: str, gone: str, keys: Sequence[str], has_nulls: bool, columns: set[str]) -> str:
        equal = " <=> " if has_nulls else " = "
        same = " AND ".join(f"held.{key}{equal}gone.{key}" for key in keys)
        return f"DELETE held FROM {table} AS held JOIN {gone} AS gone ON {same}"

    def insert(self, connection: Any, table: str, rows: pa.Table, kinds: Mapping[str, str]) -> None:
        names = ", ".join(map(quoted, rows.schema.names))
        query = f"INSERT INTO {table} ({names}) VALUES ({', '.join(['%s'] * rows.num_columns)})"
        with connection.cursor() as cursor:
            for batch in rows.to_batches(max_chunksize=10_000):
                columns = [column.to_pylist() for column in batch.columns]
                cursor.executemany(query, list(zip(*columns, strict=True)))

    @contextmanager
    def staged(self, connection: Any, name: str, rows: pa.Table, kinds: Mapping[str, str]) -> Iterator[None]:
        """A temporary table with rows. Unlike other tables it does not end the transaction."""
        listed = ", ".join(f"{quoted(column)} {kinds[column]}" for column in rows.schema.names)
        with connection.cursor() as cursor:
            # A rolled back transaction leaves it.
            cursor.execute(f"DROP TEMPORARY TABLE IF EXISTS {name}")
            cursor.execute(f"CREATE TEMPORARY TABLE {name} ({listed}) {self.table_options}")
        self.insert(connection, name, rows, kinds)
        yield
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TEMPORARY TABLE {name}")


def _refuse_name(what: str, name: str) -> None:
    if len(name) > _LONGEST_NAME or "%" in name:
        raise StreamConfigError(
            f"{what} {name!r}: MySQL has names of at most {_LONGEST_NAME} characters, and its client none with '%'. "
            "Give it another name."
        )
