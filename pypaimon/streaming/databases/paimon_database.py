"""`PaimonDatabase`: copies the tables of a database to another Paimon database, each row exactly once."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pypaimon.streaming.databases.events import DatabaseEvent, TableDropped, TableRenamed
from pypaimon.streaming.databases.paimon_copies import CopyNote, FoundCopy, PaimonCopies
from pypaimon.streaming.databases.position import DatabasePosition, TablePosition
from pypaimon.streaming.databases.stream import BlockingTableBatch
from pypaimon.streaming.databases.warehouses import noted_location
from pypaimon.streaming.errors import StreamConfigError, TargetError
from pypaimon.streaming.maintenance.commit_maintenance import When, is_automatic_maintenance
from pypaimon.streaming.options.arguments import a_catalog, a_name
from pypaimon.streaming.paimon.internals import DataField
from pypaimon.streaming.paimon.write_internals import SchemaChange
from pypaimon.streaming.targets.changes import AnyBatch
from pypaimon.streaming.targets.column_evolution import evolve_columns
from pypaimon.streaming.targets.paimon_target import PaimonTarget, copied_schema
from pypaimon.streaming.targets.target_state import Column, SavedState

_USER = "pypaimon-database-copy"


class _CopyTarget(PaimonTarget):
    """A target whose columns are altered before its rows are written."""

    _follows_columns = True


@dataclass(frozen=True, slots=True)
class _OpenCopy:
    """A copy that is written to.

    Attributes:
        identity: The identity of its source.
        target: Writes its rows.
        columns: Its recorded columns.
    """

    identity: str
    target: PaimonTarget
    columns: SavedState


class PaimonDatabase:
    """Copies the tables of a database to another Paimon database, each row exactly once; for `copy_database`.

    The rows of a plan and the position after it are one commit. A table is created with its first rows. It gets the
    keys and options of its source, except those for its location and for reading. Its columns are added, renamed,
    dropped and cast as in the source, before the rows that need it. The copy of a table that is dropped and re-created
    is replaced with its first rows. A table of the database that is not a copy is never touched.

    Renaming and dropping copies needs a store that does it in one step: local files, HDFS, or a REST catalog. In other
    stores the copy is left as it is, and an error says so.

    Args:
        catalog: pypaimon's catalog of the target.
        database: The database to copy to, created if needed. Each source needs a database of its own.
        on_drop: What happens to the copy of a table that is dropped: `"keep"` or `"drop"`.
        maintain: As `with_maintenance` of a writer takes it, for each copy.

    Raises:
        StreamConfigError: Invalid `on_drop` or `maintain`.
    """

    def __init__(
        self,
        catalog: Any,
        database: str,
        *,
        on_drop: Literal["keep", "drop"] = "keep",
        maintain: When = "off",
    ) -> None:
        if on_drop not in ("keep", "drop"):
            raise StreamConfigError(f"on_drop: expected 'keep' or 'drop', got {on_drop!r}")
        a_catalog("PaimonDatabase: catalog", catalog)
        self._tables = PaimonCopies(catalog, a_name("PaimonDatabase: database", database))
        self._drops = on_drop == "drop"
        is_automatic_maintenance("PaimonDatabase: maintain", maintain)
        self._maintain: When = maintain
        self._source = ""
        self._location: str | None = None
        self._open: dict[str, _OpenCopy] = {}

    def load_position(self, database: str, location: str | None = None) -> DatabasePosition:
        """Where the copy of a database continues. Rolls back what was applied of an unfinished plan."""
        self.roll_back()
        self._source, self._location = database, location
        self._tables.make()
        found = self._tables.positions(database, _USER)
        tables = {name: TablePosition(note.table, position) for name, (note, position) in found.items()}
        noted = [note.location for note, _ in found.values() if note.location is not None]
        return DatabasePosition(database, tables, noted_location(noted, location))

    def apply(self, batch: BlockingTableBatch) -> bool:
        """Apply a batch. The last batch of a plan saves the plan; an error rolls back what was applied of the plan.

        Returns:
            Whether the batch was applied. False: the target does not hold the rows before it, so the copy must restart.

        Raises:
            StreamConfigError: The database has a table of that name that is not a copy, a table without a primary key
                has deletes, this kind of table cannot be written, or the batch does not continue at the position of the
                copy.
            UnsupportedTableError: A column cannot be written.
            TableChangedError: The source or the copy was rolled back, dropped or re-created.
            TargetError: The catalog refuses a change of columns, or cannot drop an earlier copy.
            PaimonStreamError: An error of the writer.
        """
        copy = self._open.get(batch.table)
        if batch.is_first:
            copy = self._fit(batch, copy)
        if copy is None or copy.identity != batch.plan_after.table:
            return False
        copy.target.apply(batch)
        return True

    def apply_event(self, event: DatabaseEvent) -> None:
        """Apply an event of a table. The same event may come again.

        Raises:
            StreamConfigError: A table was renamed, and the database has a table of the new name that is not a copy.
            TargetError: The catalog refuses the change, or the store cannot rename or drop a table in one step.
        """
        if isinstance(event, TableDropped):
            self._drop(event.table)
        elif isinstance(event, TableRenamed):
            self._rename(event.former, event.table)

    def roll_back(self) -> None:
        """Roll back what was applied of an unfinished plan."""
        for name in list(self._open):
            self._close(name)

    def _fit(self, batch: BlockingTableBatch, copy: _OpenCopy | None) -> _OpenCopy | None:
        """The copy, altered for a plan; None if it does not hold the rows before the plan."""
        name, identity = batch.table, batch.plan_after.table
        fields = _fields_of(batch)
        columns = _columns_of(batch, fields)
        if copy is None or copy.identity != identity or copy.columns != columns:
            self._close(name)
            found = self._tables.find(name, self._source)
            if found is None or found.note.table != identity or found.note.is_dropped:
                if not batch.begins_state:
                    return None
                schema = copied_schema(batch.schema, fields, {})
                found = self._tables.create(
                    name, schema, CopyNote(self._source, identity, columns, location=self._location)
                )
            elif found.note.columns != columns:
                names = [field.name for field in found.table.fields]
                changes = _altered_columns(batch, fields, found.note.columns, names)
                found = self._tables.alter(name, changes, self._noted(found.note, columns))
            copy = self._opened(name, found)
        if not batch.begins_state and copy.target.load_position() is None:
            return None
        return copy

    def _noted(self, note: CopyNote, columns: SavedState) -> CopyNote:
        return replace(note, columns=columns, location=self._location or note.location)

    def _opened(self, name: str, found: FoundCopy) -> _OpenCopy:
        target = _CopyTarget(found.table, commit_user=_USER, maintain=self._maintain)
        copy = _OpenCopy(found.note.table, target, found.note.columns)
        self._open[name] = copy
        return copy

    def _drop(self, name: str) -> None:
        found = self._tables.find_own(name, self._source)
        if found is None:
            return
        self._close(name)
        if self._drops:
            self._tables.drop(name)
        elif not found.note.is_dropped:
            self._tables.alter(name, [], replace(found.note, is_dropped=True))

    def _rename(self, former: str, name: str) -> None:
        found = self._tables.find_own(former, self._source)
        if found is None or found.note.is_dropped:
            return
        left = self._tables.find(name, self._source)
        for each in (former, name):
            self._close(each)
        if left is not None:
            # The copy of an earlier table of this name.
            self._tables.drop(name)
        self._tables.rename(former, name)

    def _close(self, name: str) -> None:
        copy = self._open.pop(name, None)
        if copy is not None:
            copy.target.close()


def _fields_of(batch: AnyBatch) -> list[DataField]:
    """The columns of a batch as columns of the copy, where all but key columns are nullable.

    Raises:
        StreamConfigError: A column of the batch is not a column of the table.
    """
    schema = batch.schema
    fields = batch._fields
    columns = {field.name: field.id for field in schema.fields}
    found = []
    for name in batch.rows.schema.names:
        if name not in fields or fields[name].id != columns.get(name):
            raise StreamConfigError(
                f"'{name}' is not a column of the table: leave it out of the stream, or copy the table by itself"
            )
        given = fields[name]
        of_copy = copy.copy(given.type)
        of_copy.nullable = given.type.nullable if name in schema.primary_keys else True
        found.append(DataField(given.id, name, of_copy, given.description))
    return found


def _columns_of(batch: AnyBatch, fields: Sequence[DataField]) -> SavedState:
    return SavedState.of(batch, [(field.name, str(field.type)) for field in fields], keys=None)


def _altered_columns(
    batch: AnyBatch, fields: Sequence[DataField], known: SavedState, names: Sequence[str]
) -> list[Any]:
    alter = _AlteredColumns(fields, names)
    evolve_columns(alter, batch, _columns_of(batch, fields), known)
    return alter.changes()


class _AlteredColumns:
    """Collects the schema changes of a copy.

    Args:
        fields: The columns that the copy shall have.
        names: The columns that the copy has.
    """

    def __init__(self, fields: Sequence[DataField], names: Sequence[str]) -> None:
        self._types = {field.name: field.type for field in fields}
        self._names = set(names)
        self._first: list[Any] = []
        self._renamed: dict[str, str] = {}
        self._last: list[Any] = []

    def changes(self) -> list[Any]:
        """All changes, in an order in which no two columns have the same name at any time."""
        renamed, present = dict(self._renamed), set(self._names)
        order = []
        while renamed:
            free = next((old for old, new in renamed.items() if new not in present), None)
            if free is None:
                raise TargetError(
                    f"Columns {', '.join(sorted(renamed))} have exchanged their names, which a copy does not follow.",
                    advice="Drop the table of the copy; the next run copies it again.",
                )
            new = renamed.pop(free)
            present = present - {free} | {new}
            order.append(SchemaChange.rename_column(free, new))
        return [*self._first, *order, *self._last]

    def create(self, columns: Sequence[Column]) -> None:
        """Nothing to do: the copy exists."""

    def is_exact(self, old: str, new: str) -> bool:
        """True: Paimon casts the rows of the copy as it casts those of the source."""
        return True

    def lacks(self, columns: Sequence[Column]) -> list[Column]:
        present = (self._names - self._renamed.keys()) | set(self._renamed.values())
        return [column for column in columns if column.name not in present]

    def drop(self, name: str) -> None:
        if name in self._names:
            self._names.discard(name)
            self._first.append(SchemaChange.drop_column(name))

    def add(self, column: Column) -> None:
        self._last.append(SchemaChange.add_column(column.name, self._types[column.name]))

    def change_type(self, column: Column) -> None:
        self._last.append(SchemaChange.update_column_type(column.name, self._types[column.name]))

    def rename(self, old: str, new: str) -> None:
        # `evolve_columns` renames by way of a temporary name.
        first = next((name for name, now in self._renamed.items() if now == old), old)
        self._renamed[first] = new
