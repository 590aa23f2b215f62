"""`RecordWriter`: Arrow batches with row kinds into new files of a table, through pypaimon's writers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.internals import CoreOptions, GenericRow, GenericRowSerializer, RowKind
from pypaimon.streaming.merge.engines.factory import merge_engine
from pypaimon.streaming.merge.merge_on_read import merge_records
from pypaimon.streaming.metadata.file_paths import FilePaths, SpelledPath
from pypaimon.streaming.model.system_columns import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND
from pypaimon.streaming.options.table_traits import merge_engine_of
from pypaimon.streaming.write_internals import (
    AppendOnlyDataWriter,
    BucketMode,
    ChangelogProducer,
    DataWriter,
    FileStoreWrite,
    FixedBucketRowKeyExtractor,
    KeyValueDataWriter,
    PostponeDataWriter,
)
from pypaimon.streaming.writing.bucket_hash import BucketKeys
from pypaimon.streaming.writing.write_state import NO_SEQUENCE, WriteState, write_state

_NEWEST = {"merge-engine": "deduplicate"}
_RETRACTS = pa.array([RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value], pa.int8())


class RecordWriter:
    """Writes the rows of one task. Not for several threads.

    Args:
        table: pypaimon's table.
        user: Commit user.
        overwrite: Whether what is written replaces what is there.
        state: What is there already; None: it is found out when the first row comes.
    """

    def __init__(self, table: Any, user: str, overwrite: bool, state: WriteState | None = None) -> None:
        keys = BucketKeys.of(table)
        self._router = _Router(table.table_schema, keys) if keys else table.create_row_key_extractor(overwrite)
        self._write = _FileStoreWrite(table, user, overwrite, state)

    def check(self) -> None:
        """Find out early what cannot be merged.

        Raises:
            PaimonStreamError: The merge engine, or an option of it.
        """
        if self._write.table.is_primary_key_table:
            merge_engine(self._write.table.table_schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows: the table's columns, and for a primary-key table `VALUE_KIND` behind them."""
        for partition, bucket, rows in self._router.extract_partition_bucket_groups(batch):
            self._write.write(partition, bucket, batch if rows is None else batch.take(rows))

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the rows that are held in memory, in no file yet: as Arrow counts them."""
        return sum(writer.buffered_bytes for writer in self._write.data_writers.values())

    def prepare(self, identifier: int) -> list[Any]:
        """Finish the files: pypaimon's commit messages, which own them from now on."""
        messages: list[Any] = self._write.prepare_commit(identifier)
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
    def __init__(self, table: Any, user: str, overwrite: bool, state: WriteState | None) -> None:
        # pypaimon refuses tables that it does not merge; here they are merged by this library.
        merged_here = table.is_primary_key_table and not merge_engine_of(table.options.options.to_map()).keeps_newest
        super().__init__(table.copy_without_time_travel(_NEWEST) if merged_here else table, user)
        if merged_here:
            self.table, self.options = table, CoreOptions.copy(table.options)
            self._configure_data_file_prefix(user)
        self._overwrite = overwrite
        self._state = state
        if overwrite:
            # An overwrite has no changelog, as in Java.
            self.changelog_producer = ChangelogProducer.NONE

    def _create_data_writer(self, partition: tuple[Any, ...], bucket: int, options: Any) -> Any:
        mode = self.table.bucket_mode()
        self._check_overwrite(partition)
        settings: dict[str, Any] = {
            "table": self.table,
            "partition": partition,
            "bucket": bucket,
            "options": options,
            "changelog_producer": self.changelog_producer,
        }
        if mode == BucketMode.BUCKET_UNAWARE:
            return _AppendWriter(max_seq_number=0, **settings)
        if mode == BucketMode.POSTPONE_MODE:
            return _PostponedWriter(max_seq_number=NO_SEQUENCE, **settings)
        last = self._last_sequence(partition)
        if not self.table.is_primary_key_table:
            return _BucketedWriter(max_seq_number=last + 1, **settings)
        return _KeyedWriter(max_seq_number=last, **settings)

    def _check_overwrite(self, partition: tuple[Any, ...]) -> None:
        by_partition = self._overwrite and self.table.options.dynamic_partition_overwrite()
        if by_partition and any(value != value for value in partition):
            raise UnsupportedTableError(
                "A partition of NaN cannot be overwritten: pypaimon finds no rows of it to replace, since NaN is not "
                "equal to itself. Overwrite it from Java's writers, or write null instead of NaN."
            )

    def _last_sequence(self, partition: tuple[Any, ...]) -> int:
        """The sequence number after which those of new rows begin.

        Raises:
            UnsupportedTableError: The rows of the partition are divided into another number of buckets.
        """
        if self._state is None:
            self._state = write_state(self.table)
        buckets = self._state.rescaled.get(partition)
        if buckets is not None and not self._overwrite:
            values = dict(zip(self.table.partition_keys, partition, strict=True))
            raise UnsupportedTableError(
                f"The rows of partition {values} are divided into {buckets} buckets, and the table's option 'bucket' "
                f"is {self.table.total_buckets}: rows of one key would lie in two buckets. Overwrite the partition "
                "with its own rows first (INSERT OVERWRITE), or set 'bucket' back."
            )
        return self._state.sequence


class _PathsOfJava(DataWriter):
    """Puts files where Java looks for them, also below partitions that pypaimon spells otherwise."""

    @property
    def buffered_bytes(self) -> int:
        return int(self._buffer.nbytes)

    def _generate_file_path(self, file_name: str) -> str:
        row = GenericRow(list(self.partition), self.table.partition_keys_fields)
        paths = FilePaths.of(self.table.table_path, self.table.table_schema)
        (directory,) = paths.partitions(pa.array([GenericRowSerializer.to_bytes(row)], pa.binary()))
        path = paths.data_file(directory, self.bucket, file_name)
        if self.external_path_provider or not isinstance(path, SpelledPath):
            return str(super()._generate_file_path(file_name))
        return str(path)


class _AppendWriter(_PathsOfJava, AppendOnlyDataWriter):
    pass


class _BucketedWriter(_AppendWriter):
    """Numbers the rows of a bucket of an append table in their order, as Java does: so files are read and compacted."""

    def _write_data_to_file(self, data: pa.Table) -> None:
        numbers = self.sequence_generator
        numbers.current = numbers.start + data.num_rows - 1
        super()._write_data_to_file(data)
        numbers.start = numbers.current = numbers.current + 1


class _KindsInColumn(_PathsOfJava, KeyValueDataWriter):
    """Takes the row kind from a column that the table lacks."""

    def _add_system_fields(self, data: pa.RecordBatch) -> pa.RecordBatch:
        kinds = data.column(VALUE_KIND)
        values = data.drop_columns([VALUE_KIND])
        first = self.sequence_generator.current + 1
        self.sequence_generator.current += data.num_rows
        sequence = pa.array(np.arange(first, first + data.num_rows, dtype=np.int64))
        names = {name: KEY_PREFIX + name for name in self.trimmed_primary_keys}
        keys = {copy: values.schema.field(name).with_name(copy) for name, copy in names.items()}
        system = [pa.field(SEQUENCE_NUMBER, pa.int64(), False), pa.field(VALUE_KIND, pa.int8(), False)]
        return pa.RecordBatch.from_arrays(
            [*(values.column(name) for name in self.trimmed_primary_keys), sequence, kinds, *values.columns],
            schema=pa.schema([*keys.values(), *system, *values.schema]),
        )


class _KeyedWriter(_KindsInColumn):
    def _merge_pending_by_pk(self, data: pa.Table) -> pa.Table:
        if data.num_rows < 2:
            return data
        if not merge_engine_of(self.options.options.to_map()).keeps_newest:
            return self._merged(data)
        # Sorted by key and sequence: the last row of each key stays.
        last = np.zeros(data.num_rows, dtype=bool)
        last[-1] = True
        for name in self.trimmed_primary_keys:
            column = data.column(name).combine_chunks()
            same = pc.equal(column.slice(0, len(column) - 1), column.slice(1))
            last[:-1] |= ~pc.fill_null(same, False).to_numpy(zero_copy_only=False)
        return data.filter(pa.array(last))

    def _merged(self, data: pa.Table) -> pa.Table:
        """One record per key, as the merge engine makes it."""
        records = data.combine_chunks().drop_columns([KEY_PREFIX + name for name in self.trimmed_primary_keys])
        merged = merge_records(records.to_batches()[0], merge_engine(self.table.table_schema))
        keys = {KEY_PREFIX + name: name for name in self.trimmed_primary_keys}
        return pa.Table.from_arrays(
            [merged.column(keys.get(each, each)) for each in data.schema.names], schema=data.schema
        )

    def _write_data_to_file(self, data: pa.Table) -> None:
        files, changelogs = len(self.committed_files), len(self.committed_changelog_files)
        super()._write_data_to_file(data)
        # A reader must know of deletes: without them it takes a file without merging it.
        deletes = int(pc.sum(pc.is_in(data.column(VALUE_KIND), _RETRACTS)).as_py() or 0)
        for file in (*self.committed_files[files:], *self.committed_changelog_files[changelogs:]):
            file.delete_row_count = deletes


class _PostponedWriter(_KindsInColumn, PostponeDataWriter):
    pass
