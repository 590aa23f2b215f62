"""Paimon's types as they are written in schemas: names, aliases, lengths and precisions, and which hold blobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from pypaimon.streaming.paimon.internals import ArrayType, AtomicType, DataType, MapType, RowType, VectorType

_TYPE = re.compile(r"([A-Z_]+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?(.*)")
_ALIASES = {"INTEGER": "INT", "STRING": "VARCHAR", "BYTES": "VARBINARY", "NUMERIC": "DECIMAL", "DEC": "DECIMAL"}
_MOST_EXPONENT = 10_000
_DEFAULT_LENGTH = {"CHAR": 1, "BINARY": 1}

INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


def bounded(number: Decimal) -> Decimal:
    """Check that a number does not crash pyarrow, which scales by any exponent, and return it."""
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and abs(exponent) > _MOST_EXPONENT:
        raise ValueError("it is out of range")
    return number


def root(data_type: DataType) -> str:
    """The type without its parameters and aliases: `INT`, `VARCHAR`, `TIMESTAMP_LTZ`, `ARRAY`, ..."""
    text = _text(data_type)
    match = _TYPE.match(text.upper())
    name = match.group(1) if match else text
    if name == "TIMESTAMP" and match and "LOCAL TIME ZONE" in match.group(4):
        return "TIMESTAMP_LTZ"
    return _ALIASES.get(name, name)


def parameter(data_type: DataType) -> int | None:
    """The length or precision of a type; None if it is not limited."""
    match = _TYPE.match(_text(data_type).upper())
    if match and match.group(2):
        return int(match.group(2))
    return _DEFAULT_LENGTH.get(root(data_type))


def _text(data_type: DataType) -> str:
    return data_type.type if isinstance(data_type, AtomicType) else str(data_type)


def is_local_timestamp(data_type: object) -> bool:
    return isinstance(data_type, AtomicType) and root(data_type) == "TIMESTAMP_LTZ"


def type_names(data_type: DataType) -> Iterator[str]:
    """The names of a type and of all types in it, without parameters: `ARRAY`, `VECTOR`, `INT`, ..."""
    if isinstance(data_type, AtomicType):
        yield root(data_type)
    elif isinstance(data_type, RowType):
        yield "ROW"
        for field in data_type.fields:
            yield from type_names(field.type)
    elif isinstance(data_type, MapType):
        yield "MAP"
        yield from type_names(data_type.key)
        yield from type_names(data_type.value)
    elif isinstance(data_type, (ArrayType, VectorType)):
        yield "VECTOR" if isinstance(data_type, VectorType) else "ARRAY"
        yield from type_names(data_type.element)


BLOB = AtomicType("BLOB")


def is_blob(data_type: DataType) -> bool:
    return isinstance(data_type, AtomicType) and root(data_type) == "BLOB"


def is_blob_collection(data_type: DataType) -> bool:
    if isinstance(data_type, MapType):
        return is_blob(data_type.value)
    return isinstance(data_type, ArrayType) and is_blob(data_type.element)


def holds_blobs(data_type: DataType) -> bool:
    if isinstance(data_type, RowType):
        return any(holds_blobs(field.type) for field in data_type.fields)
    if isinstance(data_type, MapType):
        return holds_blobs(data_type.key) or holds_blobs(data_type.value)
    if isinstance(data_type, (ArrayType, VectorType)):
        return holds_blobs(data_type.element)
    return is_blob(data_type)
