"""`MemoryRows`: rows of a table in memory, found by their keys, each time at one snapshot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.live_tables.hash_index import MOST_ROWS, HashIndex, packed_of, rows_and_hashes
from pypaimon.streaming.live_tables.key_hashes import (
    Hashes,
    are_equal,
    comparable,
    hash_of_one,
    hashes_of,
    last_of_each,
)
from pypaimon.streaming.live_tables.keys import Keys
from pypaimon.streaming.live_tables.live_rows import Moment
from pypaimon.streaming.live_tables.row_chunks import RowChunks, Rows

Mask = npt.NDArray[np.bool_]
Columns = Sequence[pa.Array]

_MOST_DEAD = 20
"""Rows that were replaced or deleted are let go when they are more than one in so many."""
_FEW = 512


@dataclass(slots=True, eq=False)
class _Version:
    """The rows at one moment. While it has readers, nothing of it is changed.

    Attributes:
        moment: It.
        chunks: The rows, and those that were replaced or deleted.
        index: The number of the last row of each key.
        dead: Of each row whether it was replaced or deleted; longer than there are rows.
        dead_count: How many were.
        readers: How many calls read it.
    """

    moment: Moment
    chunks: RowChunks
    index: HashIndex
    dead: Mask
    dead_count: int = 0
    readers: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.chunks.nbytes + self.index.nbytes + self.dead.nbytes

    def nbytes_beside(self, other: _Version) -> int:
        """Bytes of memory that it takes beside another one."""
        return self.nbytes - self.chunks.nbytes_shared(other.chunks)


class MemoryRows:
    """Rows by key. One thread applies changes; any may read meanwhile, and sees what was told a moment of, wholly.

    Args:
        schema: Of the rows.
        keys: The columns of the key.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        self.keys = Keys(keys, [schema.field(key).type for key in keys])
        self._lock = threading.Lock()
        self._version = _Version(Moment(), RowChunks(schema), HashIndex(), np.zeros(0, np.bool_))
        self._unseen: _Version | None = None

    # ---- reading ----

    @property
    def schema(self) -> pa.Schema:
        """Of the rows."""
        return self._version.chunks.schema

    @property
    def moment(self) -> Moment:
        """Which state of the table it is."""
        return self._version.moment

    @property
    def nbytes(self) -> int:
        """Bytes of memory that rows, those that are not let go yet, and the index take."""
        version, unseen = self._version, self._unseen
        return version.nbytes if unseen is None else unseen.nbytes_beside(version) + version.nbytes

    @property
    def next_nbytes(self) -> int:
        """Bytes of memory once what was applied is seen."""
        return (self._unseen or self._version).nbytes

    def __len__(self) -> int:
        version = self._version
        return version.chunks.num_rows - version.dead_count

    def get(self, key: Any) -> dict[str, Any] | None:
        """The row of a key; None: there is none.

        Raises:
            StreamConfigError: It is no key of this table.
        """
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
        """A row for each key, in order; its values are null where there is none.

        Raises:
            StreamConfigError: They are no keys of this table.
        """
        columns = [comparable(each) for each in self.keys.fitted(keys)]
        with self._read() as version:
            chunks = version.chunks
            rows = self._rows_of(version, columns)
        # Chunks never change.
        schema = pa.schema([field.with_nullable(True) for field in chunks.schema], chunks.schema.metadata)
        return pa.Table.from_arrays(chunks.take(rows), schema=schema)

    def to_arrow(self) -> pa.Table:
        """All rows, in no order. Nothing is copied, if none was replaced or deleted."""
        with self._read() as version:
            chunks = version.chunks
            dead = version.dead[: chunks.num_rows].copy() if version.dead_count else None
        return chunks.to_table() if dead is None else chunks.without(dead).to_table()

    def next_batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, those too that nobody sees yet, one batch after the other."""
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
        """The numbers of the rows of keys; -1: there is none."""
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

    def apply(self, rows: pa.Table, sets: Mask, moment: Moment | None) -> None:
        """Apply changes: of several changes of a key the last one counts.

        Args:
            rows: They, in order.
            sets: Which of them set a row; the others take it away.
            moment: What the rows are then; None: nobody sees them until that is told, here or by `reach`.

        Raises:
            UnsupportedTableError: There are more rows than can be numbered.
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
                f"{end} rows are more than a live table holds in memory: give open_live a memory_limit."
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
        elif moment is None or not self._changed_in_place(changed, moment, change, len(fresh)):
            changed.index = index.copy()
            if changed.dead is dead:
                changed.dead = dead.copy()
            change()
        if count > _FEW and count * _MOST_DEAD > end:
            changed = _without_dead(changed)
        self._unseen = None if changed is self._version else changed
        if moment is not None:
            self.reach(moment)

    def reach(self, moment: Moment) -> None:
        """All that was applied is seen from now on; the rows are those of a moment."""
        if self._unseen is not None and not self._version.chunks.num_rows:
            # The first state, which came in many batches.
            self._unseen.chunks = self._unseen.chunks.merged()
        with self._lock:
            if self._unseen is not None:
                self._version, self._unseen = self._unseen, None
            self._version.moment = moment

    def _changed_in_place(self, changed: _Version, moment: Moment, change: Callable[[], None], fresh: int) -> bool:
        """Let a version take the place of the one whose index it has, if nobody reads that and it has room."""
        with self._lock:
            version = self._version
            if version.readers or not version.index.has_room(fresh):
                return False
            change()
            changed.moment = moment
            self._version = changed
        return True


def _long_enough(dead: Mask, rows: int) -> Mask:
    """The marks of more rows."""
    if rows <= len(dead):
        return dead
    longer = np.zeros(max(rows + rows // 16, _FEW), np.bool_)
    longer[: len(dead)] = dead
    return longer


def _without_dead(version: _Version) -> _Version:
    """Rows that were replaced or deleted are let go."""
    dead = version.dead[: version.chunks.num_rows]
    chunks = version.chunks.without(dead)
    ends = np.cumsum(~dead, dtype=np.uint32)
    if len(version.index) == chunks.num_rows:
        index = version.index.renumbered(ends)
    else:
        rows, hashes = rows_and_hashes(version.index.packed())
        kept = ~dead[rows]
        index = HashIndex(packed_of(hashes[kept], ends[rows[kept]].astype(np.int64) - 1))
    return _Version(version.moment, chunks, index, np.zeros(max(chunks.num_rows, _FEW), np.bool_))


def _row(columns: dict[str, pa.Array], place: int) -> dict[str, Any]:
    return {name: column[place].as_py() for name, column in columns.items()}
