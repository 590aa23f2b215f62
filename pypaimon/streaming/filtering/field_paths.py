"""Fields inside of rows: `row.field` by name, and the same by field ids."""

from __future__ import annotations

from collections.abc import Sequence

from pypaimon.streaming.internals import DataField, RowType

Path = tuple[DataField, ...]
"""The fields on the way to a field, from the top column down to itself."""


def find(name: str, fields: Sequence[DataField]) -> Path | None:
    """The field of a name; a column whose own name has dots comes first. None if there is none."""
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
    """The field ids of a path."""
    return tuple(field.id for field in path)


def find_ids(ids: Sequence[int], fields: Sequence[DataField]) -> Path | None:
    """The field of these ids, from the top column down; None if one of them is gone."""
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
