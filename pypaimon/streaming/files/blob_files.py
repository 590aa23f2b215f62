"""Blob files of data evolution: for each row the newest of them that holds its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pypaimon.streaming.errors import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.files.blob_cells import References, cells_of
from pypaimon.streaming.files.data_files import located
from pypaimon.streaming.formats.blob_index import FOOTER, PLACEHOLDER, BlobIndex, parse_index, tail_length
from pypaimon.streaming.internals import DataField, DataFileMeta
from pypaimon.streaming.io.byte_ranges import ByteRanges

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory

_SUFFIXES = (".blob", ".video")
"""Names of files of blobs end so; the second ones, which pypaimon writes, are refused when they are to be read."""

_BYTES_A_ROW = 4
"""Bytes that the index most likely takes for each row, so that one request gets it."""


def is_blob_file(file: DataFileMeta) -> bool:
    """Whether a file holds the blobs of one column."""
    return str(file.file_name).endswith(_SUFFIXES)


class BlobColumn:
    """A column of blobs, as cells, in pieces of any length.

    Args:
        field: The column.
        first_row_id: Row id of the first row.
        row_count: Number of rows.
        files: Blob files of these rows, of this column and others, newest first; of rows that none of them holds the
            value is null.
        directory: The table.

    Raises:
        FileNotFoundError: A file is missing.
        CorruptTableError: A file is damaged.
        StoreError: The store kept failing (retriable).
    """

    def __init__(
        self,
        field: DataField,
        first_row_id: int,
        row_count: int,
        files: Sequence[DataFileMeta],
        directory: TableDirectory,
    ) -> None:
        self._field = field
        self._references = _references(first_row_id, row_count, _files_of(field, files, directory), directory)
        self._position = 0

    def available(self) -> int:
        """Rows that are left."""
        return len(self._references.place) - self._position

    def take(self, length: int) -> pa.RecordBatch:
        """The next rows."""
        cells = cells_of(self._references.rows(self._position, length))
        self._position += length
        return pa.RecordBatch.from_arrays([cells], names=[self._field.name])


def _files_of(field: DataField, files: Sequence[DataFileMeta], directory: TableDirectory) -> list[DataFileMeta]:
    found = []
    for file in files:
        by_name = {each.name: each.id for each in directory.schema(file.schema_id).fields}
        if len(file.write_cols or ()) != 1:
            raise CorruptTableError(str(file.file_path), "its manifest does not say which column the blob file holds")
        if by_name.get(file.write_cols[0]) == field.id:
            found.append(file)
    return found


def _references(
    first_row_id: int, row_count: int, files: Sequence[DataFileMeta], directory: TableDirectory
) -> References:
    """Where the value of each row lies: in the newest file that holds it."""
    place = np.full(row_count, -1, np.int64)
    offsets, lengths = np.zeros(row_count, np.int64), np.zeros(row_count, np.int64)
    left = np.ones(row_count, bool)
    places: list[str] = []
    for file in files:
        first = max(file.first_row_id, first_row_id)
        end = min(file.first_row_id + file.row_count, first_row_id + row_count)
        rows = slice(first - first_row_id, end - first_row_id)
        if first >= end or not left[rows].any():
            continue
        path = located(directory, file.file_path)
        index = _read_index(directory, file, path)
        stored = slice(first - file.first_row_id, end - file.first_row_id)
        told = left[rows] & (index.lengths[stored] != PLACEHOLDER)
        held = told & (index.lengths[stored] >= 0)
        place[rows][held] = len(places)
        offsets[rows][held] = index.offsets[stored][held]
        lengths[rows][held] = index.lengths[stored][held]
        left[rows] &= ~told
        places.append(path)
    return References(tuple(places), place, offsets, lengths)


def _read_index(directory: TableDirectory, file: DataFileMeta, path: str) -> BlobIndex:
    """The index of a blob file; one request, or two for one that is larger than most."""
    if not path.endswith(_SUFFIXES[0]):
        raise UnsupportedTableError(
            f"{path}: blobs that are kept as frames of a video cannot be streamed. "
            "Leave the column out with with_projection(...)."
        )
    size = int(file.file_size)
    with ByteRanges(directory.store) as ranges:
        length = min(size, FOOTER + _BYTES_A_ROW * int(file.row_count))
        try:
            tail = ranges.read(path, size - length, length)
            wanted = tail_length(tail, size)
            if wanted > len(tail):
                tail = ranges.read(path, size - wanted, wanted)
            index = parse_index(tail[len(tail) - wanted :], size)
        except FileNotFoundError as error:
            raise FileNotFoundError(error.errno, f"the blob file is missing: {error}", path) from error
        except ValueError as error:
            raise CorruptTableError(path, f"the blob file is damaged: {error}") from error
    if len(index.lengths) != file.row_count:
        raise CorruptTableError(path, f"it holds {len(index.lengths)} rows, its manifest says {file.row_count}")
    return index
