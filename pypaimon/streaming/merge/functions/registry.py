"""Makes the aggregator of a field from its options, and refuses unknown functions."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.merge.functions.base import (
    Aggregator,
    FieldAggregate,
    FirstNonNullValue,
    FirstValue,
    LastNonNullValue,
    LastValue,
    MinMax,
    PrimaryKeyValue,
)
from pypaimon.streaming.merge.functions.bitmaps_64 import united_bitmaps
from pypaimon.streaming.merge.functions.collections import (
    ByteUnion,
    Collect,
    Listagg,
    MergeMap,
    MergeMapWithKeyTime,
    NestedPartialUpdate,
    NestedUpdate,
)
from pypaimon.streaming.merge.functions.numeric import Product, Sum
from pypaimon.streaming.merge.ordering import is_ordered
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions

Union = Callable[[bytes, bytes], bytes]


def union_of(function: str, field: str) -> Union:
    """The function that unites two serialized sets. Raises UnsupportedTableError if the package that reads such sets is
    not installed.
    """
    if function == "rbm32":
        return _bitmaps
    if function == "rbm64":
        return united_bitmaps
    if find_spec("datasketches") is None:
        raise UnsupportedTableError(
            f"Aggregate function '{function}' of field '{field}' needs a package: pip install datasketches."
        )
    return _theta_sketches if function == "theta_sketch" else _hll_sketches


def _bitmaps(accumulated: bytes, value: bytes) -> bytes:
    from pyroaring import BitMap

    united = BitMap.deserialize(accumulated) | BitMap.deserialize(value)
    # As Java does before it serialises a bitmap, so that the bytes are the same.
    united.run_optimize()
    return bytes(united.serialize())


def _theta_sketches(accumulated: bytes, value: bytes) -> bytes:
    sketches: Any = import_module("datasketches")
    union = sketches.theta_union()
    for serialized in (accumulated, value):
        union.update(sketches.compact_theta_sketch.deserialize(serialized))
    return bytes(union.get_result().serialize())


def _hll_sketches(accumulated: bytes, value: bytes) -> bytes:
    sketches: Any = import_module("datasketches")
    newer = sketches.hll_sketch.deserialize(value)
    # Java's union has the size of the newer sketch.
    union = sketches.hll_union(newer.lg_config_k)
    union.update(newer)
    union.update(sketches.hll_sketch.deserialize(accumulated))
    return bytes(union.get_result(sketches.tgt_hll_type.HLL_4).serialize_compact())


_PICKING: dict[str, Aggregator] = {
    "last_value": LastValue(),
    "last_non_null_value": LastNonNullValue(),
    "first_value": FirstValue(),
    "first_non_null_value": FirstNonNullValue(),
    "first_not_null_value": FirstNonNullValue(),
    "primary_key": PrimaryKeyValue(),
}
_COMPARING: dict[str, Aggregator] = {"max": MinMax("max", True), "min": MinMax("min", False)}
_BOOLEAN: dict[str, Aggregator] = {"bool_or": MinMax("bool_or", True), "bool_and": MinMax("bool_and", False)}


def field_aggregate(function: str, field: str, kind: pa.DataType, options: TableOptions) -> FieldAggregate:
    """The aggregate of a field, as Java's `FieldAggregatorFactory` makes it. Raises UnsupportedTableError if the
    function is unknown, or its package is not installed.
    """
    ignore_retract = option_keys.FIELDS_IGNORE_RETRACT.of_field(field).of(options)
    if ignore_retract and option_keys.AGGREGATION_REMOVE_RECORD_ON_DELETE.of(options):
        raise StreamConfigError(
            f"'aggregation.remove-record-on-delete' and 'fields.{field}.ignore-retract' contradict each other; set one."
        )
    return FieldAggregate(_aggregator(function, field, kind, options), ignore_retract)


def _aggregator(function: str, field: str, kind: pa.DataType, options: TableOptions) -> Aggregator:
    if function in _PICKING:
        return _PICKING[function]
    if function in _COMPARING:
        _suits(is_ordered(kind), function, field, kind, "a type that can be compared")
        return _COMPARING[function]
    if function in _BOOLEAN:
        _suits(pa.types.is_boolean(kind), function, field, kind, "BOOLEAN")
        return _BOOLEAN[function]
    if function in ("sum", "product"):
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        _suits(number, function, field, kind, "a number")
        return Sum(field, kind) if function == "sum" else Product(field, kind)
    if function in ("rbm32", "rbm64", "theta_sketch", "hll_sketch"):
        _suits(pa.types.is_binary(kind) or pa.types.is_large_binary(kind), function, field, kind, "VARBINARY")
        return ByteUnion(function, union_of(function, field))
    return _container(function, field, kind, options)


def _container(function: str, field: str, kind: pa.DataType, options: TableOptions) -> Aggregator:
    distinct = option_keys.FIELDS_DISTINCT.of_field(field).of(options)
    if function == "listagg":
        _suits(pa.types.is_string(kind) or pa.types.is_large_string(kind), function, field, kind, "STRING")
        return Listagg(option_keys.FIELDS_LIST_AGG_DELIMITER.of_field(field).of(options), distinct)
    if function == "collect":
        _suits(pa.types.is_list(kind), function, field, kind, "ARRAY")
        return Collect(distinct)
    if function == "merge_map":
        _suits(pa.types.is_map(kind), function, field, kind, "MAP")
        return MergeMap()
    if function == "merge_map_with_keytime":
        _suits(pa.types.is_map(kind) and pa.types.is_struct(kind.item_type), function, field, kind, "MAP of ROW")
        return MergeMapWithKeyTime(_time_field(field, kind.item_type, options))
    if function in ("nested_update", "nested_partial_update"):
        _suits(pa.types.is_list(kind) and pa.types.is_struct(kind.value_type), function, field, kind, "ARRAY of ROW")
        return _nested(function, field, kind.value_type, options)
    raise UnsupportedTableError(f"Aggregate function '{function}' of field '{field}' is not supported.")


def _time_field(field: str, row: pa.StructType, options: TableOptions) -> str:
    names = [inner.name for inner in row]
    named = option_keys.FIELDS_TS_FIELD.of_field(field).of(options) or names[-1]
    _known([named], names, field, "time field")
    _suits(pa.types.is_string(row.field(named).type), "merge_map_with_keytime", field, row, "a ROW with a STRING time")
    return named


def _nested(function: str, field: str, row: pa.StructType, options: TableOptions) -> Aggregator:
    names = [inner.name for inner in row]
    of_key = option_keys.FIELDS_NESTED_KEY.of_field(field)
    key = _names(of_key.of(options))
    sequence = _names(option_keys.FIELDS_NESTED_SEQUENCE_FIELD.of_field(field).of(options))
    _known(key, names, field, "nested key")
    _known(sequence, names, field, "nested sequence field")
    of_nulls = option_keys.FIELDS_NESTED_KEY_NULL_STRATEGY.of_field(field)
    nulls = of_nulls.of(options)
    if not key and (function != "nested_update" or sequence or of_nulls.set_as(options)):
        raise StreamConfigError(f"Aggregate function '{function}' of field '{field}' needs '{of_key}'.")
    if function == "nested_partial_update":
        return NestedPartialUpdate(field, key, nulls)
    limit = option_keys.FIELDS_COUNT_LIMIT.of_field(field).of(options)
    return NestedUpdate(field, key, nulls, sequence, limit)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text else ()


def _known(names: tuple[str, ...] | list[str], known: list[str], field: str, what: str) -> None:
    for name in names:
        if name not in known:
            raise StreamConfigError(f"The {what} '{name}' of field '{field}' is not in its rows: {known}.")


def _suits(suits: bool, function: str, field: str, kind: pa.DataType, wanted: str) -> None:
    if not suits:
        raise StreamConfigError(f"Aggregate function '{function}' of field '{field}' needs {wanted}, not {kind}.")
