"""`FileReader`: the rows of data files, all columns of them, as they are to be written again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from pypaimon.streaming.compaction.live_files import LiveFile
from pypaimon.streaming.files import deletion_vectors
from pypaimon.streaming.files.data_files import read_file
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.system_columns import LEVEL, SEQUENCE_NUMBER, VALUE_KIND

_BATCH_ROWS = 65_536


class FileReader:
    """Reads files of one table under its schema.

    Args:
        table: pypaimon's table.
        directory: Where it lies.
        check: Called with each batch; raises what is to end the reading.
    """

    def __init__(self, table: Any, directory: TableDirectory, check: Callable[[], None]) -> None:
        self._fields = list(table.fields)
        self._schema_id = int(table.table_schema.id)
        self._directory = directory
        self._check = check

    def rows(self, file: LiveFile) -> Iterator[pa.RecordBatch]:
        """The rows of a file of an append table that its deletion vector leaves.

        Raises:
            CorruptTableError: The file is damaged.
            FileNotFoundError: It is missing.
            StoreError: The store failed.
        """
        vector = None
        if file.deletions is not None:
            vector = deletion_vectors.read(self._directory.store, file.deletions, int(file.read.row_count))
        position = 0
        for batch in self._batches(file, (), _BATCH_ROWS):
            kept = batch if vector is None else batch.filter(vector.keep_mask(position, batch.num_rows))
            position += batch.num_rows
            if kept.num_rows:
                yield kept

    def records(self, files: Sequence[LiveFile], *, levels: bool, shared_by: int = 1) -> Iterator[pa.RecordBatch]:
        """The records of files of a primary-key table that follow each other: values, number, kind.

        Args:
            files: They, in key order.
            levels: Whether the level of each file comes too.
            shared_by: How many such calls are read at the same time; batches are smaller then.

        Errors as `rows`.
        """
        for file in files:
            for batch in self._batches(file, (SEQUENCE_NUMBER, VALUE_KIND), max(1024, _BATCH_ROWS // shared_by)):
                if levels:
                    level = pa.repeat(pa.scalar(file.level, pa.int32()), batch.num_rows)
                    batch = batch.append_column(LEVEL, level)
                yield batch

    def kinds(self, file: LiveFile) -> Iterator[pa.Array]:
        """The row kinds of the records of a file, and nothing else of it. Errors as `rows`."""
        for batch in read_file(self._directory, file.read, [], schema_id=self._schema_id, system_columns=(VALUE_KIND,)):
            yield batch.column(VALUE_KIND)

    def _batches(self, file: LiveFile, system_columns: Sequence[str], length: int) -> Iterator[pa.RecordBatch]:
        for batch in read_file(
            self._directory,
            file.read,
            self._fields,
            schema_id=self._schema_id,
            system_columns=system_columns,
            batch_size=length,
        ):
            self._check()
            yield batch
