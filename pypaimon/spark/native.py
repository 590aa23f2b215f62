"""Reading with Spark's own vectorised Parquet reader what needs no merging.

A Python data source hands over rows one by one, whatever it does; these functions hand over files. The order of rows in
a bucket is not kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pypaimon.spark.batch_range import batch_options, batch_splits
from pypaimon.spark.engine_builder import EngineReadBuilder
from pypaimon.spark.file_rows import check_natively_readable, columns_of, file_rows
from pypaimon.spark.metadata import ROW_KIND
from pypaimon.spark.options import parse
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.files.row_kinds import NAMES


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
        UnsupportedTableError: The files must be merged or are no plain Parquet.
        StreamConfigError: The options cannot be read, or name what is not there.
    """
    given = parse(options)
    if given.filter is not None:
        raise StreamConfigError("Option 'filter' is not for native_read: filter the data frame that it returns.")
    builder = EngineReadBuilder.of(batch_options(given))
    splits = batch_splits(given, builder)
    check_natively_readable(builder, splits)
    rows = [row for split in splits for row in file_rows(builder, split)]
    nothing = json.dumps(columns_of(builder, builder.schema.id, kinds=False))
    return _frame(spark, rows) if rows else _frame(spark, [{"path": None, "columns": nothing}])


def native_foreach_batch(function: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
    """A function for `foreachBatch` of a stream with `mode=files`, which calls `function` with the rows of the files.

    A batch without files is left out. A batch that is run again has the same files.

    Args:
        function: Takes a data frame, read by Spark's own Parquet reader, and the id of the batch.
    """

    def call(files: Any, batch_id: int) -> None:
        rows = [row.asDict() for row in files.select("path", "columns").collect()]
        if rows:
            function(_frame(files.sparkSession, rows), batch_id)

    return call


def _frame(spark: Any, rows: Iterable[Mapping[str, Any]]) -> Any:
    """All files as one data frame: one read for those whose columns come out alike."""
    paths: dict[str, list[str]] = {}
    for row in rows:
        found = paths.setdefault(row["columns"], [])
        if row["path"] is not None:
            found.append(row["path"])
    frames = [_read(spark, json.loads(columns), files) for columns, files in paths.items()]
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


def _read(spark: Any, columns: list[dict[str, Any]], paths: list[str]) -> Any:
    from pyspark.sql import functions as sql

    sources = {column["source"]: column["source_type"] for column in columns if column["source"] is not None}
    schema = ", ".join(f"`{name}` {kind}" for name, kind in sources.items()) or "`_` tinyint"
    read = spark.read.schema(schema)
    stored = read.parquet(*paths) if paths else spark.createDataFrame([], schema)
    chosen = []
    for column in columns:
        if column["source"] is None:
            value = sql.lit(NAMES[0] if column["name"] == ROW_KIND else None).cast(column["type"])
        else:
            value = sql.col(f"`{column['source']}`")
            if column["name"] == ROW_KIND:
                value = sql.element_at(sql.array(*(sql.lit(name) for name in NAMES)), (value + 1).cast("int"))
            elif column["source_type"] != column["type"]:
                value = value.cast(column["type"])
        chosen.append(value.alias(column["name"]))
    return stored.select(*chosen)
