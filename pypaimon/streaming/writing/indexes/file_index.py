"""`FileIndex`: the indexes of one data file, from its first row on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.writing.indexes.bitmap import Bitmap
from pypaimon.streaming.writing.indexes.bloom_filter import BloomFilter
from pypaimon.streaming.writing.indexes.container import container
from pypaimon.streaming.writing.indexes.index_options import IndexedColumn
from pypaimon.streaming.writing.indexes.keys import keys_of


class _Index(Protocol):
    """The index of one column."""

    def add(self, keys: pa.Array) -> None:
        """Take the keys of more rows."""

    def data(self) -> bytes:
        """The index."""


class FileIndex:
    """What is found out about the columns of a file.

    Args:
        columns: Which indexes of which columns.
        schema: Schema of the rows.

    Raises:
        StreamConfigError: An option of an index cannot be read.
    """

    def __init__(self, columns: Sequence[IndexedColumn], schema: pa.Schema) -> None:
        self._indexes: list[tuple[IndexedColumn, _Index]] = [
            (each, _made(each, schema.field(each.column).type)) for each in columns
        ]

    def add(self, data: pa.Table) -> None:
        """Look at more rows."""
        keys: dict[str, list[pa.Array]] = {}
        for column, index in self._indexes:
            if column.column not in keys:
                keys[column.column] = [keys_of(chunk) for chunk in data[column.column].chunks]
            for chunk in keys[column.column]:
                index.add(chunk)

    def data(self) -> bytes:
        """All of them, as they lie beside the file or in its manifest."""
        found: dict[str, dict[str, bytes]] = {}
        for column, index in self._indexes:
            found.setdefault(column.column, {})[column.kind] = index.data()
        return container(found)


def _made(column: IndexedColumn, kind: pa.DataType) -> _Index:
    options = OptionValues(dict(column.options))
    if column.kind == "bitmap":
        return Bitmap(options, bool(pa.types.is_floating(kind)))
    return BloomFilter(options)
