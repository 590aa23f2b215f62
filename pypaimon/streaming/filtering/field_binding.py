"""What a newer schema calls the fields of a projection or a filter: they stay bound to field ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pypaimon.streaming.errors import SchemaChangedError
from pypaimon.streaming.filtering import filters
from pypaimon.streaming.filtering.field_paths import find, find_ids, ids_of
from pypaimon.streaming.internals import TableSchema

if TYPE_CHECKING:
    from pypaimon.streaming.filter_internals import Predicate


def rebound(name: str, old: TableSchema, new: TableSchema) -> str:
    """What a newer schema calls a field; a name of no field of the table (a system column) stays.

    Raises:
        SchemaChangedError: The field was dropped, or its new name would mean another one.
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
    """The same filter on the same fields, under the names of a newer schema.

    Raises:
        SchemaChangedError: A field that it looks at was dropped.
    """
    if predicate is None or old.id == new.id:
        return predicate
    return filters.renamed(predicate, lambda name: rebound(name, old, new))
