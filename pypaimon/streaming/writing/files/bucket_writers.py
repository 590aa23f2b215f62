"""The writers of one bucket: `AppendBucket`, `PostponedBucket` and `KeyedBucket`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.merge.engines.engine import MergeEngine
from pypaimon.streaming.merge.merge_on_read import merge_records
from pypaimon.streaming.merge.ordering import Codes, KeyCodec, ranks, stable_order
from pypaimon.streaming.model.system_columns import KEY_PREFIX
from pypaimon.streaming.paimon.internals import DataFileMeta
from pypaimon.streaming.writing.files.file_options import BucketFiles
from pypaimon.streaming.writing.files.record_facts import AppendedFacts, Counter, KeyedFacts, RecordBuilder
from pypaimon.streaming.writing.files.rolling_files import BlobSource, RollingFiles


class AppendBucket:
    """Writes the rows of one bucket of an append table.

    Args:
        tracked: Whether the numbers of every file begin with 0, because the commit assigns them (row tracking).
        blobs: Columns of blobs in files of their own, and how blobs are made of their values.
    """

    def __init__(
        self, files: BucketFiles, first: int, *, tracked: bool = False, blobs: Mapping[str, BlobSource] | None = None
    ) -> None:
        counter = Counter(first)

        def facts() -> AppendedFacts:
            return AppendedFacts(Counter(0) if tracked else counter)

        self._rolling = RollingFiles(files, files.options.data, facts, blobs)

    @property
    def open_files(self) -> int:
        return self._rolling.open_files

    @property
    def buffered_bytes(self) -> int:
        return self._rolling.pending_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        """Buffer rows; a full buffer is written."""
        self._rolling.add(pa.Table.from_batches([batch]))

    def flush(self) -> None:
        """Write the buffered rows to the open file."""
        self._rolling.flush()

    def end_files(self) -> None:
        """Write the buffered rows, and end the open file."""
        self._rolling.end_file()

    def take(self) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
        """All data and changelog files; the caller owns them from now on."""
        return self._rolling.take(), []

    def abort(self) -> None:
        """Delete all files that were not taken, and the buffered rows."""
        self._rolling.abort()


class PostponedBucket(AppendBucket):
    """Writes the records of the postponed bucket: neither sorted nor merged, without changelog."""

    def __init__(self, files: BucketFiles, records: RecordBuilder) -> None:
        super().__init__(files, 0)
        self._records = records
        fields = files.table.key_fields
        self._rolling = RollingFiles(files, files.options.data, lambda: KeyedFacts(fields, files.options.thin))

    def add(self, batch: pa.RecordBatch) -> None:
        self._rolling.add(self._records.records_of(pa.Table.from_batches([batch])))


MOST_FLUSH_BYTES = 512 << 20
"""Most bytes of records to sort at once, so that the texts of a column stay below Arrow's 2 GB."""


class KeyedBucket:
    """Writes the records of one bucket, as Java's `MergeTreeWriter` does: each flush makes new files of level 0.

    Args:
        newest: Whether the newest record of a key is its row, so that no merging is needed.
        changelog: Whether every record is also written to changelog files (producer `input`).
    """

    # Every flush ends its files, so none stays open.
    open_files = 0

    def __init__(
        self, files: BucketFiles, engine: MergeEngine, newest: bool, records: RecordBuilder, changelog: bool
    ) -> None:
        self._engine = engine
        self._newest = newest
        self._records = records
        self._keys = files.table.key_names
        self._copies = {KEY_PREFIX + name: name for name in self._keys}
        fields = files.table.key_fields
        thin = files.options.thin
        self._data = RollingFiles(files, files.options.data, lambda: KeyedFacts(fields, thin))
        self._changelog = (
            RollingFiles(files, files.options.changelog, lambda: KeyedFacts(fields, thin)) if changelog else None
        )
        self._pending: list[pa.RecordBatch] = []
        self.buffered_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Buffer rows until `flush`, or until there are `MOST_FLUSH_BYTES`."""
        self._pending.append(batch)
        self.buffered_bytes += batch.nbytes
        if self.buffered_bytes >= MOST_FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows, sorted by key, sequence fields and number; data files have merged rows."""
        if not self._pending:
            return
        # Otherwise there would be as many chunks as there were calls, each of which costs every column some time.
        rows = pa.Table.from_batches(self._pending).combine_chunks()
        self._pending, self.buffered_bytes = [], 0
        records, last = self._sorted(self._records.records_of(rows))
        if self._changelog is not None:
            self._changelog.write(records)
            self._changelog.end_file()
        self._data.write(self._merged(records, last))
        self._data.end_file()

    def end_files(self) -> None:
        self.flush()

    def take(self) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
        """All data and changelog files; the caller owns them from now on."""
        self.flush()
        return self._data.take(), self._changelog.take() if self._changelog is not None else []

    def abort(self) -> None:
        self._pending, self.buffered_bytes = [], 0
        self._data.abort()
        if self._changelog is not None:
            self._changelog.abort()

    def _sorted(self, records: pa.Table) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
        """The records in the order of files, and whether each is the last of its key."""
        keys = [records[name].combine_chunks() for name in self._keys]
        codec = KeyCodec(len(keys))
        codec.fit(keys)
        codes = codec.encode(keys)
        in_order = not self._engine.sequence and bool((codes[1:] >= codes[:-1]).all())
        order = None if in_order else self._order(codes, records)
        ordered = codes if order is None else codes[order]
        last = np.ones(len(ordered), dtype=np.bool_)
        last[:-1] = ordered[1:] != ordered[:-1]
        if order is None:
            return records, last
        taken = self._without_copies(records).take(pa.array(order))
        return self._with_copies(taken, records.schema), last

    def _order(self, codes: Codes, records: pa.Table) -> npt.NDArray[np.int64]:
        if not self._engine.sequence:
            return stable_order(codes)
        fields: list[Codes] = []
        for name in self._engine.sequence:
            ranked = ranks(records[name].combine_chunks())
            # A null is the oldest in either direction.
            fields.append(ranked if self._engine.ascending else np.where(ranked == 0, np.iinfo(np.int64).min, -ranked))
        # `lexsort` is stable and its last key counts most, so equal records stay in the order of their numbers.
        return np.lexsort((*reversed(fields), codes))

    def _merged(self, records: pa.Table, last: npt.NDArray[np.bool_]) -> pa.Table:
        if last.all():
            return records
        if self._newest:
            return records.filter(pa.array(last))
        (batch,) = self._without_copies(records).combine_chunks().to_batches()
        return self._with_copies(merge_records(batch, self._engine), records.schema)

    def _without_copies(self, records: pa.Table) -> pa.Table:
        return records.drop_columns(list(self._copies))

    def _with_copies(self, records: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
        columns = [records.column(self._copies.get(name, name)) for name in schema.names]
        return pa.Table.from_arrays(columns, schema=schema)
