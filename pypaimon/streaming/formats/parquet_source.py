"""Parquet files as record batches of their own columns."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.io.remote_files import RemoteFile

# Microseconds that nanoseconds can hold; how far Arrow is off where Java wrote a negative time of day (before 1970).
_LIMIT = (1 << 63) // 1000
_NEGATIVE_TIME_OF_DAY = (1 << 64) // 1000
_FEW_ROWS = 65_536
"""So many rows are decoded about as fast as they are handed to other threads."""
_BATCHES_AT_ONCE = 8
_DECODED_BYTES = 8 << 20
"""Arrow spends less on each row where it decodes many: so many batches at once, but no more bytes, if rows are wide."""
_DECODED_ROWS = 524_288
"""Nor more rows: what dictionaries save is not known before, and may be most of their bytes."""
_ARROW_SCHEMA, _NO_SCHEMA = b"ARROW:schema", b"ARROW:no one"


class ParquetSource:
    """One open Parquet file.

    Attributes:
        schema: The columns of the file, as Arrow gives them, with what their writer said of each.
        num_rows: Rows in the file.
    """

    pads_char: ClassVar[bool] = False
    damage_words: ClassVar[tuple[str, ...]] = ("Parquet", "thrift", "Unexpected end of stream")

    def __init__(self, stream: Any) -> None:
        self._stream = self._remote = stream
        self._file = pq.ParquetFile(stream)
        self.schema: pa.Schema = self._file.schema_arrow
        if any(_holds_vectors(kind) for kind in self.schema.types):
            # Told by its writer that lists are vectors, Arrow refuses those that are null.
            self._stream = _without_arrow_schema(stream)
            self._file = pq.ParquetFile(self._stream)
            told = zip(self._file.schema_arrow, self.schema, strict=True)
            self.schema = pa.schema([field.with_metadata(other.metadata) for field, other in told])
        self.num_rows: int = self._file.metadata.num_rows

    def batches(self, columns: Sequence[str], batch_size: int) -> Iterator[pa.RecordBatch]:
        """All rows in stored order; of the columns named, at least one.

        Raises:
            UnsupportedTableError: A timestamp of precision 7 to 9 is beyond what Arrow's nanoseconds hold.
        """
        if isinstance(self._remote, RemoteFile):
            self._remote.will_read(self._ranges(columns))
        self._check_int96(columns, batch_size)
        rows = max(1, min(self._rows_in_bytes(columns), _BATCHES_AT_ONCE * batch_size, _DECODED_ROWS))
        rows = rows // batch_size * batch_size or rows
        # Read in the order in which they lie in the file, so that none of its pieces is needed twice.
        stored = sorted(columns, key=self.schema.names.index)
        # Not where Arrow would call back into Python: requests to a store belong to the thread that asks.
        in_threads = isinstance(self._stream, pa.NativeFile) and self.num_rows > _FEW_ROWS
        for read in self._file.iter_batches(rows, columns=stored, use_threads=in_threads):
            batch = read.select(list(columns))
            for start in range(0, batch.num_rows, batch_size):
                yield batch.slice(start, batch_size)

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

    def _rows_in_bytes(self, columns: Sequence[str]) -> int:
        """How many rows take about `_DECODED_BYTES`, without what dictionaries save."""
        wanted = frozenset(columns)
        metadata = self._file.metadata
        size = 0
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            chunks = (group.column(index) for index in range(group.num_columns))
            size += sum(c.total_uncompressed_size for c in chunks if c.path_in_schema.partition(".")[0] in wanted)
        return _DECODED_BYTES * self.num_rows // max(size, 1)

    def _check_int96(self, columns: Sequence[str], batch_size: int) -> None:
        """Look at INT96 timestamps as microseconds first: as nanoseconds Arrow wraps them silently.

        Years 2262 to 2846 cannot be told from times before 1970 as Java writes them, and pass.
        """
        leaves = (self._file.schema.column(index) for index in range(len(self._file.schema)))
        paths = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
        names = [name for name in columns if any(path == name or path.startswith(f"{name}.") for path in paths)]
        if not names:
            return
        coarse = pq.ParquetFile(self._stream, coerce_int96_timestamp_unit="us")
        for batch in coarse.iter_batches(batch_size, columns=names, use_threads=False):
            for array in batch.columns:
                _check_nanoseconds(array)


def _check_nanoseconds(array: pa.Array) -> None:
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            _check_nanoseconds(child)
    elif pa.types.is_map(array.type):
        _check_nanoseconds(array.keys)
        _check_nanoseconds(array.items)
    elif pa.types.is_list(array.type):
        _check_nanoseconds(array.flatten())
    elif pa.types.is_timestamp(array.type) and array.type.unit == "us":
        micros = array.cast(pa.int64())
        moved = pc.subtract(micros, _NEGATIVE_TIME_OF_DAY)
        fits = pc.or_(pc.less_equal(pc.abs(micros), _LIMIT), pc.less_equal(pc.abs(moved), _LIMIT + 1))
        if not pc.all(fits, min_count=0).as_py():
            raise UnsupportedTableError(
                "A timestamp of precision 7 to 9 lies before 1677 or after 2262, where Arrow's nanoseconds end."
            )


def _holds_vectors(kind: pa.DataType) -> bool:
    children = (kind.field(index).type for index in range(kind.num_fields))
    return bool(pa.types.is_fixed_size_list(kind) or any(map(_holds_vectors, children)))


def _without_arrow_schema(stream: Any) -> Any:
    """The same file, but that Arrow does not find the schema which a writer that used Arrow left in the footer."""
    stream.seek(-8, io.SEEK_END)
    end = stream.tell()
    length = int.from_bytes(stream.read(4), "little")
    start = end - length
    stream.seek(start)
    return _Overlaid(stream, start, bytes(stream.read(length)).replace(_ARROW_SCHEMA, _NO_SCHEMA))


class _Overlaid(io.RawIOBase):
    """A file with other bytes in one place.

    Args:
        stream: The file, which can seek.
        start: Where the bytes belong.
        data: The bytes.
    """

    def __init__(self, stream: Any, start: int, data: bytes) -> None:
        self._stream = stream
        self._start = start
        self._data = data

    def read(self, size: int | None = -1) -> bytes:
        position = self._stream.tell()
        found = bytes(self._stream.read(-1 if size is None else size))
        skipped = position - self._start
        ahead = found[: max(0, -skipped)]
        laid = self._data[max(0, skipped) : max(0, skipped + len(found))]
        return ahead + laid + found[len(ahead) + len(laid) :]

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._stream.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        return int(self._stream.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
