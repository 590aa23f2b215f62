"""Rows that are there in the columns of a newer schema of their table."""

from __future__ import annotations

import pyarrow as pa

from pypaimon.streaming.errors import SchemaChangedError, UnsupportedContentError
from pypaimon.streaming.files.casts import CastError
from pypaimon.streaming.files.schema_mapping import map_columns
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.model.time_zone import zone_of


def are_same_columns(names: list[str], old: TableSchema, new: TableSchema) -> bool:
    """Whether columns of these names are the same fields in two schemas."""
    if old.id == new.id:
        return True
    before, now = ({field.name: (field.id, str(field.type)) for field in each.fields} for each in (old, new))
    return all(before.get(name) == now.get(name) for name in names)


def in_schema(rows: pa.Table, old: TableSchema, new: TableSchema, wanted: pa.Schema) -> pa.Table:
    """Rows as a batch read gives them after the columns of their table have changed.

    Args:
        rows: They, in the older schema.
        old: It.
        new: The newer one.
        wanted: The columns that come out, in Arrow's types.

    Raises:
        SchemaChangedError: A value cannot be had in the new type of its column, or other columns are read.
    """
    fields = {field.name: field for field in new.fields}
    names = {field.id: field.name for field in old.fields}
    for name in wanted.names:
        field = fields.get(name)
        if field is None or names.get(field.id, rows.schema.names[0]) not in rows.schema.names:
            raise SchemaChangedError(old.id, new.id, f"a live table cannot follow column {name!r}")
    try:
        columns = map_columns(
            rows.schema, old.fields, [fields[name] for name in wanted.names], exact=False, zone=zone_of(new.options)
        )
        batches = [
            pa.RecordBatch.from_arrays([column.read(batch) for column in columns], wanted.names)
            for batch in rows.to_batches()
        ]
        return pa.Table.from_batches(batches).cast(wanted) if batches else wanted.empty_table()
    except (CastError, UnsupportedContentError, pa.ArrowInvalid) as error:
        raise SchemaChangedError(old.id, new.id, f"a live table cannot follow: {error}") from error
