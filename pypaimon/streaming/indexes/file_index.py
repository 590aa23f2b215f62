"""The file indexes that a table's options ask for, and the ones of a new data file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from pypaimon.streaming.indexes.bitmap import BitmapIndexWriter
from pypaimon.streaming.indexes.bloom_filter import BloomFilterWriter
from pypaimon.streaming.indexes.column_index import BOOLEAN, BYTES, DECIMAL, MOMENTS, NUMBERS, TEXTS, keys_of, kind_of
from pypaimon.streaming.indexes.container import encode_container
from pypaimon.streaming.indexes.range_bitmap_writer import BsiWriter, RangeBitmapWriter
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.model.data_types import parameter
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.paimon.internals import DataField, DataType

_LOG = StreamLog(__name__)

_PREFIX, _COLUMNS = option_keys.FILE_INDEX_COLUMNS.name.split("#")
_SCALARS = NUMBERS | MOMENTS
_WRITTEN = {
    "bloom-filter": _SCALARS | TEXTS | BYTES,
    "bitmap": _SCALARS | TEXTS | BOOLEAN,
    "range-bitmap": _SCALARS | TEXTS | BOOLEAN | DECIMAL,
    "bsi": _SCALARS - {"FLOAT", "DOUBLE"} | DECIMAL,
}
"""Types of columns that Java indexes with each kind."""
_LONGEST_DECIMAL = 18
_FINEST_MOMENT = 6


def _is_written(kind: str, data_type: DataType) -> bool:
    name, precision = kind_of(data_type), parameter(data_type)
    if name not in _WRITTEN.get(kind, ()):
        return False
    if name in DECIMAL:
        return (precision or 0) <= _LONGEST_DECIMAL
    return not (kind == "range-bitmap" and name in MOMENTS and (precision or 0) > _FINEST_MOMENT)


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
        types = {field.name: field.type for field in fields}
        found = indexed_columns(options)
        written = tuple(each for each in found if each.column in types and _is_written(each.kind, types[each.column]))
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

    def data(self) -> bytes | None:
        """The bytes of the index; None: such an index cannot hold the keys."""


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
            data = index.data()
            if data is not None:
                found.setdefault(column.column, {})[column.kind] = data
        return encode_container(found)


def _made(column: IndexedColumn, kind: pa.DataType) -> _IndexWriter:
    options = column.options
    if column.kind == "bitmap":
        return BitmapIndexWriter(options, bool(pa.types.is_floating(kind)))
    if column.kind == "range-bitmap":
        return RangeBitmapWriter(options, kind)
    return BsiWriter() if column.kind == "bsi" else BloomFilterWriter(options)
