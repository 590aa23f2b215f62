"""`StagedRows`: the rows of a plan until it is at its end, in memory and beyond a bound on disk."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from tempfile import SpooledTemporaryFile

import pyarrow as pa
import pyarrow.compute as pc

IS_GONE = "_paimon_is_gone"
"""Column of `StagedRows.changes`: whether the row of the key is to be taken away."""
_IN_MEMORY = 64 << 20
_NUMBER = "_paimon_number"


class StagedRows:
    """The rows of a plan, of which a key may have one in several batches. Calls block, one at a time.

    Beyond 64 MB they are in a temporary file. Of a plan of several batches the keys are kept in memory.

    Args:
        schema: Of the rows.
        keys: Columns of the key; none: rows are only added.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        self._keys = list(keys)
        self._schema = schema.append(pa.field(IS_GONE, pa.bool_())) if keys else schema
        self._file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 (close() ends it)
        # Of a plan whose target is let go in its midst.
        weakref.finalize(self, self._file.close)
        self._writer = pa.ipc.new_stream(self._file, self._schema)
        self._keys_of_batches: list[pa.Table] = []

    def add(self, rows: pa.Table, gone: pa.Table | None = None) -> None:
        """Add what a batch comes to.

        Args:
            rows: Rows to set, or to add where there are no keys.
            gone: Rows to take away, of other keys; None: none.
        """
        parts = [rows]
        if self._keys:
            parts = [_marked(rows, False), *([] if gone is None else [_marked(gone, True)])]
        whole = pa.concat_tables(parts)
        self._writer.write_table(whole)
        if self._keys:
            self._keys_of_batches.append(whole.select(self._keys))

    def changes(self) -> pa.RecordBatchReader:
        """All rows; with keys the last one of each key, and in column `IS_GONE` whether it is to be taken away."""
        self._writer.close()
        self._file.seek(0)
        reader = pa.ipc.open_stream(self._file)
        if len(self._keys_of_batches) < 2:
            return reader
        return pa.RecordBatchReader.from_batches(self._schema, _of_numbers(reader, self._last_of_keys()))

    def rows(self) -> pa.RecordBatchReader:
        """The rows that are there after the plan, where none was before it."""
        changes = self.changes()
        if not self._keys:
            return changes
        schema = self._schema.remove(len(self._schema) - 1)
        kept = (batch.filter(pc.invert(batch[IS_GONE])).select(schema.names) for batch in changes)
        return pa.RecordBatchReader.from_batches(schema, kept)

    def has_nulls(self, key: str) -> bool:
        """Whether a column of the key has nulls."""
        return any(batch[key].null_count for batch in self._keys_of_batches)

    def close(self) -> None:
        """Let go of the rows. Idempotent."""
        self._file.close()

    def _last_of_keys(self) -> pa.Array:
        """The number of the last row of each key, in order."""
        keys = pa.concat_tables(self._keys_of_batches)
        numbered = keys.append_column(_NUMBER, pa.array(range(keys.num_rows), pa.int64()))
        found = numbered.group_by(self._keys).aggregate([(_NUMBER, "max")])[f"{_NUMBER}_max"]
        return found.combine_chunks().sort()


def _marked(rows: pa.Table, is_gone: bool) -> pa.Table:
    return rows.append_column(IS_GONE, pa.repeat(pa.scalar(is_gone), rows.num_rows))


def _of_numbers(batches: pa.RecordBatchReader, numbers: pa.Array) -> Iterator[pa.RecordBatch]:
    """The rows of these numbers, counted through all batches."""
    ordered = numbers.to_numpy()
    begin = 0
    for batch in batches:
        end = begin + batch.num_rows
        first, last = ordered.searchsorted([begin, end])
        yield batch.take(pa.array(ordered[first:last] - begin))
        begin = end
