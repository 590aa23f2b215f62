"""`repartition_by_bucket`: gives the rows of a bucket to one task, as tables with a primary key need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pypaimon.spark.errors import ErrorContext, readable_errors
from pypaimon.streaming.lazy_imports import LazyModule

if TYPE_CHECKING:
    from pyspark import sql
else:
    sql = LazyModule("pyspark.sql")

_BUCKET = "__paimon_bucket"


def repartition_by_bucket(
    df: sql.DataFrame, options: Mapping[str, str], num_partitions: int | None = None
) -> sql.DataFrame:
    """Give the rows of each bucket to one task, in a stream or a batch.

    Buckets are those that Paimon computes. Rows of a table with postponed buckets are divided by primary key, because
    they get their bucket later. Rows of a table without buckets are not moved.

    Args:
        df: Rows for the table.
        options: Those of the sink: `table` and `warehouse`, or `path`.
        num_partitions: Tasks; None: `spark.sql.shuffle.partitions`, at most the buckets of an unpartitioned table.

    Returns:
        The same rows and columns.

    Raises:
        StreamConfigError: An option, or the table.
        UnsupportedTableError: The table cannot be written.
        SchemaMismatchError: A key column is missing.
    """
    with readable_errors(ErrorContext.of(options)):
        return _divided(df, options, num_partitions)


def _divided(df: sql.DataFrame, options: Mapping[str, str], num_partitions: int | None) -> sql.DataFrame:
    from pyspark.sql import functions as functions

    from pypaimon.spark.options.sink_options import parse_sink
    from pypaimon.spark.write.sink_table import load_sink_table
    from pypaimon.streaming.errors import SchemaMismatchError
    from pypaimon.streaming.writing.bucket_hash import BucketKeys
    from pypaimon.streaming.writing.writable_tables import check_writable

    parsed = parse_sink(options)
    table = load_sink_table(parsed)
    check_writable(table, False, by_tasks=True)
    keys = BucketKeys.of(table)
    wanted = [*table.partition_keys, *(keys.names if keys else table.key_names)]
    if not table.is_primary_key_table and keys is None:
        return df
    columns = _columns(df, wanted, parsed.case_sensitive)
    missing = [name for name in wanted if name not in columns]
    if missing:
        raise SchemaMismatchError(f"The DataFrame lacks {', '.join(missing)}, by which {parsed.name} is divided.")
    count = num_partitions or int(str(df.sparkSession.conf.get("spark.sql.shuffle.partitions")))
    if keys is None:
        return df.repartition(count, *(df[column] for column in columns.values()))
    if not table.partition_keys and num_partitions is None:
        count = min(count, keys.buckets)
    udf = functions.arrow_udf(_bucket_function(keys), "int")  # type: ignore[attr-defined]
    bucket = udf(functions.struct(*(df[columns[name]] for name in keys.names)))
    partition = [df[columns[name]] for name in table.partition_keys]
    return df.withColumn(_BUCKET, bucket).repartition(count, *partition, functions.col(_BUCKET)).drop(_BUCKET)


def _bucket_function(keys: Any) -> Any:
    import pyarrow as pa

    def bucket(rows: pa.Array) -> pa.Array:
        return pa.array(keys.buckets_of(rows.flatten()), pa.int32())

    # Spark reads the annotations, which are text here.
    bucket.__annotations__ = {"rows": pa.Array, "return": pa.Array}
    return bucket


def _columns(df: sql.DataFrame, wanted: Sequence[str], case_sensitive: bool) -> dict[str, str]:
    """The DataFrame's name of each column; without those that are missing or ambiguous."""
    found = {}
    for name in wanted:
        same = [each for each in df.columns if each == name]
        if not same and not case_sensitive:
            same = [each for each in df.columns if each.lower() == name.lower()]
        if len(same) == 1:
            found[name] = same[0]
    return found
