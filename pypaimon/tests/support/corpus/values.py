"""Values of the corpus: Arrow columns as its JSON values, its JSON values as literals of filters."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as types

EPOCH = datetime(1970, 1, 1)
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def column_values(column: pa.Array | pa.ChunkedArray, sql_type: str = "") -> list[Any]:
    """One column as JSON values. The Arrow type decides the form, so a wrong Arrow type shows as a difference.

    Args:
        sql_type: The SQL type where it is known; VARIANT cannot be told from a struct without it.
    """
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in column_values(chunk, sql_type)]
    kind = column.type
    if types.is_dictionary(kind):
        return column_values(column.dictionary_decode(), sql_type)
    if types.is_struct(kind):
        return _variants(column) if "VARIANT" in sql_type else _structs(column)
    if types.is_map(kind):
        keys, items = column_values(column.keys), column_values(column.items)
        return _slices(column, [[key, item] for key, item in zip(keys, items, strict=True)])
    if types.is_fixed_size_list(kind):
        return column_values(pa.array(column.to_pylist(), pa.list_(kind.value_type)), sql_type)
    if types.is_list(kind) or types.is_large_list(kind):
        return _slices(column, column_values(column.values, sql_type))
    if types.is_timestamp(kind):
        return [None if tick is None else _timestamp(tick, kind) for tick in column.cast(pa.int64()).to_pylist()]
    return [None if value is None else scalar(value) for value in column.to_pylist()]


def scalar(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, time):
        return value.isoformat(timespec="milliseconds")
    return value


def _slices(column: pa.Array, values: list[Any]) -> list[Any]:
    offsets = column.offsets.to_pylist()
    valid = column.is_valid().to_pylist()
    return [values[offsets[i] : offsets[i + 1]] if valid[i] else None for i in range(len(column))]


def _structs(column: pa.StructArray) -> list[Any]:
    names = [column.type.field(i).name for i in range(column.type.num_fields)]
    fields = [column_values(child) for child in column.flatten()]
    rows: list[Any] = [dict(zip(names, values, strict=True)) for values in zip(*fields, strict=True)]
    return [row if valid else None for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)]


def _variants(column: pa.StructArray) -> list[str | None]:
    from pypaimon.data.generic_variant import GenericVariant

    variants = (None if value is None else GenericVariant.from_arrow_struct(value) for value in column.to_pylist())
    return [None if variant is None else _variant_text(variant.to_python()) for variant in variants]


def _variant_text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_variant_text(key)}:{_variant_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_variant_text, value)) + "]"
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(scalar(value), ensure_ascii=False)


def _timestamp(ticks: int, kind: pa.TimestampType) -> str:
    seconds, rest = divmod(ticks, PER_SECOND[kind.unit])
    digits = 9 if kind.unit == "ns" else 6
    fraction = rest * 10**digits // PER_SECOND[kind.unit]
    zone = "" if kind.tz is None else "Z"
    return f"{(EPOCH + timedelta(seconds=seconds)).isoformat()}.{fraction:0{digits}d}{zone}"


def wanted_value(value: Any, sql_type: str) -> Any:
    """A value of `expect.json` in the form that `column_values` gives: FLOAT in 32 bits, floats never as int."""
    if sql_type.startswith(("FLOAT", "DOUBLE")) and isinstance(value, int):
        value = float(value)
    return _to_float32(value) if "FLOAT" in sql_type else value


def _to_float32(value: Any) -> Any:
    if isinstance(value, float):
        return struct.unpack("<f", struct.pack("<f", value))[0]
    if isinstance(value, list):
        return [_to_float32(item) for item in value]
    if isinstance(value, dict):
        return {key: _to_float32(item) for key, item in value.items()}
    return value


def literal(value: Any, sql_type: str) -> Any:
    """The value of a filter as a Python value of the field's type; timestamps are cut to the field's precision."""
    if value is None:
        return None
    if isinstance(value, list):
        return [literal(item, sql_type) for item in value]
    if sql_type.startswith("DECIMAL"):
        return Decimal(value)
    if sql_type.startswith("DATE"):
        return date.fromisoformat(value)
    if sql_type.startswith("TIMESTAMP"):
        return _timestamp_literal(value, sql_type)
    return value


def _timestamp_literal(text: str, sql_type: str) -> datetime:
    match = re.match(r"TIMESTAMP(?:_LTZ)?\((\d)\)", sql_type)
    precision = min(int(match.group(1)) if match else 6, 6)
    whole, _, fraction = text.removesuffix("Z").partition(".")
    micros = int((fraction[:precision]).ljust(6, "0"))
    zone = timezone.utc if "LOCAL TIME ZONE" in sql_type or "LTZ" in sql_type else None
    return datetime.fromisoformat(whole).replace(microsecond=micros, tzinfo=zone)


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "in": lambda left, right: left in right,
}


def matches(value: Any, op: str, wanted: Any, sql_type: str) -> bool:
    """Whether a JSON value passes a filter exactly: null passes `is_null` only."""
    if op in ("is_null", "not_null"):
        return (value is None) == (op == "is_null")
    return value is not None and COMPARISONS[op](literal(value, sql_type), literal(wanted, sql_type))
