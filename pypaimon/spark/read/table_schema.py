"""The schema of a source, and whether one that a user gave fits it."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.types import LongType, StringType, StructField, StructType

from pypaimon.spark.arrow_types import spark_schema
from pypaimon.spark.options.source_options import SourceOptions
from pypaimon.spark.read.source_stream import stream_of
from pypaimon.spark.read.tasks import FILES_SCHEMA, METADATA, ORDINAL, SNAPSHOT_ID, data_columns
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.spec.resolve import ResolvedStream

_WHAT_TO_DO = (
    "Correct the schema, or call load() again if the table was altered (in SQL: create the entry of Spark's catalog "
    "again)."
)


def source_schema(stream: ResolvedStream, options: SourceOptions) -> StructType:
    """The columns of a source.

    Row kind first, as in the stream; then the snapshot id and the ordinal, where asked for; then the table's columns.
    Columns of a table that can retract are nullable but for the primary key, since deletes need not hold the rest.
    """
    if options.mode == "files":
        return FILES_SCHEMA
    added = []
    if stream.includes_row_kind:
        added.append(StructField(ROW_KIND, StringType()))
    if options.include_snapshot_id:
        added.append(StructField(SNAPSHOT_ID, LongType()))
    if options.include_ordinal:
        added.append(StructField(ORDINAL, LongType()))
    fields = stream.output_fields()
    keys = frozenset(stream.schema.primary_keys)
    certain = {
        field.name
        for field in fields
        if not field.type.nullable and (field.name in keys or not stream.traits.primary_key)
    }
    return StructType([*added, *spark_schema(fields, certain).fields])


def stream_for(options: SourceOptions, schema: StructType, *, streaming: bool) -> ResolvedStream:
    """The stream that reads what Spark's schema of the source holds: the source's own, or one that a user gave."""
    if options.mode == "files":
        return _files_stream(options, schema)
    columns = data_columns(schema.fieldNames())
    everything = stream_of(options)
    whole = source_schema(everything, options)
    allowed = {field.name: field for field in whole}
    allowed.update({name: StructField(name, LongType()) for name in (SNAPSHOT_ID, ORDINAL)})
    for field in schema:
        expected = allowed.get(field.name)
        if expected is None:
            raise StreamConfigError(
                f"The schema of the query has a column '{field.name}', and the table has none; its columns are "
                f"{', '.join(data_columns(whole.fieldNames()))}. {_WHAT_TO_DO}"
            )
        if expected.dataType.simpleString() != field.dataType.simpleString():
            raise StreamConfigError(
                f"The schema of the query has column '{field.name}' as {field.dataType.simpleString()}, the table as "
                f"{expected.dataType.simpleString()}. {_WHAT_TO_DO}"
            )
        if expected.nullable and not field.nullable and field.name not in METADATA:
            raise StreamConfigError(
                f"The schema of the query has column '{field.name}' as NOT NULL, and it can be null. {_WHAT_TO_DO}"
            )
    if streaming and everything.includes_row_kind and ROW_KIND not in schema.fieldNames():
        raise StreamConfigError(
            f"The schema of the query has no column '{ROW_KIND}', without which deletes would look like rows: add "
            f"'{ROW_KIND} STRING' to it, or set 'include-row-kind' to 'false'."
        )
    if options.columns is not None or columns == data_columns(whole.fieldNames()):
        return everything
    if not columns:
        raise StreamConfigError("The schema of the query has no column of the table; name at least one.")
    return everything.with_spec(replace(everything.spec, projection=tuple(columns)))


def _files_stream(options: SourceOptions, schema: StructType) -> ResolvedStream:
    if schema != FILES_SCHEMA:
        raise StreamConfigError("With 'mode' = 'files' the columns are given; leave out the schema.")
    if options.filter is not None:
        raise StreamConfigError("Option 'filter' does not go with 'mode' = 'files': filter the rows in the function.")
    return stream_of(options)
