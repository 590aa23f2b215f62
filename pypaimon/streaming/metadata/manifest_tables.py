"""Manifest lists and manifests as Arrow tables with fixed columns for files of all releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.formats import record_files
from pypaimon.streaming.formats.avro_container import Container
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.file_paths import check_file_name, check_file_names

_KINDS = frozenset(EntryKind)
_OTHER_KIND = "the manifest holds entries that neither add nor delete a file"
_NEVER_NEGATIVE = frozenset(("file_size", "row_count", "num_added_files", "num_deleted_files"))
_LONGS = pa.list_(pa.int64())
_STRINGS = pa.list_(pa.string())
_Column = tuple[str, str, pa.DataType, bool]

# Name, path in the record, type, and whether every release writes it.
_ENTRY_COLUMNS: tuple[_Column, ...] = (
    ("kind", "_KIND", pa.int8(), True),
    ("partition", "_PARTITION", pa.binary(), True),
    ("bucket", "_BUCKET", pa.int32(), True),
    ("total_buckets", "_TOTAL_BUCKETS", pa.int32(), True),
    ("file_name", "_FILE._FILE_NAME", pa.string(), True),
    ("file_size", "_FILE._FILE_SIZE", pa.int64(), True),
    ("row_count", "_FILE._ROW_COUNT", pa.int64(), True),
    ("min_key", "_FILE._MIN_KEY", pa.binary(), True),
    ("max_key", "_FILE._MAX_KEY", pa.binary(), True),
    ("key_min", "_FILE._KEY_STATS._MIN_VALUES", pa.binary(), True),
    ("key_max", "_FILE._KEY_STATS._MAX_VALUES", pa.binary(), True),
    ("key_nulls", "_FILE._KEY_STATS._NULL_COUNTS", _LONGS, True),
    ("value_min", "_FILE._VALUE_STATS._MIN_VALUES", pa.binary(), True),
    ("value_max", "_FILE._VALUE_STATS._MAX_VALUES", pa.binary(), True),
    ("value_nulls", "_FILE._VALUE_STATS._NULL_COUNTS", _LONGS, True),
    ("min_sequence_number", "_FILE._MIN_SEQUENCE_NUMBER", pa.int64(), True),
    ("max_sequence_number", "_FILE._MAX_SEQUENCE_NUMBER", pa.int64(), True),
    ("schema_id", "_FILE._SCHEMA_ID", pa.int64(), True),
    ("level", "_FILE._LEVEL", pa.int32(), True),
    ("extra_files", "_FILE._EXTRA_FILES", _STRINGS, True),
    ("creation_time", "_FILE._CREATION_TIME", pa.int64(), False),
    ("delete_row_count", "_FILE._DELETE_ROW_COUNT", pa.int64(), False),
    ("embedded_index", "_FILE._EMBEDDED_FILE_INDEX", pa.binary(), False),
    ("file_source", "_FILE._FILE_SOURCE", pa.int8(), False),
    ("value_stats_cols", "_FILE._VALUE_STATS_COLS", _STRINGS, False),
    ("external_path", "_FILE._EXTERNAL_PATH", pa.string(), False),
    ("first_row_id", "_FILE._FIRST_ROW_ID", pa.int64(), False),
    ("write_cols", "_FILE._WRITE_COLS", _STRINGS, False),
    ("write_cols_sequences", "_FILE._WRITE_COLS_SEQUENCES", _LONGS, False),
)
_MANIFEST_COLUMNS: tuple[_Column, ...] = (
    ("file_name", "_FILE_NAME", pa.string(), True),
    ("file_size", "_FILE_SIZE", pa.int64(), True),
    ("num_added_files", "_NUM_ADDED_FILES", pa.int64(), True),
    ("num_deleted_files", "_NUM_DELETED_FILES", pa.int64(), True),
    ("partition_min", "_PARTITION_STATS._MIN_VALUES", pa.binary(), True),
    ("partition_max", "_PARTITION_STATS._MAX_VALUES", pa.binary(), True),
    ("partition_nulls", "_PARTITION_STATS._NULL_COUNTS", _LONGS, True),
    ("schema_id", "_SCHEMA_ID", pa.int64(), True),
    ("min_bucket", "_MIN_BUCKET", pa.int32(), False),
    ("max_bucket", "_MAX_BUCKET", pa.int32(), False),
    ("min_level", "_MIN_LEVEL", pa.int32(), False),
    ("max_level", "_MAX_LEVEL", pa.int32(), False),
    ("min_row_id", "_MIN_ROW_ID", pa.int64(), False),
    ("max_row_id", "_MAX_ROW_ID", pa.int64(), False),
)

ENTRY_SCHEMA = pa.schema([(name, type_) for name, _, type_, _ in _ENTRY_COLUMNS])
"""Columns of `ManifestReader.entries`.

`kind` is an `EntryKind`; `file_source` is 0 (APPEND), 1 (COMPACT) or null (unknown).
`creation_time` is as stored: milliseconds since 1970 of the *local* wall clock of the writer, not of UTC
(Java's `DataFileMeta.creationTimeEpochMillis` interprets it in the zone of the reading JVM).
Rows of statistics and partitions are serialised `BinaryRow`s, see `binary_row`."""

STATISTICS = ("key_min", "key_max", "key_nulls", "value_min", "value_max", "value_nulls", "value_stats_cols")
"""Columns of entries that only filters use, which take more than half of the memory of an entry."""
FILE_SCHEMA = pa.schema([field for field in ENTRY_SCHEMA if field.name not in STATISTICS])
"""`ENTRY_SCHEMA` without statistics, which are then not decoded."""

BOUNDS = ("value_min", "value_max", "value_stats_cols")
BOUNDED_SCHEMA = pa.schema([field for field in ENTRY_SCHEMA if field.name not in STATISTICS or field.name in BOUNDS])
"""`FILE_SCHEMA` with the bounds of ORC files, which show the time zone of their writers; null without ORC files."""

MANIFEST_SCHEMA = pa.schema([(name, type_) for name, _, type_, _ in _MANIFEST_COLUMNS])
"""Columns of `ManifestReader.manifest_list`; buckets, levels and row ids are null in older releases."""


@dataclass(frozen=True, slots=True)
class Parser:
    """Decodes files of one kind, of any release. Called with a file it returns its table, and raises as `together`."""

    columns: tuple[_Column, ...]
    schema: pa.Schema
    size: int | None = None  # Number of bytes that a file must have, if known
    count: int | None = None

    def __call__(self, data: bytes) -> pa.Table:
        return together([data], [self])[0]

    def split_records(self, data: bytes) -> record_files.Records:
        """The encoded records of a file. Raises what `together` raises."""
        if self.size is not None and len(data) != self.size:
            raise ValueError(f"the manifest list has {len(data)} bytes, its snapshot says {self.size}")
        records = record_files.parse(data)
        held = record_files.count(records)
        if self.count is not None and held != self.count:
            raise ValueError(f"the manifest holds {held} entries, its manifest list says {self.count}")
        return records

    def flattened(self, records: pa.Table | list[dict[str, Any]]) -> pa.Table:
        """The columns of at least one record. Raises what `together` raises."""
        try:
            if isinstance(records, list):
                return self._of_records(records)
            return self._checked([_column(records, path, type_, required) for _, path, type_, required in self.columns])
        except (pa.ArrowException, LookupError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"a column of the file has another type than it must have: {error}") from error

    def _of_records(self, records: list[dict[str, Any]]) -> pa.Table:
        columns = [_values(records, path, required) for _, path, _, required in self.columns]
        for values, (name, path, type_, required) in zip(columns, self.columns, strict=True):
            if required and None in values and not pa.types.is_list(type_):
                raise ValueError(f"{path} is null")
            if name == "file_name":
                for value in values:
                    check_file_name(value)
            elif name == "kind" and not _KINDS.issuperset(values):
                raise ValueError(_OTHER_KIND)
            elif name in _NEVER_NEGATIVE and min(values) < 0:
                raise ValueError(f"{path} is negative")
        rows = [dict(zip(self.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
        # As one struct array: making an Arrow array costs more than its few values.
        batch = pa.RecordBatch.from_struct_array(pa.array(rows, _struct_of(tuple(self.schema.names))))
        return pa.Table.from_batches([batch], self.schema)

    def _checked(self, arrays: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Table:
        for array, (name, path, type_, required) in zip(arrays, self.columns, strict=True):
            if required and array.null_count and not pa.types.is_list(type_):
                raise ValueError(f"{path} is null")
            if name == "file_name":
                check_file_names(array)
            elif name == "kind" and not np.isin(array.to_numpy(), list(_KINDS)).all():
                raise ValueError(_OTHER_KIND)
            elif name in _NEVER_NEGATIVE and array.to_numpy().min() < 0:
                raise ValueError(f"{path} is negative")
        return pa.table(arrays, schema=self.schema)


def list_parser(size: int | None = None) -> Parser:
    return Parser(_MANIFEST_COLUMNS, MANIFEST_SCHEMA, size=size)


def manifest_parser(count: int | None = None, schema: pa.Schema = ENTRY_SCHEMA) -> Parser:
    """Decodes manifests.

    Args:
        count: Number of entries that a file must hold, if known.
        schema: The columns to decode: `ENTRY_SCHEMA` or `FILE_SCHEMA`.
    """
    return Parser(_columns_of(tuple(schema.names)), schema, count=count)


@cache
def _columns_of(names: tuple[str, ...]) -> tuple[_Column, ...]:
    return tuple(each for each in _ENTRY_COLUMNS if each[0] in names)


@cache
def _struct_of(names: tuple[str, ...]) -> pa.StructType:
    types = {name: type_ for name, _, type_, _ in (*_MANIFEST_COLUMNS, *_ENTRY_COLUMNS)}
    return pa.struct([(name, types[name]) for name in names])


def together(files: Sequence[bytes], parsers: Sequence[Parser]) -> list[pa.Table]:
    """The tables of files of one kind. Small ones are decoded together, because a column costs more than its values.
    Raises ValueError if a file cannot be decoded, does not have the expected size, or holds an impossible value.
    """
    if parsers and parsers[0].schema.equals(BOUNDED_SCHEMA):
        return _with_bounds(files, parsers)
    return _together(files, parsers)


def _together(
    files: Sequence[bytes], parsers: Sequence[Parser], without_orc: Sequence[Parser] | None = None
) -> list[pa.Table]:
    """As `together`; `without_orc` are the parsers of manifests without ORC files."""
    tables: list[pa.Table | None] = [None] * len(files)
    used = list(parsers)
    # By the schema of their records, and the columns to decode.
    small: dict[tuple[bytes, int], list[int]] = {}
    decoded: dict[int, list[dict[str, Any]]] = {}
    for index, (data, parser) in enumerate(zip(files, parsers, strict=True)):
        records = parser.split_records(data)
        if not record_files.count(records):
            continue
        if without_orc is not None and not _may_name_orc_files(records):
            parser = used[index] = without_orc[index]
        table = record_files.to_arrow(records, [path for _, path, _, _ in parser.columns])
        if table is not None:
            tables[index] = parser.flattened(table)
        else:
            assert isinstance(records, Container)
            decoded[index] = record_files.to_records(records)
            small.setdefault((records.schema, len(parser.columns)), []).append(index)
    for alike in small.values():
        table = used[alike[0]].flattened([record for index in alike for record in decoded[index]])
        ends = np.cumsum([len(decoded[index]) for index in alike]).tolist()
        for index, start, end in zip(alike, [0, *ends], ends, strict=False):
            tables[index] = table.slice(start, end - start)
    return [
        parser.schema.empty_table() if table is None else table for parser, table in zip(parsers, tables, strict=True)
    ]


def _with_bounds(files: Sequence[bytes], parsers: Sequence[Parser]) -> list[pa.Table]:
    """As `together`, but decodes bounds, which are costly, only in manifests with ORC files."""
    found = _together(files, parsers, [manifest_parser(parser.count, FILE_SCHEMA) for parser in parsers])
    for index, table in enumerate(found):
        for place, field in enumerate(BOUNDED_SCHEMA):
            if field.name not in table.schema.names:
                table = table.add_column(place, field, pa.nulls(table.num_rows, field.type))
        found[index] = table
    return found


def _may_name_orc_files(records: record_files.Records) -> bool:
    return not isinstance(records, Container) or any(b"orc" in block for _, block in records.blocks)


def entry_records(entries: pa.Table) -> list[dict[str, Any]]:
    """The records of entries (rows of `ENTRY_SCHEMA`) as a manifest holds them: the inverse of `manifest_parser`."""
    columns = [(path.split("."), entries[name].to_pylist()) for name, path, _, _ in _ENTRY_COLUMNS]
    records: list[dict[str, Any]] = [{} for _ in range(entries.num_rows)]
    for (*outer, last), values in columns:
        for record, value in zip(records, values, strict=True):
            for name in outer:
                record = record.setdefault(name, {})
            record[last] = value
    return records


def _column(table: pa.Table, path: str, type_: pa.DataType, required: bool) -> pa.ChunkedArray:
    column = _at(table, path)
    if column is None:
        _check_absent(path, required)
        return pa.chunked_array([pa.nulls(table.num_rows, type_)])
    if pa.types.is_timestamp(column.type):
        # Avro holds the stored milliseconds, Parquet and ORC a timestamp in their own unit.
        column = column.cast(pa.timestamp("ms"))
    return column.cast(type_)


def _at(table: pa.Table, path: str) -> pa.ChunkedArray | None:
    names = path.split(".")
    for count in range(len(names), 0, -1):
        outer = ".".join(names[:count])
        if outer in table.schema.names:
            column = table[outer]
            for name in names[count:]:
                if column.type.get_field_index(name) < 0:
                    return None
                column = pc.struct_field(column, name)
            return column
    return None


def _values(records: list[dict[str, Any]], path: str, required: bool) -> list[Any]:
    values: list[Any] = records
    for name in path.split("."):
        if name not in values[0]:
            _check_absent(path, required)
            return [None] * len(records)
        values = [value[name] for value in values]
    return values


def _check_absent(path: str, required: bool) -> None:
    if required:
        raise ValueError(f"the records hold no {path}")
