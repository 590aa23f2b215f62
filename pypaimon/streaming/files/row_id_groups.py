"""Files of data evolution: the files that hold columns of the same rows, joined column by column."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import pyarrow as pa

from pypaimon.streaming.errors import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.files.blob_files import BLOB_SUFFIXES, is_blob_file, row_range
from pypaimon.streaming.model.arrow_types import arrow_schema, arrow_type
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.table_traits import BlobStorage
from pypaimon.streaming.paimon.internals import DataField, DataFileMeta, TableSchema, VectorType

VECTOR_FILE = ".vector."
"""Names of files of vectors have this before the suffix of their format."""

ReadFields = Callable[[DataFileMeta, Sequence[DataField]], Iterator[pa.RecordBatch]]


class ColumnPart(Protocol):
    """Some columns of the rows of a group, in pieces of any length."""

    def available(self) -> int:
        """How many rows can be taken now, at least one."""

    def take(self, length: int) -> pa.RecordBatch:
        """The next rows."""


class BufferedPart:
    """A `ColumnPart` made of record batches."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._batch: pa.RecordBatch | None = None

    def available(self) -> int:
        while self._batch is None or not self._batch.num_rows:
            self._batch = next(self._batches)
        return int(self._batch.num_rows)

    def take(self, length: int) -> pa.RecordBatch:
        assert self._batch is not None
        taken = self._batch.slice(0, length)
        self._batch = self._batch.slice(length)
        return taken


@dataclass(frozen=True, slots=True)
class RowIdGroup:
    """Files that cover the same row ids."""

    first_row_id: int
    row_count: int
    files: tuple[DataFileMeta, ...]
    blob_files: tuple[DataFileMeta, ...] = ()
    vector_files: tuple[DataFileMeta, ...] = ()

    @property
    def end(self) -> int:
        """The row id after the last one."""
        return self.first_row_id + self.row_count

    @property
    def newest(self) -> int:
        return int((self.files or self.blob_files or self.vector_files)[0].max_sequence_number)


def row_id_groups(files: Sequence[DataFileMeta]) -> list[RowIdGroup]:
    """Group files by row ids, in the order of these. Raises UnsupportedTableError if a file has no row ids, or the row
    ids of two files overlap partly.
    """
    for file in files:
        if file.first_row_id is None:
            raise UnsupportedTableError(f"{file.file_name} has no row ids, which data evolution needs.")
    newest_first = sorted(files, key=lambda file: file.max_sequence_number, reverse=True)
    apart = [file for file in newest_first if is_blob_file(file) or is_vector_file(file)]
    groups = _data_groups([file for file in newest_first if not is_blob_file(file) and not is_vector_file(file)])
    if not apart:
        return groups
    groups = sorted([*groups, *_left_over(apart, groups)], key=lambda group: group.first_row_id)
    held: list[list[DataFileMeta]] = [[] for _ in groups]
    for file in apart:
        for index in _overlapping(groups, *row_range(file)):
            held[index].append(file)
    return [
        replace(group, blob_files=tuple(filter(is_blob_file, each)), vector_files=tuple(filter(is_vector_file, each)))
        for group, each in zip(groups, held, strict=True)
    ]


def is_vector_file(file: DataFileMeta) -> bool:
    """Whether a file holds columns of vectors only, by the names that Java gives them."""
    return VECTOR_FILE in str(file.file_name)


def data_file_fields(schema: TableSchema) -> list[DataField]:
    """The columns of data files of a table. Those of blobs, and of vectors if its options say so, have files of their
    own.
    """
    storage = BlobStorage.of(schema)
    apart = option_keys.VECTOR_FILE_FORMAT.of(schema.options) is not None
    return [
        field
        for field in schema.fields
        if not storage.in_blob_files(field) and not (apart and isinstance(field.type, VectorType))
    ]


def is_data_file_name(name: str) -> bool:
    """Whether a file holds columns of rows, neither of blobs nor of vectors only."""
    return not name.endswith(BLOB_SUFFIXES) and VECTOR_FILE not in name


def _data_groups(newest_first: Sequence[DataFileMeta]) -> list[RowIdGroup]:
    groups: dict[int, list[DataFileMeta]] = {}
    for file in newest_first:
        groups.setdefault(row_range(file)[0], []).append(file)
    result: list[RowIdGroup] = []
    for first, members in sorted(groups.items()):
        counts = {file.row_count for file in members}
        # As Java, which joins only files of equally many rows.
        if len(counts) > 1 or (result and result[-1].end > first):
            names = ", ".join(file.file_name for file in members)
            raise UnsupportedTableError(
                f"Files whose row ids overlap partly cannot be joined, except files of blobs and vectors: {names}."
            )
        result.append(RowIdGroup(first, counts.pop(), tuple(members)))
    return result


def _left_over(apart: Sequence[DataFileMeta], groups: Sequence[RowIdGroup]) -> Iterator[RowIdGroup]:
    """Rows that are in files of blobs or vectors only, for example because a commit wrote nothing else."""
    for start, end in _merged(map(row_range, apart)):
        position = start
        for index in _overlapping(groups, start, end):
            if groups[index].first_row_id > position:
                yield RowIdGroup(position, groups[index].first_row_id - position, ())
            position = max(position, groups[index].end)
        if position < end:
            yield RowIdGroup(position, end - position, ())


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    result: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if result and start < result[-1][1]:
            result[-1] = result[-1][0], max(result[-1][1], end)
        else:
            result.append((start, end))
    return result


def _overlapping(groups: Sequence[RowIdGroup], start: int, end: int) -> range:
    first = bisect_right(groups, start, key=lambda group: group.end)
    return range(first, bisect_left(groups, end, lo=first, key=lambda group: group.first_row_id))


def owners(
    group: RowIdGroup, fields: Sequence[DataField], schema_of: Callable[[int], TableSchema]
) -> list[tuple[DataFileMeta, list[DataField]]]:
    """The file from which each field is read, the newest with the field; other files are left out."""
    result: dict[int, list[DataField]] = {}
    for field in fields:
        for index, file in enumerate(group.files):
            if is_written(field, file, schema_of):
                result.setdefault(index, []).append(field)
                break
    return [(group.files[index], owned) for index, owned in result.items()]


def is_written(field: DataField, file: DataFileMeta, schema_of: Callable[[int], TableSchema]) -> bool:
    fields = schema_of(file.schema_id).fields
    return any(each.id == field.id and (file.write_cols is None or each.name in file.write_cols) for each in fields)


def join(
    group: RowIdGroup,
    fields: Sequence[DataField],
    schema_of: Callable[[int], TableSchema],
    read: ReadFields,
    constants: Mapping[str, pa.Scalar],
    batch_size: int,
    others: Mapping[str, ColumnPart],
) -> Iterator[pa.RecordBatch]:
    """The rows of a group, in the order of their ids; columns that no file of the group holds are null. `constants` are
    values of fields that are the same in all rows, even if a file holds them; by name. Raises CorruptTableError if a
    file has fewer or more rows than the group.
    """
    schema = arrow_schema(fields)
    varying = [field for field in fields if field.name not in constants and field.name not in others]
    parts: list[ColumnPart] = [
        BufferedPart(_whole(file, read(file, owned))) for file, owned in owners(group, varying, schema_of)
    ]
    parts += others.values()
    position = 0
    while position < group.row_count:
        length = min([batch_size, group.row_count - position, *(part.available() for part in parts)])
        columns = {name: pa.repeat(value, length) for name, value in constants.items()}
        for part in parts:
            taken = part.take(length)
            columns.update(zip(taken.schema.names, taken.columns, strict=True))
        arrays = [columns[field.name] if field.name in columns else pa.nulls(length, field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        position += length


def _whole(file: DataFileMeta, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a file of a group. A caller that needs more rows finds the file damaged."""
    yield from batches
    # Reached only if the group asks for another row.
    raise CorruptTableError(str(file.file_path), f"it holds fewer than {file.row_count} rows")


def vector_columns(
    group: RowIdGroup, fields: Sequence[DataField], schema_of: Callable[[int], TableSchema], read: ReadFields
) -> dict[str, ColumnPart]:
    """The fields that are read from vector files: for each row from the newest file with the column.

    A data file may have several vector files, each with some of its rows, or newer ones from a later commit; and older
    ones, if it has the column itself.
    """
    found: dict[str, ColumnPart] = {}
    for field in fields:
        files = _vector_files_of(field, group, schema_of)
        if files:
            found[field.name] = BufferedPart(_column(field, _stretches(group, files), read))
    return found


def files_of_vectors(
    field: DataField, group: RowIdGroup, schema_of: Callable[[int], TableSchema]
) -> list[DataFileMeta]:
    """The files from which a field is read, in order, if the newest with the field is a vector file; otherwise none."""
    stretches = _stretches(group, _vector_files_of(field, group, schema_of))
    return [stretch.file for stretch in stretches if stretch.file is not None]


def _vector_files_of(
    field: DataField, group: RowIdGroup, schema_of: Callable[[int], TableSchema]
) -> list[DataFileMeta]:
    """Newest first; none if the newest file with the field is not a vector file."""
    if not group.vector_files:
        return []
    files = [file for file in (*group.files, *group.vector_files) if is_written(field, file, schema_of)]
    files.sort(key=lambda file: file.max_sequence_number, reverse=True)
    # A newer data file with the column has replaced all vectors of these rows.
    return files if files and files[0] not in group.files else []


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Consecutive rows in the same file."""

    first_row_id: int
    row_count: int
    file: DataFileMeta | None


def _stretches(group: RowIdGroup, newest_first: Sequence[DataFileMeta]) -> list[_Stretch]:
    bounds = {group.first_row_id, group.end}
    for file in newest_first:
        bounds.update(row_range(file))
    ordered = [bound for bound in sorted(bounds) if group.first_row_id <= bound <= group.end]
    result = []
    for first, end in pairwise(ordered):
        covering = next((each for each in newest_first if _covers(each, first)), None)
        result.append(_Stretch(first, end - first, covering))
    return result


def _covers(file: DataFileMeta, row_id: int) -> bool:
    first, end = row_range(file)
    return first <= row_id < end


def _column(field: DataField, stretches: Sequence[_Stretch], read: ReadFields) -> Iterator[pa.RecordBatch]:
    for stretch in stretches:
        yield from _rows(stretch, field, read)


def _rows(stretch: _Stretch, field: DataField, read: ReadFields) -> Iterator[pa.RecordBatch]:
    left = stretch.row_count
    if stretch.file is None:
        yield pa.RecordBatch.from_arrays([pa.nulls(left, arrow_type(field.type))], names=[field.name])
        return
    skip = stretch.first_row_id - row_range(stretch.file)[0]
    for batch in read(stretch.file, [field]):
        kept = batch.slice(min(skip, batch.num_rows), left)
        skip -= min(skip, batch.num_rows)
        left -= kept.num_rows
        if kept.num_rows:
            yield kept
        if not left:
            return
    raise CorruptTableError(str(stretch.file.file_path), f"it holds fewer than {stretch.file.row_count} rows")
