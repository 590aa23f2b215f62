"""Whether a newer schema changes the fields that a stream reads, and what the stream does then."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.errors import SchemaChangedError, TableChangedError
from pypaimon.streaming.filtering.field_paths import Path, find, find_ids, ids_of
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.stream_options import OnSchemaChange
from pypaimon.streaming.options.table_kinds import ChangelogProducer
from pypaimon.streaming.paimon.internals import TableSchema

ReadFields = frozenset[tuple[int, ...]]
"""Fields that are read or used by a filter, each as the field ids of its path from the top column down."""


def read_field_ids(schema: TableSchema, names: Collection[str] | None) -> ReadFields | None:
    """The fields with these names (nested ones as `row.field`); None for all columns."""
    if names is None:
        return None
    paths = (find(name, schema.fields) for name in names)
    return frozenset(ids_of(path) for path in paths if path is not None)


def difference(old: TableSchema, new: TableSchema, fields: ReadFields | None) -> str | None:
    """The first change of the newer schema among the fields that are read; None if there is no change.

    Options, comments, and fields that are not read do not count.

    Args:
        new: The schema of a snapshot.
        fields: The fields that are read; None for all columns, their order included.
    """
    if old.id == new.id:
        return None
    everything = fields is None
    for ids in [(field.id,) for field in old.fields] if fields is None else sorted(fields):
        path = find_ids(ids, old.fields)
        changed = None if path is None else _changed(path, find_ids(ids, new.fields))
        if changed:
            return changed
    before, after = [field.id for field in old.fields], [field.id for field in new.fields]
    if everything and len(after) > len(before):
        return "columns were added: " + ", ".join(field.name for field in new.fields if field.id not in before)
    return "columns were reordered" if everything and before != after else None


def _changed(old: Path, new: Path | None) -> str | None:
    name = ".".join(field.name for field in old)
    if new is None:
        return f"column {name!r} was dropped"
    renamed = ".".join(field.name for field in new)
    if name != renamed:
        return f"column {name!r} was renamed to {renamed!r}"
    if _structure(old[-1].type.to_dict()) != _structure(new[-1].type.to_dict()):
        return f"column {name!r} changed from {old[-1].type} to {new[-1].type}"
    if any(field.type.nullable for field in old) != any(field.type.nullable for field in new):
        return f"column {name!r} is in a row that may be null in one schema only"
    return None


def _structure(value: Any) -> Any:
    """A type as JSON, without the comments and defaults of nested fields."""
    if isinstance(value, dict):
        return {key: _structure(each) for key, each in value.items() if key not in ("description", "defaultValue")}
    return [_structure(each) for each in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class SchemaPolicy:
    """Which schema a stream reads with, snapshot by snapshot.

    Attributes:
        schema_of: Returns a schema by id, with the options to read it with. Requests one that is not known.
        first: The schema that the stream was built with.
        policy: What to do if a newer schema changes the fields that are read.
        fields: The fields that are read, or used by the filter; None for all.
        keeps_state: Whether the stream keeps a copy equal to its table.
    """

    schema_of: Callable[[int], TableSchema]
    first: TableSchema
    policy: OnSchemaChange
    fields: ReadFields | None
    keeps_state: bool = False

    def of(self, schema_id: int | None) -> TableSchema:
        """The schema with this id; None: the first one."""
        return self.first if schema_id is None else self.schema_of(schema_id)

    def for_snapshot(self, current_id: int | None, snapshot_schema_id: int) -> int | None:
        """Id of the schema to read a snapshot with, given the one in use (None: the first).

        Raises:
            SchemaChangedError: The fields that are read have changed and the policy is to fail, or one was dropped.
            TableChangedError: The first schema was rolled back, and another one has its id.
        """
        self._check_first(snapshot_schema_id)
        self.check_producer(snapshot_schema_id)
        current = self.of(current_id)
        if self.policy is OnSchemaChange.IGNORE or snapshot_schema_id <= current.id:
            return current_id
        newer = self.schema_of(snapshot_schema_id)
        changed = difference(current, newer, self.fields)
        if changed is None:
            return current_id
        dropped = any(find_ids(ids, newer.fields) is None for ids in self.fields or ())
        if self.policy is OnSchemaChange.FAIL or dropped:
            raise SchemaChangedError(current.id, newer.id, changed)
        followed: int = newer.id
        return followed

    def producer(self, schema_id: int) -> ChangelogProducer:
        """The changelog producer of a schema. Requests one that is not known."""
        return option_keys.CHANGELOG_PRODUCER.of(self.schema_of(schema_id).options)

    def check_producer(self, snapshot_schema_id: int) -> None:
        """Check that a snapshot that is read or passed over has the changelog that the stream reads.

        Raises:
            TableChangedError: `changelog-producer` was changed since the stream was built: the rows that are committed
                from now on would be passed over.
        """
        if snapshot_schema_id <= self.first.id or not self.first.primary_keys:
            return
        own = option_keys.CHANGELOG_PRODUCER.of(self.first.options)
        now = self.producer(snapshot_schema_id)
        # Other streams only need changelog files, of any producer. The state of a copy depends on the producer.
        if now is own or not (self.keeps_state or now is ChangelogProducer.NONE):
            return
        raise TableChangedError(
            f"Schema {snapshot_schema_id} of the table changed '{option_keys.CHANGELOG_PRODUCER}' from {own.value} to "
            f"{now.value}, and this stream reads changes as {own.value} makes them.",
            advice="Build a new stream, which continues at this position.",
        )

    def _check_first(self, snapshot_schema_id: int) -> None:
        # Before a snapshot needs it, a schema can be rolled back, and another one get its id and its field
        # ids. From then on it exists as long as that snapshot does; schema 0 exists as long as the table.
        if self.first.id == 0 or snapshot_schema_id < self.first.id:
            return
        if self.schema_of(self.first.id).fields != self.first.fields:
            raise TableChangedError(
                f"Schema {self.first.id} was rolled back: another schema now has its id, so that this stream would "
                "take one column for another.",
                advice="Build a new stream.",
            )
