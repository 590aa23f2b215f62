"""The file indexes that a table's options ask for, and the ones of a new data file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from pypaimon.streaming.indexes.bitmap import BitmapIndexWriter
from pypaimon.streaming.indexes.bloom_filter import BloomFilterWriter
from pypaimon.streaming.indexes.column_index import BOOLEAN, BYTES, MOMENTS, NUMBERS, TEXTS, keys_of, kind_of
from pypaimon.streaming.indexes.container import encode_container
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.paimon.internals import DataField

_LOG = StreamLog(__name__)

_PREFIX, _COLUMNS = option_keys.FILE_INDEX_COLUMNS.name.split("#")
_WRITTEN = {"bloom-filter": NUMBERS | MOMENTS | TEXTS | BYTES, "bitmap": NUMBERS | MOMENTS | TEXTS | BOOLEAN}
"""Types of columns that Java indexes with each kind."""


@dataclass(frozen=True, slots=True)
class IndexedColumn:
    """One index of one column."""

    column: str  # The column, or `map[key]` for the values of a key
    kind: str
    options: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.kind} of {self.column}"


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """The file indexes of a table (`file-index.<kind>.columns`)."""

    written: tuple[IndexedColumn, ...]
    unwritten: tuple[IndexedColumn, ...]
    embedded_bytes: int  # Up to this many bytes, indexes are in the manifest instead of a file of their own

    @staticmethod
    def of(options: TableOptions, fields: Sequence[DataField]) -> IndexOptions:
        kinds = {field.name: kind_of(field.type) for field in fields}
        found = indexed_columns(options)
        written = tuple(each for each in found if kinds.get(each.column) in _WRITTEN.get(each.kind, ()))
        embedded = option_keys.FILE_INDEX_IN_MANIFEST_THRESHOLD.of(options)
        return IndexOptions(written, tuple(each for each in found if each not in written), embedded)


def indexed_columns(raw: Mapping[str, str]) -> list[IndexedColumn]:
    found = []
    for key, value in raw.items():
        if key.startswith(_PREFIX) and key.endswith(_COLUMNS):
            kind = key[len(_PREFIX) : -len(_COLUMNS)]
            for column in filter(None, (each.strip() for each in str(value).split(","))):
                own = f"{_PREFIX}{kind}.{column.partition('[')[0]}."
                options = {name[len(own) :]: each for name, each in raw.items() if name.startswith(own)}
                found.append(IndexedColumn(column, kind, options))
    return found


class _IndexWriter(Protocol):
    def add(self, keys: pa.Array) -> None:
        """Add the keys of more rows."""

    def data(self) -> bytes:
        """The bytes of the index."""


class FileIndex:
    """Makes the indexes of a new data file."""

    def __init__(self, columns: Sequence[IndexedColumn], schema: pa.Schema) -> None:
        self._indexes: list[tuple[IndexedColumn, _IndexWriter]] = [
            (each, _made(each, schema.field(each.column).type)) for each in columns
        ]

    def add(self, data: pa.Table) -> None:
        keys: dict[str, list[pa.Array]] = {}
        for column, index in self._indexes:
            if column.column not in keys:
                keys[column.column] = [keys_of(chunk) for chunk in data[column.column].chunks]
            for chunk in keys[column.column]:
                index.add(chunk)

    def data(self) -> bytes:
        found: dict[str, dict[str, bytes]] = {}
        for column, index in self._indexes:
            found.setdefault(column.column, {})[column.kind] = index.data()
        return encode_container(found)


def _made(column: IndexedColumn, kind: pa.DataType) -> _IndexWriter:
    options = column.options
    if column.kind == "bitmap":
        return BitmapIndexWriter(options, bool(pa.types.is_floating(kind)))
    return BloomFilterWriter(options)
