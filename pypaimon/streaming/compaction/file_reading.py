"""`FileReader`: the rows of data files, all columns of them, as they are to be written again.

Small files are fetched whole, by one request, wherever they lie: nearly all of their bytes are needed, and those around
the footer of a Parquet file would be read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.compaction.live_files import LiveFile
from pypaimon.streaming.errors import BadRowError, CorruptTableError
from pypaimon.streaming.files.data_files import content_of, read_file
from pypaimon.streaming.files.deletion_vectors import IndexBlocks, PlanVectors
from pypaimon.streaming.internals import DataField, TableSchema
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.arrow_types import arrow_schema
from pypaimon.streaming.model.normal_form import UnfitValueError, normal_array
from pypaimon.streaming.model.system_columns import LEVEL, PLACE, SEQUENCE_NUMBER, VALUE_KIND

_BATCH_ROWS = 65_536
_STORED = (SEQUENCE_NUMBER, VALUE_KIND)


class FileReader:
    """Reads files of one table under its schema.

    Args:
        table: pypaimon's table.
        directory: Where it lies.
        check: Called with each batch; raises what is to end the reading.
    """

    def __init__(self, table: Any, directory: TableDirectory, check: Callable[[], None]) -> None:
        self._fields = list(table.fields)
        self._keys = list(table.primary_keys_fields) if table.is_primary_key_table else []
        self._types = arrow_schema(self._fields)
        self._schema_id = int(table.table_schema.id)
        self._directory = directory
        self._check = check
        self._blocks = IndexBlocks(directory.store)
        self._vectors = PlanVectors(self._blocks, ())
        self._looked_at: tuple[str, bytes | pa.Buffer | None] | None = None

    def expecting(self, files: Iterable[LiveFile]) -> FileReader:
        """The same, for one thread, which asks once for the deletion vectors of these files that lie together."""
        reader = copy(self)
        reader._vectors = PlanVectors(self._blocks, [file.deletions for file in files])
        return reader

    def schema(self, schema_id: int) -> TableSchema:
        """A schema of the table.

        Raises:
            FileNotFoundError: There is no such schema.
            CorruptTableError: It cannot be decoded.
            StoreError: The store failed.
        """
        return self._directory.schema(schema_id)

    def rows(self, file: LiveFile) -> Iterator[pa.RecordBatch]:
        """The rows of a file of an append table that its deletion vector leaves.

        Raises:
            CorruptTableError: The file is damaged.
            FileNotFoundError: It is missing.
            StoreError: The store failed.
        """
        for _, batch in self._kept(file, self._batches(file, self._fields, (), _BATCH_ROWS)):
            yield batch

    def records(
        self,
        files: Sequence[LiveFile],
        *,
        levels: bool,
        shared_by: int = 1,
        places: Mapping[str, int] | None = None,
        keys_only: Callable[[LiveFile], bool] = lambda file: False,
    ) -> Iterator[pa.RecordBatch]:
        """The records of files of a primary-key table that follow each other, and that their vectors leave: values,
        number, kind.

        Args:
            files: They, in key order.
            levels: Whether the level of each file comes too.
            shared_by: How many such calls are read at the same time; batches are smaller then.
            places: The place of the first record of files, by name; records of others have the place -1. None: places
                do not come.
            keys_only: Of which files only the keys are read; other values are null.

        Errors as `rows`.
        """
        length = max(1024, _BATCH_ROWS // shared_by)
        for file in files:
            fields = self._keys if keys_only(file) else self._fields
            for positions, batch in self._kept(file, self._batches(file, fields, _STORED, length)):
                if levels:
                    level = pa.repeat(pa.scalar(file.level, pa.int32()), batch.num_rows)
                    batch = batch.append_column(LEVEL, level)
                if places is not None:
                    first = places.get(file.name)
                    there = np.full(batch.num_rows, -1) if first is None else positions + first
                    batch = batch.append_column(PLACE, pa.array(there, pa.int64()))
                yield batch if fields is self._fields else self._padded(batch)

    def kinds(self, file: LiveFile) -> Iterator[pa.Array]:
        """The row kinds of the records of a file, which is not fetched again if it is read next. Errors as `rows`."""
        content = self._content(file)
        self._looked_at = file.name, content
        for batch in read_file(
            self._directory, file.read, [], schema_id=self._schema_id, system_columns=(VALUE_KIND,), content=content
        ):
            yield batch.column(VALUE_KIND)

    def damaged(self, files: Sequence[LiveFile], error: BadRowError) -> CorruptTableError:
        """What it means that a row of files cannot be written again: the file that holds it is damaged."""
        cause = error.__cause__
        field = next((each for each in self._fields if each.name == getattr(cause, "column", None)), None)
        if field is None or not isinstance(cause, UnfitValueError):
            return CorruptTableError(_directory_of(files), str(error).rstrip("."))
        path = next((str(file.read.file_path) for file in files if not self._fits(file, field)), _directory_of(files))
        return CorruptTableError(path, f"column '{field.name}' is {field.type}, and {cause.problem}")

    def _fits(self, file: LiveFile, field: DataField) -> bool:
        """Whether all values of a column of a file may be in it."""
        try:
            for batch in self._batches(file, [field], (), _BATCH_ROWS):
                normal_array(batch.column(0), self._types.field(field.name))
        except UnfitValueError:
            return False
        return True

    def _kept(
        self, file: LiveFile, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[npt.NDArray[np.int64], pa.RecordBatch]]:
        """What the file's deletion vector leaves, none empty, and where in the file it lies."""
        vector = None
        if file.deletions is not None:
            vector = self._vectors.read(file.deletions, int(file.read.row_count))
        first = 0
        for batch in batches:
            positions, mask = np.arange(first, first + batch.num_rows), None
            if vector is not None:
                mask = vector.keep_mask(first, batch.num_rows)
            first += batch.num_rows
            if mask is not None:
                batch, positions = batch.filter(mask), positions[mask.to_numpy(zero_copy_only=False)]
            if batch.num_rows:
                yield positions, batch

    def _padded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """With all columns, those that were not read as nulls."""
        there = set(batch.schema.names)
        hidden = [name for name in batch.schema.names if name not in self._types.names]
        arrays = [
            batch.column(field.name) if field.name in there else pa.nulls(batch.num_rows, field.type)
            for field in self._types
        ]
        names = [*self._types.names, *hidden]
        return pa.RecordBatch.from_arrays([*arrays, *(batch.column(name) for name in hidden)], names=names)

    def _batches(
        self, file: LiveFile, fields: Sequence[DataField], system_columns: Sequence[str], length: int
    ) -> Iterator[pa.RecordBatch]:
        for batch in read_file(
            self._directory,
            file.read,
            fields,
            schema_id=self._schema_id,
            system_columns=system_columns,
            batch_size=length,
            content=self._content(file),
        ):
            self._check()
            yield batch

    def _content(self, file: LiveFile) -> bytes | pa.Buffer | None:
        """The bytes of a small file."""
        found, self._looked_at = self._looked_at, None
        return found[1] if found is not None and found[0] == file.name else content_of(self._directory, file.read)


def _directory_of(files: Sequence[LiveFile]) -> str:
    return str(files[0].read.file_path).rpartition("/")[0]
