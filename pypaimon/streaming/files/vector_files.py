"""Columns of vectors that lie in files of their own: for each row the newest file that was written with the column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.files.row_id_groups import BufferedPart, Part, ReadFields, RowIdGroup, is_written
from pypaimon.streaming.internals import DataField, DataFileMeta, TableSchema
from pypaimon.streaming.model.arrow_types import arrow_type


def vector_columns(
    group: RowIdGroup, fields: Sequence[DataField], schema_of: Callable[[int], TableSchema], read: ReadFields
) -> dict[str, Part]:
    """Those of the fields for which a vector file of the group counts, by name.

    A data file may have several vector files beside it, each of some of its rows, or newer ones that a later commit
    wrote; and older ones than itself, if it holds the column too.
    """
    found: dict[str, Part] = {}
    for field in fields:
        files = _files_of(field, group, schema_of)
        if files:
            found[field.name] = BufferedPart(_column(field, _stretches(group, files), read))
    return found


def files_of_vectors(
    field: DataField, group: RowIdGroup, schema_of: Callable[[int], TableSchema]
) -> list[DataFileMeta]:
    """The files that a field is read from, in their order, if a vector file of the group counts for it; else none."""
    stretches = _stretches(group, _files_of(field, group, schema_of))
    return [stretch.file for stretch in stretches if stretch.file is not None]


def _files_of(field: DataField, group: RowIdGroup, schema_of: Callable[[int], TableSchema]) -> list[DataFileMeta]:
    """Newest first; none if no vector file counts."""
    if not group.vector_files:
        return []
    files = [file for file in (*group.files, *group.vector_files) if is_written(field, file, schema_of)]
    files.sort(key=lambda file: file.max_sequence_number, reverse=True)
    return files if files and files[0] not in group.files else []


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Rows that follow each other and lie in the same file, or in none.

    Attributes:
        first_row_id: Row id of the first one.
        row_count: How many they are.
        file: The file.
    """

    first_row_id: int
    row_count: int
    file: DataFileMeta | None


def _stretches(group: RowIdGroup, newest_first: Sequence[DataFileMeta]) -> list[_Stretch]:
    bounds = {group.first_row_id, group.end}
    for file in newest_first:
        bounds |= {file.first_row_id, file.first_row_id + file.row_count}
    ordered = [bound for bound in sorted(bounds) if group.first_row_id <= bound <= group.end]
    result = []
    for first, end in pairwise(ordered):
        file = next((each for each in newest_first if _covers(each, first)), None)
        result.append(_Stretch(first, end - first, file))
    return result


def _covers(file: DataFileMeta, row_id: int) -> bool:
    return bool(file.first_row_id <= row_id < file.first_row_id + file.row_count)


def _column(field: DataField, stretches: Sequence[_Stretch], read: ReadFields) -> Iterator[pa.RecordBatch]:
    """A column that is read file after file; null where none holds it."""
    for stretch in stretches:
        yield from _rows(stretch, field, read)


def _rows(stretch: _Stretch, field: DataField, read: ReadFields) -> Iterator[pa.RecordBatch]:
    """Exactly the rows of a stretch."""
    left = stretch.row_count
    if stretch.file is None:
        yield pa.RecordBatch.from_arrays([pa.nulls(left, arrow_type(field.type))], names=[field.name])
        return
    skip = stretch.first_row_id - int(stretch.file.first_row_id)
    for batch in read(stretch.file, [field]):
        kept = batch.slice(min(skip, batch.num_rows), left)
        skip -= min(skip, batch.num_rows)
        left -= kept.num_rows
        if kept.num_rows:
            yield kept
        if not left:
            return
    raise CorruptTableError(str(stretch.file.file_path), f"it holds fewer than {stretch.file.row_count} rows")
