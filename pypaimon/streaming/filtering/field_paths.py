"""Fields within rows, `row.field`, by name or field id; projections and filters in the names of another schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pypaimon.streaming.errors import SchemaChangedError
from pypaimon.streaming.filtering import filters
from pypaimon.streaming.paimon.internals import DataField, RowType, TableSchema

if TYPE_CHECKING:
    from pypaimon.streaming.paimon.filter_internals import Predicate

Path = tuple[DataField, ...]
"""The fields on the way to a field, from the top column down to itself."""


def find(name: str, fields: Sequence[DataField]) -> Path | None:
    """Find a field by name; a column whose own name has dots comes first. None: there is no such field."""
    for field in fields:
        if field.name == name:
            return (field,)
    for field in fields:
        if name.startswith(f"{field.name}."):
            below = find(name[len(field.name) + 1 :], _inside(field))
            if below is not None:
                return (field, *below)
    return None


def ids_of(path: Path) -> tuple[int, ...]:
    return tuple(field.id for field in path)


def find_ids(ids: Sequence[int], fields: Sequence[DataField]) -> Path | None:
    """Find a field by the ids from the top column down; None: one of them does not exist any longer."""
    path: list[DataField] = []
    for wanted in ids:
        field = next((field for field in fields if field.id == wanted), None)
        if field is None:
            return None
        path.append(field)
        fields = _inside(field)
    return tuple(path)


def _inside(field: DataField) -> Sequence[DataField]:
    return field.type.fields if isinstance(field.type, RowType) else ()


def rebound(name: str, old: TableSchema, new: TableSchema) -> str:
    """The name of a field in a newer schema; other names, such as those of system columns, stay as they are. Raises
    SchemaChangedError if the field was dropped, or its new name would mean another one.
    """
    path = find(name, old.fields)
    if path is None:
        return name
    found = find_ids(ids_of(path), new.fields)
    if found is None:
        raise SchemaChangedError(old.id, new.id, f"column {name!r} was dropped")
    renamed = ".".join(field.name for field in found)
    if find(renamed, new.fields) != found:
        raise SchemaChangedError(old.id, new.id, f"column {name!r} is now {renamed!r}, a name of another column too")
    return renamed


def rebound_filter(predicate: Predicate | None, old: TableSchema, new: TableSchema) -> Predicate | None:
    """The same filter on the same fields, under the names of a newer schema."""
    if predicate is None or old.id == new.id:
        return predicate
    return filters.renamed(predicate, lambda name: rebound(name, old, new))
