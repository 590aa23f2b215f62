"""Values of Arrow columns as JSON, and as cells of a table on screen."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa

_Convert = Callable[[Any], Any]


def json_converter(kind: pa.DataType) -> _Convert | None:
    """How Python values of an Arrow type become values that JSON knows; None: they are.

    Decimals, times and durations become text (times in ISO 8601), bytes base64; NaN and the infinities text; maps with
    text keys objects, other maps lists of pairs.
    """
    if pa.types.is_floating(kind):
        return lambda value: value if math.isfinite(value) else str(value)
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
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
        item = _null_safe(json_converter(kind.value_type))
        return None if item is None else lambda values: [item(value) for value in values]
    return None


def json_columns(batch: pa.RecordBatch) -> dict[str, list[Any]]:
    """The columns of a batch as lists of values that JSON knows."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = column.to_pylist()
        convert = _null_safe(json_converter(column.type))
        columns[name] = values if convert is None else [convert(value) for value in values]
    return columns


def text_columns(batch: pa.RecordBatch) -> list[list[str | None]]:
    """The columns of a batch as texts, for CSV and for the screen; null stays None."""
    return [[None if value is None else _text(value) for value in values] for values in json_columns(batch).values()]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)


def _null_safe(convert: _Convert | None) -> _Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _struct_converter(kind: pa.StructType) -> _Convert:
    fields = {field.name: _null_safe(json_converter(field.type)) for field in kind}
    return lambda row: {name: value if (each := fields[name]) is None else each(value) for name, value in row.items()}


def _map_converter(kind: pa.MapType) -> _Convert:
    key, item = _null_safe(json_converter(kind.key_type)), _null_safe(json_converter(kind.item_type))

    def pairs(entries: Any) -> list[tuple[Any, Any]]:
        return [(left if key is None else key(left), right if item is None else item(right)) for left, right in entries]

    return (lambda entries: dict(pairs(entries))) if pa.types.is_string(kind.key_type) else pairs
