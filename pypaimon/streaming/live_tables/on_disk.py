"""`OnDisk`: live rows in a database of DuckDB in a directory of its own, for tables that are too large for memory."""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pypaimon.streaming.apply_changes.duckdb_table import DuckDBTable
from pypaimon.streaming.apply_changes.followed_columns import quoted
from pypaimon.streaming.apply_changes.plan_transactions import Saved
from pypaimon.streaming.batches.batch import BlockingBatch
from pypaimon.streaming.errors import StreamConfigError, TargetError
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.live_tables.keys import Keys
from pypaimon.streaming.live_tables.live_rows import LiveRows, Moment
from pypaimon.streaming.options.arguments import at_least

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]

_TABLE = "_live_rows"
_PLACE = "_place"


@dataclass(frozen=True, slots=True)
class MemoryBound:
    """Where rows go that are too many for memory.

    Attributes:
        max_bytes: What rows and their index may take in memory.
        directory: Where directories are made for those that take more; None: where the system has temporary files.
    """

    max_bytes: int
    directory: Path | None = None


def memory_bound(max_bytes: int, directory: str | PathLike[str] | None) -> MemoryBound:
    """What a caller gives.

    Raises:
        StreamConfigError: The bytes are none, or there is no such directory.
    """
    limit = at_least(0, "open_live: memory_limit", max_bytes)
    if directory is not None and not Path(directory).is_dir():
        raise StreamConfigError(f"open_live: directory={str(directory)!r} is no directory")
    return MemoryBound(limit, None if directory is None else Path(directory))


class OnDisk:
    """`LiveRows` in a database of DuckDB. What it has on disk goes with it.

    Args:
        schema: Paimon's, of the table.
        columns: The one of the rows.
        bound: Where it lies, and how much memory DuckDB may take.

    Raises:
        StreamConfigError: DuckDB is not installed, or cannot tell the keys from each other.
        TargetError: The database cannot be made.
    """

    def __init__(self, schema: TableSchema, columns: pa.Schema, bound: MemoryBound) -> None:
        try:
            import duckdb
        except ModuleNotFoundError as error:
            raise StreamConfigError(
                f"the table takes more than {bound.max_bytes} bytes in memory, and its rows would go to DuckDB, which "
                "is not installed: pip install 'pypaimon-streaming[duckdb]', or give open_live a greater memory_limit"
            ) from error
        self._keys = Keys(schema.primary_keys, [columns.field(key).type for key in schema.primary_keys])
        if any(pa.types.is_floating(kind) for kind in self._keys.kinds):
            raise StreamConfigError(
                f"the table takes more than {bound.max_bytes} bytes in memory, and DuckDB does not tell the keys 0.0 "
                "and -0.0 from each other: give open_live a greater memory_limit"
            )
        self._errors = duckdb.Error
        self._columns = columns
        self._moment = Moment()
        self._saved: Saved | None = None
        self._lock = threading.Lock()
        try:
            self._directory = Path(tempfile.mkdtemp(prefix="paimon-live-", dir=bound.directory))
        except OSError as error:
            raise TargetError(f"no directory for the rows of a live table can be made: {error}") from error
        try:
            with self._translated():
                memory = max(bound.max_bytes, 1 << 26)
                self._database = duckdb.connect(
                    str(self._directory / "rows.duckdb"),
                    config={"memory_limit": f"{memory}B", "temp_directory": str(self._directory / "spilled")},
                )
                self._table = DuckDBTable(self._database, _TABLE, schema.primary_keys)
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        weakref.finalize(self, _let_go, self._database, self._directory)

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
        values = self._keys.values(key)
        if self._keys.plain(values) is None:
            # DuckDB takes values of Python for nearly the same ones of its own.
            (row,) = self.get_many(pa.table(self._keys.arrays(values), self._keys.names)).to_pylist()
            return None if row[self._keys.names[0]] is None else row
        same = " AND ".join(f"{quoted(name)} = ?" for name in self._keys.names)
        with self._read() as (cursor, columns):
            found = cursor.sql(f"SELECT * FROM {_TABLE} WHERE {same}", params=list(values)).to_arrow_table()
        rows = _fitted(found, columns).to_pylist()
        return rows[0] if rows else None

    def get_many(self, keys: Any) -> pa.Table:
        given = self._keys.fitted(keys)
        names = [f"_key_{number}" for number in range(len(given))]
        asked = pa.table([*given, pa.array(range(len(given[0])), pa.int64())], [*names, _PLACE])
        same = " AND ".join(
            f"{_TABLE}.{quoted(key)} = asked.{name}" for key, name in zip(self._keys.names, names, strict=True)
        )
        query = f"SELECT {_TABLE}.* FROM asked LEFT JOIN {_TABLE} ON {same} ORDER BY asked.{_PLACE}"
        with self._read() as (cursor, columns):
            cursor.register("asked", asked)
            found = cursor.sql(query).to_arrow_table()
        return _fitted(found, pa.schema([field.with_nullable(True) for field in columns], columns.metadata))

    def to_arrow(self) -> pa.Table:
        with self._read() as (cursor, columns):
            return _fitted(cursor.sql(f"SELECT * FROM {_TABLE}").to_arrow_table(), columns)

    def to_duckdb(self, name: str) -> duckdb.DuckDBPyConnection:
        cursor, _ = self._begun()
        with self._translated():
            cursor.execute(f"CREATE TEMP VIEW {quoted(name)} AS SELECT * FROM {_TABLE}")
        return cursor

    def _one(self, query: str) -> Any:
        with self._read() as (cursor, _):
            (value,) = cursor.execute(query).fetchone() or (0,)
        return value or 0

    def _begun(self) -> tuple[duckdb.DuckDBPyConnection, pa.Schema]:
        """A connection whose transaction sees the rows of now, and their columns."""
        with self._lock, self._translated():
            cursor = self._database.cursor()
            cursor.execute("BEGIN")
            if self._saved is not None:
                # Only what asks for a table decides which of its states the transaction sees.
                cursor.execute(f"SELECT 1 FROM {_TABLE} LIMIT 0").fetchall()
            return cursor, self._columns

    @contextmanager
    def _read(self) -> Iterator[tuple[duckdb.DuckDBPyConnection, pa.Schema]]:
        cursor, columns = self._begun()
        with closing(cursor), self._translated():
            yield cursor, columns

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise TargetError(f"DuckDB, which holds the rows of a live table: {error}") from error

    # ---- writing ----

    def apply(self, batches: Sequence[BlockingBatch], moment: Moment) -> LiveRows:
        with self._translated():
            self._table.begin(self._saved)
            try:
                for batch in batches:
                    self._table.write(batch)
                saved = self._table.save(str(moment.snapshot_id), self._saved)
            except BaseException:
                self._table.roll_back()
                raise
            with self._lock:
                self._table.commit()
                self._saved, self._columns, self._moment = saved, batches[-1].rows.schema, moment
        return self

    def reach(self, moment: Moment) -> None:
        self._moment = moment


def _fitted(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Rows of DuckDB in the types of the stream."""
    return rows.select(columns.names).cast(columns)


def _let_go(database: duckdb.DuckDBPyConnection, directory: Path) -> None:
    database.close()
    shutil.rmtree(directory, ignore_errors=True)


def state_of(batch: BlockingBatch, rows: pa.Table) -> BlockingBatch:
    """A batch of a whole state, whose columns are those of another batch."""
    return BlockingBatch(replace(batch._chunk, data=rows, begins_state=True), lambda _: None)
