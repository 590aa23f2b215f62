"""A table in memory whose manifests are real, with a model of what each of its snapshots needs."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pypaimon.streaming.commit.changes import FileChange
from pypaimon.streaming.formats import record_files
from pypaimon.streaming.formats.avro_files import AvroWriter
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.paimon.handles import on_branch
from pypaimon.streaming.paimon.write_internals import (
    INDEX_MANIFEST_ENTRY_SCHEMA,
    MANIFEST_ENTRY_SCHEMA,
    MANIFEST_FILE_META_SCHEMA,
)
from support.maintenance.memory_store import MemoryObjects
from support.tables.manifest_entries import EMPTY_ROW, added, vectors
from support.tables.streamed_table import Table

ROOT = "object://sim/db.db/t"
APPEND, COMPACT = 0, 1
Value = dict[str, Any]
"""The JSON of a snapshot."""


@dataclass(frozen=True)
class DataFile:
    """A data file as manifests name it."""

    name: str
    level: int = 0
    extra: str | None = None
    source: int = APPEND

    @property
    def paths(self) -> tuple[str, ...]:
        """Its paths, with those of files next to it."""
        names = (self.name,) if self.extra is None else (self.name, self.extra)
        return tuple(f"{ROOT}/bucket-0/{name}" for name in names)


@dataclass(frozen=True)
class Entry:
    """An entry of a manifest."""

    kind: EntryKind
    file: DataFile


@cache
def _template(options: tuple[tuple[str, str], ...]) -> tuple[Any, bytes]:
    """A handle of a table with these options, and its schema."""
    with TemporaryDirectory() as warehouse:
        table = Table(Path(warehouse), "t", primary_key=True, **dict(options))
        return table.handle(), (table.path / "schema" / "schema-0").read_bytes()


@cache
def _writers() -> tuple[AvroWriter, AvroWriter, AvroWriter]:
    schemas = (MANIFEST_ENTRY_SCHEMA, MANIFEST_FILE_META_SCHEMA, INDEX_MANIFEST_ENTRY_SCHEMA)
    entries, lists, indexes = (AvroWriter(schema, "null") for schema in schemas)
    return entries, lists, indexes


@lru_cache(1 << 14)
def _encoded_entry(entry: Entry) -> bytes:
    return _writers()[0].encode(_change(entry).record())


@lru_cache(1 << 13)
def _manifest(entries: tuple[Entry, ...]) -> bytes:
    """The same manifest of other seeds is the same object, so that it is decoded once."""
    return _writers()[0].file(map(_encoded_entry, entries))


@lru_cache(1 << 13)
def _manifest_list(metas: tuple[tuple[str, int, int], ...]) -> bytes:
    writer = _writers()[1]
    return writer.file([writer.encode(_meta(*each)) for each in metas])


class SimulatedTable:
    """The files of a table, and what its manifests say.

    Args:
        objects: The store.
        options: Of the table.

    Attributes:
        objects: As above.
        producer: Whether the table has a changelog producer.
        expires_consumers: Whether consumers expire that have not saved for a day.
        keeps_changelogs: Whether changelogs outlive their snapshots.
    """

    def __init__(self, objects: MemoryObjects, options: dict[str, str]) -> None:
        self.objects = objects
        self._options = tuple(options.items())
        self.producer = options.get("changelog_producer", "none") != "none"
        self.expires_consumers = "consumer__expiration_time" in options
        self.keeps_changelogs = "changelog__num_retained__max" in options
        self._lists: dict[str, tuple[str, ...]] = {}
        self._manifests: dict[str, tuple[Entry, ...]] = {}
        self._indexes: dict[str, tuple[str, ...]] = {}
        self._counts: Counter[str] = Counter()
        objects.put(f"{ROOT}/schema/schema-0", _template(self._options)[1])

    def handle(self, file_io: Any, branch: str = "main") -> Any:
        """A new handle, whose requests go through a FileIO."""
        handle = copy.copy(_template(self._options)[0])
        handle.file_io, handle.table_path = file_io, ROOT
        vars(handle).pop("_pypaimon_streaming_directories", None)
        return handle if branch == "main" else on_branch(handle, branch)

    def name(self, prefix: str) -> str:
        """A name that no other file has."""
        self._counts[prefix] += 1
        return f"{prefix}-{self._counts[prefix]:04}"

    # ---- What a commit writes

    def manifest(self, entries: Sequence[Entry]) -> tuple[str, bytes]:
        """A manifest: its name and bytes."""
        name = self.name("manifest")
        self._manifests[name] = tuple(entries)
        return name, _manifest(self._manifests[name])

    def manifest_list(self, manifests: Sequence[str]) -> tuple[str, bytes]:
        """A manifest list: its name and bytes."""
        name = self.name("manifest-list")
        self._lists[name] = tuple(manifests)
        return name, _manifest_list(tuple(map(self._size_of, manifests)))

    def index_manifest(self, files: Sequence[str]) -> tuple[str, bytes]:
        """An index manifest: its name and bytes."""
        name = self.name("index-manifest")
        self._indexes[name] = tuple(files)
        writer = _writers()[2]
        return name, writer.file([writer.encode(vectors(each, "d")) for each in files])

    def learn(self, path: str) -> None:
        """Remember what a manifest or manifest list says that the library has written."""
        name = path.rpartition("/")[2]
        known = name in self._lists or name in self._manifests or name in self._indexes
        if "/manifest/" not in path or known:
            return
        records = record_files.to_records(record_files.parse(self.objects.get(path) or b""))
        if name.startswith("manifest-list"):
            self._lists[name] = tuple(each["_FILE_NAME"] for each in records)
        else:
            self._manifests[name] = tuple(map(_entry, records))

    def manifests_of(self, snapshot: Value) -> tuple[str, ...]:
        """The manifests of the state of a snapshot."""
        return self._lists[snapshot["baseManifestList"]] + self._lists[snapshot["deltaManifestList"]]

    def index_files(self, snapshot: Value) -> tuple[str, ...]:
        """Its index files."""
        return self._indexes.get(snapshot.get("indexManifest") or "", ())

    def _size_of(self, name: str) -> tuple[str, int, int]:
        """A manifest, and how many files it adds and deletes."""
        entries = self._manifests[name]
        added_files = sum(each.kind == EntryKind.ADD for each in entries)
        return name, added_files, len(entries) - added_files

    # ---- What a snapshot names

    def live(self, snapshot: Value) -> list[DataFile]:
        """The data files of its state."""
        return self._live(self.manifests_of(snapshot))

    def paths_of_base(self, snapshot: Value) -> set[str]:
        """Paths of the data files before its changes, which may drop some of them."""
        return _paths(self._live(self._lists[snapshot["baseManifestList"]]))

    def _live(self, manifests: Iterable[str]) -> list[DataFile]:
        counts: Counter[DataFile] = Counter()
        for each in self.entries(manifests):
            counts[each.file] += 1 if each.kind == EntryKind.ADD else -1
        return [file for file, count in counts.items() if count > 0]

    def entries(self, manifests: Iterable[str]) -> list[Entry]:
        """The entries of manifests."""
        return [entry for name in manifests for entry in self._manifests[name]]

    def of_list(self, name: str | None) -> list[Entry]:
        """The entries of a manifest list."""
        return [] if name is None else self.entries(self._lists[name])

    def metadata(self, snapshot: Value, *lists: str) -> set[str]:
        """Paths of manifest lists of a snapshot, by their fields, and of their manifests."""
        names = [snapshot[each] for each in lists if snapshot.get(each) is not None]
        found = {*names, *(manifest for name in names for manifest in self._lists[name])}
        return {f"{ROOT}/manifest/{name}" for name in found}

    def side_files(self, snapshot: Value) -> set[str]:
        """Paths of its index manifest, index files and statistics."""
        index, statistics = snapshot.get("indexManifest"), snapshot.get("statistics")
        found = {f"{ROOT}/index/{name}" for name in self.index_files(snapshot)}
        found |= set() if index is None else {f"{ROOT}/manifest/{index}"}
        return found | (set() if statistics is None else {f"{ROOT}/statistics/{statistics}"})

    def needs(self, path: str, snapshot: Value) -> frozenset[str]:
        """What a snapshot, a tag or a long-lived changelog needs to be read."""
        changes = self.metadata(snapshot, "changelogManifestList")
        changes |= _paths(each.file for each in self.of_list(snapshot.get("changelogManifestList")))
        if "/changelog/" in path:
            if self.producer:
                return frozenset(changes)
            entries = self.of_list(snapshot["deltaManifestList"])
            written = [e.file for e in entries if e.kind == EntryKind.ADD and e.file.source == APPEND]
            return frozenset(self.metadata(snapshot, "baseManifestList", "deltaManifestList") | _paths(written))
        state = self.metadata(snapshot, "baseManifestList", "deltaManifestList") | self.side_files(snapshot)
        state |= _paths(self.live(snapshot))
        return frozenset(state if "/tag/" in path else state | changes)


def is_root(path: str) -> bool:
    """Whether a path is that of a snapshot, a tag or a long-lived changelog."""
    directory, _, name = path.rpartition("/")
    what = directory.rpartition("/")[2]
    return what in ("snapshot", "tag", "changelog") and name.startswith(f"{what}-")


def number_of(path: str) -> int:
    """The id in the name of a snapshot or changelog."""
    return int(path.rpartition("-")[2])


def upgraded(file: DataFile) -> DataFile:
    """The file on the next level."""
    return replace(file, level=file.level + 1)


def parsed(data: bytes) -> Value:
    """The JSON of a snapshot."""
    value: Value = json.loads(data)
    return value


def _paths(files: Iterable[DataFile]) -> set[str]:
    return {path for file in files for path in file.paths}


def _change(entry: Entry) -> FileChange:
    file = entry.file
    extra = [] if file.extra is None else [file.extra]
    made = added(file.name, _LEVEL=file.level, _EXTRA_FILES=extra, _FILE_SOURCE=file.source)
    return made if entry.kind == EntryKind.ADD else made.deleted()


def _meta(name: str, added_files: int, deleted_files: int) -> Value:
    stats = {"_MIN_VALUES": EMPTY_ROW, "_MAX_VALUES": EMPTY_ROW, "_NULL_COUNTS": []}
    return {
        "_VERSION": 2, "_FILE_NAME": name, "_FILE_SIZE": 1000, "_NUM_ADDED_FILES": added_files,
        "_NUM_DELETED_FILES": deleted_files, "_PARTITION_STATS": stats, "_SCHEMA_ID": 0,
        "_MIN_BUCKET": 0, "_MAX_BUCKET": 0, "_MIN_LEVEL": 0, "_MAX_LEVEL": 9, "_MIN_ROW_ID": None,
        "_MAX_ROW_ID": None, "_TOTAL_BUCKETS": 1,
    }  # fmt: skip


def _entry(record: Value) -> Entry:
    file = record["_FILE"]
    (extra,) = file["_EXTRA_FILES"] or (None,)
    return Entry(EntryKind(record["_KIND"]), DataFile(file["_FILE_NAME"], file["_LEVEL"], extra, file["_FILE_SOURCE"]))
