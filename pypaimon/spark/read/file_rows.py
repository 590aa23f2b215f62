"""`mode=files`: the files of a batch as rows, for Spark's own reader (`native_foreach_batch`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from pypaimon.spark.arrow_types import spark_schema
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.files.data_files import column_names, located
from pypaimon.streaming.filtering.field_paths import Path, find_ids
from pypaimon.streaming.metadata.history import SnapshotRangeValidator
from pypaimon.streaming.model.data_types import parameter, root
from pypaimon.streaming.model.plan import SplitMode, StreamSplit
from pypaimon.streaming.model.row_kinds import NAMES
from pypaimon.streaming.model.system_columns import ROW_KIND, VALUE_KIND
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.internals import (
    ArrayType,
    AtomicType,
    DataField,
    DataFileMeta,
    DataType,
    MapType,
    RowType,
    VectorType,
)
from pypaimon.streaming.reading.query_auth import QueryAuth
from pypaimon.streaming.reading.split_files import partition_values
from pypaimon.streaming.spec.resolve import ResolvedStream

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


def column_of(
    field: DataField, stored: DataField | None, constants: Mapping[str, pa.Scalar], rows: Path = ()
) -> FileColumn:
    """How a column of the read schema comes out of a file.

    Args:
        stored: The field of the file with its id, None if the file has none: then it is null.
        rows: The fields of the file that `stored` is in, from the top column down.
    """
    _check_type(field.type, field.name)
    target = ddl(field.type, field.name)
    if field.name in constants:
        return FileColumn(field.name, target, None, None, None, _text(constants[field.name]))
    if stored is None:
        return FileColumn(field.name, target, None, None, _null(target))
    path = (*rows, stored)
    top = path[0]
    _check_type(top.type, top.name)
    value = _converted(".".join(quoted(each.name) for each in path), stored.type, field.type, field.name)
    return FileColumn(field.name, target, top.name, ddl(top.type, top.name), value)


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


_FOOTERS_AT_ONCE = 16
_HIDDEN = ("_", ".")
_PLAIN_MODES = (SplitMode.ROWS, SplitMode.RECORDS, SplitMode.CHANGELOG)


def check_natively_readable(stream: ResolvedStream, splits: Iterable[StreamSplit]) -> None:
    if QueryAuth.of(stream.directory) is not None:
        raise unsupported("the catalog restricts what may be seen of the table (query-auth.enabled)")
    if stream.spec.view is not None and stream.spec.view != "ro":
        raise unsupported(f"the view {stream.spec.view} has columns that no file holds")
    for split in splits:
        if split.mode not in _PLAIN_MODES:
            raise unsupported(f"bucket {split.bucket} of snapshot {split.snapshot_id} is merged when it is read")
        if split.data_deletion_files is not None and any(split.data_deletion_files):
            raise unsupported(f"files of snapshot {split.snapshot_id} have deleted rows (deletion vectors)")
        for file in split.files:
            if not file.file_name.endswith(".parquet"):
                raise unsupported(f"{file.file_name} is not a plain Parquet file")
            if file.file_name.startswith(_HIDDEN):
                raise unsupported(f"{file.file_name} is hidden, by its name, from Spark")


def columns_of(
    stream: ResolvedStream, schema_id: int, *, kinds: bool, constants: Mapping[str, pa.Scalar] = MappingProxyType({})
) -> str:
    """How the columns of the read schema come from a file of a schema, as JSON: the fields of `FileColumn` of each."""
    fields = stream.directory.schema(schema_id).fields
    columns = [row_kind_column(ROW_KIND, kinds)] if stream.includes_row_kind else []
    for output in stream.outputs():
        field, path = DataField(output.ids[-1], output.name, output.type), find_ids(output.ids, fields) or ()
        columns.append(column_of(field, path[-1] if path else None, constants, path[:-1]))
    return json.dumps([asdict(column) for column in columns])


def file_rows(stream: ResolvedStream, splits: Iterable[StreamSplit]) -> list[dict[str, Any]]:
    """The rows of all files of splits. Footers of files that may lack partition columns are read, several at a time.

    Raises:
        PositionExpiredError: A file has expired.
        CorruptTableError: A file is missing or damaged.
    """
    uncertain = _uncertain_columns(stream)

    @cache
    def columns(schema_id: int, kinds: bool, constants: tuple[tuple[str, pa.Scalar], ...]) -> str:
        _refuse_shredded_maps(stream, schema_id)
        return columns_of(stream, schema_id, kinds=kinds, constants=dict(constants))

    def row(split: StreamSplit, file: DataFileMeta) -> dict[str, Any]:
        missing = _missing_columns(stream, split, file, uncertain)
        return {
            "path": for_spark(located(stream.directory, file.file_path)),
            "columns": columns(file.schema_id, split.mode is not SplitMode.ROWS, tuple(missing.items())),
            "snapshot_id": split.snapshot_id,
            "row_count": file.row_count,
            "file_size": file.file_size,
        }

    files = [(split, file) for split in splits for file in split.files]
    if not uncertain:
        return [row(*each) for each in files]
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE, "paimon-footers") as pool:
        return list(pool.map(lambda each: row(*each), files))


def _refuse_shredded_maps(stream: ResolvedStream, schema_id: int) -> None:
    """Maps that the schema stores as columns. Only the file knows of others, for which Spark reports what it finds."""
    schema = stream.directory.schema(schema_id)
    stored = {field.id: field.name for field in schema.fields}
    for name in (stored[each.ids[0]] for each in stream.outputs() if each.ids[0] in stored):
        layout = option_keys.FIELDS_MAP_STORAGE_LAYOUT.of_field(name).of(schema.options)
        if layout.lower() == "shared-shredding":
            raise unsupported(f"column '{name}' is stored in the layout 'shared-shredding'")


def _uncertain_columns(stream: ResolvedStream) -> frozenset[str]:
    if stream.traits.primary_key or not stream.schema.partition_keys:
        return frozenset()
    # Files of append tables may have come from Hive, without the partition columns.
    return frozenset(field.name for field in stream.output_fields()).intersection(stream.schema.partition_keys)


def _missing_columns(
    stream: ResolvedStream, split: StreamSplit, file: DataFileMeta, uncertain: frozenset[str]
) -> dict[str, pa.Scalar]:
    if not uncertain:
        return {}
    try:
        held = column_names(stream.directory, file)
    except FileNotFoundError as error:
        raise SnapshotRangeValidator(stream.directory, False).missing_file(split.snapshot_id, error) from error
    values = partition_values(split, stream.schema)
    return {name: value for name, value in values.items() if name in uncertain and name not in held}


def file_batches(stream: ResolvedStream, splits: Iterable[StreamSplit], target: pa.Schema) -> Iterator[pa.RecordBatch]:
    rows = file_rows(stream, splits)
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=target)


def for_spark(path: str) -> str:
    """A path as Hadoop's file systems spell it."""
    return "s3a://" + path[len("s3://") :] if path.startswith("s3://") else path
