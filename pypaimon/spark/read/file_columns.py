"""Columns of data files for Spark's own reader: SQL that makes the table's columns of a file's, by field id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from pypaimon.spark.arrow_types import spark_schema
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.model.data_types import parameter, root
from pypaimon.streaming.model.row_kinds import NAMES
from pypaimon.streaming.model.system_columns import VALUE_KIND
from pypaimon.streaming.paimon.internals import ArrayType, AtomicType, DataField, DataType, MapType, RowType, VectorType

_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
_WIDER = {
    "TINYINT": {"SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE"},
    "SMALLINT": {"INT", "BIGINT", "FLOAT", "DOUBLE"},
    "INT": {"BIGINT", "FLOAT", "DOUBLE"},
    "BIGINT": {"FLOAT", "DOUBLE"},
    "FLOAT": {"DOUBLE"},
}
_LONGER = {"CHAR": "VARCHAR", "VARCHAR": "VARCHAR", "BINARY": "VARBINARY", "VARBINARY": "VARBINARY"}
_UNBOUNDED = 2**31 - 1
_NOT_READ_ALIKE = frozenset({"TIME", "VARIANT", "BLOB"})
_MICROS = 6


def unsupported(why: str) -> UnsupportedTableError:
    """The error for what Spark's own reader cannot read."""
    return UnsupportedTableError(
        f"Spark's own reader cannot read this: {why}. Read it with format('pypaimon') instead."
    )


@dataclass(frozen=True, slots=True)
class FileColumn:
    """How a column comes out of a file.

    Attributes:
        source: The column of the file that it is made of, or None.
        value: SQL over `source`; None: a value that all rows of the file share, `constant`.
        constant: That value as text which Spark casts to `type`, binary ones in hexadecimal digits; None: null.
    """

    name: str
    type: str
    source: str | None
    source_type: str | None
    value: str | None
    constant: str | None = None


def row_kind_column(name: str, stored: bool) -> FileColumn:
    if not stored:
        return FileColumn(name, "string", None, None, f"'{NAMES[0]}'")
    names = ", ".join(f"'{each}'" for each in NAMES)
    return FileColumn(name, "string", VALUE_KIND, "tinyint", f"ELEMENT_AT(ARRAY({names}), {VALUE_KIND} + 1)")


def column_of(field: DataField, stored: DataField | None, constants: Mapping[str, pa.Scalar]) -> FileColumn:
    """How a column of the read schema comes out of a file.

    Args:
        stored: The field of the file with its id, None if the file has none: then it is null.

    Raises:
        UnsupportedTableError: Spark does not read the type as Paimon does, or does not cast as Paimon does.
    """
    _check_type(field.type, field.name)
    target = ddl(field.type, field.name)
    if field.name in constants:
        return FileColumn(field.name, target, None, None, None, _text(constants[field.name]))
    if stored is None:
        return FileColumn(field.name, target, None, None, _null(target))
    _check_type(stored.type, stored.name)
    value = _converted(quoted(stored.name), stored.type, field.type, field.name)
    return FileColumn(field.name, target, stored.name, ddl(stored.type, stored.name), value)


def ddl(data_type: DataType, name: str) -> str:
    return _ddl(spark_schema([DataField(0, name, data_type)], ()).fields[0].dataType)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _ddl(data_type: spark.DataType) -> str:
    if isinstance(data_type, spark.StructType):
        return f"struct<{', '.join(f'{quoted(each.name)}: {_ddl(each.dataType)}' for each in data_type)}>"
    if isinstance(data_type, spark.ArrayType):
        return f"array<{_ddl(data_type.elementType)}>"
    if isinstance(data_type, spark.MapType):
        return f"map<{_ddl(data_type.keyType)}, {_ddl(data_type.valueType)}>"
    return data_type.simpleString()


def _null(target: str) -> str:
    return f"CAST(NULL AS {target})"


def _converted(value: str, stored: DataType, wanted: DataType, name: str, depth: int = 0) -> str:
    if isinstance(stored, RowType) and isinstance(wanted, RowType):
        return _row(value, stored, wanted, name, depth)
    if isinstance(stored, (ArrayType, VectorType)) and isinstance(wanted, (ArrayType, VectorType)):
        item = f"item{depth}"
        made = _converted(item, stored.element, wanted.element, name, depth + 1)
        return value if made == item else f"TRANSFORM({value}, {item} -> {made})"
    if isinstance(stored, MapType) and isinstance(wanted, MapType):
        key, item = f"key{depth}", f"item{depth}"
        for function, made in (
            ("TRANSFORM_KEYS", _converted(key, stored.key, wanted.key, name, depth + 1)),
            ("TRANSFORM_VALUES", _converted(item, stored.value, wanted.value, name, depth + 1)),
        ):
            if made not in (key, item):
                value = f"{function}({value}, ({key}, {item}) -> {made})"
        return value
    if not (isinstance(stored, AtomicType) and isinstance(wanted, AtomicType) and _casts_alike(stored, wanted)):
        raise unsupported(f"column '{name}' was {stored} when a file was written, and is {wanted} now")
    source, target = ddl(stored, name), ddl(wanted, name)
    return value if source == target else f"CAST({value} AS {target})"


def _row(value: str, stored: RowType, wanted: RowType, name: str, depth: int) -> str:
    by_id = {field.id: field for field in stored.fields}
    parts, same = [], len(stored.fields) == len(wanted.fields)
    for index, field in enumerate(wanted.fields):
        found = by_id.get(field.id)
        if found is None:
            made, same = _null(ddl(field.type, name)), False
        else:
            source = f"{value}.{quoted(found.name)}"
            made = _converted(source, found.type, field.type, f"{name}.{field.name}", depth)
            same = same and made == source and found.name == field.name and stored.fields[index] is found
        parts.append(f"{_string(field.name)}, {made}")
    return value if same else f"IF({value} IS NULL, NULL, NAMED_STRUCT({', '.join(parts)}))"


def _string(text: str) -> str:
    return f"CAST(X'{text.encode().hex()}' AS STRING)" if not text.isidentifier() else f"'{text}'"


def _casts_alike(stored: AtomicType, wanted: AtomicType) -> bool:
    """Whether Spark's cast gives what Paimon's does: where no value changes."""
    old, new = root(stored), root(wanted)
    if old in _DIGITS and new == "DECIMAL":
        precision, scale = _decimal(wanted)
        return precision - scale >= _DIGITS[old]
    if old == new == "DECIMAL":
        (precision, scale), (more, finer) = _decimal(stored), _decimal(wanted)
        return finer >= scale and more - finer >= precision - scale
    if new == _LONGER.get(old):
        return _length(stored) <= _length(wanted)
    if old == new:
        return parameter(stored) == parameter(wanted) or (
            old not in _LONGER and _precision(stored) <= _precision(wanted)
        )
    return new in _WIDER.get(old, ()) or (old in _DIGITS and new == "VARCHAR" and _length(wanted) == _UNBOUNDED)


def _decimal(data_type: AtomicType) -> tuple[int, int]:
    kind = spark_schema([DataField(0, "", data_type)], ()).fields[0].dataType
    assert isinstance(kind, spark.DecimalType)
    return kind.precision, kind.scale


def _length(data_type: AtomicType) -> int:
    found = parameter(data_type)
    return _UNBOUNDED if found is None else found


def _precision(data_type: AtomicType) -> int:
    found = parameter(data_type)
    return _MICROS if found is None else found


def _check_type(data_type: DataType, name: str) -> None:
    if isinstance(data_type, RowType):
        for field in data_type.fields:
            _check_type(field.type, f"{name}.{field.name}")
    elif isinstance(data_type, (ArrayType, VectorType)):
        _check_type(data_type.element, name)
    elif isinstance(data_type, MapType):
        _check_type(data_type.key, name)
        _check_type(data_type.value, name)
    elif not isinstance(data_type, AtomicType) or _is_read_otherwise(data_type):
        raise unsupported(f"column '{name}' has type {data_type}")


def _is_read_otherwise(data_type: AtomicType) -> bool:
    kind = root(data_type)
    return kind in _NOT_READ_ALIKE or (kind.startswith("TIMESTAMP") and _precision(data_type) > _MICROS)


def _text(scalar: pa.Scalar) -> str | None:
    value: Any = scalar.as_py()
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value).lower()
