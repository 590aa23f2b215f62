"""`without_hidden_nulls`: nulls within rows that are null themselves, which Arrow's Parquet writer takes for values.

Taking, joining and merging rows leave them there, and the writer refuses them in a field that is NOT NULL.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def without_hidden_nulls(data: pa.Table) -> pa.Table:
    """The same rows, with any value in the place of a null that nobody sees."""
    for index, field in enumerate(data.schema):
        if _may_hide(field.type):
            chunks = [_shown(chunk) for chunk in data.column(index).chunks]
            data = data.set_column(index, field, pa.chunked_array(chunks, field.type))
    return data


def _may_hide(kind: pa.DataType) -> bool:
    """Whether a row somewhere in a type has a field that is not null."""
    if pa.types.is_struct(kind):
        return any(not field.nullable or _may_hide(field.type) for field in kind)
    if pa.types.is_map(kind):
        return _may_hide(kind.item_type)
    return bool(pa.types.is_list(kind)) and _may_hide(kind.value_type)


def _shown(array: pa.Array) -> pa.Array:
    kind = array.type
    if not _may_hide(kind):
        return array
    if pa.types.is_struct(kind):
        fields = [_in_row(array, index) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    validity, offsets = array.buffers()[:2]
    if pa.types.is_map(kind):
        entries = pa.StructArray.from_arrays(
            [array.keys, _shown(array.items)], fields=[kind.key_field, kind.item_field]
        )
    else:
        entries = _shown(array.values)
    return pa.Array.from_buffers(kind, len(array), [validity, offsets], offset=array.offset, children=[entries])


def _in_row(rows: pa.StructArray, index: int) -> pa.Array:
    """A field of rows, of all rows."""
    values = _shown(rows.field(index))
    if rows.type.field(index).nullable or not values.null_count:
        return values
    hidden = pc.and_(values.is_null(), rows.is_null()).to_numpy(zero_copy_only=False)
    known = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    if not len(known):
        values = pa.concat_arrays([values, pa.array([_some_value(values.type)], values.type)])
        known = np.array([len(values) - 1])
    return values.take(pa.array(np.where(hidden, known[0], np.arange(len(hidden)))))


def _some_value(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {field.name: _some_value(field.type) for field in kind}
    if pa.types.is_nested(kind):
        return [_some_value(kind.value_type)] * kind.list_size if pa.types.is_fixed_size_list(kind) else []
    if pa.types.is_fixed_size_binary(kind):
        return bytes(kind.byte_width)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return b""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ""
    if pa.types.is_decimal(kind):
        return Decimal(0)
    return False if pa.types.is_boolean(kind) else 0
