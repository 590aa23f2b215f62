"""`InMemory`: plans of a stream applied to rows in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.batches.batch import BlockingBatch
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.live_tables.column_changes import are_same_columns, in_schema
from pypaimon.streaming.live_tables.live_rows import LiveRows, Moment
from pypaimon.streaming.live_tables.memory_rows import MemoryRows
from pypaimon.streaming.live_tables.on_disk import MemoryBound, OnDisk, state_of

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]

_SETS = pa.array(["+I", "+U"])


class InMemory:
    """`LiveRows` in memory.

    Args:
        schema: Paimon's, of the table.
        columns: The one of the rows.
        bound: How much memory they may take; where there are more, they go to disk.
    """

    def __init__(self, schema: TableSchema, columns: pa.Schema, bound: MemoryBound) -> None:
        self._schema = schema
        self._bound = bound
        self._rows = MemoryRows(columns, schema.primary_keys)

    @property
    def moment(self) -> Moment:
        return self._rows.moment

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: Any) -> dict[str, Any] | None:
        return self._rows.get(key)

    def get_many(self, keys: Any) -> pa.Table:
        return self._rows.get_many(keys)

    def to_arrow(self) -> pa.Table:
        return self._rows.to_arrow()

    def to_duckdb(self, name: str) -> duckdb.DuckDBPyConnection:
        import duckdb

        database = duckdb.connect(database=":memory:")
        database.register(name, self.to_arrow())
        return database

    def apply(self, batches: Sequence[BlockingBatch], moment: Moment) -> LiveRows:
        schema, columns = batches[-1].schema, batches[-1].rows.schema
        tables = [self._fitted(batch.rows, batch.schema, schema, columns) for batch in batches]
        sets = np.concatenate([pc.is_in(batch.kinds, _SETS).to_numpy() for batch in batches])
        if self._rows.schema.equals(columns) and are_same_columns(columns.names, self._schema, schema):
            self._rows.apply(pa.concat_tables(tables), sets, moment)
            return self._bounded(batches[-1])
        changed = InMemory(schema, columns, self._bound)
        held = in_schema(self.to_arrow(), self._schema, schema, columns)
        changed._rows.apply(held, np.ones(held.num_rows, np.bool_), self.moment)
        changed._rows.apply(pa.concat_tables(tables), sets, moment)
        return changed._bounded(batches[-1])

    def _bounded(self, last: BlockingBatch) -> LiveRows:
        """What holds the rows from now on, after a batch."""
        if self.nbytes <= self._bound.max_bytes:
            return self
        rows = self.to_arrow()
        on_disk = OnDisk(self._schema, rows.schema, self._bound)
        return on_disk.apply([state_of(last, rows)], self.moment)

    def reach(self, moment: Moment) -> None:
        self._rows.reach(moment)

    @staticmethod
    def _fitted(rows: pa.Table, old: TableSchema, new: TableSchema, columns: pa.Schema) -> pa.Table:
        if rows.schema.equals(columns) and are_same_columns(columns.names, old, new):
            return rows
        return in_schema(rows, old, new, columns)
