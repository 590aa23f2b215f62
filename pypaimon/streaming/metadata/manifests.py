"""`ManifestReader`: manifest lists and manifests of a table, fetched together and cached by name."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.concurrency.forking import polars_works
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.formats import record_files
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.index_manifests import IndexEntry, parse_index_manifest
from pypaimon.streaming.metadata.listed_names import ListedNames
from pypaimon.streaming.metadata.manifest_cache import SMALL_BYTES, ManifestCache
from pypaimon.streaming.metadata.manifest_tables import (
    ENTRY_SCHEMA,
    MANIFEST_SCHEMA,
    Parser,
    list_parser,
    manifest_parser,
    together,
)

_FETCHED_BYTES = 32 << 20
_DECODED_BYTES = 256 << 10
_Parsers = Mapping[str, Parser]
_IDENTIFIERS = ["partition", "bucket", "level", "file_name", "extra_files", "embedded_index", "external_path"]


class ManifestReader:
    """Manifest lists, manifests and index manifests of one table, for all its branches, which keep them in its root
    directory.

    The files are immutable and their names unique, so they are cached, in 64 MiB if no cache is given. Small ones are
    cached undecoded, because they take tens of times as much memory decoded. Thread-safe.

    Attributes:
        listed_names: Names that its manifest lists lead to, as far as they were found out.
    """

    def __init__(self, store: Store, table_path: str, cache: ManifestCache | None = None) -> None:
        self._store = store
        self._directory = f"{table_path.rstrip('/')}/manifest"
        self._cache = cache or ManifestCache()
        self.listed_names = ListedNames()

    def through(self, store: Store) -> ManifestReader:
        """The same manifests, read through another store of the same files."""
        other = copy.copy(self)
        other._store = store
        return other

    def manifest_list(self, name: str, size: int | None = None) -> pa.Table:
        """The manifests of a manifest list, in its order (`MANIFEST_SCHEMA`). One request unless cached. Raises
        FileNotFoundError if there is no such manifest list.
        """
        return self._lists({name: list_parser(size)})[name]

    def manifest_lists(self, names: Sequence[str]) -> list[pa.Table]:
        """Several manifest lists, in this order. Uncached ones are fetched concurrently, with one request each."""
        decoded = self._lists(dict.fromkeys(names, list_parser()))
        return [decoded[name] for name in names]

    def list_records(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """The records of several manifest lists, one list after the other, with all stored fields."""
        files = zip(names, self.stored(names), strict=True)
        lists = [self._store.parse_data(self._path(name), data, _records) for name, data in files]
        return [record for records in lists for record in records]

    def stored(self, names: Sequence[str]) -> list[bytes]:
        """Several manifests as they are stored. Uncached ones are fetched concurrently, with one request each."""
        found = {name: self._cached_bytes(name) for name in names}
        missing = [name for name, data in found.items() if data is None]
        for name, data in zip(missing, self._store.read_many([self._path(name) for name in missing]), strict=True):
            if data is None:
                raise FileNotFoundError(self._path(name))
            found[name] = data
            self.keep_written(name, data)
        return [data for data in found.values() if data is not None]

    def keep_written(self, name: str, data: bytes) -> None:
        """Cache a manifest or manifest list that was just written, if it is small, so that it need not be read."""
        if len(data) <= SMALL_BYTES:
            self._keep(name, data)

    def entries(
        self, manifests: pa.Table, schema: pa.Schema = ENTRY_SCHEMA, kept: Callable[[pa.Table], pa.Table] | None = None
    ) -> pa.Table:
        """The entries of these manifests, in the order of the manifests.

        Uncached manifests are fetched concurrently, with one request each, large ones in portions. Each large one, or
        several small ones, are decoded, filtered and released before the next. Raises FileNotFoundError if a manifest
        is missing, CorruptTableError if a manifest cannot be decoded, has another number of entries than its list
        says, or is listed twice.
        """
        names = manifests["file_name"].to_pylist()
        if len(set(names)) < len(names):
            twice = next(name for index, name in enumerate(names) if name in names[:index])
            raise CorruptTableError(self._path(twice), "its manifest list names it twice")
        found: list[pa.Table] = []
        for portion in _portions(manifests, _FETCHED_BYTES):
            parsers = _parsers(portion, schema)
            fetched = self._fetched(parsers, schema)
            for group in _portions(portion, _DECODED_BYTES):
                group_names = group["file_name"].to_pylist()
                decoded = self._all_decoded({name: fetched.pop(name) for name in group_names}, parsers)
                entries = [_with_columns(decoded.pop(name), schema) for name in group_names]
                found += entries if kept is None else map(kept, entries)
        return pa.concat_tables(found) if len(found) > 1 else (found or [schema.empty_table()])[0]

    def prefetch(self, manifests: pa.Table, schema: pa.Schema = ENTRY_SCHEMA, first: int = 0) -> list[pa.Table]:
        """Fetch manifests before `entries` needs them. Small ones are cached undecoded. Raises what `entries` raises.
        Returns the entries of these; an empty list if one of them is damaged.
        """
        parsers = _parsers(manifests, schema)
        found = self._fetched(parsers, schema)
        for name, content in found.items():
            if isinstance(content, bytes) and len(content) > SMALL_BYTES:
                found[name] = self._decoded(name, content, parsers[name])
        names = manifests["file_name"].slice(0, first).to_pylist()
        small = {name: data for name in names if isinstance(data := found[name], bytes)}
        try:
            decoded = together(list(small.values()), [parsers[name] for name in small])
        except (ValueError, RecursionError):
            return []
        tables = found | dict(zip(small, decoded, strict=True))
        return [_with_columns(tables[name], schema) for name in names]

    def index_entries(self, name: str) -> tuple[IndexEntry, ...]:
        """The index files of an index manifest. One request. Raises FileNotFoundError if there is no such index
        manifest.
        """
        return self._store.parse(self._path(name), parse_index_manifest)

    def index_files(self, names: Sequence[str]) -> list[tuple[IndexEntry, ...] | None]:
        """The index files of several index manifests, requested at the same time unless cached; None for missing ones.

        Raises:
            CorruptTableError: One cannot be decoded.
        """
        found = {name: self._cached_bytes(name) for name in names}
        missing = [name for name, data in found.items() if data is None]
        found |= zip(missing, self._store.read_many([self._path(name) for name in missing]), strict=True)
        return [self._index_files(name, found[name]) for name in names]

    def _index_files(self, name: str, data: bytes | None) -> tuple[IndexEntry, ...] | None:
        if data is None:
            return None
        entries, read = self._store.parse_data(self._path(name), data, lambda data: (parse_index_manifest(data), data))
        self._keep(name, read)
        return entries

    def _cached_bytes(self, name: str) -> bytes | None:
        content = self._cache.get(self._path(name))
        return content if isinstance(content, bytes) else None

    def _lists(self, parsers: _Parsers) -> dict[str, pa.Table]:
        return self._all_decoded(self._fetched(parsers, MANIFEST_SCHEMA), parsers)

    def _all_decoded(self, found: Mapping[str, pa.Table | bytes], parsers: _Parsers) -> dict[str, pa.Table]:
        small = {name: data for name, data in found.items() if isinstance(data, bytes) and len(data) <= SMALL_BYTES}
        tables: dict[str, pa.Table] = {}
        if len(small) > 1:
            # If one is damaged, decoding them one by one below raises its error.
            with suppress(ValueError, RecursionError):
                decoded = together(list(small.values()), [parsers[name] for name in small])
                tables = dict(zip(small, decoded, strict=True))
        return {name: self._decoded(name, tables.get(name, data), parsers[name]) for name, data in found.items()}

    def _fetched(self, parsers: _Parsers, schema: pa.Schema) -> dict[str, pa.Table | bytes]:
        """Files by name. Uncached ones are fetched concurrently and returned as they are stored."""
        found = {name: self._cached(name, schema) for name in parsers}
        missing = [name for name, content in found.items() if content is None]
        for name, data in zip(missing, self._store.read_many([self._path(name) for name in missing]), strict=True):
            if data is None:
                raise FileNotFoundError(self._path(name))
            found[name] = data
            if len(data) <= SMALL_BYTES:
                self._keep(name, data)
        return {name: content for name, content in found.items() if content is not None}

    def _decoded(self, name: str, content: pa.Table | bytes, parser: Parser) -> pa.Table:
        """Decode a file. If its bytes are damaged it is read again. The result is cached."""
        if isinstance(content, pa.Table):
            return content
        table, read = self._store.parse_data(self._path(name), content, lambda data: (parser(data), data))
        # A small one was kept undecoded when it was fetched, unless it was damaged and read again.
        if len(read) > SMALL_BYTES:
            self._keep(name, table)
        elif read is not content:
            self._keep(name, read)
        return table

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _cached(self, name: str, schema: pa.Schema) -> pa.Table | bytes | None:
        content = self._cache.get(self._path(name))
        # It was decoded with fewer columns than are needed now.
        if isinstance(content, pa.Table) and not set(schema.names) <= set(content.schema.names):
            return None
        return content

    def _keep(self, name: str, content: pa.Table | bytes) -> None:
        self._cache.keep(self._path(name), content)


def _records(data: bytes) -> list[dict[str, Any]]:
    return record_files.to_records(record_files.parse(data))


def _portions(manifests: pa.Table, most_bytes: int) -> Iterator[pa.Table]:
    """Parts of this many bytes at most, or of one manifest."""
    ends = np.cumsum(manifests["file_size"].to_numpy())
    first = 0
    while first < manifests.num_rows:
        before = ends[first - 1] if first else 0
        end = max(first + 1, int(np.searchsorted(ends, before + most_bytes, side="right")))
        yield manifests.slice(first, end - first)
        first = end


def _parsers(manifests: pa.Table, schema: pa.Schema) -> _Parsers:
    names: list[str] = manifests["file_name"].to_pylist()
    counts = pc.add(manifests["num_added_files"], manifests["num_deleted_files"]).to_pylist()
    columns = manifest_parser(schema=schema).columns
    return {name: Parser(columns, schema, count=count) for name, count in zip(names, counts, strict=True)}


def _with_columns(entries: pa.Table, schema: pa.Schema) -> pa.Table:
    return entries if entries.num_columns == len(schema) else entries.select(schema.names)


def without(entries: pa.Table, others: pa.Table, column: str = "file_name") -> pa.Table:
    """Entries, or manifests, that are not among the others, compared by a column."""
    return entries.filter(pc.invert(pc.is_in(entries[column], value_set=others[column].combine_chunks())))


def live(entries: pa.Table) -> pa.Table:
    """The live files: ADD entries in their order, without those that DELETE entries name.

    As in Java's `AbstractFileStoreScan`, the place of the DELETE entry among the manifests does not matter. Two entries
    name one file if partition, bucket, level, file name, extra files, embedded index and external path are equal.
    """
    is_add = pc.equal(entries["kind"], EntryKind.ADD)
    if pc.all(is_add, min_count=0).as_py():
        return entries
    added, deleted = entries.filter(is_add), entries.filter(pc.invert(is_add))
    return added.filter(pc.invert(_are_among(added, deleted)))


def signs(entries: pa.Table, factor: int = 1) -> pa.ChunkedArray:
    """1 for an entry that adds a file, -1 for one that deletes it, times a factor. A file may be deleted and added
    again with other extra files, so only the sum of all its entries says whether it is there.
    """
    return pc.if_else(pc.equal(entries["kind"], EntryKind.ADD), factor, -factor)


def _are_among(added: pa.Table, deleted: pa.Table) -> pa.Array:
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
    # File names hold no slash, so the joined texts stay distinct.
    return frame.with_columns(polars.col("extra_files").list.join("/"))
