"""Arrow tables into a Parquet file with the physical types that Java reads."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.formats.file_format import WriteSettings

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
        # Java looks up a decimal in a dictionary by its shortest bytes, and would lose rows.
        self._dictionaries = [path for path, kind in leaves if not _is_wide(kind)]
        # Java reads nanoseconds from INT96 only; see `check_format`.
        nanos = any(pa.types.is_timestamp(kind) and kind.unit == "ns" for _, kind in leaves)
        # Arrow's statistics ignore NaN, the greatest value in Java, whose filters would lose it.
        bounded: Any = [path for path, kind in leaves if not pa.types.is_floating(kind)]
        self._settings: dict[str, Any] = {
            "compression": compression,
            "compression_level": settings.zstd_level if compression == "zstd" else None,
            "dictionary_pagesize_limit": _DICTIONARY_BYTES,
            "use_deprecated_int96_timestamps": nanos,
            "write_statistics": True if len(bounded) == len(leaves) else bounded or False,
            "write_page_index": settings.page_index,
            **({_DECIMALS: True} if _HAS_DECIMALS else {}),
        }
        self._writer: pq.ParquetWriter | None = None

    def write(self, data: pa.Table) -> None:
        """Add a row group. The first one decides which columns have a dictionary."""
        if self._writer is None:
            self._writer = self._open(data)
        self._writer.write_table(data)

    def size(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        writer = self._writer or self._open(self.schema.empty_table())
        writer.close()

    def _open(self, first_rows: pa.Table) -> pq.ParquetWriter:
        left_out = _mostly_distinct(first_rows)
        dictionaries = [path for path in self._dictionaries if path not in left_out]
        return pq.ParquetWriter(self._stream, self.schema, use_dictionary=dictionaries, **self._settings)


def parquet_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with lists for vectors, as Java has them; Arrow cannot write a vector that is null."""
    return pa.schema([field.with_type(_with_lists(field.type)) for field in schema])


def _with_lists(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_lists(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = (field.with_type(_with_lists(field.type)) for field in (kind.key_field, kind.item_field))
        return pa.map_(key, item)
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_with_lists(kind.value_type)))
    return kind


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
