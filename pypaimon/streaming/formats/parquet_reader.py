"""Parquet files as record batches of their own columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pypaimon.streaming.errors import PaimonStreamError, UnsupportedContentError
from pypaimon.streaming.formats import batch_sizes
from pypaimon.streaming.formats.batch_sizes import FIRST_ROWS, AdaptiveBatchSize
from pypaimon.streaming.formats.parquet_footer import as_stored, has_empty_page, without_unknown_types
from pypaimon.streaming.formats.parquet_sizes import ParquetSizes
from pypaimon.streaming.io.remote_files import RemoteFile

_FEW_ROWS = 65_536
"""Up to this many rows, threads cost more than they save."""
_BATCHES_AT_ONCE = 8
"""Batches to decode at once, within the bound of bytes: Arrow spends less on each row if it decodes many."""
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
            pace = AdaptiveBatchSize(_MOST_UNSURE, first, batch_sizes.DECODED_BYTES)

        def next_rows() -> int:
            most = min(_BATCHES_AT_ONCE * batch_size, _DECODED_ROWS if pace is None else pace.rows)
            rows = min(sizes.rows(batch_sizes.DECODED_BYTES), most)
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
            for batch in _without_dictionaries(read.select(list(columns)), batch_sizes.DECODED_BYTES):
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
    """Bytes of a batch without dictionaries, which belong to many more rows."""
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
