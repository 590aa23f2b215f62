"""Arrow's types for Paimon's types: those of pypaimon, and MULTISET, which pypaimon does not convert."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy

import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.paimon.internals import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    PyarrowFieldParser,
    RowType,
)


def arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type of a column. A MULTISET is a map from each element to its count as int32.

    Raises:
        ValueError: Arrow has no such type.
    """
    return PyarrowFieldParser.from_paimon_type(_without_multisets(data_type))


def arrow_schema(fields: Iterable[DataField]) -> pa.Schema:
    """The schema of batches with these columns.

    Raises:
        ValueError: A column has a type that Arrow does not have.
    """
    return PyarrowFieldParser.from_paimon_schema(with_arrow_types(fields))


def with_arrow_types(fields: Iterable[DataField]) -> list[DataField]:
    return list(map(_with_arrow_type, fields))


def counted(multiset: MultisetType) -> MapType:
    return MapType(multiset.nullable, multiset.element, AtomicType("INT", False))


def leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The types that a type consists of, none of them nested."""
    if pa.types.is_nested(kind):
        for number in range(kind.num_fields):
            yield from leaf_types(kind.field(number).type)
    else:
        yield kind


def with_leaves(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with other types in place of those that it consists of, and with lists for vectors."""
    if pa.types.is_struct(kind):
        return pa.struct([_with_leaves(part, leaf) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(_with_leaves(kind.key_field, leaf), _with_leaves(kind.item_field, leaf))
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_with_leaves(kind.value_field, leaf))
    return leaf(kind)


def _with_leaves(field: pa.Field, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.Field:
    return field.with_type(with_leaves(field.type, leaf))


def holds_local_timestamps(kind: pa.DataType) -> bool:
    return any(pa.types.is_timestamp(leaf) and leaf.tz for leaf in leaf_types(kind))


def one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of some batches of one schema, at least one row, in one batch."""
    # `pa.concat_batches` is new in pyarrow 19.
    (batch,) = batches if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


def map_entries(kind: pa.MapType, keys: pa.Array, items: pa.Array) -> pa.StructArray:
    """Keys and values as the entries of maps. A null key would crash Arrow."""
    # Counting also stores the count: older Arrow releases take an unknown count for nulls.
    if keys.null_count:
        raise UnsupportedTableError("A map has a null key, which Arrow's maps cannot hold.")
    return pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])


def _with_arrow_type(field: DataField) -> DataField:
    changed = copy(field)
    changed.type = _without_multisets(field.type)
    return changed


def _without_multisets(data_type: DataType) -> DataType:
    if isinstance(data_type, MultisetType):
        data_type = counted(data_type)
    if isinstance(data_type, RowType):
        return RowType(data_type.nullable, list(map(_with_arrow_type, data_type.fields)))
    if isinstance(data_type, MapType):
        key, value = _without_multisets(data_type.key), _without_multisets(data_type.value)
        return MapType(data_type.nullable, key, value)
    if isinstance(data_type, ArrayType):
        return ArrayType(data_type.nullable, _without_multisets(data_type.element))
    return data_type
