"""`mode=files`: the files of a batch as rows, for Spark's own reader (`native_foreach_batch`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pypaimon.spark.arrow_types import spark_schema
from pypaimon.spark.engine_builder import EngineReadBuilder
from pypaimon.spark.metadata import ROW_KIND
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.files.casts import parameter, root
from pypaimon.streaming.internals import AtomicType, DataField
from pypaimon.streaming.plan import SplitMode, StreamSplit
from pypaimon.streaming.settings.option_values import OptionValues

FILES_SCHEMA = StructType(
    [
        StructField("path", StringType(), False),
        StructField("columns", StringType(), False),
        StructField("snapshot_id", LongType(), False),
        StructField("row_count", LongType(), False),
        StructField("file_size", LongType(), False),
    ]
)
"""One row per file. `columns` is JSON: for each column its name, its type, and its name and type in the file."""

_VALUE_KIND = "_VALUE_KIND"
_PLAIN_MODES = (SplitMode.ROWS, SplitMode.RECORDS, SplitMode.CHANGELOG)
_READ_OTHERWISE = frozenset({"TIME", "VARIANT", "BLOB"})
_MICROS = 6


def check_natively_readable(builder: EngineReadBuilder, splits: Iterable[StreamSplit]) -> None:
    """Check that Spark's reader gives exactly the rows of these splits.

    Raises:
        UnsupportedTableError: Files must be merged, hold deleted rows, share a file, or are no Parquet; or the catalog
            says which rows may be seen.
    """
    if OptionValues(builder.schema.options).boolean("query-auth.enabled", False):
        raise _unsupported("the catalog restricts what may be seen of the table (query-auth.enabled)")
    for split in splits:
        if split.mode not in _PLAIN_MODES:
            raise _unsupported(f"bucket {split.bucket} of snapshot {split.snapshot_id} is merged when it is read")
        if split.data_deletion_files is not None and any(split.data_deletion_files):
            raise _unsupported(f"files of snapshot {split.snapshot_id} have deleted rows (deletion vectors)")
        for file in split.files:
            if not file.file_name.endswith(".parquet"):
                raise _unsupported(f"{file.file_name} is no plain Parquet file")


def columns_of(builder: EngineReadBuilder, schema_id: int, *, kinds: bool) -> list[dict[str, Any]]:
    """How the columns of the read schema come from files of a schema: by field id, so that renamed ones are found.

    Raises:
        UnsupportedTableError: A column has a type that Spark's Parquet reader does not read as Paimon does.
    """
    stored = {field.id: field for field in builder.directory.schema(schema_id).fields}
    columns: list[dict[str, Any]] = []
    if builder.includes_row_kind:
        source = {"source": _VALUE_KIND, "source_type": "tinyint"} if kinds else {"source": None, "source_type": None}
        columns.append({"name": ROW_KIND, "type": "string", **source})
    for field in builder.output_fields():
        _check_type(field)
        found = stored.get(field.id)
        columns.append(
            {
                "name": field.name,
                "type": _ddl(field),
                "source": None if found is None else found.name,
                "source_type": None if found is None else _ddl(found),
            }
        )
    return columns


def file_rows(builder: EngineReadBuilder, split: StreamSplit) -> Iterator[dict[str, Any]]:
    """The rows of a split's files."""
    kinds = split.mode is not SplitMode.ROWS
    for file in split.files:
        yield {
            "path": for_spark(file.external_path or file.file_path),
            "columns": json.dumps(columns_of(builder, file.schema_id, kinds=kinds)),
            "snapshot_id": split.snapshot_id,
            "row_count": file.row_count,
            "file_size": file.file_size,
        }


def file_batches(
    builder: EngineReadBuilder, splits: Iterable[StreamSplit], target: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of all files of a task."""
    rows = [row for split in splits for row in file_rows(builder, split)]
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=target)


def for_spark(path: str) -> str:
    """A path as Hadoop's file systems spell it."""
    return "s3a://" + path[len("s3://") :] if path.startswith("s3://") else path


def _ddl(field: DataField) -> str:
    return spark_schema([field], ()).fields[0].dataType.simpleString()


def _check_type(field: DataField) -> None:
    data_type = field.type
    if not isinstance(data_type, AtomicType):
        if "TIME" in str(data_type).upper() or "VARIANT" in str(data_type).upper():
            raise _unsupported(f"column '{field.name}' has type {data_type}")
        return
    kind = root(data_type)
    precision = parameter(data_type)
    if kind in _READ_OTHERWISE or (kind.startswith("TIMESTAMP") and precision is not None and precision > _MICROS):
        raise _unsupported(f"column '{field.name}' has type {data_type}")


def _unsupported(why: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"Spark's own reader cannot read this: {why}. Read it with format('pypaimon') instead."
    )
