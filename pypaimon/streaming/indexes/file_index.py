"""The file indexes that a table's options ask for, and the ones of a new data file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.indexes.bitmap import BitmapIndexWriter
from pypaimon.streaming.indexes.bloom_filter import BloomFilterWriter
from pypaimon.streaming.indexes.column_index import BOOLEAN, BYTES, DECIMAL, MOMENTS, NUMBERS, TEXTS, keys_of, kind_of
from pypaimon.streaming.indexes.range_bitmap_writer import BsiWriter, RangeBitmapWriter
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.model.data_types import parameter
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.paimon.internals import DataField, DataType, MapType

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


@dataclass(frozen=True, slots=True)
class IndexedColumn:
    """One index of one column."""

    column: str  # The column, or `map[key]` for the values of a key
    kind: str
    options: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.kind} of {self.column}"

    @property
    def field(self) -> str:
        """The column of the table."""
        return self.column if self.key is None else self.column.partition("[")[0]

    @property
    def key(self) -> str | None:
        """The key of a map whose values are indexed; None: the values of the column are."""
        _, opened, key = self.column.partition("[")
        return key[:-1] if opened and key.endswith("]") else None

    def renamed(self, field: str) -> IndexedColumn:
        """The same index, of a column of another name."""
        return replace(self, column=field if self.key is None else f"{field}[{self.key}]")


def _is_written(column: IndexedColumn, data_type: DataType) -> bool:
    kind = column.kind
    if column.key is not None:
        if not isinstance(data_type, MapType) or kind_of(data_type.key) not in TEXTS:
            return False
        data_type = data_type.value
    name, precision = kind_of(data_type), parameter(data_type)
    if name not in _WRITTEN.get(kind, ()):
        return False
    if name in DECIMAL:
        return (precision or 0) <= _LONGEST_DECIMAL
    return not (kind == "range-bitmap" and name in MOMENTS and (precision or 0) > _FINEST_MOMENT)


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
        written = tuple(each for each in found if each.field in types and _is_written(each, types[each.field]))
        embedded = option_keys.FILE_INDEX_IN_MANIFEST_THRESHOLD.of(options)
        return IndexOptions(written, tuple(each for each in found if each not in written), embedded)

    def are_embedded(self, parts: Mapping[str, Any], data: bytes) -> bool:
        """Whether the indexes of a file (`data`: their container) are in the manifest. Without any there is no file."""
        return not parts or len(data) <= self.embedded_bytes

    def of_file(self, fields: Sequence[DataField], stored: Sequence[DataField]) -> tuple[IndexedColumn, ...]:
        """The indexes of a file that was written with other columns: by its names of the columns that it has, of types
        that are indexed.

        Args:
            fields: The columns of the table, to which the options refer.
            stored: Those of the file.
        """
        ids = {field.name: field.id for field in fields}
        by_id = {field.id: field for field in stored}
        found = ((each, by_id.get(ids[each.field])) for each in self.written)
        renamed = ((each.renamed(field.name), field.type) for each, field in found if field is not None)
        return tuple(each for each, data_type in renamed if _is_written(each, data_type))


def indexed_columns(raw: Mapping[str, str]) -> list[IndexedColumn]:
    found = []
    for key, value in raw.items():
        if key.startswith(_PREFIX) and key.endswith(_COLUMNS):
            kind = key[len(_PREFIX) : -len(_COLUMNS)]
            for column in filter(None, (each.strip() for each in str(value).split(","))):
                # Options of a key of a map count before those of the map.
                options = {
                    name[len(own) :]: each
                    for own in (f"{_PREFIX}{kind}.{column.partition('[')[0]}.", f"{_PREFIX}{kind}.{column}.")
                    for name, each in raw.items()
                    if name.startswith(own)
                }
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
            (each, _made(each, _indexed_type(each, schema.field(each.field).type))) for each in columns
        ]

    def add(self, data: pa.Table) -> None:
        keys: dict[str, list[pa.Array]] = {}
        for column, index in self._indexes:
            if column.column not in keys:
                chunks = (_indexed(column, chunk) for chunk in data[column.field].chunks)
                keys[column.column] = [keys_of(chunk) for chunk in chunks]
            for chunk in keys[column.column]:
                index.add(chunk)

    def parts(self) -> dict[str, dict[str, bytes]]:
        """The indexes by column and kind, without those that cannot hold their values."""
        found: dict[str, dict[str, bytes]] = {}
        for column, index in self._indexes:
            data = index.data()
            if data is not None:
                found.setdefault(column.column, {})[column.kind] = data
        return found


def _indexed_type(column: IndexedColumn, kind: pa.DataType) -> pa.DataType:
    return kind if column.key is None else kind.item_type


def _indexed(column: IndexedColumn, values: pa.Array) -> pa.Array:
    """The values that are indexed: null for a map without the key."""
    if column.key is None:
        return values
    return pc.map_lookup(values, pa.scalar(column.key, values.type.key_type), "first")


def _made(column: IndexedColumn, kind: pa.DataType) -> _IndexWriter:
    options = column.options
    if column.kind == "bitmap":
        return BitmapIndexWriter(options, bool(pa.types.is_floating(kind)))
    if column.kind == "range-bitmap":
        return RangeBitmapWriter(options, kind)
    return BsiWriter() if column.kind == "bsi" else BloomFilterWriter(options)
