"""Applying batches of changes elsewhere, so that it holds what the table holds: a dict, DuckDB, another Paimon table.

Of several changes of one key in a batch the last one counts. `+I` and `+U` set a row, `-U` and `-D` take it away: a
`-U` alone comes where a filter leaves out what the row became.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.batches.batch import Batch, BlockingBatch
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.internals import PyarrowFieldParser
from pypaimon.streaming.position import Position

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]

AnyBatch = Batch | BlockingBatch
_SETS = pa.array(["+I", "+U"])
_ORDER = "__order"
_POSITIONS = "_paimon_positions"


def last_changes(batch: AnyBatch, keys: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """What a batch comes to: one row per key.

    Args:
        batch: Changes, in order.
        keys: Columns of the key; the batch must have them.

    Returns:
        The rows to set, and the rows to take away, without their kinds.

    Raises:
        StreamConfigError: A key column is not in the batch.
    """
    rows, kinds = batch.rows, batch.kinds
    missing = [key for key in keys if key not in rows.schema.names]
    if missing or not keys:
        raise StreamConfigError(f"keys {list(keys)}: the batch has columns {rows.schema.names}")
    numbered = rows.select(list(keys)).append_column(_ORDER, pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by(list(keys)).aggregate([(_ORDER, "max")])[f"{_ORDER}_max"].sort()
    sets = pc.is_in(kinds.take(last), value_set=_SETS)
    return rows.take(last.filter(sets)), rows.take(last.filter(pc.invert(sets)))


def apply_to_dict(batch: AnyBatch, state: MutableMapping[Any, dict[str, Any]], keys: str | Sequence[str]) -> None:
    """Bring a dict of rows up to date.

    Args:
        batch: Changes, in order.
        state: Rows by key; by the value of the column, or by a tuple if several columns are the key.
        keys: The key column, or several.

    Raises:
        StreamConfigError: A key column is not in the batch.
    """
    names = [keys] if isinstance(keys, str) else list(keys)
    sets, removals = last_changes(batch, names)
    for row in removals.select(names).to_pylist():
        state.pop(_key(row, keys), None)
    for row in sets.to_pylist():
        state[_key(row, keys)] = row


class DuckDBTarget:
    """A table of DuckDB that follows a stream exactly once.

    The rows of a plan and the position after it are saved in one transaction: a program that dies goes on at
    `position()` with nothing lost and nothing twice, also without keys.

    Args:
        connection: The database; nobody else may use this connection meanwhile.
        name: The table; made by the first batch if it is not there.
        keys: Columns of the key; none: rows are appended, and deletes are refused.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, keys: Sequence[str] = ()) -> None:
        self._connection = connection
        self._name = name
        self._keys = list(keys)
        self._open = False
        connection.execute(f"CREATE TABLE IF NOT EXISTS {_POSITIONS} (name VARCHAR, position VARCHAR)")

    def position(self) -> Position | None:
        """Where to go on, `with_start(position=...)`; None: nothing was applied yet."""
        query = f"SELECT position FROM {_POSITIONS} WHERE name = ?"
        found = self._connection.execute(query, [self._name]).fetchone()
        return None if found is None else Position.from_json(found[0])

    def apply(self, batch: AnyBatch) -> None:
        """Apply a batch; with the last one of a plan it is saved.

        An error takes back what was applied of the plan: open a new stream at `position()` then.

        Raises:
            StreamConfigError: A key column is missing, or there are deletes but no keys.
        """
        if not self._open:
            self._connection.execute("BEGIN")
            self._open = True
        try:
            self._write(batch)
            if batch.is_last:
                self._save(batch.position)
                self._connection.execute("COMMIT")
                self._open = False
        except BaseException:
            self._connection.execute("ROLLBACK")
            self._open = False
            raise

    def _write(self, batch: AnyBatch) -> None:
        sets, removals = last_changes(batch, self._keys) if self._keys else (_inserts(batch), None)
        table = ".".join(map(_quoted, self._name.split(".")))
        with _Registered(self._connection, sets) as rows:
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS {table} AS SELECT * FROM {rows} LIMIT 0")
            if removals is not None:
                gone = pa.concat_tables([sets.select(self._keys), removals.select(self._keys)])
                same = " AND ".join(f"{table}.{_quoted(key)} = gone.{_quoted(key)}" for key in self._keys)
                with _Registered(self._connection, gone) as old:
                    self._connection.execute(f"DELETE FROM {table} USING {old} AS gone WHERE {same}")
            self._connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM {rows}")

    def _save(self, position: Position | None) -> None:
        assert position is not None
        self._connection.execute(f"DELETE FROM {_POSITIONS} WHERE name = ?", [self._name])
        self._connection.execute(f"INSERT INTO {_POSITIONS} VALUES (?, ?)", [self._name, position.to_json()])


class PaimonTarget:
    """Another Paimon table that follows a stream, one commit per batch.

    With a primary key, to apply a batch twice is to apply it once; without one, rows come twice when a batch does.
    Deletes need a target with the option `rowkind.field`, whose column says what each row is.

    Args:
        table: pypaimon's table. Columns are matched by name and cast; those that a batch lacks become null.
    """

    def __init__(self, table: Any) -> None:
        self._table = table
        self._keys: list[str] = list(table.primary_keys)
        self._kind: str | None = table.table_schema.options.get("rowkind.field")
        self._schema: pa.Schema = PyarrowFieldParser.from_paimon_schema(table.fields)

    def apply(self, batch: AnyBatch) -> None:
        """Apply a batch and commit it.

        Raises:
            StreamConfigError: A key column is missing, or there are deletes that the table cannot take.
        """
        sets, removals = last_changes(batch, self._keys) if self._keys else (_inserts(batch), None)
        tables = [self._as_target(sets, "+I")]
        if removals is not None and removals.num_rows:
            if self._kind is None:
                raise StreamConfigError("there are deletes: the target table needs the option 'rowkind.field'")
            tables.append(self._as_target(removals, "-D"))
        builder = self._table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        try:
            write.write_arrow(pa.concat_tables(tables))
            commit.commit(write.prepare_commit())
        finally:
            write.close()
            commit.close()

    def _as_target(self, rows: pa.Table, kind: str) -> pa.Table:
        columns = []
        for field in self._schema:
            if field.name == self._kind:
                columns.append(pa.repeat(kind, rows.num_rows).cast(field.type))
            elif field.name in rows.schema.names:
                columns.append(rows[field.name].cast(field.type))
            else:
                columns.append(pa.nulls(rows.num_rows, field.type))
        return pa.Table.from_arrays(columns, schema=self._schema)


class _Registered:
    """Rows as a view of DuckDB for a while."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> None:
        self._connection = connection
        self._rows = rows
        self._view = f"_paimon_rows_{id(rows)}"

    def __enter__(self) -> str:
        self._connection.register(self._view, self._rows)
        return self._view

    def __exit__(self, *_: object) -> None:
        self._connection.unregister(self._view)


def _inserts(batch: AnyBatch) -> pa.Table:
    """All rows of a batch, which must all be inserts."""
    kinds = set(pc.unique(batch.kinds).to_pylist())
    if not kinds <= {"+I"}:
        raise StreamConfigError(f"rows of the kinds {', '.join(sorted(kinds))} cannot be appended: give the keys")
    return batch.rows


def _key(row: dict[str, Any], keys: str | Sequence[str]) -> Any:
    return row[keys] if isinstance(keys, str) else tuple(row[key] for key in keys)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
