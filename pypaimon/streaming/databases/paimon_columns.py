"""`AlteredColumns`: what becomes of the columns of a copy in Paimon, as changes of its schema."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from pypaimon.streaming.errors import StreamConfigError, TargetError
from pypaimon.streaming.internals import DataField
from pypaimon.streaming.targets.changes import AnyBatch
from pypaimon.streaming.targets.column_evolution import evolve_columns
from pypaimon.streaming.targets.target_state import Column, SavedState
from pypaimon.streaming.write_internals import SchemaChange


def fields_of(batch: AnyBatch) -> list[DataField]:
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


def columns_of(batch: AnyBatch, fields: Sequence[DataField]) -> SavedState:
    """The same, as what is noted."""
    return SavedState.of(batch, [(field.name, str(field.type)) for field in fields], keys=None)


def altered_columns(batch: AnyBatch, fields: Sequence[DataField], known: SavedState, names: Sequence[str]) -> list[Any]:
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
    alter = AlteredColumns(fields, names)
    evolve_columns(alter, batch, columns_of(batch, fields), known)
    return alter.changes()


class AlteredColumns:
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
