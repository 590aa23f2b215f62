"""What a commit changes, as a function of the state that it follows: as it is, or in the place of what is there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.filtering.partition_spec import PartitionSpec
from pypaimon.streaming.formats.binary_row_encoding import all_forms
from pypaimon.streaming.metadata.entry_kind import EntryKind
from pypaimon.streaming.writing.commit.conflicts import KeyIndexes, check_bucket_counts, check_key_indexes
from pypaimon.streaming.writing.commit.file_changes import APPEND, COMPACT, OVERWRITE, Changes
from pypaimon.streaming.writing.commit.table_state import TableState


class Plan(Protocol):
    """Changes that are yet to meet their state.

    Attributes:
        kind: Of the snapshot.
        always: Whether it leaves a snapshot, also without changes.
        may_conflict: Whether the changes must be checked against the state.
    """

    @property
    def kind(self) -> str: ...

    @property
    def may_conflict(self) -> bool: ...

    @property
    def always(self) -> bool: ...

    def changes(self, state: TableState) -> Changes:
        """What is to be changed in this state."""


@dataclass(frozen=True, slots=True)
class AsGiven:
    """Changes that do not depend on the state.

    Attributes:
        given: They.
        compaction: Whether they leave the rows as they are.
        always: Whether they leave a snapshot, also if there are none.
        key_indexes: Index files that must be those of their partitions still.
        buckets_of: Snapshot by which rows were divided into a fixed number of buckets, 0 for none; None: not known.
    """

    given: Changes
    compaction: bool = False
    always: bool = False
    key_indexes: KeyIndexes = field(default_factory=dict)
    buckets_of: int | None = None

    @property
    def kind(self) -> str:
        """COMPACT; OVERWRITE if rows go; else APPEND."""
        if self.compaction:
            return COMPACT
        return OVERWRITE if self.given.deletes else APPEND

    @property
    def may_conflict(self) -> bool:
        """Whether files that are there go. What is only added fits always."""
        return self.kind != APPEND

    def changes(self, state: TableState) -> Changes:
        """They; raises `CommitConflictError`, `KeyIndexConflictError` where it is about index files."""
        if self.key_indexes:
            check_key_indexes(state.index, self.key_indexes)
        if self.kind == APPEND and any(each.total_buckets > 0 for each in self.given.files):
            check_bucket_counts([*state.files_since(self.buckets_of, self.given.partitions), *self.given.files])
        return self.given


@dataclass(frozen=True, slots=True)
class InPlaceOf:
    """New files in the place of those of some partitions, whichever there are when it is committed.

    There is no changelog of it, as in Java.

    Attributes:
        given: The new files.
        replaced: Which partitions: those that have some values, `all`, or those of the new files (`written`).
    """

    given: Changes
    replaced: PartitionSpec | Literal["all", "written"]
    kind: str = OVERWRITE
    always: bool = True
    may_conflict: bool = False

    def changes(self, state: TableState) -> Changes:
        """The new files, and the end of those that are there."""
        check_bucket_counts(self.given.files)
        rows = self._rows(state)
        deleted = [each.deleted() for each in state.files(rows)]
        index = [{**each, "_KIND": int(EntryKind.DELETE)} for each in state.index if _is_in(each["_PARTITION"], rows)]
        return Changes.of((*deleted, *self.given.files), (), self.given.index_added, index)

    def _rows(self, state: TableState) -> set[bytes] | None:
        """Serialised rows of the partitions that are replaced; None: of all."""
        if self.replaced == "all":
            return None
        new = {each.partition for each in self.given.files}
        if self.replaced == "written":
            return all_forms(new, state.directory.table.partition_keys_fields)
        for row in new - state.matching(new, self.replaced):
            raise StreamConfigError(
                f"Rows of partition {state.values_of(row)} would be written, and only {dict(self.replaced.given)} is "
                "to be overwritten. Name their partition too, or leave them out."
            )
        return state.partitions(self.replaced)


def _is_in(partition: bytes, rows: set[bytes] | None) -> bool:
    return rows is None or partition in rows
