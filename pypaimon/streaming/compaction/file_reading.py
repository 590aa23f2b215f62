"""`FileReader`: the rows of data files with all their columns, to be written again.

Small files are fetched whole with one request: nearly all of their bytes are needed, and those around the footer of a
Parquet file would be read twice otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.compaction.live_files import LiveFile
from pypaimon.streaming.errors import BadRowError, CorruptTableError
from pypaimon.streaming.files.blob_files import BlobColumn
from pypaimon.streaming.files.data_files import content_of, located, read_file
from pypaimon.streaming.files.deletion_vectors import IndexBlocks, PlanVectors
from pypaimon.streaming.files.row_id_groups import RowIdGroup, join
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.merge import parts_of_run, rows_of_batch
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.arrow_types import arrow_schema
from pypaimon.streaming.model.normal_form import UnfitValueError, normal_array
from pypaimon.streaming.model.system_columns import LEVEL, PLACE, ROW_ID, SEQUENCE_NUMBER, VALUE_KIND
from pypaimon.streaming.paimon.internals import DataField, DataFileMeta, TableSchema
from pypaimon.streaming.reading.file_rows import numbered_by_snapshot

_BATCH_ROWS = 65_536
_SAMPLED_FILES, _SAMPLED_ROWS = 16, 4096
_STORED = (SEQUENCE_NUMBER, VALUE_KIND)
_TRACKED = (ROW_ID, SEQUENCE_NUMBER)


class FileReader:
    """Reads files of one table under its schema."""

    def __init__(self, table: PaimonTable, directory: TableDirectory, check: Callable[[], None]) -> None:
        self._fields = list(table.fields)
        self._keys = [field for name in table.primary_keys for field in self._fields if field.name == name]
        self._types = arrow_schema(self._fields)
        self._schema_id = int(table.schema.id)
        self._directory = directory
        self._check = check
        self._by_snapshot = bool(self._keys) and table.traits.snapshot_ordering
        self._blocks = IndexBlocks(directory.store)
        self._vectors = PlanVectors(self._blocks, ())
        self._last_content: tuple[str, bytes | pa.Buffer | None] | None = None

    def expecting(self, files: Iterable[LiveFile]) -> FileReader:
        """A copy for one thread, which requests the deletion vectors of these files together."""
        reader = copy(self)
        reader._vectors = PlanVectors(self._blocks, [file.deletions for file in files])
        return reader

    def schema(self, schema_id: int) -> TableSchema:
        """A schema of the table. Raises CorruptTableError if the schema does not exist."""
        try:
            return self._directory.schema(schema_id)
        except FileNotFoundError as error:
            # Schemas never expire.
            detail = "is missing, though data files were written under this schema"
            raise CorruptTableError(f"{self._directory.table.table_path}/schema/schema-{schema_id}", detail) from error

    def rows(self, file: LiveFile, *, tracked: bool = False) -> Iterator[pa.RecordBatch]:
        """The rows of a file of an append table, without those that its deletion vector marks. `tracked`: With their
        ids and sequence numbers.
        """
        for _, batch in self._kept(file, self._batches(file, self._fields, _TRACKED if tracked else (), _BATCH_ROWS)):
            yield batch

    def stored(self, file: LiveFile, fields: Sequence[DataField]) -> Iterator[pa.RecordBatch]:
        """All records of a file as it stores them, also deleted ones. `fields` are columns of the schema that it was
        written with. Raises as `rows`.
        """
        meta = file.read
        content = self._content(file)
        for batch in read_file(self._directory, meta, fields, schema_id=meta.schema_id, content=content):
            self._check()
            yield batch

    def joined(
        self,
        group: RowIdGroup,
        files: Mapping[str, LiveFile],
        fields: Sequence[DataField],
        blobs: Collection[DataField] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Columns of the rows of a group of data evolution, also of deleted ones. `files` are those of the group, by
        name; `blobs` those of the columns that have blob files, which come out as cells. Raises as `rows`.
        """

        def read(file: DataFileMeta, wanted: Sequence[DataField]) -> Iterator[pa.RecordBatch]:
            return self._batches(files[str(file.file_name)], wanted, (), _BATCH_ROWS)

        first, count = group.first_row_id, group.row_count
        cells = {field.name: self.blobs(field, first, count, group.blob_files) for field in blobs}
        return join(group, fields, self.schema, read, {}, _BATCH_ROWS, cells)

    def located(self, file: LiveFile) -> str:
        """The path of a file."""
        return located(self._directory, file.read.file_path)

    @property
    def store(self) -> Store:
        return self._directory.store

    def blobs(
        self, field: DataField, first_row_id: int, row_count: int, newest_first: Sequence[DataFileMeta]
    ) -> BlobColumn:
        """A column of blobs of consecutive rows, from these files. Raises FileNotFoundError if one is missing."""
        return BlobColumn(field, first_row_id, row_count, newest_first, self._directory)

    def deleted(self, file: LiveFile) -> npt.NDArray[np.uint64]:
        """Positions of the rows that the deletion vector of a file marks."""
        if file.deletions is None:
            return np.empty(0, np.uint64)
        return self._vectors.read(file.deletions, int(file.read.row_count)).positions

    def sample(self, files: Sequence[LiveFile], names: Sequence[str]) -> pa.Table:
        """The first rows of a few of the files, which are spread over all of them, with some columns."""
        fields = [field for field in self._fields if field.name in names]
        step = -(-len(files) // _SAMPLED_FILES)
        found = (next(self._batches(file, fields, (), _SAMPLED_ROWS), None) for file in files[::step])
        schema = pa.schema([self._types.field(field.name) for field in fields])
        parts = [pa.Table.from_batches([each]).cast(schema) for each in found if each is not None]
        return pa.concat_tables([schema.empty_table(), *parts])

    def records(
        self,
        files: Sequence[LiveFile],
        *,
        levels: bool,
        shared_by: int = 1,
        places: Mapping[str, int] | None = None,
        keys_only: Callable[[LiveFile], bool] = lambda file: False,
    ) -> Iterator[pa.RecordBatch]:
        """The records of consecutive files of a primary-key table, without those that deletion vectors mark.

        Each has its values, its sequence number and its kind; with `sequence.snapshot-ordering` its snapshot is its
        sequence number, and the one that it was written with is added.

        Args:
            shared_by: Number of such calls that are read at the same time; see `rows_of_batch`.
            places: The place of the first record of each file, by its name. Records of other files have the place -1.
                None: places are not added.
            keys_only: For which files only the keys are read. Their other values are null.

        Raises:
            FileNotFoundError: A file is missing.
        """
        for file in files:
            fields = self._keys if keys_only(file) else self._fields
            for batch in self._records(file, fields, levels, shared_by, places):
                batch = batch if fields is self._fields else self.padded(batch)
                yield from parts_of_run(batch, shared_by)

    def keys(self, file: LiveFile, places: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
        """As `records`, with levels and places, of the values only the keys. `padded` adds the others."""
        yield from self._records(file, self._keys, True, 1, places)

    def padded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of records with the columns of the table that it lacks, which are null."""
        there = set(batch.schema.names)
        hidden = [name for name in batch.schema.names if name not in self._types.names]
        arrays = [
            batch.column(field.name) if field.name in there else pa.nulls(batch.num_rows, field.type)
            for field in self._types
        ]
        names = [*self._types.names, *hidden]
        return pa.RecordBatch.from_arrays([*arrays, *(batch.column(name) for name in hidden)], names=names)

    def _records(
        self,
        file: LiveFile,
        fields: Sequence[DataField],
        levels: bool,
        shared_by: int,
        places: Mapping[str, int] | None,
    ) -> Iterator[pa.RecordBatch]:
        length = rows_of_batch(shared_by, _BATCH_ROWS)
        for positions, batch in self._kept(file, self._batches(file, fields, _STORED, length)):
            if self._by_snapshot:
                batch = numbered_by_snapshot(file.read, batch)
            if levels:
                level = pa.repeat(pa.scalar(file.level, pa.int32()), batch.num_rows)
                batch = batch.append_column(LEVEL, level)
            if places is not None:
                first = places.get(file.name)
                there = np.full(batch.num_rows, -1) if first is None else positions + first
                batch = batch.append_column(PLACE, pa.array(there, pa.int64()))
            yield batch

    def kinds(self, file: LiveFile) -> Iterator[pa.Array]:
        """The row kinds of the records of a file, which is not fetched again if it is read next. Raises as `rows`."""
        content = self._content(file)
        self._last_content = file.name, content
        for batch in read_file(
            self._directory, file.read, [], schema_id=self._schema_id, system_columns=(VALUE_KIND,), content=content
        ):
            yield batch.column(VALUE_KIND)

    def damaged(self, files: Sequence[LiveFile], error: BadRowError) -> CorruptTableError:
        """The error for a row that cannot be written again: the file that holds it is damaged."""
        cause = error.__cause__
        field = next((each for each in self._fields if each.name == getattr(cause, "column", None)), None)
        if field is None or not isinstance(cause, UnfitValueError):
            return CorruptTableError(_directory_of(files), str(error).rstrip("."))
        path = next((str(file.read.file_path) for file in files if not self._fits(file, field)), _directory_of(files))
        return CorruptTableError(path, f"column '{field.name}' is {field.type}, and {cause.problem}")

    def _fits(self, file: LiveFile, field: DataField) -> bool:
        try:
            for batch in self._batches(file, [field], (), _BATCH_ROWS):
                normal_array(batch.column(0), self._types.field(field.name))
        except UnfitValueError:
            return False
        return True

    def _kept(
        self, file: LiveFile, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[npt.NDArray[np.int64], pa.RecordBatch]]:
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
        found, self._last_content = self._last_content, None
        return found[1] if found is not None and found[0] == file.name else content_of(self._directory, file.read)


def _directory_of(files: Sequence[LiveFile]) -> str:
    return str(files[0].read.file_path).rpartition("/")[0]
