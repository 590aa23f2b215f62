"""`DuckDBRowStore`: the rows of a live table that is too large for memory, in a temporary DuckDB database."""

from __future__ import annotations

import ctypes
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pypaimon.streaming.batches.batch import BlockingBatch
from pypaimon.streaming.concurrency.background_threads import spawn_detached
from pypaimon.streaming.concurrency.forking import Origin
from pypaimon.streaming.concurrency.threads_to_asyncio import on_event_loop
from pypaimon.streaming.errors import StreamConfigError, TargetError
from pypaimon.streaming.live.row_order import RowRange
from pypaimon.streaming.live.row_store import HeldColumns, LookupKeys, RowStore, TableVersion
from pypaimon.streaming.options.arguments import a_path, at_least
from pypaimon.streaming.targets.changes import last_changes, quoted

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]

_LEAST_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class MemoryBound:
    """How much memory rows may take, and where larger tables are stored.

    Attributes:
        directory: Parent of the temporary database; None: the system's directory for temporary files.
    """

    max_bytes: int
    directory: Path | None = None


def memory_bound(max_bytes: int, directory: str | PathLike[str] | None) -> MemoryBound:
    limit = at_least(0, "open_live: memory_limit_bytes", max_bytes)
    if directory is None:
        return MemoryBound(limit)
    place = Path(a_path("open_live: directory", directory))
    if not place.is_dir():
        raise StreamConfigError(f"open_live: directory={str(directory)!r} is not a directory")
    return MemoryBound(limit, place)


class TempDatabase:
    """A database in a directory of its own. Both are removed with the last reference to this object."""

    def __init__(self, bound: MemoryBound) -> None:
        try:
            import duckdb
        except ModuleNotFoundError as error:
            raise StreamConfigError(
                f"the table takes more than {bound.max_bytes} bytes in memory, and its rows would go to DuckDB, which "
                "is not installed: pip install 'pypaimon-streaming[duckdb]', or give open_live a greater "
                "memory_limit_bytes"
            ) from error
        try:
            directory = Path(tempfile.mkdtemp(prefix="paimon-live-", dir=bound.directory))
        except OSError as error:
            raise TargetError(f"cannot make a directory for the rows of a live table: {error}") from error
        memory, spilled = f"{max(bound.max_bytes, _LEAST_BYTES)}B", str(directory / "spilled")
        try:
            with translate_errors():
                self.database = duckdb.connect(
                    str(directory / "rows.duckdb"), config={"memory_limit": memory, "temp_directory": spilled}
                )
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        weakref.finalize(self, _let_go, self.database, directory, Origin())

    def keep_for(self, cursor: duckdb.DuckDBPyConnection) -> None:
        weakref.finalize(cursor, _ended_with, self)


@contextmanager
def translate_errors() -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise TargetError(f"DuckDB, which holds the rows of a live table: {error}") from error


def _ended_with(place: TempDatabase) -> None: ...


def _let_go(database: duckdb.DuckDBPyConnection, directory: Path, origin: Origin) -> None:
    if not origin.is_here:
        # Closing the database in a forked process would wait for threads that exist only in the parent.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(database))
    elif on_event_loop():
        spawn_detached(partial(_remove, database, directory))
    else:
        _remove(database, directory)


def _remove(database: duckdb.DuckDBPyConnection, directory: Path) -> None:
    try:
        database.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


_TABLE = "_live_rows"
_CHANGES, _REMOVALS = "_changes", "_removals"
_NUMBER = "_number"
_ROWS_AT_ONCE = 1 << 16


class DuckDBRowStore:
    """A `RowStore` in DuckDB. Its files are removed with it and with the connections of `to_duckdb`."""

    def __init__(self, held: HeldColumns, bound: MemoryBound) -> None:
        self._bound = bound
        self._state = held
        if any(pa.types.is_floating(kind) for kind in self._state.keys.kinds):
            raise StreamConfigError(
                f"the table takes more than {bound.max_bytes} bytes in memory, and DuckDB takes the keys 0.0 and "
                "-0.0 for one: give open_live a greater memory_limit_bytes"
            )
        self._table_version = TableVersion()
        self._lock = threading.Lock()
        self._database = TempDatabase(bound)
        with translate_errors():
            # In a transaction of its own: DuckDB 2.0 does not find what is inserted in the one that makes a table this
            # way, if it is more rows than a row group has.
            self._database.database.register(_CHANGES, held.arrow.empty_table())
            self._database.database.execute(f"CREATE TABLE {_TABLE} AS SELECT * FROM {_CHANGES} LIMIT 0")
            self._database.database.unregister(_CHANGES)
        self._pending: HeldColumns | None = None

    # ---- reading ----

    @property
    def table_version(self) -> TableVersion:
        return self._table_version

    @property
    def held(self) -> HeldColumns:
        return self._state

    @property
    def columns(self) -> pa.Schema:
        return self._state.arrow

    @property
    def lookup_keys(self) -> LookupKeys:
        return self._state.keys

    @property
    def nbytes(self) -> int:
        return int(self._one("SELECT sum(memory_usage_bytes) FROM duckdb_memory()"))

    def __len__(self) -> int:
        return int(self._one(f"SELECT count(*) FROM {_TABLE}"))

    def get(self, key: Any) -> dict[str, Any] | None:
        with self._read() as (cursor, state):
            values = state.keys.values(key)
            if state.keys.plain(values) is None:
                # DuckDB would convert Python values to its own without an exact check.
                (row,) = _found(cursor, state, state.keys.arrays(values)).to_pylist()
                return None if row[state.keys.names[0]] is None else row
            same = " AND ".join(f"{quoted(name)} = ?" for name in state.keys.names)
            found = cursor.sql(f"SELECT * FROM {_TABLE} WHERE {same}", params=list(values)).to_arrow_table()
        rows = _fitted(found, state.arrow).to_pylist()
        return rows[0] if rows else None

    def get_many(self, keys: Any) -> pa.Table:
        with self._read() as (cursor, state):
            return _found(cursor, state, state.keys.fitted(keys))

    def between(self, wanted: RowRange) -> pa.Table:
        with self._read() as (cursor, state):
            tests = [f"{_TABLE}.{quoted(name)} IS NOT NULL" for name in wanted.names]
            bounds = [("_low", ">=", wanted.low), ("_high", "<=" if wanted.includes_high else "<", wanted.high)]
            asked = [_TABLE]
            for name, sign, bound in bounds:
                if bound is not None:
                    numbers = [f"_{number}" for number in range(len(bound))]
                    cursor.register(name, pa.table([*bound], numbers))
                    asked.append(name)
                    columns = ", ".join(f"{_TABLE}.{quoted(each)}" for each in wanted.names[: len(bound)])
                    values = ", ".join(f"{name}.{number}" for number in numbers)
                    # DuckDB has a null that equals a null in rows.
                    tests += [f"{name}.{number} IS NOT NULL" for number in numbers]
                    tests.append(f"ROW({columns}) {sign} ROW({values})")
            names = ", ".join(f"{_TABLE}.{quoted(name)}" for name in wanted.names)
            query = f"SELECT {_TABLE}.* FROM {', '.join(asked)} WHERE {' AND '.join(tests)} ORDER BY {names}"
            return _fitted(cursor.sql(query).to_arrow_table(), state.arrow)

    def to_arrow(self) -> pa.Table:
        with self._read() as (cursor, state):
            return _fitted(cursor.sql(f"SELECT * FROM {_TABLE}").to_arrow_table(), state.arrow)

    def to_duckdb(self, name: str) -> duckdb.DuckDBPyConnection:
        cursor, _ = self._begun()
        with translate_errors():
            cursor.execute(f"CREATE TEMP VIEW {quoted(name)} AS SELECT * FROM rows.main.{_TABLE}")
        self._database.keep_for(cursor)
        return cursor

    def batches(self) -> Iterator[pa.RecordBatch]:
        cursor, state = self._begun()
        return _batches(cursor, state)

    def _one(self, query: str) -> Any:
        with self._read() as (cursor, _):
            (value,) = cursor.execute(query).fetchone() or (0,)
        return value or 0

    def _begun(self) -> tuple[duckdb.DuckDBPyConnection, HeldColumns]:
        with self._lock, translate_errors():
            cursor = self._database.database.cursor()
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            # The transaction takes its snapshot of a table only when it first reads it.
            cursor.execute(f"SELECT 1 FROM {_TABLE} LIMIT 0").fetchall()
            return cursor, self._state

    @contextmanager
    def _read(self) -> Iterator[tuple[duckdb.DuckDBPyConnection, HeldColumns]]:
        cursor, state = self._begun()
        with closing(cursor), translate_errors():
            yield cursor, state

    # ---- writing ----

    def apply(self, batch: BlockingBatch, table_version: TableVersion | None) -> RowStore:
        wanted, held = HeldColumns.of(batch), self._pending or self._state
        # A batch may have more columns. Otherwise the rows have to be converted.
        rows = self if held.are_in(wanted) else self._converted(wanted)
        sets, removals = last_changes(batch, batch.schema.primary_keys)
        rows._write(wanted, sets, removals)
        if table_version is not None:
            rows.publish(table_version)
        return rows

    def load(self, rows: pa.Table) -> RowStore:
        self._write(self._pending or self._state, rows)
        return self

    def publish(self, table_version: TableVersion) -> None:
        with translate_errors(), self._lock:
            if self._pending is not None:
                self._database.database.execute("COMMIT")
                self._state, self._pending = self._pending, None
            self._table_version = table_version

    def _write(self, wanted: HeldColumns, sets: pa.Table, removals: pa.Table | None = None) -> None:
        run, held = self._database.database.execute, self._pending or self._state
        with translate_errors():
            if self._pending is None:
                run("BEGIN")
            self._pending = wanted
            try:
                self._database.database.register(_CHANGES, sets)
                for name, kind in _described(self._database.database):
                    if name not in held.arrow.names:
                        run(f"ALTER TABLE {_TABLE} ADD COLUMN {quoted(name)} {kind}")
                if removals is not None:
                    keys = ", ".join(map(quoted, self._pending.keys.names))
                    for changed in (_CHANGES, _REMOVALS) if removals.num_rows else (_CHANGES,):
                        if changed == _REMOVALS:
                            self._database.database.register(_REMOVALS, removals)
                        run(f"DELETE FROM {_TABLE} WHERE ({keys}) IN (SELECT ({keys}) FROM {changed})")
                run(f"INSERT INTO {_TABLE} BY NAME SELECT * FROM {_CHANGES}")
            except BaseException:
                # An error here must not hide the first one.
                with suppress(Exception):
                    run("ROLLBACK")
                raise
            finally:
                with suppress(Exception):
                    for view in (_CHANGES, _REMOVALS):
                        self._database.database.unregister(view)

    def _converted(self, wanted: HeldColumns) -> DuckDBRowStore:
        """A store of the published rows in other columns. DuckDB's own casts are not Paimon's."""
        # Rows that are not published would be lost. All parts of a version have one schema, so there are none.
        assert self._pending is None
        changed = DuckDBRowStore(wanted, self._bound)
        with self._read() as (cursor, state):
            for rows in _parts(cursor, state):
                changed.load(state.convert(rows, wanted))
        return changed


def _batches(cursor: duckdb.DuckDBPyConnection, state: HeldColumns) -> Iterator[pa.RecordBatch]:
    with closing(cursor), translate_errors():
        for rows in _parts(cursor, state):
            yield from rows.to_batches()


def _parts(cursor: duckdb.DuckDBPyConnection, state: HeldColumns) -> Iterator[pa.Table]:
    ((last,),) = cursor.execute(f"SELECT coalesce(max(rowid), -1) FROM {_TABLE}").fetchall()
    for first in range(0, last + 1, _ROWS_AT_ONCE):
        query = f"SELECT * FROM {_TABLE} WHERE rowid >= {first} AND rowid < {first + _ROWS_AT_ONCE}"
        yield _fitted(cursor.sql(query).to_arrow_table(), state.arrow)


def _described(database: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    found = database.execute(f"DESCRIBE SELECT * FROM {_CHANGES}").fetchall()
    return [(str(name), str(kind)) for name, kind, *_ in found]


def _found(cursor: duckdb.DuckDBPyConnection, state: HeldColumns, given: Sequence[pa.Array]) -> pa.Table:
    names = [f"_key_{number}" for number in range(len(given))]
    asked = pa.table([*given, pa.array(range(len(given[0])), pa.int64())], [*names, _NUMBER])
    same = " AND ".join(
        f"{_TABLE}.{quoted(key)} = asked.{name}" for key, name in zip(state.keys.names, names, strict=True)
    )
    cursor.register("asked", asked)
    query = f"SELECT {_TABLE}.* FROM asked LEFT JOIN {_TABLE} ON {same} ORDER BY asked.{_NUMBER}"
    columns = pa.schema([field.with_nullable(True) for field in state.arrow], state.arrow.metadata)
    return _fitted(cursor.sql(query).to_arrow_table(), columns)


def _fitted(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Rows of DuckDB in the types of the stream, because DuckDB has fewer types."""
    return rows.select(columns.names).cast(columns)
