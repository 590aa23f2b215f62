"""Parquet files as record batches of their own columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pypaimon.streaming.errors import PaimonStreamError, UnsupportedContentError
from pypaimon.streaming.formats import file_format
from pypaimon.streaming.formats.file_format import FIRST_ROWS, AdaptiveBatchSize
from pypaimon.streaming.formats.parquet_footer import as_stored, has_empty_page, without_unknown_types
from pypaimon.streaming.io.remote_files import RemoteFile

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8, "FIXED_LEN_BYTE_ARRAY": 16}
"""Bytes of a value, by physical type; 16 are those of decimals, the usual FIXED_LEN_BYTE_ARRAY, in Arrow."""
_OFFSET = 4
_REPEATED = ("DICTIONARY", "DELTA_BYTE_ARRAY")
"""In names of encodings that store a text, or its prefix, once for many rows."""
_HARMLESS = 128 << 20
"""Below this many bytes even the worst case needs no estimate: each value as long as all stored bytes."""
_SPREAD = 4
_MOST_OF_A_REFERENCE = 4
"""Most bytes of a reference to an entry of a dictionary; a plain value takes at least as many."""


@dataclass(frozen=True, slots=True)
class _LeafColumn:
    """A column of a Parquet file that holds values."""

    index: int
    path: str
    width: int | None


class ParquetSizes:
    """The sizes of rows, of some columns."""

    def __init__(self, file: pq.ParquetFile, schema: pa.Schema, columns: Sequence[str]) -> None:
        metadata = file.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        self._rows = [group.num_rows for group in groups]
        self._sizes = [group.total_byte_size for group in groups]
        # Columns of texts or bytes that are dictionary-encoded throughout: Arrow can return them as dictionaries
        self.references: list[str] = []
        # Most bytes of a value in the other columns whose encoding stores values once for many rows; 0 if there are no
        # such columns
        self.longest = 0
        is_flat = len(file.schema) == len(schema)
        if not is_flat or sum(self._sizes) * metadata.num_rows > _HARMLESS:
            self._look_at(_leaves(file, frozenset(columns)), groups, schema)
        self._group = self._passed = 0

    def _look_at(self, leaves: Sequence[_LeafColumn], groups: Sequence[pq.RowGroupMetaData], schema: pa.Schema) -> None:
        stored, decoded = [0] * len(groups), [0] * len(groups)
        for leaf in leaves:
            sizes, counts, repeats = [], [], False
            for number, group in enumerate(groups):
                chunk = group.column(leaf.index)
                size, count = chunk.total_uncompressed_size, chunk.num_values
                sizes.append(size)
                counts.append(count)
                stored[number] += size
                decoded[number] += size + _OFFSET * count if leaf.width is None else leaf.width * count
                repeats = repeats or (leaf.width is None and size * count > _HARMLESS and _stores_once(chunk))
            if repeats and _is_flat_text(schema, leaf.path) and sum(sizes) <= _MOST_OF_A_REFERENCE * sum(counts):
                self.references.append(leaf.path)
            elif repeats:
                self.longest = max(self.longest, *sizes)
        self._sizes = [max(pair[0], pair[1] // _SPREAD) for pair in zip(stored, decoded, strict=True)]

    def rows(self, size: int) -> int:
        """How many of the next rows fit into `size` bytes, or `_SPREAD` times as many decoded ones; at least one.

        Texts and bytes that encodings store once count once.
        """
        found, passed = 0, self._passed
        for group in range(self._group, len(self._rows)):
            count = self._rows[group] - passed
            fit = size * self._rows[group] // max(self._sizes[group], 1)
            if fit < count:
                found += fit
                break
            found += count
            size -= self._sizes[group] * count // max(self._rows[group], 1)
            passed = 0
        return max(1, found)

    def passed(self, rows: int) -> None:
        self._passed += rows
        while self._group < len(self._rows) and self._passed >= self._rows[self._group]:
            self._passed -= self._rows[self._group]
            self._group += 1


def _leaves(file: pq.ParquetFile, wanted: frozenset[str]) -> list[_LeafColumn]:
    schema = file.schema
    found = []
    for index in range(len(schema)):
        column = schema.column(index)
        if column.path in wanted or column.path.partition(".")[0] in wanted:
            found.append(_LeafColumn(index, column.path, _width(column)))
    return found


def _width(column: pq.ColumnSchema) -> int | None:
    kind = column.physical_type
    return None if kind == "BYTE_ARRAY" else max(column.length, _WIDTHS[kind])


def _is_flat_text(schema: pa.Schema, path: str) -> bool:
    index = schema.get_field_index(path)
    if index < 0:
        return False
    kind = schema.field(index).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    checks = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return any(check(kind) for check in checks)


def _stores_once(chunk: pq.ColumnChunkMetaData) -> bool:
    return any(word in encoding for encoding in chunk.encodings for word in _REPEATED)


_FEW_ROWS = 65_536
"""Up to this many rows, threads cost more than they save."""
_BATCHES_AT_ONCE, _ROWS_AT_ONCE = 8, 16_384
"""Small batches that are decoded together, and their rows, at most: with more, Arrow spends no less on each row."""
_DECODED_ROWS = 524_288
_FIRST_BYTES = 32 << 20
"""Most bytes to decode first if an encoding may store one value for many rows."""
_MOST_UNSURE = 131_072
"""Most rows to decode at once if the next ones may be much longer than the last."""
_NOT_IMPLEMENTED = ("Not yet implemented", "not supported", "Unknown encoding")
"""In messages of `OSError` that Arrow raises for features that it does not support."""
_KNOWS_EMPTY_PAGES = 20
"""The first release of pyarrow that reads data pages (version 2) without values that are marked as compressed."""
_MANY_ROWS = 16_384
"""Up to this many rows the longest value is assumed for all, without a look at each."""


class ParquetFileReader:
    """One open Parquet file."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._unknown: dict[str, int] = {}
        self._file = self._opened()
        self.schema: pa.Schema = self._file.schema_arrow
        if any(map(_is_changed_by_arrow, self.schema.types)) or _holds_int96(self._file.schema):
            self._file = pq.ParquetFile(stream, metadata=as_stored(self._file.metadata))
            pairs = zip(self._file.schema_arrow, self.schema, strict=True)
            self.schema = pa.schema([field.with_metadata(other.metadata) for field, other in pairs])
        self.num_rows: int = self._file.metadata.num_rows

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        for name in columns:
            if name in self._unknown:
                raise UnsupportedContentError(
                    f"pyarrow {pa.__version__} does not know its logical type, number {self._unknown[name]} of "
                    "Parquet's LogicalType. Install a newer pyarrow, or read without the column",
                    name,
                )
        if isinstance(self._stream, RemoteFile):
            self._stream.will_read(self._ranges(columns))
        try:
            yield from self._batches(columns, batch_size)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, PaimonStreamError) or getattr(error, "errno", None) is not None:
                raise
            raise self._explained(columns, error) from error

    def _batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        sizes = ParquetSizes(self._file, self.schema, columns)
        file = self._file
        if sizes.references:
            file = pq.ParquetFile(self._stream, metadata=file.metadata, read_dictionary=sizes.references)
        pace = None
        if sizes.longest:
            first = min(FIRST_ROWS, _FIRST_BYTES // sizes.longest)
            pace = AdaptiveBatchSize(_MOST_UNSURE, first, file_format.DECODED_BYTES)

        def next_rows() -> int:
            together = max(batch_size, min(_BATCHES_AT_ONCE * batch_size, _ROWS_AT_ONCE))
            most = min(together, _DECODED_ROWS if pace is None else pace.rows)
            rows = min(sizes.rows(file_format.DECODED_BYTES), most)
            return rows // batch_size * batch_size or rows

        # In stored order, so that no piece of the file is requested twice.
        stored = sorted(columns, key=self.schema.names.index)
        # Not if Arrow would call back into Python: requests to a store belong to the calling thread.
        in_threads = isinstance(self._stream, pa.NativeFile) and self.num_rows > _FEW_ROWS
        for read in file.iter_batches(next_rows(), columns=stored, use_threads=in_threads):
            sizes.passed(read.num_rows)
            if pace is not None:
                pace.record(read.num_rows, _size(read) if sizes.references else read.get_total_buffer_size())
            # Arrow applies the batch size whenever it decodes a batch.
            file.reader.set_batch_size(next_rows())
            for batch in _without_dictionaries(read.select(list(columns)), file_format.DECODED_BYTES):
                for start in range(0, batch.num_rows, batch_size):
                    yield batch.slice(start, batch_size)

    def _opened(self) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self._stream)
        except (OSError, pa.ArrowException) as error:
            if "LogicalType" not in str(error):
                raise
            metadata, self._unknown = without_unknown_types(self._stream)
            return pq.ParquetFile(self._stream, metadata=metadata)

    def _explained(self, columns: Sequence[str], error: Exception) -> Exception:
        """The error to raise for an error of Arrow, which names the column if pyarrow does not support one."""
        for name in columns:
            if (own := self._error_of(name)) is not None:
                reason = self._reason(name, own)
                return error if reason is None else UnsupportedContentError(reason, name)
        return error

    def _error_of(self, column: str) -> Exception | None:
        try:
            for _ in self._file.iter_batches(FIRST_ROWS, columns=[column], use_threads=False):
                pass
        except (pa.ArrowException, OSError) as error:
            return error
        return None

    def _reason(self, column: str, error: Exception) -> str | None:
        if isinstance(error, pa.ArrowNotImplementedError) or any(word in str(error) for word in _NOT_IMPLEMENTED):
            return f"pyarrow {pa.__version__} does not read it ({error}). Install a newer pyarrow, or read without it"
        if int(pa.__version__.partition(".")[0]) < _KNOWS_EMPTY_PAGES and self._has_empty_page(column):
            return (
                f"pyarrow {pa.__version__} does not read its data pages without values, which Java writes for nulls "
                f"with 'parquet.writer.version' = 'v2'. Install pyarrow {_KNOWS_EMPTY_PAGES} or later, or read without "
                "the column"
            )
        return None

    def _has_empty_page(self, column: str) -> bool:
        for first, length in self._ranges([column]):
            self._stream.seek(first)
            try:
                if has_empty_page(bytes(self._stream.read(length))):
                    return True
            except (ValueError, LookupError, TypeError):
                return False
        return False

    def _ranges(self, columns: Sequence[str]) -> list[tuple[int, int]]:
        wanted, found = frozenset(columns), []
        for number in range(self._file.metadata.num_row_groups):
            group = self._file.metadata.row_group(number)
            for chunk in (group.column(index) for index in range(group.num_columns)):
                if chunk.path_in_schema.partition(".")[0] in wanted:
                    first = chunk.data_page_offset
                    if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
                        first = min(first, chunk.dictionary_page_offset)
                    found.append((first, chunk.total_compressed_size))
        return found


def _size(batch: pa.RecordBatch) -> int:
    # Dictionaries belong to many more rows.
    return sum(each.get_total_buffer_size() for each in batch.columns if not pa.types.is_dictionary(each.type))


def _is_changed_by_arrow(kind: pa.DataType) -> bool:
    """Whether the Arrow schema of the writer changes a column to a type that is not read here; see `as_stored`."""
    children = (kind.field(index).type for index in range(kind.num_fields))
    changed = pa.types.is_fixed_size_list(kind) or pa.types.is_dictionary(kind)
    return bool(changed or any(map(_is_changed_by_arrow, children)))


def _holds_int96(schema: pq.ParquetSchema) -> bool:
    return any(schema.column(index).physical_type == "INT96" for index in range(len(schema)))


def _without_dictionaries(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    columns = [column for column in batch.columns if pa.types.is_dictionary(column.type)]
    if not columns:
        yield batch
        return
    longest = sum(_longest(column.dictionary) for column in columns)
    rows = max(1, size // max(longest, 1))
    if rows >= min(_MANY_ROWS, batch.num_rows):
        ends = list(range(rows, batch.num_rows, rows))
    else:
        ends = _ends(np.sum([_lengths(column) for column in columns], axis=0), size)
    for start, end in zip([0, *ends], [*ends, batch.num_rows], strict=True):
        part = batch.slice(start, end - start)
        arrays = [each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in part.columns]
        yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _longest(dictionary: pa.Array) -> int:
    return pc.max(pc.binary_length(dictionary)).as_py() or 0


def _lengths(column: pa.DictionaryArray) -> np.ndarray:
    lengths = pc.binary_length(column.dictionary).take(column.indices)
    return np.asarray(lengths.cast(pa.int64()).fill_null(0))


def _ends(lengths: np.ndarray, size: int) -> list[int]:
    """The ends of pieces of at most `size` bytes or one row, without the last end."""
    ends: list[int] = []
    totals = np.cumsum(lengths)
    start = passed = 0
    while start < len(totals) and totals[-1] - passed > size:
        start = max(start + 1, int(np.searchsorted(totals, passed + size, "right")))
        passed = int(totals[start - 1])
        ends.append(start)
    return ends if not ends or ends[-1] < len(totals) else ends[:-1]
