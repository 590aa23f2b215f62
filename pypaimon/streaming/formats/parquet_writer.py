"""Arrow tables into a Parquet file with the physical types that Java reads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.formats.file_format import WriteSettings
from pypaimon.streaming.formats.parquet_footer import end_with_timestamps
from pypaimon.streaming.model.arrow_types import with_leaves
from pypaimon.streaming.model.normal_form import normal_table

_CODECS = ("none", "uncompressed", "snappy", "gzip", "lz4", "zstd", "brotli")
_INTEGER_DIGITS = 18
# Half of pyarrow's: it gives up the dictionary of a column with many values sooner, which saves a third of the time.
_DICTIONARY_BYTES = 512 << 10
# Java expects decimals of up to 18 digits as integers, and fails if it filters others. Older versions of pyarrow do not
# write them so.
_DECIMALS = "store_decimal_as_integer"
_HAS_DECIMALS = _DECIMALS in inspect.signature(pq.ParquetWriter.__init__).parameters
_PIECES = 16
_PIECE_ROWS = 256
# A sample of 4,096 rows has 98 % distinct values if the column has 100,000, each as frequent as any other.
_SHARE = 0.97


class ParquetFileWriter:
    """One Parquet file that is being written; see `FormatWriter` and `Format.writer`."""

    def __init__(self, stream: Any, schema: pa.Schema, settings: WriteSettings) -> None:
        compression = settings.compression
        if compression not in _CODECS:
            raise StreamConfigError(f"'file.compression' = '{compression}': Parquet files have {', '.join(_CODECS)}.")
        self._stream = stream
        schema = self.schema = parquet_schema(schema)
        leaves = [(path, kind) for field in schema for path, kind in _leaves(field.name, field.type)]
        self._leaf_types = [kind for _, kind in leaves]
        # Java looks up a decimal in a dictionary by its shortest bytes, and would lose rows.
        self._dictionaries = [path for path, kind in leaves if not _is_wide(kind)]
        # Java reads timestamps of precision 7 to 9 from INT96 only, and filters those of other precisions by INT64.
        # pyarrow writes all of a file in the same way, so in a file with both it gets the latter as numbers, and the
        # footer is changed to say what they are.
        units = {kind.unit for kind in self._leaf_types if pa.types.is_timestamp(kind)}
        self._stored = None if len(units) < 2 or "ns" not in units else _mapped(schema, _as_number)
        # Arrow's statistics ignore NaN, the greatest value in Java, whose filters would lose it.
        bounded: Any = [path for path, kind in leaves if not pa.types.is_floating(kind)]
        self._settings: dict[str, Any] = {
            "compression": compression,
            "compression_level": settings.zstd_level if compression == "zstd" else None,
            "dictionary_pagesize_limit": _DICTIONARY_BYTES,
            "use_deprecated_int96_timestamps": "ns" in units,
            "write_statistics": True if len(bounded) == len(leaves) else bounded or False,
            "write_page_index": settings.page_index,
            **({_DECIMALS: True} if _HAS_DECIMALS else {}),
        }
        self._writer: pq.ParquetWriter | None = None

    def write(self, data: pa.Table) -> None:
        """Add a row group. The first one decides which columns have a dictionary."""
        if self._writer is None:
            self._writer = self._open(data)
        if self._stored is not None:
            # Parquet has no seconds.
            data = normal_table(normal_table(data, _mapped(self.schema, _in_millis)), self._stored)
        self._writer.write_table(data)

    def size(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        self._writer = self._writer or self._open(self.schema.empty_table())
        if self._stored is None:
            self._writer.close()
            return
        end = self._sink.hold()
        self._writer.close()
        self._stream.write(end_with_timestamps(bytes(end), self._leaf_types, self.schema))

    def _open(self, first_rows: pa.Table) -> pq.ParquetWriter:
        left_out = _mostly_distinct(first_rows)
        dictionaries = [path for path in self._dictionaries if path not in left_out]
        if self._stored is None:
            return pq.ParquetWriter(self._stream, self.schema, use_dictionary=dictionaries, **self._settings)
        self._sink = _HeldEnd(self._stream)
        return pq.ParquetWriter(self._sink, self._stored, use_dictionary=dictionaries, **self._settings)


class _HeldEnd:
    """A stream that keeps the end of a file, because it is changed before it is written."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._end: bytearray | None = None

    def hold(self) -> bytearray:
        """From now on, keep all bytes in what is returned."""
        self._end = bytearray()
        return self._end

    def write(self, data: bytes) -> int:
        if self._end is None:
            self._stream.write(data)
        else:
            self._end += data
        return len(data)

    def tell(self) -> int:
        # The footer has positions of what is before it, such as the page index.
        return int(self._stream.tell()) + len(self._end or b"")

    def flush(self) -> None:
        """Nothing to do: the owner of the stream flushes it."""


def parquet_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with lists for vectors, as Java has them; Arrow cannot write a vector that is null."""
    return _mapped(schema, lambda kind: kind)


def _mapped(schema: pa.Schema, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
    """The schema with lists for vectors, and with other types for values."""
    return pa.schema([field.with_type(with_leaves(field.type, leaf)) for field in schema])


def _as_number(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(kind) and kind.unit != "ns" else kind


def _in_millis(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("ms", kind.tz) if pa.types.is_timestamp(kind) and kind.unit == "s" else kind


def _is_wide(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind)) and (kind.precision > _INTEGER_DIGITS or not _HAS_DECIMALS)


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind


def _mostly_distinct(data: pa.Table) -> set[str]:
    step = max(_PIECE_ROWS, data.num_rows // _PIECES)
    sample = pa.concat_tables([data.slice(start, _PIECE_ROWS) for start in range(0, data.num_rows or 1, step)])
    # If values hardly repeat, a dictionary costs time and bytes.
    return {name for name in data.column_names if _is_mostly_distinct(sample[name])}


def _is_mostly_distinct(column: pa.ChunkedArray) -> bool:
    if pa.types.is_nested(column.type):
        return False
    values = len(column) - column.null_count
    return bool(pc.count_distinct(column).as_py() > _SHARE * values)
