"""`InMemory`: plans of a stream applied to rows in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pypaimon.streaming.batches.batch import BlockingBatch
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.live_tables.column_changes import are_same_columns, in_schema
from pypaimon.streaming.live_tables.disk_place import MemoryBound
from pypaimon.streaming.live_tables.live_rows import LiveRows, Moment
from pypaimon.streaming.live_tables.memory_rows import MemoryRows
from pypaimon.streaming.live_tables.on_disk import OnDisk, state_of
from pypaimon.streaming.model import row_kinds

if TYPE_CHECKING:
    import duckdb  # type: ignore[import-not-found, unused-ignore]


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

    def apply(self, batch: BlockingBatch, moment: Moment | None) -> LiveRows:
        fitted = self._in_columns_of(batch)
        fitted._rows.apply(batch.rows, row_kinds.are_added(batch.kinds), moment)
        return fitted if fitted._rows.next_nbytes <= self._bound.max_bytes else fitted._moved(batch, moment)

    def reach(self, moment: Moment) -> None:
        self._rows.reach(moment)

    def _in_columns_of(self, batch: BlockingBatch) -> InMemory:
        """What holds the rows in the columns of a batch."""
        schema, columns = batch.schema, batch.rows.schema
        if self._rows.schema.equals(columns) and are_same_columns(columns.names, self._schema, schema):
            return self
        changed = InMemory(schema, columns, self._bound)
        for held in self._rows.next_batches():
            rows = in_schema(pa.table(held), self._schema, schema, columns)
            changed._rows.apply(rows, np.ones(rows.num_rows, np.bool_), None)
        return changed

    def _moved(self, last: BlockingBatch, moment: Moment | None) -> LiveRows:
        """What holds the rows on disk, after a batch."""
        columns = self._rows.schema
        on_disk = OnDisk(last.schema, columns, self._bound)
        on_disk.apply(state_of(last, columns.empty_table(), begins=True), None)
        for batch in self._rows.next_batches():
            on_disk.apply(state_of(last, pa.table(batch), begins=False), None)
        if moment is not None:
            on_disk.reach(moment)
        return on_disk
