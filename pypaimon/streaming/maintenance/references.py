"""What the snapshots, tags and long-lived changelogs of a table name: the one rule by which files are deleted.

A file is deleted if something that goes names it, and nothing that stays, on any branch, names it too. Java judges by
the neighbours of what it deletes, which loses files that come back later, and those of other branches
(docs/java-semantics.md#maintenance).
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, pairwise

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import CorruptTableError, MaintenanceConflictError
from pypaimon.streaming.maintenance.roots import Roots
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.file_paths import FilePaths, SpelledPath, merged_changelog_range
from pypaimon.streaming.metadata.index_manifests import IndexEntry
from pypaimon.streaming.metadata.listed_names import Names
from pypaimon.streaming.metadata.manifest_tables import ENTRY_SCHEMA, MANIFEST_SCHEMA
from pypaimon.streaming.metadata.manifests import ManifestReader, signs, without
from pypaimon.streaming.metadata.snapshots import Snapshot

_NAMES = pa.schema([ENTRY_SCHEMA.field(name) for name in ("kind", "file_name", "extra_files", "file_source")])
_PLACES = ("partition", "bucket", "file_name", "file_size", "extra_files", "external_path")
_LOCATED = pa.schema([ENTRY_SCHEMA.field(name) for name in _PLACES])
_COMPACT = 1
_TOGETHER, _ROWS = 256, 10_000
"""Snapshots whose manifest lists, and entries that are in memory at the same time."""
_ADVICE_FOR_MISSING = (
    "Restore the file, or let what needs it go: delete the tag, or keep fewer snapshots. Java's expiry deletes files "
    "before their snapshots: if it is running, or was stopped, let it end first."
)
_PART = (7, 8)
"""Start and end of the part of a file name by which names are counted in parts: usually of a random number."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file that may be deleted.

    Attributes:
        path: Its full path.
        kind: What it is: `data`, `changelog`, `manifest`, `index` or `statistics`.
        bytes: Its size; None if no entry says it.
    """

    path: str
    kind: str
    bytes: int | None = None


class PackedFiles:
    """Files in a fraction of their memory, to be iterated over."""

    def __init__(self, files: Iterable[TableFile]) -> None:
        iterator = iter(files)
        portions = iter(lambda: [*islice(iterator, _ROWS)], [])
        self._portions = [zlib.compress(pickle.dumps(each), 1) for each in portions]

    def __iter__(self) -> Iterator[TableFile]:
        for each in self._portions:
            yield from pickle.loads(zlib.decompress(each))

    def __bool__(self) -> bool:
        return bool(self._portions)


@dataclass
class References:
    """The names of files that are needed. Names are unique in a table, so they stand for the files.

    Attributes:
        manifests: The manifests of the table.
    """

    manifests: ManifestReader
    names: set[str] = field(default_factory=set)

    def add(self, roots: Roots) -> None:
        """Add what the roots of a branch need.

        Raises:
            FileNotFoundError: A file that is needed to know that is missing.
            CorruptTableError: It is damaged.
        """
        for whole in (*roots.snapshots[:1], *roots.tagged):
            self._add_state(whole)
        self._add_lists([name for each in roots.tagged for name in _both_lists(each)])
        self._add_bases(roots.snapshots)
        kept = [*roots.snapshots, *roots.tagged]
        self._add_added([each.delta_manifest_list for each in roots.snapshots])
        self._add_added([each.changelog_manifest_list for each in roots.snapshots])
        self._add_changelogs(roots)
        self._add_indexes(kept)

    def _add_state(self, snapshot: Snapshot) -> None:
        """The live data files of a snapshot: names that are added once more often than deleted.

        A file that compaction moves to another level is deleted and added by one commit, and a rollback adds files
        again; neither depends on the order of manifests then.
        """
        self.names.update(_positive(self._entries(snapshot.state_lists), _NAMES.empty_table()))

    def _add_bases(self, snapshots: Sequence[Snapshot]) -> None:
        """The manifest lists of snapshots, and the files that a base holds beyond the state of the snapshot before.

        There are such files where a snapshot does not follow the one before it, although its id may: after a gap, a
        fast-forward to a branch whose first snapshots have expired, or a rollback that was killed. In any other case
        the base names the manifests of the state before, or others with the same live files.
        """
        before: Snapshot | None = None
        state: set[str] = set()
        for start in range(0, len(snapshots), _TOGETHER):
            portion = snapshots[start : start + _TOGETHER]
            lists = iter(self._manifests_of([name for each in portion for name in _both_lists(each)]))
            for each, base, delta in zip(portion, lists, lists, strict=True):
                if before is not None and {*base} != state:
                    key = (*_both_lists(before), each.base_manifest_list)
                    for names in self.manifests.listed_names.get("beyond", [key], self._beyond):
                        self.names.update(names)
                before, state = each, {*base, *delta}
                self.names.update(_both_lists(each), state)

    def _beyond(self, keys: Sequence[tuple[str, str, str]]) -> Iterator[Names]:
        """The live files of a base beyond those of a state: by the two lists of the state, and that of the base."""
        for *state, base in keys:
            before = _distinct(self.manifests.manifest_lists(state))
            after = _distinct([self.manifests.manifest_list(base)])
            added, dropped = without(after, before), without(before, after)
            yield tuple(_positive(self.manifests.entries(added, _NAMES), self.manifests.entries(dropped, _NAMES)))

    def _add_added(self, lists: Iterable[str | None]) -> None:
        """The files that these manifest lists add, and the lists with their manifests."""
        names = [name for name in lists if name is not None]
        self._add_lists(names)
        for added in self.manifests.listed_names.get("added", names, self._added_by):
            self.names.update(added)

    def _added_by(self, lists: Sequence[str]) -> Iterator[Names]:
        for start in range(0, len(lists), _TOGETHER):
            portion = self.manifests.manifest_lists(lists[start : start + _TOGETHER])
            manifests = _distinct(portion)
            found: list[Names] = []

            def keep(entries: pa.Table, found: list[Names] = found) -> pa.Table:
                found.append(tuple(_names(entries.filter(pc.equal(entries["kind"], EntryKind.ADD)))))
                return entries.slice(0, 0)

            self.manifests.entries(manifests, _NAMES, keep)
            added = dict(zip(manifests["file_name"].to_pylist(), found, strict=True))
            for each in portion:
                yield tuple(name for manifest in each["file_name"].to_pylist() for name in added[manifest])

    def _add_changelogs(self, roots: Roots) -> None:
        self._add_added([each.changelog_manifest_list for each in roots.changelogs])
        # The others are read from the data files that their commits added.
        unproduced = [each for each in roots.changelogs if not roots.has_producer(each)]
        if unproduced:
            self._add_lists([name for each in unproduced for name in _both_lists(each)])
            entries = self._entries([each.delta_manifest_list for each in unproduced])
            added = entries.filter(pc.equal(entries["kind"], EntryKind.ADD))
            # Streams do not read what compactions wrote, and Java deletes it.
            written = pc.not_equal(pc.fill_null(added["file_source"], -1), _COMPACT)
            self.names.update(_names(added.filter(written)))

    def _add_indexes(self, snapshots: Sequence[Snapshot]) -> None:
        self.names.update(each.statistics for each in snapshots if each.statistics is not None)
        names = {each.index_manifest for each in snapshots if each.index_manifest is not None} - self.names
        for name, entries in zip(names, self.manifests.index_files(list(names)), strict=True):
            if entries is None:
                raise FileNotFoundError(name)
            self.names.add(name)
            self.names.update(each.file_name for each in entries)

    def _add_lists(self, names: Sequence[str]) -> None:
        new = [name for name in dict.fromkeys(names) if name not in self.names]
        for start in range(0, len(new), _TOGETHER):
            portion = new[start : start + _TOGETHER]
            self.names.update(portion, *self._manifests_of(portion))

    def _manifests_of(self, lists: Sequence[str]) -> list[Names]:
        """The names of the manifests of some lists, in this order."""
        return self.manifests.listed_names.get("manifests", lists, self._listed)

    def _listed(self, lists: Sequence[str]) -> Iterator[Names]:
        return (tuple(each["file_name"].to_pylist()) for each in self.manifests.manifest_lists(lists))

    def _entries(self, lists: Sequence[str]) -> pa.Table:
        return self.manifests.entries(_distinct(self.manifests.manifest_lists(list(dict.fromkeys(lists)))), _NAMES)


class Candidates:
    """The files that snapshots, changelogs and tags name which go. What is missing of them is gone already.

    Args:
        manifests: The manifests of the table.
        paths: The paths of its files.
    """

    def __init__(self, manifests: ManifestReader, paths: FilePaths) -> None:
        self._manifests = manifests
        self._paths = paths
        self._root = paths.table_path.rstrip("/")

    def of_snapshots(self, snapshots: Sequence[Snapshot], following: Snapshot | None) -> Iterator[TableFile]:
        """The files of expired snapshots.

        The data files that are no longer needed are those that a later commit deleted, so the first snapshot that stays
        is asked too.

        Args:
            snapshots: The snapshots that go, ascending.
            following: The first one that stays.
        """
        yield from self._metadata(snapshots, [each.changelog_manifest_list for each in snapshots])
        read = (*snapshots, *((following,) if following else ()))
        lists = [each.delta_manifest_list for each in read]
        # What was deleted in a gap is not known, so all files of the state before it are asked about.
        lists += [each.base_manifest_list for each, after in pairwise(read) if each.id + 1 < after.id]
        yield from self._data_files("data", lists)
        yield from self._data_files("changelog", [each.changelog_manifest_list for each in snapshots])

    def of_states(self, snapshots: Sequence[Snapshot]) -> Iterator[TableFile]:
        """All files of deleted tags."""
        yield from self._metadata(snapshots, ())
        yield from self._data_files("data", [name for each in snapshots for name in each.state_lists])

    def _metadata(self, snapshots: Sequence[Snapshot], changelogs: Sequence[str | None]) -> Iterator[TableFile]:
        states = [name for each in snapshots for name in (each.base_manifest_list, each.delta_manifest_list)]
        lists = [*states, *(name for name in changelogs if name is not None)]
        yield from (TableFile(f"{self._root}/manifest/{name}", "manifest") for name in lists)
        manifests = self._manifests_of(lists)
        sizes = zip(manifests["file_name"].to_pylist(), manifests["file_size"].to_pylist(), strict=True)
        yield from (TableFile(f"{self._root}/manifest/{name}", "manifest", size) for name, size in sizes)
        statistics = [each.statistics for each in snapshots if each.statistics is not None]
        yield from (TableFile(f"{self._root}/statistics/{name}", "statistics") for name in statistics)
        indexes = list(dict.fromkeys(each.index_manifest for each in snapshots if each.index_manifest is not None))
        yield from (TableFile(f"{self._root}/manifest/{name}", "manifest") for name in indexes)
        for entries in self._manifests.index_files(indexes):
            yield from map(self._index_file, entries or ())

    def _index_file(self, entry: IndexEntry) -> TableFile:
        (home,) = self._paths.partitions(pa.array([entry.partition], pa.binary()))
        path = self._paths.index_file(home, entry.bucket, entry.file_name, entry.external_path)
        return TableFile(path, "index", entry.file_size)

    def _data_files(self, kind: str, lists: Sequence[str | None]) -> Iterator[TableFile]:
        manifests = self._manifests_of([name for name in lists if name is not None])
        try:
            yield from self._located(kind, self._manifests.entries(manifests, _LOCATED))
        except FileNotFoundError:
            # One by one, since some are gone.
            for row in range(manifests.num_rows):
                with suppress(FileNotFoundError):
                    yield from self._located(kind, self._manifests.entries(manifests.slice(row, 1), _LOCATED))

    def _located(self, kind: str, entries: pa.Table) -> Iterator[TableFile]:
        for portion in entries.to_batches(_ROWS):
            yield from self._located_portion(kind, portion)

    def _located_portion(self, kind: str, entries: pa.RecordBatch) -> Iterator[TableFile]:
        homes = self._paths.partitions(entries["partition"])
        for home, entry in zip(homes, entries.to_pylist(), strict=True):
            path = self._paths.data_file(home, entry["bucket"], entry["file_name"], entry["external_path"])
            for each in (path, path.other) if isinstance(path, SpelledPath) else (path,):
                merged = merged_changelog_range(each)
                yield TableFile(each if merged is None else merged.path, kind, entry["file_size"])
                directory = each.rpartition("/")[0]
                yield from (TableFile(f"{directory}/{name}", kind) for name in entry["extra_files"] or ())

    def _manifests_of(self, lists: Sequence[str]) -> pa.Table:
        """The manifests of these lists, each once."""
        names = list(dict.fromkeys(lists))
        try:
            return _distinct(self._manifests.manifest_lists(names))
        except FileNotFoundError:
            found = []
            for name in names:
                with suppress(FileNotFoundError):
                    found.append(self._manifests.manifest_list(name))
            return _distinct(found)


def unreferenced(candidates: Iterable[TableFile], needed: set[str]) -> tuple[TableFile, ...]:
    """The candidates that nothing needs, once each, in their order."""
    found: dict[str, TableFile] = {}
    for each in candidates:
        if _real_name(each.path.rpartition("/")[2]) not in needed:
            found.setdefault(each.path, each)
    return tuple(found.values())


def missing_file_error(
    table: str, error: FileNotFoundError, needed_by: str, expired: Snapshot | None
) -> CorruptTableError | MaintenanceConflictError:
    """The error for a missing file that something needed when it was read.

    Args:
        table: Name of the table.
        error: Names the file.
        needed_by: What needs the file.
        expired: What has expired since it was read, as one more look at the table shows. Its files may be gone, and the
            next call does not meet it again. None: all of it is still there, so the next call would find the same.
    """
    if expired is not None:
        return MaintenanceConflictError(table, f"snapshot {expired.id} has expired meanwhile")
    return CorruptTableError(
        str(error.filename or error), f"is missing, although {needed_by} needs it", advice=_ADVICE_FOR_MISSING
    )


def _real_name(name: str) -> str:
    """A file's name; of a part of a merged changelog file, that of the file."""
    merged = merged_changelog_range(name)
    return name if merged is None else merged.path.rpartition("/")[2]


def _distinct(lists: Sequence[pa.Table]) -> pa.Table:
    """The manifests of several lists, each once."""
    if not lists:
        return MANIFEST_SCHEMA.empty_table()
    manifests = pa.concat_tables(lists) if len(lists) > 1 else lists[0]
    first: dict[str, int] = {}
    for row, name in enumerate(manifests["file_name"].to_pylist()):
        first.setdefault(name, row)
    if len(first) == manifests.num_rows:
        return manifests
    return manifests.combine_chunks().take(pa.array(first.values(), pa.int64()))


def _parts(entries: pa.Table, others: pa.Table) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Many entries in parts by a character of their names: counting takes several times the memory of the entries."""
    if entries.num_rows + others.num_rows <= _ROWS:
        yield entries, others
        return
    by = [pc.utf8_slice_codeunits(each["file_name"], *_PART) for each in (entries, others)]
    for part in pa.chunked_array([chunk for each in by for chunk in each.chunks], pa.string()).unique():
        some, rest = (each.filter(pc.equal(of, part)) for each, of in zip((entries, others), by, strict=True))
        yield some, rest


def _names(entries: pa.Table) -> Iterator[str]:
    """The names of the files of these entries, and of their extra files."""
    yield from map(_real_name, entries["file_name"].to_pylist())
    yield from pc.list_flatten(entries["extra_files"]).to_pylist()


def _positive(entries: pa.Table, less: pa.Table) -> Iterator[str]:
    """The files that are live after these entries, less others."""
    for some, others in _parts(entries, less):
        if not others.num_rows and pc.all(pc.equal(some["kind"], EntryKind.ADD), min_count=0).as_py():
            yield from _names(some)
            continue
        counts = [_counts(some, 1), _counts(others, -1)]
        counted = pa.concat_tables(counts).group_by("name", use_threads=False).aggregate([("count", "sum")])
        yield from map(_real_name, counted.filter(pc.greater(counted["count_sum"], 0))["name"].to_pylist())


def _both_lists(snapshot: Snapshot) -> tuple[str, str]:
    return snapshot.base_manifest_list, snapshot.delta_manifest_list


def _counts(entries: pa.Table, factor: int) -> pa.Table:
    """By name 1 for a file that is added and -1 for one that is deleted, times a factor. Its extra files are counted by
    themselves, because a file may get other ones.
    """
    count = signs(entries, factor)
    found = pa.table({"name": entries["file_name"], "count": count})
    extra = entries["extra_files"].combine_chunks()
    of_extra = count.take(pc.list_parent_indices(extra).cast(pa.int64()))
    return pa.concat_tables([found, pa.table({"name": pc.list_flatten(extra), "count": of_extra})])
