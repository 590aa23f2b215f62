"""Rows of Arrow as values of JSON, for the command line and for messages."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from pypaimon.streaming.model.arrow_types import with_leaves
from pypaimon.streaming.model.normal_form import normal_array, normal_type

_Convert = Callable[[Any], Any]


def json_columns(batch: pa.RecordBatch) -> dict[str, list[Any]]:
    """The values of each column as JSON has them.

    Decimals, times and durations become text (times in ISO 8601), bytes base64; NaN and the infinities text; maps with
    text keys objects, other maps lists of pairs.
    """
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = normal_array(column, pa.field(name, _with_text(column.type))).to_pylist()
        convert = _null_safe(_converter(column.type))
        columns[name] = values if convert is None else [convert(value) for value in values]
    return columns


def _converter(kind: pa.DataType) -> _Convert | None:
    """Converts Python values of a type to JSON values; None if they are JSON values."""
    if pa.types.is_floating(kind):
        return lambda value: value if math.isfinite(value) else str(value)
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        if _has_nanos(kind):
            return lambda text: text.replace(" ", "T").replace("Z", "+00:00")
        return lambda value: value.isoformat()
    if pa.types.is_decimal(kind) or pa.types.is_duration(kind):
        return str
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return lambda value: base64.b64encode(value).decode()
    if pa.types.is_map(kind):
        return _map_converter(kind)
    if pa.types.is_struct(kind):
        return _struct_converter(kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        item = _null_safe(_converter(kind.value_type))
        return None if item is None else lambda values: [item(value) for value in values]
    return None


def _has_nanos(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def _with_text(kind: pa.DataType) -> pa.DataType:
    """The normal form of a type, with text for timestamps of nanoseconds, which Python lacks."""
    return with_leaves(normal_type(kind), lambda leaf: pa.string() if _has_nanos(leaf) else leaf)


def _null_safe(convert: _Convert | None) -> _Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _struct_converter(kind: pa.StructType) -> _Convert:
    fields = {field.name: _null_safe(_converter(field.type)) for field in kind}
    return lambda row: {name: value if (each := fields[name]) is None else each(value) for name, value in row.items()}


def _map_converter(kind: pa.MapType) -> _Convert:
    key, item = _null_safe(_converter(kind.key_type)), _null_safe(_converter(kind.item_type))

    def pairs(entries: Any) -> list[tuple[Any, Any]]:
        return [(left if key is None else key(left), right if item is None else item(right)) for left, right in entries]

    return (lambda entries: dict(pairs(entries))) if pa.types.is_string(kind.key_type) else pairs
