"""The table that a sink writes: loaded, created or widened as the options say, or refused by name."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pypaimon.spark.internals import (
    BucketMode,
    CatalogFactory,
    PyarrowFieldParser,
    Schema,
    SchemaChange,
    TableNotExistException,
)
from pypaimon.spark.options.sink_options import SinkOptions
from pypaimon.spark.options.tables import load_table
from pypaimon.spark.write.record_writer import RecordWriter
from pypaimon.spark.write.row_layout import KindRules, fits
from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.merge.engines.factory import merge_engine
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.options.table_traits import (
    SNAPSHOT_ORDERING,
    BucketFunctionType,
    bucket_function_of,
    merge_engine_of,
)

_REFUSED_TYPES = ("BLOB", "VARIANT", "MULTISET", "VECTOR")


def load_sink_table(options: SinkOptions) -> Any:
    """The table with the options laid over it.

    Raises:
        StreamConfigError: There is no such table, or a view is named.
    """
    table, view = load_table(options)
    if view is not None:
        raise StreamConfigError(f"Option 'table' = '{options.table}' names a view; a view cannot be written.")
    return table


def prepare_sink_table(options: SinkOptions, schema: pa.Schema, overwrite: bool) -> Any:
    """The table as the tasks will find it: created or widened first where the options say so. Runs on the driver.

    Raises:
        StreamConfigError: There is no such table, and none is to be created.
        UnsupportedTableError: It cannot be written.
    """
    columns = _without_kind(options, schema)
    if options.create_table:
        _create(options, columns)
    table = load_sink_table(options)
    if options.merge_schema and _merge(options, table, columns):
        table = load_sink_table(options)
    check_writable(table, options.name, overwrite)
    return table


def check_writable(table: Any, name: str, overwrite: bool) -> None:
    """Refuse by name what cannot be written exactly.

    Raises:
        UnsupportedTableError: The table's buckets, types or merge engine.
    """
    mode = table.bucket_mode()
    if mode == BucketMode.HASH_DYNAMIC:
        raise UnsupportedTableError(
            f"{name} has dynamic buckets ('bucket' = '-1' with a primary key): one assigner must know every key of a "
            "bucket, and Spark's tasks do not know of each other. Use a fixed number of buckets, or postponed ones "
            "('bucket' = '-2')."
        )
    if mode == BucketMode.CROSS_PARTITION:
        raise UnsupportedTableError(
            f"{name} has a primary key without all partition columns (cross-partition update): that needs an index of "
            "all keys. Put the partition columns into the primary key."
        )
    function = bucket_function_of(table.options.options.to_map())
    if mode == BucketMode.HASH_FIXED and function is not BucketFunctionType.DEFAULT:
        raise UnsupportedTableError(f"{name}: 'bucket-function.type': expected 'default', got {function.value!r}.")
    if OptionValues(table.options.options.to_map()).boolean(SNAPSHOT_ORDERING, False):
        raise UnsupportedTableError(
            f"{name} has '{SNAPSHOT_ORDERING}': commits must note their snapshot in each file, which pypaimon does not."
        )
    for field in table.fields:
        kind = str(field.type).upper()
        if any(refused in kind for refused in _REFUSED_TYPES):
            raise UnsupportedTableError(f"Column '{field.name}' of {name} is {field.type}, which is not written here.")
    try:
        writer = RecordWriter(table, "check", overwrite)
        writer.check()
    except (NotImplementedError, ValueError) as error:
        raise UnsupportedTableError(f"{name} cannot be written: {error}") from error


def kind_rules(table: Any) -> KindRules:
    """What the table makes of row kinds."""
    raw = table.options.options.to_map()
    keyed = bool(table.is_primary_key_table)
    return KindRules(
        keyed=keyed,
        retractions=merge_engine(table.table_schema).retractions if keyed else frozenset(),
        engine=merge_engine_of(raw).value,
        ignore_deletes=bool(table.options.ignore_delete()),
        ignore_before=OptionValues(raw).boolean("ignore-update-before", False),
    )


def kind_column(table: Any, options: SinkOptions) -> str | None:
    """Column of row kinds that the options, or the table's option `rowkind.field`, name.

    Raises:
        StreamConfigError: They differ.
    """
    of_table: str | None = table.options.options.to_map().get("rowkind.field")
    if of_table is not None and options.row_kind_column not in (None, of_table):
        raise StreamConfigError(
            f"Option 'row-kind-column' = '{options.row_kind_column}', and the table's 'rowkind.field' = '{of_table}': "
            "leave the option out."
        )
    return of_table or options.row_kind_column


def _without_kind(options: SinkOptions, schema: pa.Schema) -> pa.Schema:
    named = options.row_kind_column or ROW_KIND
    return pa.schema([field for field in schema if field.name != named])


def _create(options: SinkOptions, columns: pa.Schema) -> None:
    catalog = CatalogFactory.create(dict(options.catalog))
    name = str(options.table)
    try:
        catalog.get_table(name)
        return
    except TableNotExistException:
        pass
    missing = [each for each in (*options.primary_key, *options.partition_by) if each not in columns.names]
    if missing:
        raise StreamConfigError(f"'primary-key' or 'partition-by' names missing columns: {', '.join(missing)}.")
    catalog.create_database(name.partition(".")[0], True)
    schema = Schema.from_pyarrow_schema(
        columns,
        partition_keys=list(options.partition_by),
        primary_keys=list(options.primary_key),
        options=dict(options.table_options),
    )
    catalog.create_table(name, schema, True)


def _merge(options: SinkOptions, table: Any, columns: pa.Schema) -> bool:
    """Add what the table lacks and widen what is too narrow; whether anything changed."""
    if options.table is None:
        raise StreamConfigError("Option 'merge-schema' needs 'table' and 'warehouse', for a catalog alters tables.")
    known = {field.name if options.case_sensitive else field.name.lower(): field for field in table.fields}
    changes = []
    for column in columns:
        field = known.get(column.name if options.case_sensitive else column.name.lower())
        if field is None:
            changes.append(SchemaChange.add_column(column.name, PyarrowFieldParser.to_paimon_type(column.type, True)))
            continue
        present = PyarrowFieldParser.from_paimon_type(field.type)
        if not fits(column.type, present) and fits(present, column.type) and not pa.types.is_nested(present):
            wider = PyarrowFieldParser.to_paimon_type(column.type, field.type.nullable)
            changes.append(SchemaChange.update_column_type(field.name, wider))
    if changes:
        CatalogFactory.create(dict(options.catalog)).alter_table(options.table, changes)
    return bool(changes)
