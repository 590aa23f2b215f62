"""Columns that keep their rows: a row of which only some fields are asked for stays a row of those."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.internals import DataField, DataType, RowType


def requested(fields: Sequence[DataField], paths: Sequence[Sequence[str]]) -> list[DataField]:
    """The columns on the paths, in their order; of a row the fields that are asked for, the whole row included."""
    by_name = {field.name: field for field in fields}
    tails: dict[str, list[Sequence[str]]] = {}
    for path in paths:
        tails.setdefault(path[0], []).append(path[1:])
    return [_with_fields(by_name[name], inside) for name, inside in tails.items()]


def _with_fields(field: DataField, inside: Sequence[Sequence[str]]) -> DataField:
    if not all(inside):
        return field
    row = RowType(field.type.nullable, requested(field.type.fields, inside))
    return DataField(field.id, field.name, row, field.description, field.default_value)


def narrowed(array: pa.Array, data_type: DataType) -> pa.Array:
    """A column as it was read, with the fields of a type that was asked for, in its order."""
    if not isinstance(data_type, RowType) or _has_fields_of(array.type, data_type):
        return array
    # Of a row that is null its fields are null too.
    children = [narrowed(pc.struct_field(array, field.name), field.type) for field in data_type.fields]
    fields = [
        array.type.field(field.name).with_type(child.type)
        for field, child in zip(data_type.fields, children, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=fields, mask=pc.is_null(array))


def _has_fields_of(arrow_type: pa.DataType, data_type: DataType) -> bool:
    if not isinstance(data_type, RowType):
        return True
    inside = [arrow_type.field(index) for index in range(arrow_type.num_fields)]
    if [field.name for field in inside] != [field.name for field in data_type.fields]:
        return False
    return all(_has_fields_of(each.type, field.type) for each, field in zip(inside, data_type.fields, strict=True))
