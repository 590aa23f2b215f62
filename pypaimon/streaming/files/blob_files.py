"""Blob files of data evolution: for each row the newest file that holds its value; and cells, which stand for blobs.

A cell is the serialised descriptor of a blob (place, offset, length). Batches carry cells through filters, merges and
joins, so that blobs of dropped rows are never fetched.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pypaimon.streaming.errors import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.files.data_files import located
from pypaimon.streaming.formats.blob_format import FOOTER, PLACEHOLDER, BlobIndex, Numbers, parse_index, tail_length
from pypaimon.streaming.io.byte_ranges import ByteRanges, Range
from pypaimon.streaming.io.fetch_ahead import Piece
from pypaimon.streaming.metadata.file_paths import SpelledPath
from pypaimon.streaming.paimon.internals import BlobDescriptor, DataField, DataFileMeta, TableSchema

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory

BLOB_FILE = ".blob"
"""Suffix of blob files."""

BLOB_SUFFIXES = (BLOB_FILE, ".video")
"""Suffixes of files of blobs. pypaimon writes the second kind, which cannot be read here."""

_BYTES_A_ROW = 4
"""Bytes of the index for each row, estimated so that one request gets it."""
_NUMBERS = 16
"""Bytes of offset and length, at the end of a cell that is made here."""
_FILES = 16
"""Cells of up to this many files are decoded together; others are parsed one by one."""


def is_blob_file(file: DataFileMeta) -> bool:
    return str(file.file_name).endswith(BLOB_SUFFIXES)


class BlobColumn:
    """A column of blobs, as cells, in pieces of any length. See `ColumnPart`. Raises FileNotFoundError if a file is
    missing.

    `files` are the blob files of these rows, of this column and others, newest first. Rows in none of them are null.

    Attributes:
        references: All its cells, decoded.
        undecided: The rows whose values are in none of the files.
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
        of_field = _files_of(field, files, directory.schema)
        self.references, self.undecided = _references(first_row_id, row_count, of_field, directory)
        self._position = 0

    def available(self) -> int:
        return len(self.references.place) - self._position

    def take(self, length: int) -> pa.RecordBatch:
        cells = cells_of(self.references.rows(self._position, length))
        self._position += length
        return pa.RecordBatch.from_arrays([cells], names=[self._field.name])


def _files_of(
    field: DataField, files: Sequence[DataFileMeta], schema_of: Callable[[int], TableSchema]
) -> list[DataFileMeta]:
    found = []
    for file in files:
        by_name = {each.name: each.id for each in schema_of(file.schema_id).fields}
        columns = file.write_cols or []
        if len(columns) != 1:
            raise CorruptTableError(str(file.file_path), "its manifest does not say which column the blob file holds")
        if by_name.get(columns[0]) == field.id:
            found.append(file)
    return found


def _references(
    first_row_id: int, row_count: int, files: Sequence[DataFileMeta], directory: TableDirectory
) -> tuple[References, npt.NDArray[np.bool_]]:
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
                decided = left[rows] & (index.lengths[stored] != PLACEHOLDER)
                held = decided & (index.lengths[stored] >= 0)
                place[rows][held] = len(places)
                offsets[rows][held] = index.offsets[stored][held]
                lengths[rows][held] = index.lengths[stored][held]
                left[rows] &= ~decided
                places.append(path)
    return References(tuple(places), place, offsets, lengths), left


def index_pieces(
    field: DataField,
    first_row_id: int,
    row_count: int,
    files: Sequence[DataFileMeta],
    schema_of: Callable[[int], TableSchema],
) -> Iterator[Piece]:
    """The ends of the blob files whose indexes are surely needed; arguments as of `BlobColumn`."""
    for file in _next_files(_files_of(field, files, schema_of), first_row_id, np.ones(row_count, bool))[0]:
        # Which spelling exists is known only after a request.
        if not isinstance(file.file_path, SpelledPath):
            length = _tail_length(file)
            yield Piece(str(file.file_path), int(file.file_size) - length, length)


def _tail_length(file: DataFileMeta) -> int:
    return min(int(file.file_size), FOOTER + _BYTES_A_ROW * int(file.row_count))


def _next_files(
    files: Sequence[DataFileMeta], first_row_id: int, left: npt.NDArray[np.bool_]
) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
    """The files, newest first, that are surely needed, and the files that depend on the indexes of these."""
    asked, waiting = [], []
    decided, awaited = np.zeros(len(left), bool), np.zeros(len(left), bool)
    for file in files:
        rows, _ = _rows_of(file, first_row_id, len(left))
        if not left[rows].any():
            continue
        if awaited[rows].any() or decided[rows].all():
            waiting.append(file)
            awaited[rows] = True
        else:
            asked.append(file)
            decided[rows] = True
    return asked, waiting


def _rows_of(file: DataFileMeta, first_row_id: int, row_count: int) -> tuple[slice, slice]:
    """The rows that a file covers, and their positions in it."""
    own, own_end = row_range(file)
    first = max(own, first_row_id)
    end = max(first, min(own_end, first_row_id + row_count))
    return slice(first - first_row_id, end - first_row_id), slice(first - own, end - own)


def row_range(file: DataFileMeta) -> tuple[int, int]:
    """The row id of the first row of a file that has row ids, and the one after its last row."""
    first = cast(int, file.first_row_id)
    return first, first + file.row_count


def _read_indexes(
    directory: TableDirectory, ranges: ByteRanges, files: Sequence[DataFileMeta]
) -> list[tuple[str, BlobIndex]]:
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
    """The end of a blob file."""

    def __init__(self, path: str, file: DataFileMeta) -> None:
        if not path.endswith(BLOB_SUFFIXES[0]):
            raise UnsupportedTableError(
                f"{path}: blobs that are stored as frames of a video cannot be streamed. "
                "Leave the column out with with_projection(...)."
            )
        self.path = path
        self.file = file
        self.size = int(file.file_size)
        self.data = bytearray()

    def range(self, length: int) -> Range:
        self.data = bytearray(length)
        return Range(self.path, self.size - length, memoryview(self.data))

    def wanted(self) -> int:
        with self._damage():
            return tail_length(bytes(self.data[-FOOTER:]), self.size)

    def index(self) -> BlobIndex:
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


@dataclass(frozen=True, slots=True)
class References:
    """Decoded cells, as columns."""

    places: tuple[str, ...]
    place: Numbers  # Index of each cell into `places`; -1: there is no blob
    offsets: Numbers
    lengths: Numbers  # Bytes of each blob; -1: to the end of the file. 0 if there is no blob.

    def rows(self, start: int, length: int) -> References:
        part = slice(start, start + length)
        return References(self.places, self.place[part], self.offsets[part], self.lengths[part])


def cells_of(references: References) -> pa.LargeBinaryArray:
    """Encode cells as descriptors of pypaimon's current version; null if there is no blob."""
    prefixes = [np.frombuffer(_prefix(place), np.uint8) for place in references.places]
    sizes = np.array([*(len(prefix) + _NUMBERS for prefix in prefixes), 0], np.int64)[references.place]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    data = np.empty(int(offsets[-1]), np.uint8)
    numbers = np.stack([references.offsets, references.lengths], axis=1).astype("<i8").view(np.uint8)
    for index, prefix in enumerate(prefixes):
        rows = np.flatnonzero(references.place == index)
        starts = offsets[rows][:, np.newaxis]
        data[starts + np.arange(len(prefix))] = prefix
        data[starts + len(prefix) + np.arange(_NUMBERS)] = numbers[rows]
    missing = references.place < 0
    validity = pa.array(~missing).buffers()[1] if missing.any() else None
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(missing), buffers, int(missing.sum()))


def references_of(cells: pa.Array) -> References:
    """Decode cells. Raises ValueError if a cell is not a descriptor."""
    missing = cells.is_null().to_numpy(zero_copy_only=False)
    place = np.where(missing, -1, 0)
    offsets, lengths = np.zeros(len(cells), np.int64), np.zeros(len(cells), np.int64)
    known: dict[str, int] = {}
    starts, sizes, content = _contents(cells)
    for size in np.unique(sizes[~missing]).tolist():
        rows = np.flatnonzero((sizes == size) & ~missing)
        # Cells of one file differ in their numbers only, so the first one is parsed for all of them.
        for _ in range(_FILES):
            if not len(rows):
                break
            first = content[starts[rows[0]] : starts[rows[0]] + size]
            descriptor = _parsed(bytes(first))
            alike = np.zeros(len(rows), bool)
            alike[0] = True
            # A descriptor of another version may have its numbers elsewhere.
            if descriptor.serialize() == bytes(first):
                prefix = starts[rows][:, np.newaxis] + np.arange(size - _NUMBERS)
                alike = (content[prefix] == first[: size - _NUMBERS]).all(axis=1)
            found = rows[alike]
            place[found] = known.setdefault(descriptor.uri, len(known))
            if alike.sum() == 1:
                offsets[found], lengths[found] = descriptor.offset, descriptor.length
            else:
                numbers = content[starts[found][:, np.newaxis] + np.arange(size - _NUMBERS, size)]
                offsets[found], lengths[found] = numbers.view("<i8").T
            rows = rows[~alike]
        for row in rows.tolist():
            descriptor = _parsed(bytes(content[starts[row] : starts[row] + size]))
            place[row] = known.setdefault(descriptor.uri, len(known))
            offsets[row], lengths[row] = descriptor.offset, descriptor.length
    if (offsets < 0).any() or (lengths < -1).any():
        raise ValueError("a descriptor of a blob has a negative offset or length")
    return References(tuple(known), place, offsets, lengths)


def _contents(cells: pa.Array) -> tuple[Numbers, Numbers, npt.NDArray[np.uint8]]:
    """The first byte and the length of each cell, and the bytes of all cells."""
    ends = np.frombuffer(cells.buffers()[1], np.int64)[cells.offset : cells.offset + len(cells) + 1]
    return ends[:-1], np.diff(ends), np.frombuffer(cells.buffers()[2] or b"", np.uint8)


def _parsed(cell: bytes) -> BlobDescriptor:
    try:
        descriptor = BlobDescriptor.deserialize(cell)
    except (ValueError, struct.error) as error:
        raise ValueError(f"a stored blob is not a descriptor ({error})") from error
    if type(descriptor) is not BlobDescriptor:
        raise ValueError(f"a stored blob is a {type(descriptor).__name__}, which cannot be read")
    return descriptor


def _prefix(place: str) -> bytes:
    return bytes(BlobDescriptor(place, 0, 0).serialize()[:-_NUMBERS])
