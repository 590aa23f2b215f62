"""`PlanStaging`: the rows of the plans of one commit, kept until it is made; on disk beyond a bound."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.targets.changes import AnyBatch, inserts, last_changes
from pypaimon.streaming.targets.target_state import Saved, SavedState


class PlanStaging:
    """The rows of a commit, and their columns. Calls block, one at a time.

    Args:
        keys: The key columns; empty: rows are appended.

    Attributes:
        columns_before: The columns that were written to before, or None.
    """

    def __init__(
        self, first: AnyBatch, saved: Saved | None, keys: Sequence[str], fitted: Callable[[pa.Table], pa.Table]
    ) -> None:
        self.first = first
        self._keys = keys
        self._fitted = fitted
        self.schema = fitted(first.rows.slice(0, 0)).schema
        self.columns = SavedState.of(first, [(field.name, str(field.type)) for field in self.schema], keys)
        self.columns_before = None if saved is None or saved.columns is None else SavedState.from_json(saved.columns)
        self.rows = RowStaging(self.schema, keys)

    def add(self, batch: AnyBatch) -> None:
        sets, gone = last_changes(batch, self._keys) if self._keys else (inserts(batch), None)
        self.rows.add(self._fitted(sets), None if gone is None else self._fitted(gone))

    def saved(self, position: str) -> Saved:
        return Saved(position, self.columns.to_json())

    def close(self) -> None:
        self.rows.close()


IS_GONE = "_paimon_is_gone"
"""Column of `RowStaging.changes`: whether the row of the key is deleted."""
_IN_MEMORY = 64 << 20
_NUMBER = "_paimon_number"


class RowStaging:
    """The rows of a commit; several batches may change one key. Calls block, one at a time.

    Beyond 64 MB the rows are in a temporary file. The keys of several batches are kept in memory.

    Args:
        keys: The key columns; empty: rows are appended.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        self._keys = list(keys)
        self._schema = schema.append(pa.field(IS_GONE, pa.bool_())) if keys else schema
        self._stored = _Stored(self._schema)
        self._keys_of_batches: list[pa.Table] = []

    def add(self, rows: pa.Table, gone: pa.Table | None = None) -> None:
        """Add the changes of a batch.

        Args:
            gone: Rows to delete, of other keys, or None.
        """
        if self._keys:
            rows = pa.concat_tables([_marked(rows, False), *([] if gone is None else [_marked(gone, True)])])
            self._keys_of_batches.append(rows.select(self._keys))
        self._stored.write(rows)

    def changes(self) -> pa.RecordBatchReader:
        """All rows. With keys: the last row of each key, and in column `IS_GONE` whether it is deleted."""
        if len(self._keys_of_batches) > 1:
            self._keep_last_of_keys()
        return self._stored.reader()

    def rows(self) -> pa.RecordBatchReader:
        """The rows that a table without other rows holds after the commit."""
        reader = self.changes()
        if not self._keys:
            return reader
        names = self._schema.names[:-1]
        kept = _Stored(pa.schema([self._schema.field(name) for name in names]))
        for batch in reader:
            kept.write(pa.table(batch.filter(pc.invert(batch[IS_GONE]))).select(names))
        self._replace(kept)
        return kept.reader()

    def keys(self) -> pa.Table:
        return pa.concat_tables(self._keys_of_batches).group_by(self._keys).aggregate([])

    def has_nulls(self, key: str) -> bool:
        return any(batch[key].null_count for batch in self._keys_of_batches)

    def close(self) -> None:
        self._stored.close()

    def _keep_last_of_keys(self) -> None:
        keys = pa.concat_tables(self._keys_of_batches)
        numbered = keys.append_column(_NUMBER, pa.array(range(keys.num_rows), pa.int64()))
        found = numbered.group_by(self._keys).aggregate([(_NUMBER, "max")])[f"{_NUMBER}_max"]
        last = found.combine_chunks().sort().to_numpy()
        kept, begin = _Stored(self._schema), 0
        for batch in self._stored.reader():
            end = begin + batch.num_rows
            first, beyond = last.searchsorted([begin, end])
            kept.write(pa.table(batch.take(pa.array(last[first:beyond] - begin))))
            begin = end
        self._keys_of_batches = [keys.take(pa.array(last))]
        self._replace(kept)

    def _replace(self, stored: _Stored) -> None:
        before, self._stored = self._stored, stored
        before.close()


class _Stored:
    """Rows in memory, or in a file. Their readers are pure C++, without Python objects.

    deltalake frees a reader on a thread of its own. A reader that needs the interpreter crashes it if it is exiting.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches: list[pa.Table] = []
        self._size = 0
        self._writer: pa.RecordBatchWriter | None = None
        self._sink: pa.OSFile | None = None
        self._source: pa.OSFile | None = None

    def write(self, rows: pa.Table) -> None:
        if self._writer is None:
            self._batches.append(rows)
            self._size += rows.nbytes
            if self._size <= _IN_MEMORY:
                return
            self._begin_file()
            batches, self._batches = self._batches, []
        else:
            batches = [rows]
        assert self._writer is not None
        for each in batches:
            self._writer.write_table(each)

    def reader(self) -> pa.RecordBatchReader:
        """All rows. Call it after the last `write`."""
        if self._writer is None:
            return pa.concat_tables([self._schema.empty_table(), *self._batches]).to_reader()
        assert self._sink is not None
        self._writer.close()
        self._sink.close()
        return pa.ipc.open_stream(self._source)

    def close(self) -> None:
        self._batches = []
        # A reader that is still in use closes the file itself.
        self._source = None
        if self._sink is not None:
            self._sink.close()

    def _begin_file(self) -> None:
        handle, path = tempfile.mkstemp(prefix="pypaimon-")
        os.close(handle)
        self._sink, self._source = pa.OSFile(path, "wb"), pa.OSFile(path)
        self._writer = pa.ipc.new_stream(self._sink, self._schema)
        # An open file needs no name, and disappears with a killed process.
        with suppress(PermissionError):
            os.remove(path)


def _marked(rows: pa.Table, is_gone: bool) -> pa.Table:
    return rows.append_column(IS_GONE, pa.repeat(pa.scalar(is_gone), rows.num_rows))
