"""Files of data evolution: the ones that hold columns of the same rows, joined column by column."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from pypaimon.streaming.errors import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.files.blob_files import is_blob_file
from pypaimon.streaming.internals import DataField, DataFileMeta, TableSchema
from pypaimon.streaming.model.arrow_types import arrow_schema

VECTOR_FILE = ".vector."
"""What names of files of vectors have before their format."""

ReadFields = Callable[[DataFileMeta, Sequence[DataField]], Iterator[pa.RecordBatch]]


class Part(Protocol):
    """Some columns of the rows of a group, in pieces of any length."""

    def available(self) -> int:
        """Rows that can be taken now, at least one."""

    def take(self, length: int) -> pa.RecordBatch:
        """The next rows."""


class BufferedPart:
    """A `Part` of record batches that follow each other.

    Args:
        batches: All of its rows.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._batch: pa.RecordBatch | None = None

    def available(self) -> int:
        """See `Part`."""
        while self._batch is None or not self._batch.num_rows:
            self._batch = next(self._batches)
        return int(self._batch.num_rows)

    def take(self, length: int) -> pa.RecordBatch:
        """See `Part`."""
        assert self._batch is not None
        taken = self._batch.slice(0, length)
        self._batch = self._batch.slice(length)
        return taken


@dataclass(frozen=True, slots=True)
class RowIdGroup:
    """Files that cover the same row ids.

    Attributes:
        first_row_id: Row id of the first row.
        row_count: Number of rows.
        files: The files that hold columns of all of these rows, newest first.
        blob_files: Those that hold a column of blobs, of some of these rows or of more.
        vector_files: Those that hold columns of vectors alone, of some of these rows or of more.
    """

    first_row_id: int
    row_count: int
    files: tuple[DataFileMeta, ...]
    blob_files: tuple[DataFileMeta, ...] = ()
    vector_files: tuple[DataFileMeta, ...] = ()

    @property
    def end(self) -> int:
        """The row id behind the last one."""
        return self.first_row_id + self.row_count

    @property
    def newest(self) -> int:
        """The sequence number of the newest file."""
        return int((self.files or self.blob_files or self.vector_files)[0].max_sequence_number)


def row_id_groups(files: Sequence[DataFileMeta]) -> list[RowIdGroup]:
    """Sort files into groups of the same row ids, in the order of those.

    Raises:
        UnsupportedTableError: A file has no row ids, or those of two files overlap in part only.
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
        for index in _overlapping(groups, file.first_row_id, file.first_row_id + file.row_count):
            held[index].append(file)
    return [
        replace(group, blob_files=tuple(filter(is_blob_file, each)), vector_files=tuple(filter(is_vector_file, each)))
        for group, each in zip(groups, held, strict=True)
    ]


def is_vector_file(file: DataFileMeta) -> bool:
    """Whether a file holds columns of vectors alone, as Java's writers name them."""
    return VECTOR_FILE in str(file.file_name)


def _data_groups(newest_first: Sequence[DataFileMeta]) -> list[RowIdGroup]:
    groups: dict[int, list[DataFileMeta]] = {}
    for file in newest_first:
        groups.setdefault(file.first_row_id, []).append(file)
    result: list[RowIdGroup] = []
    for first, members in sorted(groups.items()):
        counts = {file.row_count for file in members}
        if len(counts) > 1 or (result and result[-1].end > first):
            names = ", ".join(file.file_name for file in members)
            raise UnsupportedTableError(
                f"Files whose row ids overlap in part cannot be joined, but for those of blobs and vectors: {names}."
            )
        result.append(RowIdGroup(first, counts.pop(), tuple(members)))
    return result


def _left_over(apart: Sequence[DataFileMeta], groups: Sequence[RowIdGroup]) -> Iterator[RowIdGroup]:
    """Rows of which there is nothing but blobs or vectors, as where a commit wrote those alone."""
    for start, end in _merged((file.first_row_id, file.first_row_id + file.row_count) for file in apart):
        position = start
        for index in _overlapping(groups, start, end):
            if groups[index].first_row_id > position:
                yield RowIdGroup(position, groups[index].first_row_id - position, ())
            position = max(position, groups[index].end)
        if position < end:
            yield RowIdGroup(position, end - position, ())


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of row ids, those that overlap as one."""
    result: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if result and start < result[-1][1]:
            result[-1] = result[-1][0], max(result[-1][1], end)
        else:
            result.append((start, end))
    return result


def _overlapping(groups: Sequence[RowIdGroup], start: int, end: int) -> range:
    """Indexes of the groups, which are in order, that have row ids from `start` up to before `end`."""
    first = bisect_right(groups, start, key=lambda group: group.end)
    return range(first, bisect_left(groups, end, lo=first, key=lambda group: group.first_row_id))


def owners(
    group: RowIdGroup, fields: Sequence[DataField], schema_of: Callable[[int], TableSchema]
) -> list[tuple[DataFileMeta, list[DataField]]]:
    """Which file each field is read from: the newest that was written with it; files that give nothing are left out."""
    result: dict[int, list[DataField]] = {}
    for field in fields:
        for index, file in enumerate(group.files):
            if is_written(field, file, schema_of):
                result.setdefault(index, []).append(field)
                break
    return [(group.files[index], owned) for index, owned in result.items()]


def is_written(field: DataField, file: DataFileMeta, schema_of: Callable[[int], TableSchema]) -> bool:
    """Whether a file was written with a column."""
    fields = schema_of(file.schema_id).fields
    return any(each.id == field.id and (file.write_cols is None or each.name in file.write_cols) for each in fields)


def join(
    group: RowIdGroup,
    fields: Sequence[DataField],
    schema_of: Callable[[int], TableSchema],
    read: ReadFields,
    constants: Mapping[str, pa.Scalar],
    batch_size: int,
    others: Mapping[str, Part],
) -> Iterator[pa.RecordBatch]:
    """The rows of a group, in the order of their ids; columns that no file of the group holds are null.

    Args:
        constants: Values of fields that are the same in all rows, whether a file holds them or not; by name.
        others: What gives fields that lie in no file of this kind; by name.

    Raises:
        CorruptTableError: A file has fewer or more rows than the group.
    """
    schema = arrow_schema(fields)
    varying = [field for field in fields if field.name not in constants and field.name not in others]
    parts: list[Part] = [
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
    """The rows of a file of a group; where more are asked for it is damaged."""
    yield from batches
    raise CorruptTableError(str(file.file_path), f"it holds fewer than {file.row_count} rows")
