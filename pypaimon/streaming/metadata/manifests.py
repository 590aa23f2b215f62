"""Manifest lists and manifests of a table in bulk: Arrow tables with fixed columns, whatever release wrote the file."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache

from pypaimon.streaming.concurrency.forking import cache_lock, polars_works
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.formats import record_files
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.file_paths import check_file_names
from pypaimon.streaming.metadata.index_manifests import IndexEntry, parse_index_manifest

# What a column takes beside its values, measured.
_BYTES_PER_COLUMN = 1024
_SMALL_BYTES = 16 << 10
_FETCHED_BYTES = 32 << 20
_LONGS = pa.list_(pa.int64())
_STRINGS = pa.list_(pa.string())
_Column = tuple[str, str, pa.DataType, bool]
_Parsers = Mapping[str, Callable[[bytes], pa.Table]]

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
"""Columns of entries that only filters look at: more than half of what an entry takes."""
FILE_SCHEMA = pa.schema([field for field in ENTRY_SCHEMA if field.name not in STATISTICS])
"""`ENTRY_SCHEMA` without statistics, which are not decoded then."""

_IDENTIFIERS = ["partition", "bucket", "level", "file_name", "extra_files", "embedded_index", "external_path"]
MANIFEST_SCHEMA = pa.schema([(name, type_) for name, _, type_, _ in _MANIFEST_COLUMNS])
"""Columns of `ManifestReader.manifest_list`; buckets, levels and row ids are null where the release knows none."""


class ManifestReader:
    """Manifest lists, manifests and index manifests of one table, for all its branches.

    The files are immutable and their names unique, so they are kept by name, up to `cache_bytes`: small ones as they
    are stored, since decoded they take tens of times as much, others decoded. Thread-safe.

    Args:
        store: Where the files are.
        table_path: Root directory of the table. Branches keep their manifests there too.
        cache_bytes: Bound of the cache, in bytes of memory.
    """

    def __init__(self, store: Store, table_path: str, cache_bytes: int = 64 << 20) -> None:
        self._store = store
        self._directory = f"{table_path.rstrip('/')}/manifest"
        self._cache: LRUCache[str, pa.Table | bytes] = LRUCache(cache_bytes, getsizeof=_memory_of)
        self._lock = cache_lock(self._cache)

    def through(self, store: Store) -> ManifestReader:
        """The same manifests, read through another store of the same files."""
        other = copy.copy(self)
        other._store = store
        return other

    def manifest_list(self, name: str, size: int | None = None) -> pa.Table:
        """The manifests of a manifest list, in its order (`MANIFEST_SCHEMA`). One request unless cached.

        Args:
            name: Name of the file.
            size: Its size in bytes, where the snapshot tells.

        Raises:
            FileNotFoundError: There is no such manifest list.
            CorruptTableError: It cannot be decoded, or is not of this size.
        """
        return self._lists({name: partial(parse_manifest_list, size=size)})[name]

    def manifest_lists(self, names: Sequence[str]) -> list[pa.Table]:
        """Several manifest lists, in this order. What is not cached is fetched concurrently, one request each.

        Raises:
            FileNotFoundError: One is missing.
            CorruptTableError: One cannot be decoded.
        """
        decoded = self._lists(dict.fromkeys(names, parse_manifest_list))
        return [decoded[name] for name in names]

    def entries(
        self,
        manifests: pa.Table,
        schema: pa.Schema = ENTRY_SCHEMA,
        kept: Callable[[pa.Table], pa.Table] | None = None,
    ) -> pa.Table:
        """The entries of these manifests, in the order of the manifests.

        What is not cached is fetched concurrently, one request each, of large manifests some at a time; each is
        decoded, filtered and let go before the next one.

        Args:
            manifests: Rows of `MANIFEST_SCHEMA`.
            schema: The columns that are wanted: `ENTRY_SCHEMA` or `FILE_SCHEMA`.
            kept: Gives those of a manifest's entries that are wanted; None: all.

        Raises:
            FileNotFoundError: A manifest is missing.
            CorruptTableError: A manifest cannot be decoded, does not hold as many entries as its list says, or is there
                twice.
        """
        names = manifests["file_name"].to_pylist()
        if len(set(names)) < len(names):
            twice = next(name for index, name in enumerate(names) if name in names[:index])
            raise CorruptTableError(self._path(twice), "its manifest list names it twice")
        found = [schema.empty_table()]
        for portion in _portions(manifests):
            parsers = _parsers(portion, schema)
            fetched = self._fetched(parsers, schema)
            for name in portion["file_name"].to_pylist():
                entries = self._decoded(name, fetched.pop(name), parsers[name]).select(schema.names)
                found.append(entries if kept is None else kept(entries))
        return pa.concat_tables(found)

    def read_ahead(self, manifests: pa.Table, schema: pa.Schema = ENTRY_SCHEMA) -> None:
        """Have these manifests at hand for `entries`; small ones are not decoded yet. Errors as `entries`."""
        parsers = _parsers(manifests, schema)
        for name, content in self._fetched(parsers, schema).items():
            if isinstance(content, bytes) and len(content) > _SMALL_BYTES:
                self._decoded(name, content, parsers[name])

    def index_entries(self, name: str) -> tuple[IndexEntry, ...]:
        """The index files of an index manifest. One request.

        Raises:
            FileNotFoundError: There is no such index manifest.
            CorruptTableError: It cannot be decoded.
        """
        return self._store.parse(self._path(name), parse_index_manifest)

    def _lists(self, parsers: _Parsers) -> dict[str, pa.Table]:
        found = self._fetched(parsers, MANIFEST_SCHEMA)
        return {name: self._decoded(name, content, parsers[name]) for name, content in found.items()}

    def _fetched(self, parsers: _Parsers, schema: pa.Schema) -> dict[str, pa.Table | bytes]:
        """The files of these names; what is not cached is fetched concurrently, and comes as it is stored."""
        found = {name: self._cached(name, schema) for name in parsers}
        missing = [name for name, content in found.items() if content is None]
        for name, data in zip(missing, self._store.read_many([self._path(name) for name in missing]), strict=True):
            if data is None:
                raise FileNotFoundError(self._path(name))
            found[name] = data
            if len(data) <= _SMALL_BYTES:
                self._keep(name, data)
        return {name: content for name, content in found.items() if content is not None}

    def _decoded(self, name: str, content: pa.Table | bytes, parser: Callable[[bytes], pa.Table]) -> pa.Table:
        """A file decoded. If its bytes are damaged it is read again, and what could be decoded is kept."""
        if isinstance(content, pa.Table):
            return content
        table, read = self._store.parse_data(self._path(name), content, lambda data: (parser(data), data))
        if len(read) > _SMALL_BYTES:
            self._keep(name, table)
        elif read is not content:
            self._keep(name, read)
        return table

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _cached(self, name: str, schema: pa.Schema) -> pa.Table | bytes | None:
        """What is cached of a file, if it has these columns."""
        with self._lock.held:
            content = self._cache.get(name)
        if isinstance(content, pa.Table) and not set(schema.names) <= set(content.schema.names):
            return None
        return content

    def _keep(self, name: str, content: pa.Table | bytes) -> None:
        with self._lock.held:
            if _memory_of(content) <= self._cache.maxsize:
                self._cache[name] = content


def _portions(manifests: pa.Table) -> Iterator[pa.Table]:
    """The manifests in their order, cut so that those of each portion are about as large together as may be fetched."""
    ends = np.cumsum(manifests["file_size"].to_numpy())
    first = 0
    while first < manifests.num_rows:
        before = ends[first - 1] if first else 0
        end = max(first + 1, int(np.searchsorted(ends, before + _FETCHED_BYTES, side="right")))
        yield manifests.slice(first, end - first)
        first = end


def _parsers(manifests: pa.Table, schema: pa.Schema) -> _Parsers:
    names: list[str] = manifests["file_name"].to_pylist()
    counts = pc.add(manifests["num_added_files"], manifests["num_deleted_files"]).to_pylist()
    return {
        name: partial(parse_manifest, count=count, schema=schema) for name, count in zip(names, counts, strict=True)
    }


def _memory_of(content: pa.Table | bytes) -> int:
    """What a file counts in the cache: of a table with few rows most is not in its buffers; small files are few too."""
    if isinstance(content, bytes):
        return _SMALL_BYTES
    size: int = content.get_total_buffer_size()
    columns: int = content.num_columns
    return size + columns * _BYTES_PER_COLUMN


def parse_manifest_list(data: bytes, size: int | None = None) -> pa.Table:
    """Decode a manifest list of any release into `MANIFEST_SCHEMA`.

    Args:
        data: The file.
        size: Number of bytes that it must have, if known.

    Raises:
        ValueError: It cannot be decoded, or the size is another one.
    """
    if size is not None and len(data) != size:
        raise ValueError(f"the manifest list has {len(data)} bytes, its snapshot says {size}")
    return _flatten(record_files.parse(data), _MANIFEST_COLUMNS, MANIFEST_SCHEMA)


def parse_manifest(data: bytes, count: int | None = None, schema: pa.Schema = ENTRY_SCHEMA) -> pa.Table:
    """Decode a manifest of any release.

    Args:
        data: The file.
        count: Number of entries that it must hold, if known.
        schema: The columns that are wanted: `ENTRY_SCHEMA` or `FILE_SCHEMA`.

    Raises:
        ValueError: It cannot be decoded, or the number is another one.
    """
    records = record_files.parse(data)
    held = record_files.count(records)
    if count is not None and held != count:
        raise ValueError(f"the manifest holds {held} entries, its manifest list says {count}")
    entries = _flatten(records, tuple(each for each in _ENTRY_COLUMNS if each[0] in schema.names), schema)
    if not pc.all(pc.is_in(entries["kind"], pa.array([*EntryKind], pa.int8())), min_count=0).as_py():
        raise ValueError("the manifest holds entries that neither add nor delete a file")
    return entries


def without(entries: pa.Table, others: pa.Table, column: str = "file_name") -> pa.Table:
    """Entries, or manifests, that are not among the others, told apart by a column."""
    return entries.filter(pc.invert(pc.is_in(entries[column], value_set=others[column].combine_chunks())))


def live(entries: pa.Table) -> pa.Table:
    """The files that are left: ADD entries in their order, without what DELETE entries name.

    As in Java's `AbstractFileStoreScan`, the place of the DELETE entry among the manifests does not matter, and a file
    is the same one if partition, bucket, level, file name, extra files, embedded index and external path are.
    """
    is_add = pc.equal(entries["kind"], EntryKind.ADD)
    if pc.all(is_add, min_count=0).as_py():
        return entries
    added, deleted = entries.filter(is_add), entries.filter(pc.invert(is_add))
    return added.filter(pc.invert(_are_among(added, deleted)))


def _are_among(added: pa.Table, deleted: pa.Table) -> pa.Array:
    """Which entries name the file of one of the others."""
    if not polars_works():
        gone = set(_identities(deleted))
        return pa.array([each in gone for each in _identities(added)], pa.bool_())
    named = _identifiers(deleted)
    found = _identifiers(added).with_row_index("row").join(named, on=named.columns, how="semi", nulls_equal=True)
    return pc.is_in(pa.array(range(added.num_rows), pa.uint32()), found["row"].to_arrow())


def _identities(entries: pa.Table) -> Iterator[tuple[Any, ...]]:
    columns = entries.select(_IDENTIFIERS).to_pydict()
    columns["extra_files"] = [None if names is None else "/".join(names) for names in columns["extra_files"]]
    return zip(*columns.values(), strict=True)


def _identifiers(entries: pa.Table) -> Any:
    import polars

    frame = polars.from_arrow(entries.select(_IDENTIFIERS))
    assert isinstance(frame, polars.DataFrame)
    # File names hold no slash, so joined they are still told apart.
    return frame.with_columns(polars.col("extra_files").list.join("/"))


def _flatten(records: record_files.Records, columns: tuple[_Column, ...], schema: pa.Schema) -> pa.Table:
    if not record_files.count(records):
        return schema.empty_table()
    table = record_files.to_arrow(records, [path for _, path, _, _ in columns])
    try:
        if table is None:
            arrays = _arrays(record_files.to_records(records), columns, schema)
        else:
            arrays = [_column(table, path, type_, required) for _, path, type_, required in columns]
    except (pa.ArrowException, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"a column of the file has another type than it must have: {error}") from error
    for array, (name, path, type_, required) in zip(arrays, columns, strict=True):
        if required and array.null_count and not pa.types.is_list(type_):
            raise ValueError(f"{path} is null")
        if name == "file_name":
            check_file_names(array)
    return pa.table(arrays, schema=schema)


def _column(table: pa.Table, path: str, type_: pa.DataType, required: bool) -> pa.ChunkedArray:
    column = _at(table, path)
    if column is None:
        _check_absent(path, required)
        return pa.chunked_array([pa.nulls(table.num_rows, type_)])
    if pa.types.is_timestamp(column.type):
        # Avro holds the stored milliseconds, Parquet and ORC a time of their own unit.
        column = column.cast(pa.timestamp("ms"))
    return column.cast(type_)


def _at(table: pa.Table, path: str) -> pa.ChunkedArray | None:
    """A field: a column of that name, or inside of one with the name of a record around it; None: there is none."""
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


def _arrays(records: list[dict[str, Any]], columns: tuple[_Column, ...], schema: pa.Schema) -> list[pa.Array]:
    """Columns of a few records: as rows at once, since making an Arrow array takes longer than the values in it."""
    values = [_values(records, path, required) for _, path, _, required in columns]
    rows = [dict(zip(schema.names, row, strict=True)) for row in zip(*values, strict=True)]
    arrays: list[pa.Array] = pa.array(rows, pa.struct(list(schema))).flatten()
    return arrays


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
