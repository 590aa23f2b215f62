"""Files of data evolution: the ones that hold columns of the same rows, joined column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pypaimon.streaming.errors import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.internals import DataField, DataFileMeta, TableSchema
from pypaimon.streaming.model.arrow_types import arrow_schema

ReadFields = Callable[[DataFileMeta, Sequence[DataField]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class RowIdGroup:
    """Files that cover the same row ids.

    Attributes:
        first_row_id: Row id of the first row.
        row_count: Number of rows.
        files: The files, newest first.
    """

    first_row_id: int
    row_count: int
    files: tuple[DataFileMeta, ...]


def row_id_groups(files: Sequence[DataFileMeta]) -> list[RowIdGroup]:
    """Sort files into groups of the same row ids, in the order of those.

    Raises:
        UnsupportedTableError: Row ids overlap in part only (columns that are kept in files of their own).
    """
    groups: dict[int, list[DataFileMeta]] = {}
    for file in files:
        if file.first_row_id is None:
            raise UnsupportedTableError(f"{file.file_name} has no row ids, which data evolution needs.")
        groups.setdefault(file.first_row_id, []).append(file)
    result: list[RowIdGroup] = []
    for first, members in sorted(groups.items()):
        newest_first = sorted(members, key=lambda file: file.max_sequence_number, reverse=True)
        counts = {file.row_count for file in members}
        if len(counts) > 1 or (result and result[-1].first_row_id + result[-1].row_count > first):
            names = ", ".join(file.file_name for file in members)
            raise UnsupportedTableError(
                "Files whose row ids overlap in part, as those of BLOB and VECTOR columns that are kept in files of "
                f"their own, cannot be joined: {names}."
            )
        result.append(RowIdGroup(first, counts.pop(), tuple(newest_first)))
    return result


def owners(
    group: RowIdGroup, fields: Sequence[DataField], schema_of: Callable[[int], TableSchema]
) -> list[tuple[DataFileMeta, list[DataField]]]:
    """Which file each field is read from: the newest that was written with it; files that give nothing are left out."""
    result: dict[int, list[DataField]] = {}
    for field in fields:
        for index, file in enumerate(group.files):
            if field.id in _written(file, schema_of(file.schema_id)):
                result.setdefault(index, []).append(field)
                break
    return [(group.files[index], owned) for index, owned in result.items()]


def _written(file: DataFileMeta, schema: TableSchema) -> set[int]:
    return {field.id for field in schema.fields if file.write_cols is None or field.name in file.write_cols}


def join(
    group: RowIdGroup,
    fields: Sequence[DataField],
    schema_of: Callable[[int], TableSchema],
    read: ReadFields,
    constants: Mapping[str, pa.Scalar],
    batch_size: int,
) -> Iterator[pa.RecordBatch]:
    """The rows of a group, in the order of their ids; columns that no file of the group holds are null.

    Args:
        constants: Values of fields that are the same in all rows, whether a file holds them or not; by name.

    Raises:
        CorruptTableError: A file has fewer or more rows than the group.
    """
    schema = arrow_schema(fields)
    varying = [field for field in fields if field.name not in constants]
    parts = [_Part(file, read(file, owned)) for file, owned in owners(group, varying, schema_of)]
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


class _Part:
    """A file of a group that is being read, in pieces of any length."""

    def __init__(self, file: DataFileMeta, batches: Iterator[pa.RecordBatch]) -> None:
        self._file = file
        self._batches = batches
        self._batch: pa.RecordBatch | None = None

    def available(self) -> int:
        while self._batch is None or not self._batch.num_rows:
            self._batch = next(self._batches, None)
            if self._batch is None:
                raise CorruptTableError(str(self._file.file_path), f"it holds fewer than {self._file.row_count} rows")
        return int(self._batch.num_rows)

    def take(self, length: int) -> pa.RecordBatch:
        assert self._batch is not None
        taken = self._batch.slice(0, length)
        self._batch = self._batch.slice(length)
        return taken
