"""Columns that a caller names, in the arguments of `with_projection` and `with_read_type`, and their checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.filtering.field_paths import find
from pypaimon.streaming.model import row_kinds
from pypaimon.streaming.options.arguments import typed
from pypaimon.streaming.paimon.internals import DataField, DataType, RowType


def named_columns(projection: Mapping[Any, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The output names, and the columns.

    Raises:
        StreamConfigError: The mapping is empty, or has an invalid column or name.
    """
    if not projection:
        raise StreamConfigError("with_projection({}): the mapping is empty, so rows would have no columns")
    for name, column in projection.items():
        if not typed(str, "with_projection: a name", name) or name == row_kinds.ROW_KIND_FIELD.name:
            raise StreamConfigError(f"with_projection: a column cannot be called {name!r}")
        if "(" in typed(str, f"with_projection: column {name!r}", column):
            raise StreamConfigError(f"with_projection: {column!r}: a stream reads columns, not expressions of them")
    return tuple(projection), tuple(projection.values())


def read_type_paths(read_type: Any) -> tuple[str, ...]:
    """The columns of a read type; rows are given as their fields (`row.field`).

    Raises:
        StreamConfigError: The argument is not a list of fields, or names a column twice.
    """
    if not isinstance(read_type, Iterable):
        raise StreamConfigError(f"with_read_type({read_type!r}): give a list of pypaimon's DataField")
    fields = [typed(DataField, "with_read_type", field) for field in read_type]
    names = [field.name for field in fields]
    if len(set(names)) != len(names):
        raise StreamConfigError(f"with_read_type: a column is named twice in {names}")
    return tuple(path for field in fields for path in _leaves(field))


def _leaves(field: DataField) -> Iterator[str]:
    if isinstance(field.type, RowType) and field.type.fields:
        for inner in field.type.fields:
            yield from (f"{field.name}.{path}" for path in _leaves(inner))
    else:
        yield field.name


def check_types(read_type: Sequence[DataField], columns: Sequence[DataField], where: str = "") -> None:
    """Check that columns exist and have the requested types."""
    for field in read_type:
        path = find(field.name, columns)
        if path is None:
            known = ", ".join(each.name for each in columns)
            raise StreamConfigError(f"with_read_type: there is no column {where + field.name!r}; columns: {known}")
        found = path[-1].type
        if isinstance(found, RowType) and isinstance(field.type, RowType):
            check_types(field.type.fields, found.fields, f"{where}{field.name}.")
        elif _nullable(field.type) != _nullable(found):
            raise StreamConfigError(
                f"with_read_type: column {where + field.name!r} is {found}, not {field.type}: a stream reads columns "
                "with the types of the table"
            )


def _nullable(data_type: DataType) -> str:
    return str(data_type).removesuffix(" NOT NULL")


def known_columns(what: str, names: Iterable[Any], known: set[str]) -> tuple[str, ...]:
    """The names, checked to be columns or fields in them (`row.field`)."""
    names = tuple(names)
    for name in names:
        if not isinstance(name, str) or (name not in known and name.split(".")[0] not in known):
            raise StreamConfigError(f"{what}: there is no column {name!r}; columns: {', '.join(sorted(known))}")
    return names
