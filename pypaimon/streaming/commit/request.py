"""`CommitRequest`: all that a caller says about one commit; `CommitPlan`: what it changes in a given table state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from pypaimon.streaming.commit.changes import (
    APPEND,
    COMPACT,
    OVERWRITE,
    AvroRecord,
    Changes,
    FileChange,
    data_changes,
    marked_files,
)
from pypaimon.streaming.commit.conflicts import (
    ConflictRules,
    KeyIndexes,
    TableState,
    check_bucket_counts,
    check_changes,
    check_key_indexes,
)
from pypaimon.streaming.commit.row_id_conflicts import FilesByRowId
from pypaimon.streaming.errors import CommitConflictError, StreamConfigError
from pypaimon.streaming.files.blob_files import is_blob_file
from pypaimon.streaming.files.row_id_groups import is_vector_file
from pypaimon.streaming.filtering.partition_spec import PartitionSpec
from pypaimon.streaming.formats.binary_row_encoding import all_forms
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.write_internals import CommitMessage


@dataclass(frozen=True, slots=True)
class Written:
    """What was written for a commit."""

    rows: int
    files: int
    bytes: int

    @staticmethod
    def of(messages: Iterable[Any]) -> Written:
        """Totals of the data increments of pypaimon's commit messages."""
        return _sums([file for message in messages for file in message.new_files])

    @staticmethod
    def by_compaction(messages: Iterable[Any]) -> Written:
        """Totals of their compact increments."""
        return _sums([file for message in messages for file in message.compact_after])


@dataclass(frozen=True, slots=True)
class CommitReport:
    """The result of a commit.

    Attributes:
        snapshot_id: Id of its snapshot; None if there was nothing to commit, or the snapshot has expired.
        written: What was written for it, this time.
        repeated: It was in the table already, and nothing was added.
    """

    snapshot_id: int | None
    written: Written
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Assumption:
    """What an operator has found out about a commit, for the case that the table cannot show it."""

    committed: int | None = None  # Identifier of a commit that is in the table, or None
    missing: int | None = None  # Identifier of a commit that is not, or None


def _sums(files: list[Any]) -> Written:
    # Files of blobs and vectors hold columns of rows that are counted already.
    rows = sum(file.row_count for file in files if not (is_blob_file(file) or is_vector_file(file)))
    return Written(rows, len(files), sum(file.file_size for file in files))


Overwrite: TypeAlias = bool | PartitionSpec


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """One commit: its identity, its files, what its snapshot says, and what must hold for it to be made."""

    table: PaimonTable
    user: str
    identifier: int  # Commit identifier. A user and an identifier are committed at most once.
    # pypaimon's commit messages of everything that was written. Their compact increments become a second snapshot.
    messages: Sequence[CommitMessage]
    # Whether they replace existing rows: True replaces whole partitions with `dynamic-partition-overwrite`, otherwise
    # the whole table. A spec replaces the partitions that match it, and rows of other partitions are refused.
    overwrite: Overwrite = False
    keep_empty: bool = False  # Whether a commit without files leaves a snapshot, as one that only reports progress must
    schema_id: int | None = None  # The table's latest schema, which the snapshot names; None: that of `table`
    # Event time up to which rows are complete, in epoch milliseconds. The table's watermark never falls.
    watermark: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)  # Entries of the snapshot's `properties`
    # The index files from which the rows got their buckets. The commit is refused if the table has other ones by now.
    key_indexes: KeyIndexes = field(default_factory=dict)
    # Snapshot from which the writer took the number of buckets, 0 for none. The commit is refused if a partition has
    # another number since. None: not known, so all files are examined.
    buckets_of: int | None = None
    # Raises if the table was dropped, recreated or rolled back. Not called if the session's last snapshot shows that it
    # was not.
    check_table: Callable[[], None] = lambda: None
    # Whether identifiers grow, as those of a stream do. If not, any identifier that the table does not have is
    # committed, also after a later one.
    ordered: bool = True
    origin: str | None = None  # What counts the identifiers, if known: a streaming query that has an id
    # What an operator says where the outcome of an earlier attempt is unknown
    assumption: Assumption = field(default_factory=Assumption)
    # No earlier attempt can have published these files, so they are deleted if this one fails and is certain not to
    # have published them. Otherwise a failure keeps them, because a snapshot may name them.
    is_first_attempt: bool = False

    @property
    def snapshot_schema_id(self) -> int:
        return int(self.table.schema.id) if self.schema_id is None else self.schema_id


class CommitPlan(Protocol):
    """The changes of a commit as a function of the state that it follows. Each attempt asks again."""

    @property
    def kind(self) -> str: ...

    @property
    def may_conflict(self) -> bool: ...

    @property
    def keep_empty(self) -> bool: ...

    def changes(self, state: TableState) -> Changes:
        """The changes to this state."""


def plan_of(request: CommitRequest) -> CommitPlan:
    changes = data_changes(request.table, request.messages)
    if request.overwrite is False:
        return FixedChanges(
            changes, keep_empty=request.keep_empty, key_indexes=request.key_indexes, buckets_of=request.buckets_of
        )
    if request.overwrite is not True:
        return PartitionReplacement(changes, request.overwrite)
    table = request.table
    by_partition = table.partition_keys and option_keys.DYNAMIC_PARTITION_OVERWRITE.of(table.options)
    return PartitionReplacement(changes, "written" if by_partition else "all")


@dataclass(frozen=True, slots=True)
class FixedChanges:
    """Changes that are the same for every state."""

    given: Changes
    compaction: bool = False
    keep_empty: bool = False
    key_indexes: KeyIndexes = field(default_factory=dict)
    buckets_of: int | None = None

    @property
    def kind(self) -> str:
        """COMPACT, OVERWRITE if rows are removed, otherwise APPEND."""
        if self.compaction:
            return COMPACT
        return OVERWRITE if self.given.deletes else APPEND

    @property
    def may_conflict(self) -> bool:
        """Whether existing files are removed. Files that are only added never conflict."""
        return self.kind != APPEND

    def changes(self, state: TableState) -> Changes:
        if self.key_indexes:
            check_key_indexes(state.index, self.key_indexes)
        if self.kind == APPEND and any(each.total_buckets > 0 for each in self.given.files):
            check_bucket_counts([*state.files_since(self.buckets_of, self.given.partitions), *self.given.files])
        return self.given


@dataclass(frozen=True, slots=True)
class PartitionReplacement:
    """New files that replace all files of some partitions, whichever files those have when it is committed.

    It has no changelog, as in Java.
    """

    given: Changes
    # The partitions: those that match a spec, `all`, those of the new files (`written`), or serialised rows that follow
    # from the state
    replaced: PartitionSpec | Literal["all", "written"] | Callable[[TableState], set[bytes]]
    kind: str = OVERWRITE
    keep_empty: bool = True
    may_conflict: bool = False

    def changes(self, state: TableState) -> Changes:
        # Only the new files: an OVERWRITE may change the number of buckets.
        check_bucket_counts(self.given.files)
        rows = self._rows(state)
        deleted = [each.deleted() for each in state.files(rows)]
        replaced = (each for each in state.index if rows is None or each["_PARTITION"] in rows)
        index = [{**each, "_KIND": int(EntryKind.DELETE)} for each in replaced]
        # The changelog files of its writers become orphans, because no snapshot names them.
        return Changes.of((*deleted, *self.given.files), (), self.given.index_added, index)

    def _rows(self, state: TableState) -> set[bytes] | None:
        """Serialised rows of the partitions that are replaced; None: all."""
        if self.replaced == "all":
            return None
        if callable(self.replaced):
            return self.replaced(state)
        new = {each.partition for each in self.given.files}
        if self.replaced == "written":
            return all_forms(new, state.partition_fields)
        for row in new - state.matching(new, self.replaced):
            raise StreamConfigError(
                f"Rows of partition {state.values_of(row)} would be written, and only {dict(self.replaced.given)} is "
                "to be overwritten. Name their partition too, or leave them out."
            )
        return state.partitions(self.replaced)


@dataclass(slots=True)
class SeparableChanges:
    """Changes of a compaction in parts that may be committed without each other."""

    parts: Sequence[Changes]
    # Numbers of the parts that the last attempt has left out; None: no attempt has left out any
    left_out: set[int] | None = None
    kind: str = COMPACT
    may_conflict: bool = True
    keep_empty: bool = False

    def changes(self, state: TableState) -> Changes:
        if self.left_out:
            self.left_out = set()
        return _joined(self.parts)

    def without_conflicts(
        self, base: Iterable[FileChange], index: Iterable[AvroRecord], rules: ConflictRules
    ) -> Changes | None:
        """The changes of the parts that may follow a state, which is given by its files; None: no part may."""
        files = _RelatedFiles(base, rules)
        vectors: dict[tuple[bytes, int], list[AvroRecord]] = {}
        for record in index:
            vectors.setdefault((record["_PARTITION"], record["_BUCKET"]), []).append(record)
        left: set[int] = set()
        for number, part in enumerate(self.parts):
            there = [record for place in part.places for record in vectors.get(place, ())]
            try:
                check_changes(COMPACT, files.of(part), there, part, rules)
            except CommitConflictError:
                left.add(number)
        self.left_out = left
        kept = [part for number, part in enumerate(self.parts) if number not in left]
        return _joined(kept) if kept else None


class _RelatedFiles:
    """The live files by which parts of a compaction are checked, so that not each part is compared with all."""

    def __init__(self, base: Iterable[FileChange], rules: ConflictRules) -> None:
        base = list(base)
        self._is_keyed = rules.key_order is not None
        self._by_bucket: dict[tuple[bytes, int], list[FileChange]] = {}
        self._by_name: dict[tuple[bytes, int, str], FileChange] = {}
        for each in base:
            if self._is_keyed:
                self._by_bucket.setdefault((each.partition, each.bucket), []).append(each)
            else:
                self._by_name[each.partition, each.bucket, each.name] = each
        self._by_row_id = FilesByRowId(base) if rules.data_evolution else None
        # One file for each number of buckets of a partition: parts of one with several numbers conflict.
        self._of_counts: dict[bytes, dict[int, FileChange]] = {}
        for each in base:
            if each.total_buckets > 0:
                self._of_counts.setdefault(each.partition, {})[each.total_buckets] = each

    def of(self, part: Changes) -> list[FileChange]:
        """Those that the checks of a part need."""
        found = [each for row in part.partitions for each in self._of_counts.get(row, {}).values()]
        if self._is_keyed:
            found += [each for place in part.places for each in self._by_bucket.get(place, ())]
        else:
            # Without keys a bucket may have any other files: the part names all that matter, itself or in its vectors.
            named = {(each.partition, each.bucket, each.name) for each in part.files}
            named |= marked_files(part.index_added).keys()
            found += [self._by_name[each] for each in named if each in self._by_name]
        if self._by_row_id is not None:
            found += self._by_row_id.near(part.files)
        return list({each.identity: each for each in found}.values())


def _joined(parts: Iterable[Changes]) -> Changes:
    parts = list(parts)
    return Changes.of(
        [each for part in parts for each in part.files],
        [each for part in parts for each in part.changelog],
        [each for part in parts for each in part.index_added],
        [each for part in parts for each in part.index_deleted],
    )


@dataclass(frozen=True, slots=True)
class ManifestRewrite:
    """No changes of files, only of the manifests that name them; there is no commit if those stay as they are."""

    kind: str = COMPACT
    may_conflict: bool = False
    keep_empty: bool = True

    def changes(self, state: TableState) -> Changes:
        return Changes()
