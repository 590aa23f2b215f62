"""The table that a sink writes: loaded, created or widened as the options say, or refused by name."""

from __future__ import annotations

import pyarrow as pa

from pypaimon.spark.options.sink_options import SinkOptions
from pypaimon.spark.options.tables import load_table
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.maintenance.commit_maintenance import maintenance_of
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.arrow_types import arrow_type
from pypaimon.streaming.model.system_columns import ROW_KIND
from pypaimon.streaming.paimon.catalogs import CatalogFactory
from pypaimon.streaming.paimon.internals import PyarrowFieldParser, TableNotExistException
from pypaimon.streaming.paimon.write_internals import Schema, SchemaChange
from pypaimon.streaming.writing.row_layout import fits
from pypaimon.streaming.writing.writable_tables import check_writable, warn_about_gaps


def load_sink_table(options: SinkOptions) -> PaimonTable:
    """The table with the options laid over it."""
    table, view = load_table(options)
    if view is not None:
        raise StreamConfigError(f"Option 'table' = '{options.table}' names a view; a view cannot be written.")
    return PaimonTable(table, options.name)


def prepare_sink_table(options: SinkOptions, schema: pa.Schema, overwrite: bool) -> PaimonTable:
    """The table as the tasks will find it: created or widened first where the options say so. Runs on the driver."""
    columns = _without_kind(options, schema)
    if options.create_table:
        _create(options, columns)
    table = load_sink_table(options)
    if options.merge_schema and _merge(options, table, columns):
        table = load_sink_table(options)
    check_writable(table, overwrite, by_tasks=True)
    warn_about_gaps(table, maintains=options.maintains)
    if options.maintains:
        # Raises for options that it cannot parse, while nothing has been written.
        maintenance_of(table)
    return table


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


def _merge(options: SinkOptions, table: PaimonTable, columns: pa.Schema) -> bool:
    if options.table is None:
        raise StreamConfigError("Option 'merge-schema' needs 'table' and 'warehouse': a catalog alters tables.")
    known = {field.name if options.case_sensitive else field.name.lower(): field for field in table.fields}
    changes: list[SchemaChange] = []
    for column in columns:
        field = known.get(column.name if options.case_sensitive else column.name.lower())
        if field is None:
            changes.append(SchemaChange.add_column(column.name, PyarrowFieldParser.to_paimon_type(column.type, True)))
            continue
        present = arrow_type(field.type)
        if not fits(column.type, present) and fits(present, column.type) and not pa.types.is_nested(present):
            wider = PyarrowFieldParser.to_paimon_type(column.type, field.type.nullable)
            changes.append(SchemaChange.update_column_type(field.name, wider))
    if changes:
        CatalogFactory.create(dict(options.catalog)).alter_table(options.table, changes)
    return bool(changes)
