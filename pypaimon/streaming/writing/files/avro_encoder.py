"""`AvroEncoder`: Arrow tables into an Avro file, with the schema that Java gives it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from fastavro.write import Writer

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.model.normal_form import normal_table

_CODECS = {
    "none": "null", "null": "null", "zstd": "zstandard", "zstandard": "zstandard",
    "deflate": "deflate", "snappy": "snappy", "bzip2": "bzip2", "xz": "xz",
}  # fmt: skip
_RECORD = "org.apache.paimon.avro.generated.record"
_MILLIS = {"s": "millis", "ms": "millis", "us": "micros"}


class AvroEncoder:
    """One Avro file that is being written.

    Args:
        stream: Where to.
        schema: Schema of all rows.
        compression: Name of the codec, in lower case.
        zstd_level: Level of zstd.

    Attributes:
        schema: The types that it takes.

    Raises:
        StreamConfigError: Avro has no such codec.
        UnsupportedTableError: Avro has no such type.
    """

    def __init__(self, stream: Any, schema: pa.Schema, compression: str, zstd_level: int) -> None:
        if compression not in _CODECS:
            raise StreamConfigError(f"'file.compression' = '{compression}': Avro files have {', '.join(_CODECS)}.")
        self._stream = stream
        self.schema = pa.schema([field.with_type(_numbers(field.type, exact=True)) for field in schema])
        self._numbers = pa.schema([field.with_type(_numbers(field.type, exact=False)) for field in schema])
        codec = _CODECS[compression]
        level = zstd_level if codec == "zstandard" else None
        self._writer = Writer(stream, avro_schema(schema), codec=codec, compression_level=level)

    def write(self, data: pa.Table) -> None:
        """Add rows."""
        names = data.schema.names
        columns = normal_table(data, self._numbers).columns
        for row in zip(*map(_values, columns), strict=True):
            self._writer.write(dict(zip(names, row, strict=True)))

    def size(self) -> int:
        """Bytes so far, without the block that is not full yet."""
        return int(self._stream.tell())

    def close(self) -> None:
        """Write the last block."""
        self._writer.flush()


def avro_schema(schema: pa.Schema) -> dict[str, Any]:
    """Java's Avro schema of a file with these columns.

    Raises:
        UnsupportedTableError: Avro has no such type.
    """
    return _record(list(schema), _RECORD)


def _record(fields: list[pa.Field], name: str) -> dict[str, Any]:
    columns: list[dict[str, Any]] = [{"name": each.name, "type": _type(each, f"{name}_{each.name}")} for each in fields]
    for column, field in zip(columns, fields, strict=True):
        if field.nullable:
            column["default"] = None
    return {"type": "record", "name": name, "fields": columns}


def _type(field: pa.Field, name: str) -> Any:
    found = _bare(field.type, name)
    return ["null", found] if field.nullable else found


def _bare(kind: pa.DataType, name: str) -> Any:
    types = pa.types
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind):
        return "int" if kind.bit_width <= 32 else "long"
    if types.is_floating(kind):
        return "float" if kind.bit_width == 32 else "double"
    if types.is_string(kind) or types.is_large_string(kind):
        return "string"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind) and not _decimal(kind):
        return "bytes"
    if _decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if types.is_time(kind):
        return {"type": "int", "logicalType": "time-millis"}
    if types.is_timestamp(kind) and kind.unit in _MILLIS:
        return {"type": "long", "logicalType": f"{'' if kind.tz is None else 'local-'}timestamp-{_MILLIS[kind.unit]}"}
    if types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        if types.is_string(key.type):
            return {"type": "map", "values": _type(item, name)}
        entries = [key.with_name("key"), item.with_name("value")]
        return {"type": "array", "items": _record(entries, name), "logicalType": "map"}
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return {"type": "array", "items": _type(kind.value_field, name)}
    if types.is_struct(kind):
        return _record(list(kind), name)
    raise UnsupportedTableError(f"Avro files have no columns of type {kind}; set another 'file.format'.")


def _decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind))


def _numbers(kind: pa.DataType, *, exact: bool) -> pa.DataType:
    """A type with the numbers that Avro has for dates and times; `exact`: only what is no whole Avro unit changes."""
    types = pa.types
    if types.is_timestamp(kind):
        return (pa.timestamp("ms", kind.tz) if kind.unit == "s" else kind) if exact else pa.int64()
    if types.is_time(kind):
        return pa.time32("ms") if exact else pa.int32()
    if types.is_date(kind):
        return kind if exact else pa.int32()
    if types.is_map(kind):
        key, item = (each.with_type(_numbers(each.type, exact=exact)) for each in (kind.key_field, kind.item_field))
        return pa.map_(key, item)
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_numbers(kind.value_type, exact=exact)))
    if types.is_struct(kind):
        return pa.struct([each.with_type(_numbers(each.type, exact=exact)) for each in kind])
    return kind


def _values(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return [_value(each, column.type) for each in values] if pa.types.is_nested(column.type) else values


def _value(value: Any, kind: pa.DataType) -> Any:
    """A nested value with maps as Avro has them: dicts where keys are texts, else lists of entries."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        pairs = [(key, _value(item, kind.item_type)) for key, item in value]
        if pa.types.is_string(kind.key_type):
            return dict(pairs)
        return [{"key": _value(key, kind.key_type), "value": item} for key, item in pairs]
    if pa.types.is_struct(kind):
        return {field.name: _value(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_value(each, kind.value_type) for each in value]
    return value
