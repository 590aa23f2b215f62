"""Parquet files as record batches of their own columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from pypaimon.streaming.errors import PaimonStreamError, UnsupportedContentError
from pypaimon.streaming.formats import row_pace
from pypaimon.streaming.formats.dictionaries import expanded
from pypaimon.streaming.formats.parquet_footer import as_stored, has_empty_page, without_unknown_types
from pypaimon.streaming.formats.parquet_sizes import ParquetSizes
from pypaimon.streaming.formats.row_pace import FIRST_ROWS, RowPace
from pypaimon.streaming.io.remote_files import RemoteFile

_FEW_ROWS = 65_536
"""So many rows are decoded about as fast as they are handed to other threads."""
_BATCHES_AT_ONCE = 8
"""Arrow spends less on each row where it decodes many: so many batches at once, but no more bytes, if rows are wide."""
_DECODED_ROWS = 524_288
_FIRST_BYTES = 32 << 20
"""Bytes that are decoded first, at most, where an encoding may store one value for many rows."""
_MOST_UNSURE = 131_072
"""Rows that are decoded at once, at most, where the next ones may be much longer than the last."""
_NOT_IMPLEMENTED = ("Not yet implemented", "not supported", "Unknown encoding")
"""What texts of errors hold that Arrow raises as `OSError` for what it does not read."""
_KNOWS_EMPTY_PAGES = 20
"""The first release of pyarrow that reads data pages (of version 2) without values which are said to be compressed."""


class ParquetSource:
    """One open Parquet file.

    Attributes:
        schema: The columns of the file, as Arrow gives them, with what their writer said of each.
        num_rows: Rows in the file.
    """

    pads_char: ClassVar[bool] = False
    damage_words: ClassVar[tuple[str, ...]] = ("Parquet", "thrift", "Unexpected end of stream")

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._unknown: dict[str, int] = {}
        self._file = self._opened()
        self.schema: pa.Schema = self._file.schema_arrow
        if any(map(_is_changed_by_arrow, self.schema.types)) or _holds_int96(self._file.schema):
            self._file = pq.ParquetFile(stream, metadata=as_stored(self._file.metadata))
            told = zip(self._file.schema_arrow, self.schema, strict=True)
            self.schema = pa.schema([field.with_metadata(other.metadata) for field, other in told])
        self.num_rows: int = self._file.metadata.num_rows

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """All rows in stored order; of the columns named, at least one.

        Raises:
            UnsupportedContentError: A column holds what the installed pyarrow does not read.
        """
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
            pace = RowPace(_MOST_UNSURE, first, row_pace.DECODED_BYTES)

        def next_rows() -> int:
            most = min(_BATCHES_AT_ONCE * batch_size, _DECODED_ROWS if pace is None else pace.rows)
            rows = min(sizes.rows(row_pace.DECODED_BYTES), most)
            return rows // batch_size * batch_size or rows

        # Read in the order in which they lie in the file, so that none of its pieces is needed twice.
        stored = sorted(columns, key=self.schema.names.index)
        # Not where Arrow would call back into Python: requests to a store belong to the thread that asks.
        in_threads = isinstance(self._stream, pa.NativeFile) and self.num_rows > _FEW_ROWS
        for read in file.iter_batches(next_rows(), columns=stored, use_threads=in_threads):
            sizes.passed(read.num_rows)
            if pace is not None:
                pace.took(read.num_rows, _size(read) if sizes.references else read.get_total_buffer_size())
            # Arrow looks at the size of a batch whenever it decodes one.
            file.reader.set_batch_size(next_rows())
            for batch in expanded(read.select(list(columns)), row_pace.DECODED_BYTES):
                for start in range(0, batch.num_rows, batch_size):
                    yield batch.slice(start, batch_size)

    def _opened(self) -> pq.ParquetFile:
        """The file. Columns of logical types that Arrow does not know, and refuses whole files for, come without."""
        try:
            return pq.ParquetFile(self._stream)
        except (OSError, pa.ArrowException) as error:
            if "LogicalType" not in str(error):
                raise
            metadata, self._unknown = without_unknown_types(self._stream)
            return pq.ParquetFile(self._stream, metadata=metadata)

    def _explained(self, columns: Sequence[str], error: Exception) -> Exception:
        """An error of Arrow's, or what it means where the file is sound: pyarrow does not read a column of it."""
        for name in columns:
            if (own := self._error_of(name)) is not None:
                reason = self._reason(name, own)
                return error if reason is None else UnsupportedContentError(reason, name)
        return error

    def _error_of(self, column: str) -> Exception | None:
        """How Arrow fails at a column; None: it does not."""
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
        """Where the bytes of columns lie, as the footer has it, in the order in which they are read: first, length."""
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
    """Bytes of rows without their dictionaries, which are those of many more rows."""
    return sum(each.get_total_buffer_size() for each in batch.columns if not pa.types.is_dictionary(each.type))


def _is_changed_by_arrow(kind: pa.DataType) -> bool:
    """Whether Arrow's schema, which its writer left in the footer, makes of a column what is not read as it is."""
    children = (kind.field(index).type for index in range(kind.num_fields))
    changed = pa.types.is_fixed_size_list(kind) or pa.types.is_dictionary(kind)
    return bool(changed or any(map(_is_changed_by_arrow, children)))


def _holds_int96(schema: pq.ParquetSchema) -> bool:
    return any(schema.column(index).physical_type == "INT96" for index in range(len(schema)))
