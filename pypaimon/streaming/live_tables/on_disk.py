"""`OnDisk`: live rows in a database of DuckDB, for tables that are too large for memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pypaimon.streaming.apply_changes.duckdb_table import DuckDBTable
from pypaimon.streaming.apply_changes.followed_columns import quoted
from pypaimon.streaming.apply_changes.saved_state import Saved
from pypaimon.streaming.batches.batch import BlockingBatch
from pypaimon.streaming.errors import OtherColumnsError, StreamConfigError
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.live_tables.column_changes import in_schema
from pypaimon.streaming.live_tables.disk_place import DiskPlace, MemoryBound, translated
from pypaimon.streaming.live_tables.keys import Keys
from pypaimon.streaming.live_tables.live_rows import LiveRows, Moment

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]

_TABLE = "_live_rows"
_PLACE = "_place"
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class _State:
    """What the last transaction has left.

    Attributes:
        schema: Paimon's, of the table.
        columns: Those of the rows.
        saved: What was saved with the rows; None: nothing was.
    """

    schema: TableSchema
    columns: pa.Schema
    saved: Saved | None = None

    @cached_property
    def keys(self) -> Keys:
        """The columns of the key."""
        return Keys(self.schema.primary_keys, [self.columns.field(key).type for key in self.schema.primary_keys])


class OnDisk:
    """`LiveRows` in a database of DuckDB. What it has on disk goes with it, and with the connections that it gave.

    Args:
        schema: Paimon's, of the table.
        columns: The one of the rows.
        bound: Where it lies, and how much memory DuckDB may take.

    Raises:
        StreamConfigError: DuckDB is not installed, or cannot tell the keys from each other.
        TargetError: The database cannot be made.
    """

    def __init__(self, schema: TableSchema, columns: pa.Schema, bound: MemoryBound) -> None:
        self._bound = bound
        self._state = _State(schema, columns)
        if any(pa.types.is_floating(kind) for kind in self._state.keys.kinds):
            raise StreamConfigError(
                f"the table takes more than {bound.max_bytes} bytes in memory, and DuckDB does not tell the keys 0.0 "
                "and -0.0 from each other: give open_live a greater memory_limit"
            )
        self._moment = Moment()
        self._lock = threading.Lock()
        self._place = DiskPlace(bound)
        with translated():
            self._table = DuckDBTable(self._place.database, _TABLE, None)
        self._pending: _State | None = None

    # ---- reading ----

    @property
    def moment(self) -> Moment:
        return self._moment

    @property
    def nbytes(self) -> int:
        return int(self._one("SELECT sum(memory_usage_bytes) FROM duckdb_memory()"))

    def __len__(self) -> int:
        return int(self._one(f"SELECT count(*) FROM {_TABLE}"))

    def get(self, key: Any) -> dict[str, Any] | None:
        with self._read() as (cursor, state):
            values = state.keys.values(key)
            if state.keys.plain(values) is None:
                # DuckDB takes values of Python for nearly the same ones of its own.
                (row,) = _found(cursor, state, state.keys.arrays(values)).to_pylist()
                return None if row[state.keys.names[0]] is None else row
            same = " AND ".join(f"{quoted(name)} = ?" for name in state.keys.names)
            found = cursor.sql(f"SELECT * FROM {_TABLE} WHERE {same}", params=list(values)).to_arrow_table()
        rows = _fitted(found, state.columns).to_pylist()
        return rows[0] if rows else None

    def get_many(self, keys: Any) -> pa.Table:
        with self._read() as (cursor, state):
            return _found(cursor, state, state.keys.fitted(keys))

    def to_arrow(self) -> pa.Table:
        with self._read() as (cursor, state):
            return _fitted(cursor.sql(f"SELECT * FROM {_TABLE}").to_arrow_table(), state.columns)

    def to_duckdb(self, name: str) -> duckdb.DuckDBPyConnection:
        cursor, _ = self._begun()
        with translated():
            cursor.execute(f"CREATE TEMP VIEW {quoted(name)} AS SELECT * FROM rows.main.{_TABLE}")
        self._place.keep_for(cursor)
        return cursor

    def _one(self, query: str) -> Any:
        with self._read() as (cursor, _):
            (value,) = cursor.execute(query).fetchone() or (0,)
        return value or 0

    def _begun(self) -> tuple[duckdb.DuckDBPyConnection, _State]:
        """A connection whose transaction sees the rows of now, and what they are."""
        with self._lock, translated():
            cursor = self._place.database.cursor()
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            # Only what asks for a table decides which of its states the transaction sees.
            cursor.execute(f"SELECT 1 FROM {_TABLE} LIMIT 0").fetchall()
            return cursor, self._state

    @contextmanager
    def _read(self) -> Iterator[tuple[duckdb.DuckDBPyConnection, _State]]:
        cursor, state = self._begun()
        with closing(cursor), translated():
            yield cursor, state

    # ---- writing ----

    def apply(self, batch: BlockingBatch, moment: Moment | None) -> LiveRows:
        rows, is_first = self, self._pending is None
        try:
            self._write(batch)
        except OtherColumnsError:
            if not is_first:
                raise
            # The casts of DuckDB are not Paimon's.
            self._pending, rows = None, self._in_columns_of(batch)
            rows._write(batch)
        if moment is not None:
            rows.reach(moment)
        return rows

    def _write(self, batch: BlockingBatch) -> None:
        with translated():
            if self._pending is None:
                self._table.begin(self._state.saved)
            self._pending = _State(batch.schema, batch.rows.schema)
            try:
                self._table.write(batch)
            except BaseException:
                self._table.roll_back()
                raise

    def _in_columns_of(self, batch: BlockingBatch) -> OnDisk:
        """What holds the rows of the last moment in the columns of a batch."""
        columns = batch.rows.schema
        changed = OnDisk(batch.schema, columns, self._bound)
        changed._write(state_of(batch, columns.empty_table(), begins=True))
        with self._read() as (cursor, state):
            ((last,),) = cursor.execute(f"SELECT coalesce(max(rowid), -1) FROM {_TABLE}").fetchall()
            for first in range(0, last + 1, _ROWS_AT_ONCE):
                query = f"SELECT * FROM {_TABLE} WHERE rowid >= {first} AND rowid < {first + _ROWS_AT_ONCE}"
                rows = _fitted(cursor.sql(query).to_arrow_table(), state.columns)
                changed._write(state_of(batch, in_schema(rows, state.schema, batch.schema, columns), begins=False))
        return changed

    def reach(self, moment: Moment) -> None:
        pending = self._pending
        if pending is None:
            self._moment = moment
            return
        with translated():
            saved = self._table.save(str(moment.snapshot_id), self._state.saved)
            with self._lock:
                self._table.commit()
                self._state, self._moment, self._pending = replace(pending, saved=saved), moment, None


def _found(cursor: duckdb.DuckDBPyConnection, state: _State, given: Sequence[pa.Array]) -> pa.Table:
    """A row for each key, in order."""
    names = [f"_key_{number}" for number in range(len(given))]
    asked = pa.table([*given, pa.array(range(len(given[0])), pa.int64())], [*names, _PLACE])
    same = " AND ".join(
        f"{_TABLE}.{quoted(key)} = asked.{name}" for key, name in zip(state.keys.names, names, strict=True)
    )
    cursor.register("asked", asked)
    query = f"SELECT {_TABLE}.* FROM asked LEFT JOIN {_TABLE} ON {same} ORDER BY asked.{_PLACE}"
    columns = pa.schema([field.with_nullable(True) for field in state.columns], state.columns.metadata)
    return _fitted(cursor.sql(query).to_arrow_table(), columns)


def _fitted(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Rows of DuckDB in the types of the stream."""
    return rows.select(columns.names).cast(columns)


def state_of(batch: BlockingBatch, rows: pa.Table, *, begins: bool) -> BlockingBatch:
    """A batch of a state, whose columns are those of another batch.

    Args:
        batch: The other one.
        rows: Of the state.
        begins: Whether nothing of the state comes before.
    """
    return BlockingBatch(replace(batch._chunk, data=rows, begins_state=begins), lambda _: None)
