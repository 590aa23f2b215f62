"""Blob files of data evolution: for each row the newest of them that holds its value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.errors import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.files.blob_cells import References, cells_of
from pypaimon.streaming.files.data_files import located
from pypaimon.streaming.formats.blob_index import FOOTER, PLACEHOLDER, BlobIndex, parse_index, tail_length
from pypaimon.streaming.internals import DataField, DataFileMeta, TableSchema
from pypaimon.streaming.io.byte_ranges import ByteRanges, Range
from pypaimon.streaming.io.fetch_ahead import Piece
from pypaimon.streaming.metadata.file_paths import SpelledPath

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory

BLOB_FILE = ".blob"
"""What names of blob files end with."""

_SUFFIXES = (BLOB_FILE, ".video")
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
        self._references = _references(first_row_id, row_count, _files_of(field, files, directory.schema), directory)
        self._position = 0

    def available(self) -> int:
        """Rows that are left."""
        return len(self._references.place) - self._position

    def take(self, length: int) -> pa.RecordBatch:
        """The next rows."""
        cells = cells_of(self._references.rows(self._position, length))
        self._position += length
        return pa.RecordBatch.from_arrays([cells], names=[self._field.name])


def _files_of(
    field: DataField, files: Sequence[DataFileMeta], schema_of: Callable[[int], TableSchema]
) -> list[DataFileMeta]:
    found = []
    for file in files:
        by_name = {each.name: each.id for each in schema_of(file.schema_id).fields}
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
    following = list(files)
    with ByteRanges(directory.store) as ranges:
        while following:
            asked, following = _next_files(following, first_row_id, left)
            for file, (path, index) in zip(asked, _read_indexes(directory, ranges, asked), strict=True):
                rows, stored = _rows_of(file, first_row_id, row_count)
                told = left[rows] & (index.lengths[stored] != PLACEHOLDER)
                held = told & (index.lengths[stored] >= 0)
                place[rows][held] = len(places)
                offsets[rows][held] = index.offsets[stored][held]
                lengths[rows][held] = index.lengths[stored][held]
                left[rows] &= ~told
                places.append(path)
    return References(tuple(places), place, offsets, lengths)


def index_pieces(
    field: DataField,
    first_row_id: int,
    row_count: int,
    files: Sequence[DataFileMeta],
    schema_of: Callable[[int], TableSchema],
) -> Iterator[Piece]:
    """The ends of the blob files whose indexes are needed, whatever the others hold; arguments as of `BlobColumn`."""
    for file in _next_files(_files_of(field, files, schema_of), first_row_id, np.ones(row_count, bool))[0]:
        if not isinstance(file.file_path, SpelledPath):
            length = _tail_length(file)
            yield Piece(str(file.file_path), int(file.file_size) - length, length)


def _tail_length(file: DataFileMeta) -> int:
    return min(int(file.file_size), FOOTER + _BYTES_A_ROW * int(file.row_count))


def _next_files(
    files: Sequence[DataFileMeta], first_row_id: int, left: npt.NDArray[np.bool_]
) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
    """The files, newest first, that are needed whatever the others hold; and those that wait for what these tell."""
    asked, waiting = [], []
    told, awaited = np.zeros(len(left), bool), np.zeros(len(left), bool)
    for file in files:
        rows, _ = _rows_of(file, first_row_id, len(left))
        if not left[rows].any():
            continue
        if awaited[rows].any() or told[rows].all():
            waiting.append(file)
            awaited[rows] = True
        else:
            asked.append(file)
            told[rows] = True
    return asked, waiting


def _rows_of(file: DataFileMeta, first_row_id: int, row_count: int) -> tuple[slice, slice]:
    """The rows that a file is about, and where they lie in it."""
    first = max(file.first_row_id, first_row_id)
    end = max(first, min(file.first_row_id + file.row_count, first_row_id + row_count))
    return slice(first - first_row_id, end - first_row_id), slice(first - file.first_row_id, end - file.first_row_id)


def _read_indexes(
    directory: TableDirectory, ranges: ByteRanges, files: Sequence[DataFileMeta]
) -> list[tuple[str, BlobIndex]]:
    """The indexes of blob files, asked for at the same time; those that are larger than most are, once more."""
    tails = [_Tail(located(directory, file.file_path), file) for file in files]
    _fill(ranges, [tail.range(_tail_length(tail.file)) for tail in tails], prefetched=True)
    _fill(ranges, [tail.range(wanted) for tail in tails if (wanted := tail.wanted()) > len(tail.data)])
    return [(tail.path, tail.index()) for tail in tails]


def _fill(ranges: ByteRanges, wanted: Sequence[Range], *, prefetched: bool = False) -> None:
    try:
        ranges.fill(wanted, prefetched=prefetched)
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, f"the blob file is missing: {error}", error.filename) from error


class _Tail:
    """The end of a blob file.

    Attributes:
        path: Where the file lies.
        file: The file.
        size: Its bytes.
        data: What was read of its end.
    """

    def __init__(self, path: str, file: DataFileMeta) -> None:
        if not path.endswith(_SUFFIXES[0]):
            raise UnsupportedTableError(
                f"{path}: blobs that are kept as frames of a video cannot be streamed.",
                advice="Leave the column out with with_projection(...).",
                option="with_projection",
            )
        self.path = path
        self.file = file
        self.size = int(file.file_size)
        self.data = bytearray()

    def range(self, length: int) -> Range:
        """So many bytes of it, which become `data`."""
        self.data = bytearray(length)
        return Range(self.path, self.size - length, memoryview(self.data))

    def wanted(self) -> int:
        """The bytes of the index and what is behind it."""
        with self._damage():
            return tail_length(bytes(self.data[-FOOTER:]), self.size)

    def index(self) -> BlobIndex:
        """What it says."""
        with self._damage():
            index = parse_index(bytes(self.data[len(self.data) - self.wanted() :]), self.size)
        if len(index.lengths) != self.file.row_count:
            found = f"it holds {len(index.lengths)} rows, its manifest says {self.file.row_count}"
            raise CorruptTableError(self.path, found)
        return index

    @contextmanager
    def _damage(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise CorruptTableError(self.path, f"the blob file is damaged: {error}") from error
