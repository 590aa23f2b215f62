"""`PaimonDatabase`: a database of Paimon whose tables follow those of another one, each exactly once."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pypaimon.streaming.apply_changes.changes import AnyBatch
from pypaimon.streaming.apply_changes.copied_schema import copied_schema
from pypaimon.streaming.apply_changes.followed_columns import follow
from pypaimon.streaming.apply_changes.paimon_target import PaimonTarget
from pypaimon.streaming.apply_changes.saved_state import Column, SavedState
from pypaimon.streaming.databases.events import DatabaseEvent, TableDropped, TableRenamed
from pypaimon.streaming.databases.paimon_copies import CopyNote, FoundCopy, PaimonCopies
from pypaimon.streaming.databases.position import DatabasePosition, TablePlace
from pypaimon.streaming.databases.stream import BlockingTableBatch
from pypaimon.streaming.databases.warehouses import noted_location
from pypaimon.streaming.errors import StreamConfigError, TargetError
from pypaimon.streaming.internals import DataField
from pypaimon.streaming.options.arguments import a_catalog, a_name
from pypaimon.streaming.write_internals import SchemaChange

_USER = "pypaimon-database-copy"


class _CopyTarget(PaimonTarget):
    """A table whose columns are altered before the rows come."""

    _follows_columns = True


@dataclass(frozen=True, slots=True)
class _OpenCopy:
    """A copy that is written to.

    Attributes:
        identity: Of which table it is one.
        target: Writes to it.
        columns: What it is noted to have.
    """

    identity: str
    target: PaimonTarget
    columns: SavedState


class PaimonDatabase:
    """A database of Paimon whose tables follow those of another one, each exactly once; for `copy_database`.

    The rows of a plan and the position behind it are one commit. A table is made with its first rows, with the keys and
    options of its source but those that say where it lies and how it is read. Its columns are added, renamed, dropped
    and given other types as in the source, before the rows that have them. A table that is dropped and made anew is
    replaced when its first rows come. A table of the database that the copy has not made is never touched.

    Renaming and dropping copies needs a store that does it in one step: local files, HDFS, or a REST catalog.
    Elsewhere the table is left alone, with an error that says so.

    Args:
        catalog: pypaimon's, of the warehouse that is copied to.
        database: Its database, made if it is not there. Copies of one source only: each source needs one of its own.
        on_drop: What becomes of the copy of a table that is dropped: `"keep"` or `"drop"`.

    Raises:
        StreamConfigError: `on_drop` is neither.
    """

    def __init__(self, catalog: Any, database: str, *, on_drop: Literal["keep", "drop"] = "keep") -> None:
        if on_drop not in ("keep", "drop"):
            raise StreamConfigError(f"on_drop: expected 'keep' or 'drop', got {on_drop!r}")
        a_catalog("PaimonDatabase: catalog", catalog)
        self._tables = PaimonCopies(catalog, a_name("PaimonDatabase: database", database))
        self._drops = on_drop == "drop"
        self._source = ""
        self._location: str | None = None
        self._open: dict[str, _OpenCopy] = {}

    def begin(self, database: str, location: str | None = None) -> DatabasePosition:
        """Where a copy of a database goes on. What is left of a plan that did not come to its end is taken back."""
        self.leave()
        self._source, self._location = database, location
        self._tables.make()
        found = self._tables.positions(database, _USER)
        tables = {name: TablePlace(each.note.table, each.position) for name, each in found.items()}
        noted = [each.note.location for each in found.values() if each.note.location is not None]
        return DatabasePosition(database, tables, noted_location(noted, location))

    def apply(self, batch: BlockingTableBatch) -> bool:
        """Apply a batch; with the last one of a plan it is saved. An error takes back what was applied of the plan.

        Returns:
            Whether it was; False: what lies before is not there (by now), and the copy has to begin again.

        Raises:
            StreamConfigError: The database has another table of that name, there are deletes in a table without a
                primary key, such a table is not written here, or the batch does not go on where the copy stands.
            UnsupportedTableError: A column cannot be written.
            TableChangedError: One of both tables was rolled back, dropped or made anew.
            TargetError: The catalog refuses a change of columns, or cannot drop what another table has left.
            PaimonStreamError: As the writer of the table says.
        """
        copy = self._open.get(batch.table)
        if batch.is_first:
            copy = self._fit(batch, copy)
        if copy is None or copy.identity != batch.plan_after.table:
            return False
        copy.target.apply(batch)
        return True

    def tell(self, event: DatabaseEvent) -> None:
        """Follow what happened to a table; the same event may come again.

        Raises:
            StreamConfigError: A table is renamed, and the database has another one of that name.
            TargetError: The catalog refuses, or the store cannot rename or drop a table in one step.
        """
        if isinstance(event, TableDropped):
            self._drop(event.table)
        elif isinstance(event, TableRenamed):
            self._rename(event.former, event.table)

    def leave(self) -> None:
        """Take back what was applied of a plan that is not at its end."""
        for name in list(self._open):
            self._close(name)

    def _fit(self, batch: BlockingTableBatch, copy: _OpenCopy | None) -> _OpenCopy | None:
        """The copy that can take a plan; None: it does not hold what lies before."""
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
        if not batch.begins_state and copy.target.position() is None:
            return None
        return copy

    def _noted(self, note: CopyNote, columns: SavedState) -> CopyNote:
        return replace(note, columns=columns, location=self._location or note.location)

    def _opened(self, name: str, found: FoundCopy) -> _OpenCopy:
        copy = _OpenCopy(found.note.table, _CopyTarget(found.table, commit_user=_USER), found.note.columns)
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
            # What another table of this name has left.
            self._tables.drop(name)
        self._tables.rename(former, name)

    def _close(self, name: str) -> None:
        copy = self._open.pop(name, None)
        if copy is not None:
            copy.target.close()


def _fields_of(batch: AnyBatch) -> list[DataField]:
    """The columns of a batch as those of its copy: without the key's all of them may be null.

    Raises:
        StreamConfigError: One is no column of the table.
    """
    schema = batch.schema
    fields = {field.name: field for field in schema.fields}
    found = []
    for name in batch.rows.schema.names:
        if name not in fields:
            raise StreamConfigError(
                f"column '{name}' is none of the table: leave it out of the stream, or copy the table by itself"
            )
        given = fields[name]
        of_copy = copy.copy(given.type)
        of_copy.nullable = given.type.nullable if name in schema.primary_keys else True
        found.append(DataField(given.id, name, of_copy, given.description))
    return found


def _columns_of(batch: AnyBatch, fields: Sequence[DataField]) -> SavedState:
    """The same, as what is noted."""
    return SavedState.of(batch, [(field.name, str(field.type)) for field in fields], keys=None)


def _altered_columns(
    batch: AnyBatch, fields: Sequence[DataField], known: SavedState, names: Sequence[str]
) -> list[Any]:
    """What makes a copy fit for a batch, as pypaimon's changes of a schema.

    Args:
        batch: The batch.
        fields: Its columns in the copy.
        known: The columns that were copied before.
        names: Those that the copy has.

    Raises:
        StreamConfigError: The columns that are read are others than before.
        TargetError: Columns have exchanged their names.
    """
    alter = _AlteredColumns(fields, names)
    follow(alter, batch, _columns_of(batch, fields), known)
    return alter.changes()


class _AlteredColumns:
    """Gathers changes of columns.

    Args:
        fields: The columns that there are to be.
        names: Those that there are.
    """

    def __init__(self, fields: Sequence[DataField], names: Sequence[str]) -> None:
        self._types = {field.name: field.type for field in fields}
        self._names = set(names)
        self._first: list[Any] = []
        self._renamed: dict[str, str] = {}
        self._last: list[Any] = []

    def changes(self) -> list[Any]:
        """All of them, in an order in which no two columns have one name meanwhile."""
        renamed, present = dict(self._renamed), set(self._names)
        order = []
        while renamed:
            free = next((old for old, new in renamed.items() if new not in present), None)
            if free is None:
                raise TargetError(
                    f"columns {', '.join(sorted(renamed))} have exchanged their names, which a copy does not follow: "
                    "drop the table of the copy, and the next run fills it anew"
                )
            new = renamed.pop(free)
            present = present - {free} | {new}
            order.append(SchemaChange.rename_column(free, new))
        return [*self._first, *order, *self._last]

    def create(self, columns: Sequence[Column]) -> None:
        """The copy is there."""

    def is_exact(self, old: str, new: str) -> bool:
        """Paimon casts the rows of the copy as those of its source."""
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
        # `follow` goes by a name between.
        first = next((name for name, now in self._renamed.items() if now == old), old)
        self._renamed[first] = new
