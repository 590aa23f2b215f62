"""Footers of Parquet files, changed so that Arrow reads what it would refuse or falsify; pages that it cannot read."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pypaimon.streaming.formats import thrift
from pypaimon.streaming.formats.thrift import Struct

_MAGIC = b"PAR1"
_END_SIZE = 8
_ARROW_SCHEMA = b"ARROW:schema"
# Fields of `FileMetaData` in Parquet's `parquet.thrift`.
_SCHEMA, _ROW_GROUPS, _KEY_VALUES = 2, 4, 5
# Of `SchemaElement`.
_TYPE, _TYPE_LENGTH, _NAME, _CHILDREN, _LOGICAL_TYPE = 1, 2, 4, 5, 10
# Of `RowGroup`, `ColumnChunk`, `ColumnMetaData` and `KeyValue`.
_COLUMNS, _META_DATA, _CHUNK_TYPE, _KEY = 1, 3, 1, 1
# Of `PageHeader`, and of `DataPageHeaderV2`.
_COMPRESSED_SIZE, _DATA_PAGE_V2 = 3, 8
_DEFINITION_LEVELS, _REPETITION_LEVELS, _IS_COMPRESSED = 5, 6, 7
_INT96, _FIXED_LEN_BYTE_ARRAY, _INT96_SIZE = 3, 7, 12
_LAST_LOGICAL_TYPE = 15
"""FLOAT16. All releases of pyarrow that are supported know the logical types up to it."""


def as_stored(metadata: pq.FileMetaData) -> pq.FileMetaData:
    """A footer by which Arrow gives INT96 as 12 bytes, and no column the type that it had when Arrow wrote it.

    Arrow makes timestamps of INT96 that wrap, or that are 584 years late where Java wrote a negative time of day. Told
    by its writer that lists are vectors, it refuses those that are null; told so of dictionaries, it makes some.
    """
    out = pa.BufferOutputStream()
    metadata.write_metadata_file(out)
    footer = _footer(out.getvalue().to_pybytes())
    for element in _items(footer, _SCHEMA):
        if element.get(_TYPE) == (thrift.I32, _INT96):
            element[_TYPE] = thrift.I32, _FIXED_LEN_BYTE_ARRAY
            element[_TYPE_LENGTH] = thrift.I32, _INT96_SIZE
    for group in _items(footer, _ROW_GROUPS):
        for chunk in _items(group, _COLUMNS):
            content = chunk[_META_DATA][1]
            if content[_CHUNK_TYPE][1] == _INT96:
                content[_CHUNK_TYPE] = thrift.I32, _FIXED_LEN_BYTE_ARRAY
    if _KEY_VALUES in footer:
        kept = [pair for pair in _items(footer, _KEY_VALUES) if pair[_KEY][1] != _ARROW_SCHEMA]
        footer[_KEY_VALUES] = thrift.LIST, (thrift.STRUCT, kept)
    return _metadata(footer)


def without_unknown_types(stream: Any) -> tuple[pq.FileMetaData, dict[str, int]]:
    """The footer of a file without logical types that Arrow may not know, and the columns that have such.

    Arrow refuses a file with such a type as a whole.

    Args:
        stream: The file, which can seek.

    Returns:
        The footer; the number of such a type, by the name of the column.

    Raises:
        ValueError: The footer is damaged.
    """
    stream.seek(-_END_SIZE, io.SEEK_END)
    length = int.from_bytes(bytes(stream.read(4)), "little")
    stream.seek(-_END_SIZE - length, io.SEEK_END)
    footer = _footer(bytes(stream.read(length + _END_SIZE)))
    unknown: dict[str, int] = {}
    column, left = "", 0
    for element in _items(footer, _SCHEMA)[1:]:
        # The tree in preorder: `left` elements are below the column.
        if not left:
            column, left = element[_NAME][1].decode("utf-8", "replace"), 1
        left += element.get(_CHILDREN, (0, 0))[1] - 1
        kinds = element.get(_LOGICAL_TYPE, (0, {}))[1]
        if kinds and max(kinds) > _LAST_LOGICAL_TYPE:
            unknown[column] = max(kinds)
            del element[_LOGICAL_TYPE]
    return _metadata(footer), unknown


def has_empty_page(chunk: bytes) -> bool:
    """Whether the pages of a column chunk include one (of version 2) whose values are said to be compressed, and none.

    Raises:
        ValueError: They are damaged.
    """
    position = 0
    while position < len(chunk):
        header, position = thrift.decode(chunk, position)
        stored = header[_COMPRESSED_SIZE][1]
        page = header.get(_DATA_PAGE_V2, (0, {}))[1]
        levels = sum(page.get(field, (0, 0))[1] for field in (_DEFINITION_LEVELS, _REPETITION_LEVELS))
        if page and stored == levels and page.get(_IS_COMPRESSED, (0, True))[1]:
            return True
        position += stored
    return False


def _footer(data: bytes) -> Struct:
    """The footer out of the end of a file."""
    if data[-4:] != _MAGIC:
        raise ValueError("the file does not end as Parquet does")
    length = int.from_bytes(data[-_END_SIZE:-4], "little")
    return thrift.decode(data[-_END_SIZE - length : -_END_SIZE])[0]


def _metadata(footer: Struct) -> pq.FileMetaData:
    data = thrift.encode(footer)
    return pq.read_metadata(pa.BufferReader(b"".join((_MAGIC, data, len(data).to_bytes(4, "little"), _MAGIC))))


def _items(struct: Struct, field: int) -> list[Struct]:
    """The structs in a list."""
    found: list[Struct] = struct[field][1][1]
    return found
