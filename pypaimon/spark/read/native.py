"""Reads what needs no merging with Spark's own vectorised Parquet reader.

Spark takes rows from a Python data source one by one; these functions pass files instead. They do not keep the order of
rows in a bucket.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pypaimon.spark.errors import ErrorContext, readable_errors
from pypaimon.spark.options.source_options import parse
from pypaimon.spark.read.batch_reader import batch_options, batch_splits
from pypaimon.spark.read.file_rows import check_natively_readable, columns_of, file_rows, quoted
from pypaimon.spark.read.source_stream import stream_of
from pypaimon.streaming.errors import StreamConfigError

# These override the session's settings.
_NOTHING_SKIPPED = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
_PATH, _CONSTANT = "_paimon_path", "_paimon_constant"
_FILE_SYSTEM = "^[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?"
# Spark reports paths as URIs, in which a plus is a plus.
_PATH_OF_ROW = f"URL_DECODE(REPLACE(REGEXP_REPLACE(_metadata.file_path, '{_FILE_SYSTEM}', ''), '+', '%2B'))"


def native_read(spark: Any, options: Mapping[str, str]) -> Any:
    """A batch read of an append table, or of changes that are plain files, through `spark.read.parquet`.

    The catalog is read in the driver's Python, the files by Spark with its own configuration of file systems.
    Renamed, added, widened and partition columns come out as the table's latest schema has them.

    Args:
        spark: A session.
        options: As for `format("pypaimon")`, without `filter`: filter the result, Spark pushes that into Parquet.

    Returns:
        A data frame.

    Raises:
        UnsupportedTableError: The files must be merged, or are not plain Parquet.
        StreamConfigError: The options are invalid, or name something that does not exist.
    """
    given = parse(options)
    if given.filter is not None:
        raise StreamConfigError("Option 'filter' is not for native_read: filter the data frame that it returns.")
    with readable_errors(ErrorContext.of(options)):
        stream = stream_of(batch_options(given))
        splits = batch_splits(given, stream)
        check_natively_readable(stream, splits)
        nothing = {"path": None, "columns": columns_of(stream, stream.schema.id, kinds=False)}
        rows = file_rows(stream, splits) or [nothing]
    return _frame(spark, rows)


def native_foreach_batch(function: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
    """A function for `foreachBatch` of a stream with `mode=files`, which calls `function` with the rows of the files.

    A batch without files is skipped. A batch that is run again has the same files.

    Args:
        function: Takes a data frame, read by Spark's own Parquet reader, and the id of the batch.
    """

    def call(files: Any, batch_id: int) -> None:
        rows = [row.asDict() for row in files.select("path", "columns").collect()]
        if rows:
            function(_frame(files.sparkSession, rows), batch_id)

    return call


def _frame(spark: Any, rows: Iterable[Mapping[str, Any]]) -> Any:
    files: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        columns = json.loads(row["columns"])
        constants = [column.pop("constant") for column in columns]
        shared = [value for value, column in zip(constants, columns, strict=True) if column["value"] is None]
        found = files.setdefault(json.dumps(columns), [])
        if row["path"] is not None:
            found.append((row["path"], *shared))
    frames = [_read(spark, json.loads(columns), found) for columns, found in files.items()]
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


def _read(spark: Any, columns: list[dict[str, Any]], files: list[tuple[Any, ...]]) -> Any:
    sources = {column["source"]: column["source_type"] for column in columns if column["source"] is not None}
    schema = ", ".join(f"{quoted(name)} {kind}" for name, kind in sources.items()) or "`_` tinyint"
    shared = [column for column in columns if column["value"] is None]
    if not files:
        empty = ", ".join(f"{quoted(column['name'])} {column['type']}" for column in columns)
        return spark.createDataFrame([], empty)
    stored = spark.read.schema(schema).options(**_NOTHING_SKIPPED).parquet(*(path for path, *_ in files))
    if shared:
        stored = _with_constants(spark, stored, files, len(shared))
    names = {column["name"]: f"{_CONSTANT}{index}" for index, column in enumerate(shared)}
    return stored.selectExpr(*(f"{_value(column, names)} AS {quoted(column['name'])}" for column in columns))


def _value(column: Mapping[str, Any], constants: Mapping[str, str]) -> str:
    if column["value"] is not None:
        return str(column["value"])
    name, kind = constants[column["name"]], column["type"]
    found = f"UNHEX({name})" if kind == "binary" else f"CAST({name} AS {kind})"
    return f"IF({_PATH} IS NULL, RAISE_ERROR('Spark names a file otherwise than the table does'), {found})"


def _with_constants(spark: Any, stored: Any, files: Iterable[tuple[Any, ...]], count: int) -> Any:
    from pyspark.sql import functions as sql

    names = [f"{_CONSTANT}{index}" for index in range(count)]
    schema = ", ".join(f"{name} string" for name in (_PATH, *names))
    values = spark.createDataFrame([(_local(path), *texts) for path, *texts in files], schema)
    found = sql.expr(_PATH_OF_ROW)
    return stored.join(sql.broadcast(values), found == sql.col(_PATH), "left")


def _local(path: str) -> str:
    return re.sub("/+", "/", re.sub(_FILE_SYSTEM, "", path))
