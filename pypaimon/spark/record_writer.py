"""`RecordWriter`: Arrow batches with row kinds into new files of a table, through pypaimon's writers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.spark.bucket_hash import BucketKeys
from pypaimon.spark.internals import (
    BucketMode,
    ChangelogProducer,
    FileStoreWrite,
    FixedBucketRowKeyExtractor,
    KeyValueDataWriter,
    MergeEngine,
    PostponeDataWriter,
    RowKind,
)
from pypaimon.spark.schema_check import KIND

_RETRACTS = pa.array([RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value], pa.int8())


class RecordWriter:
    """Writes the rows of one task. Not for several threads.

    Args:
        table: pypaimon's table.
        user: Commit user.
        overwrite: Whether what is written replaces what is there.
    """

    def __init__(self, table: Any, user: str, overwrite: bool) -> None:
        keys = BucketKeys.of(table)
        self._router = _Router(table.table_schema, keys) if keys else table.create_row_key_extractor(overwrite)
        self._write = _FileStoreWrite(table, user, overwrite)

    def check(self) -> None:
        """Find out early what pypaimon cannot merge.

        Raises:
            NotImplementedError: The merge engine, or an option of it.
        """
        if self._write.table.is_primary_key_table:
            self._write._build_pk_merge_function()

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows: the table's columns, and for a primary-key table `KIND` behind them."""
        for partition, bucket, rows in self._router.extract_partition_bucket_groups(batch):
            self._write.write(partition, bucket, batch if rows is None else batch.take(rows))

    def prepare(self, batch: int) -> list[Any]:
        """Finish the files: pypaimon's commit messages, which own them from now on."""
        messages: list[Any] = self._write.prepare_commit(batch)
        return messages

    def close(self) -> None:
        """Forget everything; to be called after `prepare` or `abort`."""
        self._write.data_writers.clear()

    def abort(self) -> None:
        """Delete the files that no message owns. None of them was ever handed out."""
        self._write.abort()


class _Router(FixedBucketRowKeyExtractor):
    """Routes rows to buckets, hashing in bulk."""

    def __init__(self, schema: Any, keys: BucketKeys) -> None:
        super().__init__(schema)
        self._keys = keys

    def _extract_buckets_batch(self, batch: pa.RecordBatch) -> Any:
        return self._keys.buckets_of([batch.column(name) for name in self._keys.names])


class _FileStoreWrite(FileStoreWrite):
    def __init__(self, table: Any, user: str, overwrite: bool) -> None:
        super().__init__(table, user)
        if overwrite:
            # An overwrite has no changelog, as in Java.
            self.changelog_producer = ChangelogProducer.NONE

    def _create_data_writer(self, partition: tuple[Any, ...], bucket: int, options: Any) -> Any:
        if not self.table.is_primary_key_table:
            return super()._create_data_writer(partition, bucket, options)
        postponed = bucket == BucketMode.POSTPONE_BUCKET.value
        return (_PostponedWriter if postponed else _KeyedWriter)(
            table=self.table,
            partition=partition,
            bucket=bucket,
            max_seq_number=-1 if postponed else self._seq_number_stats(partition).get(bucket, -1),
            options=options,
            merge_function=self._build_pk_merge_function(),
            changelog_producer=self.changelog_producer,
        )


class _KindsInColumn(KeyValueDataWriter):
    """Takes the row kind from a column that the table lacks."""

    def _add_system_fields(self, data: pa.RecordBatch) -> pa.RecordBatch:
        kinds = data.column(KIND)
        values = data.drop_columns([KIND])
        first = self.sequence_generator.current + 1
        self.sequence_generator.current += data.num_rows
        sequence = pa.array(np.arange(first, first + data.num_rows, dtype=np.int64))
        keys = {
            f"_KEY_{name}": values.schema.field(name).with_name(f"_KEY_{name}") for name in self.trimmed_primary_keys
        }
        system = [pa.field("_SEQUENCE_NUMBER", pa.int64(), False), pa.field(KIND, pa.int8(), False)]
        return pa.RecordBatch.from_arrays(
            [*(values.column(name) for name in self.trimmed_primary_keys), sequence, kinds, *values.columns],
            schema=pa.schema([*keys.values(), *system, *values.schema]),
        )


class _KeyedWriter(_KindsInColumn):
    def _merge_pending_by_pk(self, data: pa.Table) -> pa.Table:
        if self.options.merge_engine() != MergeEngine.DEDUPLICATE or data.num_rows < 2:
            return super()._merge_pending_by_pk(data)
        # Sorted by key and sequence: the last row of each key stays.
        last = np.zeros(data.num_rows, dtype=bool)
        last[-1] = True
        for name in self.trimmed_primary_keys:
            column = data.column(name).combine_chunks()
            same = pc.equal(column.slice(0, len(column) - 1), column.slice(1))
            last[:-1] |= ~pc.fill_null(same, False).to_numpy(zero_copy_only=False)
        return data.filter(pa.array(last))

    def _write_data_to_file(self, data: pa.Table) -> None:
        files = len(self.committed_files)
        super()._write_data_to_file(data)
        # A reader must know of deletes: without them it takes a file without merging it.
        deletes = int(pc.sum(pc.is_in(data.column(KIND), _RETRACTS)).as_py() or 0)
        for file in self.committed_files[files:]:
            file.delete_row_count = deletes


class _PostponedWriter(_KindsInColumn, PostponeDataWriter):
    pass
