"""`ParquetEncoder`: Arrow tables into a Parquet file with the physical types of Java's, so that Java reads it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.writing.files.distinct_values import mostly_distinct

_CODECS = ("none", "uncompressed", "snappy", "gzip", "lz4", "zstd", "brotli")
_INTEGER_DIGITS = 18
# Half of pyarrow's: a column of many values is found out to be one sooner, which takes a third less time.
_DICTIONARY_BYTES = 512 << 10
# Java expects decimals of up to 18 digits as integers, and fails on a filter over one that is not. Older versions of
# pyarrow write none.
_DECIMALS = "store_decimal_as_integer"
_HAS_DECIMALS = _DECIMALS in inspect.signature(pq.ParquetWriter.__init__).parameters


class ParquetEncoder:
    """One Parquet file that is being written.

    Args:
        stream: Where to.
        schema: Schema of all rows.
        compression: Name of the codec, in lower case.
        zstd_level: Level of zstd.
        page_index: Whether the file has a page index.

    Attributes:
        schema: The types that it takes.

    Raises:
        StreamConfigError: Parquet has no such codec.
    """

    def __init__(self, stream: Any, schema: pa.Schema, compression: str, zstd_level: int, *, page_index: bool) -> None:
        if compression not in _CODECS:
            raise StreamConfigError(f"'file.compression' = '{compression}': Parquet files have {', '.join(_CODECS)}.")
        self._stream = stream
        schema = self.schema = parquet_schema(schema)
        leaves = [(path, kind) for field in schema for path, kind in _leaves(field.name, field.type)]
        # Java looks for a decimal in a dictionary by its shortest bytes, and would pass rows over.
        self._dictionaries = [path for path, kind in leaves if not _is_wide(kind)]
        # Java has nanoseconds in this type only; see `check_format`.
        nanos = any(pa.types.is_timestamp(kind) and kind.unit == "ns" for _, kind in leaves)
        # Those of Arrow leave NaN out, and Java, for which it is the greatest value, would pass it over.
        told: Any = [path for path, kind in leaves if not pa.types.is_floating(kind)]
        self._settings: dict[str, Any] = {
            "compression": compression,
            "compression_level": zstd_level if compression == "zstd" else None,
            "dictionary_pagesize_limit": _DICTIONARY_BYTES,
            "use_deprecated_int96_timestamps": nanos,
            "write_statistics": True if len(told) == len(leaves) else told or False,
            "write_page_index": page_index,
            **({_DECIMALS: True} if _HAS_DECIMALS else {}),
        }
        self._writer: pq.ParquetWriter | None = None

    def write(self, data: pa.Table) -> None:
        """Add rows: a row group. The first ones tell which columns are worth a dictionary."""
        if self._writer is None:
            self._writer = self._open(data)
        self._writer.write_table(data)

    def size(self) -> int:
        """Bytes so far."""
        return int(self._stream.tell())

    def close(self) -> None:
        """Write the footer."""
        writer = self._writer or self._open(self.schema.empty_table())
        writer.close()

    def _open(self, first_rows: pa.Table) -> pq.ParquetWriter:
        left_out = mostly_distinct(first_rows)
        dictionaries = [path for path in self._dictionaries if path not in left_out]
        return pq.ParquetWriter(self._stream, self.schema, use_dictionary=dictionaries, **self._settings)


def parquet_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with lists for vectors: Java has them so, and Arrow writes no vector that is null."""
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
    """The columns of a Parquet file that a column of a table becomes."""
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
