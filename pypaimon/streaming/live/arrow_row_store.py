"""`ArrowRowStore`: the rows of a live table in memory, found by key, each version as a whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.batches.batch import BlockingBatch
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.live.duckdb_row_store import DuckDBRowStore, MemoryBound
from pypaimon.streaming.live.hash_index import (
    MOST_ROWS,
    Hashes,
    HashIndex,
    are_equal,
    comparable,
    hash_of_one,
    hashes_of,
    last_of_each,
    packed_of,
    rows_and_hashes,
)
from pypaimon.streaming.live.row_chunks import RowChunks, Rows
from pypaimon.streaming.live.row_order import RowRange, in_order
from pypaimon.streaming.live.row_store import HeldColumns, LookupKeys, RowStore, TableVersion
from pypaimon.streaming.model import row_kinds

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]


class ArrowRowStore:
    """A `RowStore` in memory, which moves to disk when it exceeds its bound."""

    def __init__(self, held: HeldColumns, bound: MemoryBound) -> None:
        self._held = held
        self._bound = bound
        self._rows = VersionedRows(held.arrow, held.keys.names)

    @property
    def table_version(self) -> TableVersion:
        return self._rows.table_version

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    @property
    def held(self) -> HeldColumns:
        return self._held

    @property
    def columns(self) -> pa.Schema:
        return self._rows.schema

    @property
    def lookup_keys(self) -> LookupKeys:
        return self._rows.keys

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: Any) -> dict[str, Any] | None:
        return self._rows.get(key)

    def get_many(self, keys: Any) -> pa.Table:
        return self._rows.get_many(keys)

    def between(self, wanted: RowRange) -> pa.Table:
        return self._rows.between(wanted)

    def to_arrow(self) -> pa.Table:
        return self._rows.to_arrow()

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self._rows.batches()

    def to_duckdb(self, name: str) -> duckdb.DuckDBPyConnection:
        import duckdb

        database = duckdb.connect(database=":memory:")
        database.register(name, self.to_arrow())
        return database

    def apply(self, batch: BlockingBatch, table_version: TableVersion | None) -> RowStore:
        fitted = self._in_columns_of(batch)
        fitted._rows.apply(batch.rows, row_kinds.are_added(batch.kinds), table_version)
        return fitted._within_bound(HeldColumns.of(batch), table_version)

    def load(self, rows: pa.Table) -> RowStore:
        self._rows.apply(rows, np.ones(rows.num_rows, np.bool_), None)
        return self._within_bound(self._held, None)

    def publish(self, table_version: TableVersion) -> None:
        self._rows.publish(table_version)

    def _in_columns_of(self, batch: BlockingBatch) -> ArrowRowStore:
        wanted = HeldColumns.of(batch)
        if self._held.are(wanted):
            return self
        changed = ArrowRowStore(wanted, self._bound)
        for held in self._rows.next_batches():
            rows = self._held.convert(pa.table(held), wanted)
            changed._rows.apply(rows, np.ones(rows.num_rows, np.bool_), None)
        return changed

    def _within_bound(self, held: HeldColumns, table_version: TableVersion | None) -> RowStore:
        """The store itself, or one on disk with its rows."""
        if self._rows.next_nbytes <= self._bound.max_bytes:
            return self
        on_disk = DuckDBRowStore(held, self._bound)
        for batch in self._rows.next_batches():
            on_disk.load(pa.table(batch))
        if table_version is not None:
            on_disk.publish(table_version)
        return on_disk


Mask = npt.NDArray[np.bool_]
Columns = Sequence[pa.Array]

_MOST_DEAD = 20
"""Dead rows are removed when they are more than one row in this many."""
_FEW = 512


@dataclass(slots=True, eq=False)
class _Version:
    """The rows of one version of the table. Nothing of it changes while it has readers.

    Attributes:
        table_version: The version.
        chunks: The rows, including dead ones, which were replaced or deleted.
        index: The number of the last row of each key.
        dead: Whether each row is dead; longer than the rows.
        dead_count: The number of dead rows.
        readers: The number of calls that read it.
    """

    table_version: TableVersion
    chunks: RowChunks
    index: HashIndex
    dead: Mask
    dead_count: int = 0
    readers: int = 0

    @property
    def nbytes(self) -> int:
        return self.chunks.nbytes + self.index.nbytes + self.dead.nbytes

    def nbytes_besides(self, other: _Version) -> int:
        return self.nbytes - self.chunks.nbytes_shared(other.chunks)


class VersionedRows:
    """Rows by key. One thread applies changes. Any thread may read meanwhile and sees published versions as a whole."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        self.keys = LookupKeys(keys, [schema.field(key).type for key in keys])
        self._lock = threading.Lock()
        self._version = _Version(TableVersion(), RowChunks(schema), HashIndex(), np.zeros(0, np.bool_))
        self._unseen: _Version | None = None
        self._ordered_by: set[tuple[str, ...]] = set()

    # ---- reading ----

    @property
    def schema(self) -> pa.Schema:
        return self._version.chunks.schema

    @property
    def table_version(self) -> TableVersion:
        return self._version.table_version

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the rows, dead and unpublished ones included, and of the index."""
        version, unseen = self._version, self._unseen
        return version.nbytes if unseen is None else unseen.nbytes_besides(version) + version.nbytes

    @property
    def next_nbytes(self) -> int:
        """Bytes of memory after the next `publish`."""
        return (self._unseen or self._version).nbytes

    def __len__(self) -> int:
        version = self._version
        return version.chunks.num_rows - version.dead_count

    def get(self, key: Any) -> dict[str, Any] | None:
        """The row of a key, or None."""
        values = self.keys.values(key)
        plain = self.keys.plain(values)
        if plain is None:
            arrays = [comparable(each) for each in self.keys.arrays(values)]
            with self._read() as version:
                (row,) = self._rows_of(version, arrays).tolist()
                return None if row < 0 else _row(*version.chunks.place(row))
        one = hash_of_one(plain)
        with self._read() as version:
            for row in version.index.rows_of_hash(one):
                columns, place = version.chunks.place(row)
                if all(
                    columns[name][place].as_py() == value for name, value in zip(self.keys.names, values, strict=True)
                ):
                    return None if version.dead.item(row) else _row(columns, place)
        return None

    def get_many(self, keys: Any) -> pa.Table:
        """A row for each key, in order; a row of nulls for a key without a row."""
        columns = [comparable(each) for each in self.keys.fitted(keys)]
        with self._read() as version:
            chunks = version.chunks
            rows = self._rows_of(version, columns)
        # Chunks never change.
        schema = pa.schema([field.with_nullable(True) for field in chunks.schema], chunks.schema.metadata)
        return pa.Table.from_arrays(chunks.take(rows), schema=schema)

    def between(self, wanted: RowRange) -> pa.Table:
        """The rows in a range, in order. The first call for some columns orders all rows, the updater then new ones."""
        self._ordered_by.add(wanted.names)
        with self._read() as version:
            chunks = version.chunks
            rows = chunks.rows(wanted)
            if version.dead_count:
                rows = rows[~version.dead[rows]]
        return in_order(pa.Table.from_arrays(chunks.take(rows), schema=chunks.schema), wanted.names)

    def to_arrow(self) -> pa.Table:
        chunks, dead = self._snapshot()
        return chunks.to_table() if dead is None else chunks.without(dead).to_table()

    def batches(self) -> Iterator[pa.RecordBatch]:
        chunks, dead = self._snapshot()
        return iter(chunks.batches) if dead is None else chunks.batches_without(dead)

    def _snapshot(self) -> tuple[RowChunks, Mask | None]:
        """The rows, and which of them are dead; None: all live."""
        with self._read() as version:
            chunks = version.chunks
            return chunks, version.dead[: chunks.num_rows].copy() if version.dead_count else None

    def next_batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, including unpublished ones, batch by batch."""
        version = self._unseen or self._version
        return version.chunks.batches_without(version.dead)

    @contextmanager
    def _read(self) -> Iterator[_Version]:
        with self._lock:
            version = self._version
            version.readers += 1
        try:
            yield version
        finally:
            with self._lock:
                version.readers -= 1

    def _rows_of(self, version: _Version, columns: Columns) -> Rows:
        if not len(columns[0]):
            return np.zeros(0, np.int64)
        _, rows = self._find(version, columns, hashes_of(columns))
        if version.dead_count:
            rows[version.dead.take(rows, mode="clip") & (rows >= 0)] = -1
        return rows

    def _find(self, version: _Version, columns: Columns, hashes: Hashes) -> tuple[Rows, Rows]:
        def same(which: Rows, rows: Rows) -> Mask:
            found = [comparable(each) for each in version.chunks.take(rows, self.keys.names)]
            if len(which) == len(columns[0]):
                return are_equal(columns, found)
            places = pa.array(which)
            return are_equal([each.take(places) for each in columns], found)

        return version.index.find(hashes, same)

    # ---- writing ----

    def apply(self, rows: pa.Table, sets: Mask, table_version: TableVersion | None) -> None:
        """Apply changes: of several changes of a key the last one counts.

        Args:
            table_version: Publish the rows as this version. None: readers do not see the changes yet.
        """
        unseen = self._unseen
        version = unseen or self._version
        chunks, index, dead = version.chunks, version.index, version.dead
        if rows.num_rows:
            columns = [comparable(rows[key].combine_chunks()) for key in self.keys.names]
            hashes = hashes_of(columns)
            last = last_of_each(columns, hashes)
            if last is not None:
                places = pa.array(last)
                columns, hashes, sets = [each.take(places) for each in columns], hashes[last], sets[last]
            at, old = self._find(version, columns, hashes)
        else:
            last, hashes, at, old = None, np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64)
        if last is not None or not sets.all():
            rows = rows.take(pa.array(np.flatnonzero(sets) if last is None else last[sets]))
        end = chunks.num_rows + rows.num_rows
        if end > MOST_ROWS:
            raise UnsupportedTableError(
                f"{end} rows are more than a live table holds in memory: give open_live a memory_limit_bytes."
            )
        numbers = np.full(len(hashes), -1, np.int64)
        numbers[sets] = np.arange(chunks.num_rows, end)
        replaced, fresh = np.flatnonzero(sets & (old >= 0)), np.flatnonzero(sets & (old < 0))
        gone = old[old >= 0]
        gone = gone[~dead[gone]]
        count = version.dead_count + len(gone)
        added = chunks.added(rows.to_batches())
        changed = replace(version, chunks=added, dead=_long_enough(dead, end), dead_count=count, readers=0)

        def change() -> None:
            changed.index.replace(at[replaced], hashes[replaced], numbers[replaced])
            changed.index.add(at[fresh], hashes[fresh], numbers[fresh])
            changed.dead[gone] = True

        if unseen is not None:
            change()
        elif table_version is None or not self._changed_in_place(changed, table_version, change, len(fresh)):
            changed.index = index.copy()
            if changed.dead is dead:
                changed.dead = dead.copy()
            change()
        if count > _FEW and count * _MOST_DEAD > end:
            changed = _without_dead(changed)
        for names in tuple(self._ordered_by):
            changed.chunks.order(names)
        self._unseen = None if changed is self._version else changed
        if table_version is not None:
            self.publish(table_version)

    def publish(self, table_version: TableVersion) -> None:
        if self._unseen is not None and not self._version.chunks.num_rows:
            # The first state came in many small batches.
            self._unseen.chunks = self._unseen.chunks.merged()
        with self._lock:
            if self._unseen is not None:
                self._version, self._unseen = self._unseen, None
            self._version.table_version = table_version

    def _changed_in_place(
        self, changed: _Version, table_version: TableVersion, change: Callable[[], None], fresh: int
    ) -> bool:
        """Replace the version whose index is shared, without a copy, if it has no readers and the index has room."""
        with self._lock:
            version = self._version
            if version.readers or not version.index.has_room(fresh):
                return False
            change()
            changed.table_version = table_version
            self._version = changed
        return True


def _long_enough(dead: Mask, rows: int) -> Mask:
    if rows <= len(dead):
        return dead
    longer = np.zeros(max(rows + rows // 16, _FEW), np.bool_)
    longer[: len(dead)] = dead
    return longer


def _without_dead(version: _Version) -> _Version:
    dead = version.dead[: version.chunks.num_rows]
    chunks = version.chunks.without(dead)
    ends = np.cumsum(~dead, dtype=np.uint32)
    if len(version.index) == chunks.num_rows:
        index = version.index.renumbered(ends)
    else:
        rows, hashes = rows_and_hashes(version.index.packed())
        kept = ~dead[rows]
        index = HashIndex(packed_of(hashes[kept], ends[rows[kept]].astype(np.int64) - 1))
    return _Version(version.table_version, chunks, index, np.zeros(max(chunks.num_rows, _FEW), np.bool_))


def _row(columns: dict[str, pa.Array], place: int) -> dict[str, Any]:
    return {name: column[place].as_py() for name, column in columns.items()}
