"""Spark's type for each type of Paimon, and columns turned into exactly what Spark expects of it."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.model.arrow_types import counted
from pypaimon.streaming.model.data_types import parameter, root
from pypaimon.streaming.paimon.internals import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    VectorType,
)

_PLAIN = {
    "BOOLEAN": spark.BooleanType(),
    "TINYINT": spark.ByteType(),
    "SMALLINT": spark.ShortType(),
    "INT": spark.IntegerType(),
    "BIGINT": spark.LongType(),
    "FLOAT": spark.FloatType(),
    "DOUBLE": spark.DoubleType(),
    "CHAR": spark.StringType(),
    "VARCHAR": spark.StringType(),
    "STRING": spark.StringType(),
    "BINARY": spark.BinaryType(),
    "VARBINARY": spark.BinaryType(),
    "BYTES": spark.BinaryType(),
    "BLOB": spark.BinaryType(),
    "DATE": spark.DateType(),
    "TIMESTAMP": spark.TimestampNTZType(),
    "TIMESTAMP_LTZ": spark.TimestampType(),
}
_LATER = {"TIME": "TimeType", "VARIANT": "VariantType"}


def spark_schema(fields: Iterable[DataField], not_null: Iterable[str]) -> spark.StructType:
    """Columns of Paimon as Spark's.

    Args:
        not_null: Names of those that are never null.
    """
    certain = frozenset(not_null)
    return spark.StructType(
        [spark.StructField(field.name, _type(field.type, field.name), field.name not in certain) for field in fields]
    )


def _type(data_type: DataType, name: str) -> spark.DataType:
    if isinstance(data_type, (ArrayType, VectorType)):
        return spark.ArrayType(_type(data_type.element, name))
    if isinstance(data_type, MultisetType):
        data_type = counted(data_type)
    if isinstance(data_type, MapType):
        return spark.MapType(_type(data_type.key, name), _type(data_type.value, name))
    if isinstance(data_type, RowType):
        return spark_schema(data_type.fields, ())
    if isinstance(data_type, AtomicType):
        kind = root(data_type)
        if kind == "DECIMAL":
            return _decimal(data_type)
        if kind in _PLAIN:
            return _PLAIN[kind]
        later = getattr(spark, _LATER.get(kind, ""), None)
        if later is not None:
            return later()  # type: ignore[no-any-return]
    raise UnsupportedTableError(
        f"Column '{name}' has type {data_type}, for which this Spark has none; leave it out with option 'columns'."
    )


def _decimal(data_type: AtomicType) -> spark.DecimalType:
    digits = data_type.type.partition("(")[2].rstrip(") ").split(",")
    precision = parameter(data_type)
    return spark.DecimalType(
        10 if precision is None else precision, int(digits[1].split(")")[0]) if len(digits) > 1 else 0
    )


def cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """A column as Spark's type: instants cut to microseconds (towards the past), names and nullability of Spark's."""
    if array.type.equals(target):
        return array
    if pa.types.is_timestamp(target) and array.type.unit == "ns":
        array = pc.floor_temporal(array, unit="microsecond")
    elif pa.types.is_struct(target):
        return _struct(array, target)
    elif pa.types.is_map(target):
        return _map(array, target)
    elif pa.types.is_list(target):
        return _list(array, target)
    return array.cast(target)


def _struct(array: pa.Array, target: pa.StructType) -> pa.Array:
    # `field` leaves the parent's nulls and offset to us; `flatten` merges both into the children.
    children = [cast(child, field.type) for child, field in zip(array.flatten(), target, strict=True)]
    nulls = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(target), mask=nulls)


def _list(array: pa.Array, target: pa.ListType) -> pa.Array:
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    return pa.ListArray.from_arrays(_offsets(array), cast(array.flatten(), target.value_type), target)


def _map(array: pa.Array, target: pa.MapType) -> pa.Array:
    entries = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    keys, items = entries.flatten().flatten()
    return pa.MapArray.from_arrays(
        _offsets(entries), cast(keys, target.key_type), cast(items, target.item_type), type=target
    )


def _offsets(array: pa.Array) -> pa.Array:
    """Where each list begins among the values that `flatten` gives; null for a list that is null."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    ends = pc.cumulative_sum(lengths).cast(pa.int32())
    begins = pc.if_else(array.is_valid(), pc.subtract(ends, lengths), pa.scalar(None, pa.int32()))
    return pa.concat_arrays([begins, ends[-1:] if len(ends) else pa.array([0], pa.int32())])
