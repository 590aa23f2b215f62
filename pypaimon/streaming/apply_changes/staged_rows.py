"""`StagedRows`: the rows of a plan until it is at its end, in memory and beyond a bound on disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress

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
        self._stored = _Stored(self._schema)
        self._keys_of_batches: list[pa.Table] = []

    def add(self, rows: pa.Table, gone: pa.Table | None = None) -> None:
        """Add what a batch comes to.

        Args:
            rows: Rows to set, or to add where there are no keys.
            gone: Rows to take away, of other keys; None: none.
        """
        if self._keys:
            rows = pa.concat_tables([_marked(rows, False), *([] if gone is None else [_marked(gone, True)])])
            self._keys_of_batches.append(rows.select(self._keys))
        self._stored.write(rows)

    def changes(self) -> pa.RecordBatchReader:
        """All rows; with keys the last one of each key, and in column `IS_GONE` whether it is to be taken away."""
        if len(self._keys_of_batches) > 1:
            self._keep_last_of_keys()
        return self._stored.reader()

    def rows(self) -> pa.RecordBatchReader:
        """The rows that are there after the plan, where none was before it."""
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
        """The keys of all rows, each once."""
        return pa.concat_tables(self._keys_of_batches).group_by(self._keys).aggregate([])

    def has_nulls(self, key: str) -> bool:
        """Whether a column of the key has nulls."""
        return any(batch[key].null_count for batch in self._keys_of_batches)

    def close(self) -> None:
        """Let go of the rows. Idempotent."""
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
    """Rows in memory, or in a file. What reads them has nothing of Python.

    Deltalake lets go of a reader on a thread of its own, which ends the interpreter if that is exiting meanwhile and
    the reader needs it.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches: list[pa.Table] = []
        self._size = 0
        self._writer: pa.RecordBatchWriter | None = None
        self._sink: pa.OSFile | None = None
        self._source: pa.OSFile | None = None

    def write(self, rows: pa.Table) -> None:
        """Add rows."""
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
        """All of them, after which there are no more."""
        if self._writer is None:
            return pa.concat_tables([self._schema.empty_table(), *self._batches]).to_reader()
        assert self._sink is not None
        self._writer.close()
        self._sink.close()
        return pa.ipc.open_stream(self._source)

    def close(self) -> None:
        """Let go of them. Idempotent."""
        self._batches = []
        # Whoever still reads closes what it reads from.
        self._source = None
        if self._sink is not None:
            self._sink.close()

    def _begin_file(self) -> None:
        handle, path = tempfile.mkstemp(prefix="pypaimon-")
        os.close(handle)
        self._sink, self._source = pa.OSFile(path, "wb"), pa.OSFile(path)
        self._writer = pa.ipc.new_stream(self._sink, self._schema)
        # What is open needs no name, and goes with a process that is killed.
        with suppress(PermissionError):
            os.remove(path)


def _marked(rows: pa.Table, is_gone: bool) -> pa.Table:
    return rows.append_column(IS_GONE, pa.repeat(pa.scalar(is_gone), rows.num_rows))
