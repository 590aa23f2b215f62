"""Rows as tables of Delta and of Iceberg can hold them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.model.normal_form import normal_table, normal_type

_SAME = (
    types.is_boolean,
    types.is_int32,
    types.is_int64,
    types.is_float32,
    types.is_float64,
    types.is_date32,
    types.is_decimal128,
    types.is_string,
    types.is_binary,
)
_Leaf = Callable[[Any], pa.DataType | None]


def fitted_to_delta(rows: pa.Table) -> pa.Table:
    """Rows whose types are those of Delta; values stay what they are. Columns may be null.

    Raises:
        UnsupportedTableError: Delta has no type for a column, or names of columns differ only in case.
    """
    lower = Counter(name.lower() for name in rows.schema.names)
    same = [name for name in rows.schema.names if lower[name.lower()] > 1]
    if same:
        raise UnsupportedTableError(
            f"columns {same} differ only in case, which a Delta table cannot hold: leave all but one out of the stream "
            "with with_projection(...)"
        )
    return _fitted(rows, "a Delta table", lambda kind: kind if types.is_signed_integer(kind) else None)


def fitted_to_iceberg(rows: pa.Table) -> pa.Table:
    """Rows whose types are those of Iceberg; values stay what they are. Columns may be null.

    Raises:
        UnsupportedTableError: Iceberg has no type for a column.
    """

    def leaf(kind: Any) -> pa.DataType | None:
        if types.is_int8(kind) or types.is_int16(kind):
            return pa.int32()
        return pa.time64("us") if types.is_time(kind) and kind.unit != "ns" else None

    return _fitted(rows, "an Iceberg table", leaf)


def has_times_without_zone(kind: Any) -> bool:
    """Whether a type, or one inside of it, is a timestamp without time zone, for which Delta has a table feature."""
    if types.is_timestamp(kind):
        return kind.tz is None
    return any(has_times_without_zone(kind.field(number).type) for number in range(kind.num_fields))


def _fitted(rows: pa.Table, table: str, leaf: _Leaf) -> pa.Table:
    fields = []
    for field in rows.schema:
        kind = _type(normal_type(field.type), leaf)
        if kind is None:
            raise UnsupportedTableError(
                f"column '{field.name}' of type {field.type} cannot be written to {table}: leave it out of the stream "
                "with with_projection(...)"
            )
        fields.append(pa.field(field.name, kind))
    return normal_table(rows, pa.schema(fields))


def _type(kind: Any, leaf: _Leaf) -> pa.DataType | None:
    """The Arrow type that the table has; None: none."""
    if types.is_timestamp(kind):
        # Both have microseconds.
        return None if kind.unit == "ns" else pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_large_string(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_list(kind):
        element = _type(kind.value_type, leaf)
        return None if element is None else pa.list_(element)
    if types.is_map(kind):
        key, value = _type(kind.key_type, leaf), _type(kind.item_type, leaf)
        return None if key is None or value is None else pa.map_(key, value)
    if types.is_struct(kind):
        parts = [(part.name, _type(part.type, leaf)) for part in kind]
        return None if any(each is None for _, each in parts) else pa.struct(parts)
    return kind if any(is_of(kind) for is_of in _SAME) else leaf(kind)
