"""`TableState`: the state that a commit follows; and the checks of its changes against that state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.commit.changes import (
    APPEND,
    COMPACT,
    OVERWRITE,
    AvroRecord,
    Changes,
    FileChange,
    Identity,
    changes_of,
    marked_files,
)
from pypaimon.streaming.commit.manifests import which_may_hold
from pypaimon.streaming.commit.row_id_conflicts import check_row_ids
from pypaimon.streaming.errors import CommitConflictError, KeyIndexConflictError, StrictModeError
from pypaimon.streaming.filtering.partition_spec import PartitionSpec
from pypaimon.streaming.formats.binary_row import decode
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.index_manifests import DELETION_VECTORS, HASH, index_records
from pypaimon.streaming.metadata.manifest_tables import list_parser
from pypaimon.streaming.metadata.manifests import live
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.internals import DataField


class TableState:
    """The state that a commit follows. Each part is read when it is asked for, once."""

    def __init__(self, directory: TableDirectory, snapshot: Snapshot | None) -> None:
        self.directory = directory
        self.snapshot = snapshot
        # Not `cached_property`: up to Python 3.11 a thread that computes one blocks all others.
        self._manifests: list[AvroRecord] | None = None
        self._index: Sequence[AvroRecord] | None = None

    @property
    def partition_fields(self) -> list[DataField]:
        schema = self.directory.table.table_schema
        fields = {field.name: field for field in schema.fields}
        return [fields[name] for name in schema.partition_keys]

    @property
    def manifests(self) -> list[AvroRecord]:
        """Records of the manifest lists, base before delta. Two requests unless cached."""
        if self._manifests is None:
            lists = () if self.snapshot is None else self.snapshot.state_lists
            self._manifests = [*self.directory.manifests.list_records(lists)]
        return self._manifests

    @property
    def index(self) -> Sequence[AvroRecord]:
        """Records of the index manifest. One request if it exists."""
        if self._index is None:
            name = self.snapshot and self.snapshot.index_manifest
            path = f"{self.directory.table.table_path.rstrip('/')}/manifest/{name}"
            self._index = self.directory.store.parse(path, index_records) if name else ()
        return self._index

    def files(self, partitions: Collection[bytes] | None) -> list[FileChange]:
        """Live files of partitions, which are given as serialised rows; None: of all partitions."""
        if partitions is not None:
            wanted = which_may_hold(self.manifests, partitions, self.partition_fields)
            return self._live(wanted, _inside(partitions))
        return self._live(self.manifests, None)

    def files_since(self, known: int | None, partitions: Collection[bytes]) -> list[FileChange]:
        """Files that show the number of buckets of partitions, as far as the `known` snapshot does not show it already
        (0: there was none; None: no number is known).

        An OVERWRITE may change that number, and an APPEND may bring the first files of a partition.
        """
        if known is None:
            return self.files(partitions)
        latest = 0 if self.snapshot is None else self.snapshot.id
        lists = []
        for number in range(known + 1, latest + 1):
            each = self.directory.snapshots.try_get(number)
            if each is None or each.commit_kind == OVERWRITE:
                return self.files(partitions)
            if each.commit_kind == APPEND:
                lists.append(each.delta_manifest_list)
        if not lists:
            return []
        try:
            manifests = pa.concat_tables(self.directory.manifests.manifest_lists(lists))
            return changes_of(self.directory.manifests.entries(manifests, kept=_inside(partitions)))
        except FileNotFoundError:
            # A manifest list has expired with its snapshot meanwhile.
            return self.files(partitions)

    def partitions(self, spec: PartitionSpec) -> set[bytes]:
        """Serialised rows of the partitions that have files and match a spec."""
        return self.matching({each.partition for each in self.files(None)}, spec)

    def matching(self, rows: Collection[bytes], spec: PartitionSpec) -> set[bytes]:
        found = pa.array(list(rows), pa.binary())
        return set(found.filter(spec.matches(found, self.partition_fields)).to_pylist())

    def values_of(self, row: bytes) -> dict[str, Any]:
        fields = self.partition_fields
        return dict(zip((each.name for each in fields), decode(row, fields), strict=True))

    def _live(self, manifests: Sequence[AvroRecord], kept: Callable[[pa.Table], pa.Table] | None) -> list[FileChange]:
        if not manifests:
            return []
        table = list_parser().flattened([dict(each) for each in manifests])
        return changes_of(live(self.directory.manifests.entries(table, kept=kept)))


def _inside(partitions: Collection[bytes]) -> Callable[[pa.Table], pa.Table]:
    rows = pa.array(list(partitions), pa.binary())
    return lambda found: found.filter(pc.is_in(found["partition"], value_set=rows))


KeyIndexes: TypeAlias = Mapping[bytes, frozenset[str]]
"""Names of the index files of keys (dynamic buckets), by serialised partition row."""


@dataclass(frozen=True, slots=True)
class ConflictRules:
    """Rules that depend on the kind of table."""

    # Maps a serialised key to its sort key. None: a level may have any files, because the table has no primary key, or
    # its files above level 0 are sorted by other columns
    key_order: Callable[[bytes], Any] | None = None
    # The table has no buckets (`bucket` = -1), so that each commit names the deletion vectors it replaces, one index
    # file at a time
    unaware_buckets: bool = False
    # The columns of a row may be in several files, which must have the same row ids (data evolution)
    data_evolution: bool = False


def check_changes(
    kind: str, base: Sequence[FileChange], index: Sequence[AvroRecord], changes: Changes, rules: ConflictRules
) -> None:
    """Check changes against the live files of the partitions that they touch.

    The rules are those of Java's `ConflictDetection`. For deletion vectors they are stricter: a vector that another
    commit has written meanwhile is never replaced unread. Raises CommitConflictError if the changes may not follow this
    state.
    """
    live = _merged(base, changes)
    # An OVERWRITE may change the number of buckets: that is how a partition is rescaled.
    if kind != OVERWRITE:
        check_bucket_counts(live.values())
    if rules.key_order is not None:
        _check_levels(live.values(), changes, rules.key_order)
    if rules.data_evolution and kind == COMPACT:
        check_row_ids(base, live.values(), changes)
    _check_index(index, live.values(), changes, rules)


def check_key_indexes(index: Sequence[AvroRecord], expected: KeyIndexes) -> None:
    """Check that partitions still have the index files from which new rows got their buckets.

    Otherwise another writer has assigned buckets to keys, or has replaced rows, and one key could be in two buckets.
    Raises KeyIndexConflictError if a partition has other index files now.
    """
    there: dict[bytes, set[str]] = {row: set() for row in expected}
    for each in index:
        if each["_INDEX_TYPE"] == HASH and each["_PARTITION"] in there:
            there[each["_PARTITION"]].add(each["_FILE_NAME"])
    if any(there[row] != names for row, names in expected.items()):
        raise KeyIndexConflictError(
            "Another writer has assigned buckets to keys of a partition, or replaced its rows, since this commit read "
            "the buckets of its keys. Nothing was committed."
        )


def _merged(base: Sequence[FileChange], changes: Changes) -> dict[Identity, FileChange]:
    seen: set[Identity] = set()
    live = {each.identity: each for each in base}
    for each in changes.files:
        identity = each.identity
        if identity in seen:
            raise CommitConflictError(f"The commit names file {each.name} twice. Nothing was committed.")
        seen.add(identity)
        if each.kind == EntryKind.ADD:
            if identity in live:
                raise CommitConflictError(f"File {each.name} is in the table already. Nothing was committed.")
            live[identity] = each
        elif live.pop(identity, None) is None:
            raise CommitConflictError(
                f"File {each.name} is to be deleted and is not in the table any more: another job has rewritten it, or "
                "deleted its partition. Nothing was committed."
            )
    return live


def check_bucket_counts(live: Iterable[FileChange]) -> None:
    """Check that all files of a partition have the same number of buckets. Raises CommitConflictError if a partition
    has files with different numbers.
    """
    counts: dict[bytes, int] = {}
    for each in live:
        # Without buckets (-1) and in the postponed bucket (-2) it is not a count.
        if each.total_buckets > 0 and counts.setdefault(each.partition, each.total_buckets) != each.total_buckets:
            raise CommitConflictError(
                f"The files of a partition are divided into {counts[each.partition]} buckets, and {each.name} into "
                f"{each.total_buckets}: the partition was rescaled meanwhile. Nothing was committed."
            )


def _check_levels(live: Iterable[FileChange], changes: Changes, key_order: Callable[[bytes], Any]) -> None:
    """No two files of a level above 0 may hold the same key."""
    touched = {_level(each) for each in changes.added if each.file["_LEVEL"] >= 1}
    sorted_files = sorted((each for each in live if _level(each) in touched), key=_level)
    for _, files in groupby(sorted_files, key=_level):
        bounds = [(key_order(each.file["_MIN_KEY"]), key_order(each.file["_MAX_KEY"]), each.name) for each in files]
        bounds.sort(key=lambda bound: bound[0])
        for (_, greatest, name), (smallest, _, other) in pairwise(bounds):
            if greatest >= smallest:
                raise CommitConflictError(
                    f"Files {name} and {other} would be on one level with overlapping keys: another compaction has "
                    "written to it. Nothing was committed."
                )


def _level(each: FileChange) -> tuple[bytes, int, int]:
    return each.partition, each.bucket, each.file["_LEVEL"]


def _check_index(
    index: Sequence[AvroRecord], live: Iterable[FileChange], changes: Changes, rules: ConflictRules
) -> None:
    there = {each["_FILE_NAME"]: each for each in index}
    for each in changes.index_deleted:
        if each["_FILE_NAME"] not in there:
            raise CommitConflictError(
                f"Index file {each['_FILE_NAME']} is to be replaced and is not in the table any more: another job has "
                "changed the deletion vectors. Nothing was committed."
            )
    replaced = {each["_FILE_NAME"] for each in changes.index_deleted}
    kept = [each for each in index if each["_INDEX_TYPE"] == DELETION_VECTORS and each["_FILE_NAME"] not in replaced]
    added = [each for each in changes.index_added if each["_INDEX_TYPE"] == DELETION_VECTORS]
    if rules.unaware_buckets:
        _check_vectors(kept, added, live, changes)
        _check_marked_once(kept, added)
    else:
        _check_vectors(kept, added, live, changes)
        # A bucket has one file of vectors. The new one would drop the vectors that were added after the plan
        # was made.
        places = {_bucket(each) for each in added}
        for each in kept:
            if _bucket(each) in places:
                raise CommitConflictError(
                    f"The deletion vectors of a bucket would be replaced, and its current ones, in "
                    f"{each['_FILE_NAME']}, were not read. Nothing was committed."
                )


def _check_vectors(
    kept: Sequence[AvroRecord], added: Sequence[AvroRecord], live: Iterable[FileChange], changes: Changes
) -> None:
    """Check that no file is deleted while its vector stays, and no vector comes without its file."""
    marked = marked_files(kept)
    names = {(each.partition, each.bucket, each.name) for each in live}
    for each in changes.files:
        at = each.partition, each.bucket, each.name
        # A file that is moved to another level is in `names`: its vector still counts.
        if each.kind == EntryKind.DELETE and at in marked and at not in names:
            raise CommitConflictError(
                f"File {each.name} was rewritten without the deletion vector in {marked[at]}: rows of it were deleted "
                "meanwhile. Nothing was committed."
            )
    for at in marked_files(added):
        if at not in names:
            raise CommitConflictError(
                f"Rows of file {at[2]} are to be deleted, and it is not in the table any more. Nothing was committed."
            )


def _check_marked_once(kept: Sequence[AvroRecord], added: Sequence[AvroRecord]) -> None:
    marked = marked_files(kept)
    for at in marked_files(added):
        if at in marked:
            raise CommitConflictError(
                f"Rows of file {at[2]} were deleted meanwhile ({marked[at]}). Nothing was committed."
            )


def _bucket(record: AvroRecord) -> tuple[bytes, int]:
    return record["_PARTITION"], record["_BUCKET"]


class StrictMode:
    """The rule of Java's `StrictModeChecker` for the commits of one writer.

    It refuses commits to partitions that a COMPACT or OVERWRITE snapshot of another user has changed since the last
    safe snapshot, and OVERWRITEs of partitions to which another user has appended in real buckets. Snapshots that were
    examined, and those of the writer itself, are safe from then on. Not for several threads.

    Args:
        last_safe: Id of the last safe snapshot; if negative, the first commit is not checked.
        data_evolution: Whether compactions may change only deletion vectors, without changing rows.
    """

    def __init__(self, last_safe: int, *, data_evolution: bool) -> None:
        self._last_safe = last_safe
        self._data_evolution = data_evolution

    @staticmethod
    def of(table: PaimonTable) -> StrictMode | None:
        """The strict mode of a table; None: it is off."""
        last_safe = option_keys.COMMIT_STRICT_MODE_LAST_SAFE_SNAPSHOT.of(table.options)
        if last_safe is None:
            return None
        return StrictMode(last_safe, data_evolution=table.traits.data_evolution)

    @staticmethod
    def since(snapshot: int, table: PaimonTable) -> StrictMode:
        """A strict mode in which snapshots after this one are not safe, whatever the options of the table say."""
        given = option_keys.COMMIT_STRICT_MODE_LAST_SAFE_SNAPSHOT.of(table.options)
        last_safe = snapshot if given is None or given < 0 else min(given, snapshot)
        return StrictMode(last_safe, data_evolution=table.traits.data_evolution)

    def check(self, state: TableState, kind: str, changes: Changes, user: str) -> None:
        """Check that changes may follow a state. Reads each snapshot since the last safe one. Raises StrictModeError if
        a snapshot of another user forbids the commit, or one that must be examined has expired.
        """
        latest = 0 if state.snapshot is None else state.snapshot.id
        if self._last_safe >= 0:
            rows = pa.array(sorted(changes.partitions), pa.binary())
            for number in range(self._last_safe + 1, latest + 1):
                self._check_one(state, number, kind, rows, user)
        self._last_safe = latest if self._last_safe < 0 else max(self._last_safe, latest)

    def note_committed(self, snapshot: int) -> None:
        """The writer has committed this snapshot, so it and all before it are safe."""
        self._last_safe = snapshot

    def _check_one(self, state: TableState, number: int, kind: str, rows: pa.Array, user: str) -> None:
        found = state.directory.snapshots.try_get(number)
        if found is None:
            raise StrictModeError(number, "has expired, and must be examined")
        if found.commit_user == user or not len(rows):
            return
        if found.commit_kind in (COMPACT, OVERWRITE):
            changed = _has_files(state, found, rows, real_buckets=False)
            if not changed and (found.commit_kind == OVERWRITE or not self._data_evolution):
                changed = _has_index_files(state, found, rows)
        else:
            appended = found.commit_kind == APPEND and kind == OVERWRITE
            changed = appended and _has_files(state, found, rows, real_buckets=True)
        if changed:
            what = f"({found.commit_kind} by '{found.commit_user}') changes the same partition"
            raise StrictModeError(number, what)


def _has_files(state: TableState, snapshot: Snapshot, rows: pa.Array, *, real_buckets: bool) -> bool:
    manifests = state.directory.manifests
    entries = manifests.entries(manifests.manifest_list(snapshot.delta_manifest_list))
    inside = pc.is_in(entries["partition"], value_set=rows)
    if real_buckets:
        inside = pc.and_(inside, pc.greater_equal(entries["bucket"], 0))
    return bool(pc.any(inside).as_py())


def _has_index_files(state: TableState, snapshot: Snapshot, rows: pa.Array) -> bool:
    """Whether a snapshot has index files in partitions, unless its index manifest is that of the snapshot before."""
    if snapshot.index_manifest is None:
        return False
    before = state.directory.snapshots.try_get(snapshot.id - 1) if snapshot.id > 1 else None
    if before is not None and before.index_manifest == snapshot.index_manifest:
        return False
    partitions = set(rows.to_pylist())
    return any(each["_PARTITION"] in partitions for each in TableState(state.directory, snapshot).index)
