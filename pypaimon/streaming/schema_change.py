"""Does a newer schema change what a stream reads, and what becomes of the stream then (B20)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from pypaimon.streaming.errors import SchemaChangedError
from pypaimon.streaming.internals import DataField, TableSchema
from pypaimon.streaming.options import OnSchemaChange


def read_field_ids(schema: TableSchema, names: Collection[str] | None) -> frozenset[int] | None:
    """Ids of the columns with these names; None, for all columns, stays None."""
    if names is None:
        return None
    return frozenset(field.id for field in schema.fields if field.name in names)


def difference(old: TableSchema, new: TableSchema, ids: frozenset[int] | None) -> str | None:
    """What the newer schema changes among the columns that are read; None if nothing.

    Options, comments, and columns that are not read do not count.

    Args:
        old: The schema of the stream.
        new: The schema of a snapshot.
        ids: Ids of the columns that are read, or used by the filter; None for all columns, their order included.
    """
    if old.id == new.id:
        return None
    before = [field for field in old.fields if ids is None or field.id in ids]
    after = {field.id: field for field in new.fields if ids is None or field.id in ids}
    for field in before:
        other = after.get(field.id)
        if other is None:
            return f"column {field.name!r} was dropped"
        changed = _changed(field, other)
        if changed:
            return changed
    known = {field.id for field in before}
    added = [field.name for field in after.values() if field.id not in known]
    if added:
        return "columns were added: " + ", ".join(added)
    if ids is None and [field.id for field in before] != list(after):
        return "columns were reordered"
    return None


def _changed(old: DataField, new: DataField) -> str | None:
    if old.name != new.name:
        return f"column {old.name!r} was renamed to {new.name!r}"
    if old.type != new.type:
        return f"column {old.name!r} changed from {old.type} to {new.type}"
    return None


@dataclass(frozen=True, slots=True)
class SchemaPolicy:
    """Which schema a stream reads with, snapshot by snapshot.

    Attributes:
        schema_of: A schema by id; asks the store for one that is not known.
        first: The schema that the stream was built with.
        policy: What to do where a newer schema changes what is read.
        ids: Ids of the columns that are read, or used by the filter; None for all.
    """

    schema_of: Callable[[int], TableSchema]
    first: TableSchema
    policy: OnSchemaChange
    ids: frozenset[int] | None

    def of(self, schema_id: int | None) -> TableSchema:
        """The schema with this id; None stands for the first one."""
        return self.first if schema_id is None else self.schema_of(schema_id)

    def for_snapshot(self, current_id: int | None, snapshot_schema_id: int) -> int | None:
        """Id of the schema to read a snapshot with, given the one in use (None: the first).

        Raises:
            SchemaChangedError: What is read has changed and the policy is to fail; or a read column was dropped.
        """
        current = self.of(current_id)
        if self.policy is OnSchemaChange.IGNORE or snapshot_schema_id <= current.id:
            return current_id
        newer = self.schema_of(snapshot_schema_id)
        changed = difference(current, newer, self.ids)
        if changed is None:
            return current_id
        dropped = self.ids is not None and not self.ids <= {field.id for field in newer.fields}
        if self.policy is OnSchemaChange.FAIL or dropped:
            raise SchemaChangedError(current.id, newer.id, changed)
        followed: int = newer.id
        return followed
